r"""A probability as LLMs write it.

A number is read only if it can mean one thing. Being wrong by a factor of 10 or 100 is worse than reading nothing.

==========================================  =============  ==========================================================
written                                     read as        because
==========================================  =============  ==========================================================
``0.8``, ``.8``, ``0,8``, ``8e-1``          0.8            the scale that was asked for
``0``, ``1``, ``1.0``                       0, 1, 1        the same; nobody writes one percent as ``1`` and no more
``1 (certain)``, ``0, no idea``             1, 0           the words say the same
``80%``, ``80 percent``, ``80,5%``          0.8, 0.805     it says so
``1%``, ``1.5%``                            0.01, 0.015    it says so, and no probability is 1.5
``80``, ``95.5``, ``100`` (above 10)        0.8, 0.955, 1  no other scale in use goes beyond 10
``8/10``, ``4 out of 5``, ``0.8/1``         0.8            it says so
``0.9 (90%)``, ``~0.9``, ``<0.9>``          0.9            all numbers agree
``1 (low)``, ``1 as a percentage``          --             out of 10, or percent
``5``, ``8.5``, ``10``, ``1.5``             --             out of 10, or percent, or a slip
``0.95%``, ``1.0%``, ``0.8/10``             --             the sign or the number is a slip: 0.0095 or 0.95
``0.``, ``08``                              --             a digit or a point may be missing
``150%``, ``-0.2``, ``101``                 --             outside 0 to 1
``0.7-0.9``, ``0.9 or 0.5``, ``0.9±0.1``    --             several numbers, or a sum
``>0.9``, ``at least 0.9``, ``0.9+``        --             a bound
``1 in a million``, ``50/50``, ``40/60``    --             a share in words, and odds
``1,000``, ``1:4``, ``½``, ``10^-2``        --             other notations
``0.3 that it's Lyon``, ``0.3 otherwise``   --             the probability of something else
==========================================  =============  ==========================================================

Words may follow a number; before it only words that leave it as it is ("about", "my confidence is"). Every digit has to
belong to a number that is understood: ``0.9 (GPT-4)`` is not read.
"""

from __future__ import annotations

import re
from decimal import Decimal

from qacal.sources.elicitation.reading.characters import WORD, plain, words
from qacal.sources.elicitation.reply import Malformed, Reason, malformed

# Nobody writes a probability with more digits.
_LONGEST = 24
# A whole number may be followed by these; "1 in a million", "1 per mille" and "80 points" are something else.
_FOLLOWING = words("""
    and as based because but certain certainty confidence confident correct due for given i it meaning my or since so
    sure that the this which with
""")
# These may follow a decimal, which is less often a count; but "0.5 oz" and "0.9 ppm" exist.
_FOLLOWING_DECIMAL = _FOLLOWING | words("""
    a absolutely according although am an believe chance clearly definitely depending extremely fairly good guess high
    highly however if indeed is just likelihood likely low maybe medium moderate not of off overall perhaps pretty prob
    probability probable probably quite rather really reasonably relatively right still strong though to true value very
    well when while would yes
""")
_WRAPPED = re.compile(r"<([^<>]*)>")
_PERCENT = re.compile(r"(?<=\d)[ ]{0,3}(?:\\?%|(?:per ?cent|percentage|pct)\b)", re.IGNORECASE)
_RATIO = re.compile(r"(?<=\d)[ ]{0,3}(?:/|\bin\b|\(?\bout of\b)[ ]{0,3}(?=[\d.])", re.IGNORECASE)
_CLUMP = re.compile(r"[^\s()\[\]{}<>*_`\"'$|;~=\\]+")
_NEXT_WORD = re.compile(r"[ ]{0,3}([^\W\d_]+)")
# Scales that LLMs use for shares: "80 in 2020" is not one.
_SCALES = frozenset({*range(1, 21), 25, 30, 40, 50, *(10**power for power in range(2, 7))})
_NUMBER = r"(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+"
_BARE = re.compile(rf"\+?({_NUMBER})")
_COMMA = re.compile(r"(0,\d+|1,0{1,2})")
_SCIENTIFIC = re.compile(r"(\d(?:\.\d+)?e[+-]?\d{1,2})", re.IGNORECASE)
_PERCENTS = re.compile(rf"({_NUMBER}|[1-9]\d{{0,2}},\d{{1,2}})%")
_FRACTION = re.compile(rf"({_NUMBER})/({_NUMBER})")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)?|[.,]\d+")


def read_probability(text: str, *, is_cut: bool = False, answer: str = "") -> float | Malformed:
    """Return the probability that a text states, if it states one and can mean nothing else.

    is_cut : the reply reached its limit at the end of the text, so a number there may lack digits.
    answer : the answer that the probability is about; "0.9 that it is Paris" is read only if this is Paris.

    >>> read_probability("about 80%"), read_probability("9/10"), read_probability("0.9 (90%)")
    (0.8, 0.9, 0.9)
    >>> print(read_probability("0.95%").why)
    the number can be read in several ways
    """
    value = _value(plain(text), is_cut, plain(answer))
    return malformed(value, text) if isinstance(value, Reason) else float(value)


def scale_of(text: str) -> int | None:
    """Return the upper end of the scale of a text's numbers, 1 or 100; None if both occur, all are 0, or none is there.

    >>> scale_of("1"), scale_of("1%"), scale_of("1/10"), scale_of("0.9 (90%)")
    (1, 100, 100, None)
    """
    scales = set()
    for clump in _clumps(plain(text))[1]:
        numbers = [Decimal(part[:_LONGEST].replace(",", ".")) for part in _DIGITS.findall(clump[0])]
        if _SCIENTIFIC.fullmatch(clump[0]):
            scales.add(1)
        elif any(numbers):
            scales.add(100 if "%" in clump[0] or max(numbers) > 1 else 1)
    return scales.pop() if len(scales) == 1 else None


def _clumps(text: str) -> tuple[str, list[re.Match[str]]]:
    """Return the text with signs instead of words for percents and shares, and the matches of its numbers."""
    spelled = _RATIO.sub("/", _PERCENT.sub("%", _WRAPPED.sub(r"(\1)", text)))
    return spelled, [clump for clump in _CLUMP.finditer(spelled) if any(letter.isdigit() for letter in clump[0])]


def _value(text: str, is_cut: bool, answer: str) -> Decimal | Reason:
    # A fraction in one character, a superscript, a Roman numeral.
    if not text.isascii() and any(letter.isnumeric() and not letter.isdecimal() for letter in text):
        return Reason.UNCLEAR_NUMBER
    if not any(letter.isdigit() for letter in text):
        return Reason.NO_CONFIDENCE
    if is_cut and (text[-1].isdigit() or text[-1] in ".,"):
        return Reason.CUT
    spelled, clumps = _clumps(text)
    start, end = clumps[0].span()
    is_changed = _HARMFUL.search(spelled) is not None or not words(spelled[:start]) <= _HARMLESS
    if is_changed or _is_of_another(spelled[end:], answer) or _may_be_mark(spelled, clumps[0][0], answer):
        return Reason.UNCLEAR_NUMBER
    first, *others = (_meaning(clump[0], _NEXT_WORD.match(spelled, clump.end())) for clump in clumps)
    if isinstance(first, Reason):
        return first
    for value in others:
        if isinstance(value, Reason):
            return value
        # Two thirds and 0.67 are one number; 0.001 and 0.005 are two.
        if abs(value - first) > min(Decimal("0.005"), max(value, first) / 50):
            return Reason.SEVERAL_CONFIDENCES
    return first


def _meaning(clump: str, following: re.Match[str] | None) -> Decimal | Reason:
    """Return the meaning of one number, from it and the word that follows it."""
    written = clump.rstrip(".,:!?")
    if len(written) > _LONGEST or (written == "0" and clump.startswith("0.")):
        return Reason.UNCLEAR_NUMBER
    if written.startswith("-"):
        return Reason.OUT_OF_RANGE
    if match := _PERCENTS.fullmatch(written):
        number = Decimal(match[1].replace(",", "."))
        is_slip = 0 < number < 1 or (number == 1 and match[1] != "1")
        return Reason.UNCLEAR_NUMBER if is_slip else _in_range(number / 100)
    if match := _FRACTION.fullmatch(written):
        return _fraction(match[1], match[2])
    may_follow = _FOLLOWING if clump.isdecimal() else _FOLLOWING_DECIMAL
    if following is not None and clump == written and following[1].lower() not in may_follow:
        return Reason.UNCLEAR_NUMBER
    if match := _SCIENTIFIC.fullmatch(written):
        return _in_range(Decimal(match[1]))
    if match := _COMMA.fullmatch(written):
        return Decimal(match[1].replace(",", "."))
    if match := _BARE.fullmatch(written):
        number = Decimal(match[1])
        return number if number <= 1 else Reason.UNCLEAR_NUMBER if number <= 10 else _in_range(number / 100)
    return Reason.UNCLEAR_NUMBER


def _fraction(part: str, whole: str) -> Decimal | Reason:
    share, scale = Decimal(part), Decimal(whole)
    if scale not in _SCALES:
        return Reason.UNCLEAR_NUMBER
    # "50/50" does not mean certainty, and "40/60" not two thirds.
    is_split = share > 0 and share + scale == 100
    is_slip = is_split or ("." in part and 0 < share <= 1 < scale)
    return Reason.UNCLEAR_NUMBER if is_slip else _in_range(share / scale)


def _in_range(number: Decimal) -> Decimal | Reason:
    return number if 0 <= number <= 1 else Reason.OUT_OF_RANGE


# The words around a number. Before it, only words that change nothing are allowed. After it most words are, but none
# that reverse it ("that I am wrong"), bound it ("at most"), put it on another scale ("out of ten") or give it to
# another answer ("that it's Lyon").

_HARMLESS = words("""
    a about all am an and answer approx approximately around as at be believe boxed ca can certain certainty chance
    circa close confidence confident correct correctness estimate estimated estimation extremely fairly final given
    guess high highly i i'd i'm is it it's level likelihood likely low medium moderate moderately my near of overall p
    prob probability probably quite rather rating roughly say score so stated sure that that's the there think this to
    value very with would yes
""")
# What makes a number a bound, a part of a sum, a share of something, or the chance of being wrong.
_HARMFUL = re.compile(
    r"[<>±‰‱]|(?<!\d)%|-[*_`\"'(\[$~]{1,4}\.?\d"
    r"|\d[%*_`\"')\]]{0,4}[ ]{0,3}(?:\+|[-×^][ ]{0,3}[*_`\"'(\[~]{0,4}\.?\d)|\d%?[ ]{0,3}\*[ ]{0,3}\.?\d"
    r"|\b(?:per ?cents?|percentages?|pct|bps|basis|out of|scale|odds|max|maximum|min|minimum)\b"
    r"|\b(?:or|and)[ ](?:more|greater|higher|above|over|up|less|lower|below|fewer|under)\b"
    r"|\bat[ ](?:most|least|best|worst)\b|\b(?:hundred|thousand|million|billion|tenth|hundredth|thousandth)s?\b"
    r"|\b(?:wrong|incorrect|inaccurate|false|untrue|mistaken?|mistakes|err|erred|errors?|doubts?|uncertainty|risks?)\b"
    r"|\b(?:fails?|failure|off(?![ ]the[ ]top)|instead|another|others?|otherwise|else|alternatives?|alternatively)\b"
    r"|\bno\b(?![ ](?:idea|clue|knowledge))|\b(?:nope|nah|against|vs|versus|hardly|barely|scarcely|nonsense|kidding)\b"
    r"|\b(?:squared|halved|doubled|times|plus|minus|previously|initially|before|at[ ]first|worst|per|mille)\b"
    r"|\d%?[ ]{0,3}(?:not[ ](?:sure|certain|confident)|unsure|uncertain|unlikely)\b"
    r"|\b(?:isn|wasn|aren|won|wouldn)'?t\b|\bnot[ ](?:be|being|the|it|my|this|correct|right|true|accurate)\b",
    re.IGNORECASE,
)
# A bare 1 is the lowest mark as often as the highest number, so all words beside it must speak of certainty; beside a
# bare 0, of none.
_BESIDE = {
    0: _HARMLESS - words("certain certainty confident high highly likely probably sure yes")
    | words("""
        any because cannot clue complete completely do don't guessing idea just know knowledge lowest no none not
        nothing or since unknown
    """),
    1: _HARMLESS - words("around close fairly low medium moderate moderately near probably quite rather roughly")
    | words("""
        absolute absolutely accurate because being certainly complete completely definite definitely entirely exact fact
        full fully highest indeed known right since surely total totally true well
    """),
}
_CONTRADICTED = re.compile(
    r"\?|(?<!my[ ])(?<!the[ ])(?<!this[ ])\bguess(?:ing)?\b(?![ ]?[:=])"
    r"|\b(?:low|lowest|unsure|uncertain|unlikely|bad|weak|poor|minimal|little)\b"
    r"|\bnot[ ](?:very[ ]|so[ ]|at[ ]all[ ])?(?:confident|sure|certain)\b",
    re.IGNORECASE,
)
# What the number is the probability of; a reason ("because it is the capital") is no such clause.
_CLAIM = re.compile(
    r"\b(?:that|it[ ](?:is|was)|it's|being|for|answer[ ]is|favou?r[ ]of)\b([^,.;\n]{0,80})", re.IGNORECASE
)
_REASON = re.compile(r"\b(?:because|since|as|given|so|due|based|meaning|which|and|but)\b", re.IGNORECASE)
_CLAIMED = words("""
    a accurate am an answer being case certain certainly chance clear common commonly confident correct easy fact guess
    i i'm in indeed is it it's known likely my obvious of one probability right sure that that's the there this to true
    very was well widely
""")
_KNOWN = _CLAIMED.union(*_BESIDE.values())


def _may_be_mark(text: str, clump: str, answer: str) -> bool:
    """Return whether a 0 or 1 may be a mark, because the words beside it do not agree with it."""
    written = clump.rstrip(".,:!?")
    if written in ("0", "1"):
        is_bare = all(letter.isalnum() or letter.isspace() or letter.isascii() for letter in text)
        if not is_bare or not words(text) <= _BESIDE[int(written)] | words(answer):
            return True
    return re.fullmatch(r"1(?:[.,]0+)?", written) is not None and _CONTRADICTED.search(text) is not None


def _is_of_another(text: str, answer: str) -> bool:
    """Return whether the words after a number name another answer, or deny the answer."""
    answer_words = words(answer)
    reason = _REASON.search(text)
    clause = text[: reason.start()] if reason else text
    if answer_words and re.search(rf"\bnot[ ]{re.escape(answer[:80])}", clause, re.IGNORECASE):
        return True
    # Only a short name follows, and not that of the answer: "0.3 (Lyon)".
    names = WORD.findall(clause)
    is_name = 0 < len(names) <= 3 and all(name[0].isupper() for name in names)
    if is_name and words(clause).isdisjoint(_KNOWN | answer_words):
        return True
    return any(not words(claim[1]) <= _CLAIMED | answer_words for claim in _CLAIM.finditer(clause))
