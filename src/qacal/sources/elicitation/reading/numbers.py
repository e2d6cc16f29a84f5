r"""A probability as LLMs write it.

A number is read only if it can mean one thing. Being wrong by a factor of 10 or 100 is worse than reading nothing.

==========================================  =============  ==========================================================
written                                     read as        because
==========================================  =============  ==========================================================
``0.8``, ``.8``, ``0,8``, ``8e-1``          0.8            the scale that was asked for
``0``, ``1``, ``1.0``                       0, 1, 1        the same; nobody writes one percent as ``1`` and no more
``80%``, ``80 percent``, ``80,5%``          0.8, 0.805     it says so
``1%``, ``1.5%``                            0.01, 0.015    it says so, and no probability is 1.5
``80``, ``95.5``, ``100`` (above 10)        0.8, 0.955, 1  no other scale in use goes beyond 10
``8/10``, ``4 out of 5``, ``0.8/1``         0.8            it says so
``0.9 (90%)``, ``~0.9``, ``<0.9>``          0.9            all numbers agree
``5``, ``8.5``, ``10``, ``1.5``             --             out of 10, or percent, or a slip
``0.95%``, ``1.0%``, ``0.8/10``             --             the sign or the number is a slip: 0.0095 or 0.95
``0.``, ``08``                              --             a digit or a point may be missing
``150%``, ``-0.2``, ``101``                 --             outside 0 to 1
``0.7-0.9``, ``0.9 or 0.5``, ``0.9±0.1``    --             several numbers, or a sum
``>0.9``, ``at least 0.9``, ``0.9+``        --             a bound
``1 in a million``, ``50/50``, ``40/60``    --             a share in words, and odds
``1,000``, ``1:4``, ``½``, ``10^-2``        --             other notations
``0.3 that it's Lyon``, ``0.9 (GPT-4)``     --             words and digits that may change the number
==========================================  =============  ==========================================================

Every word, sign and digit has to be one that is known to leave the number as it is: "about", "my confidence is",
"chance that it is correct". A reason may follow: "because it is the capital". A bare 0 or 1 may be a mark out of ten:
beside it there may be fewer words, and no reason.
"""

from __future__ import annotations

import re
from decimal import Decimal

from qacal.sources.elicitation.reading.characters import WORD, plain, words
from qacal.sources.elicitation.reply import Malformed, Reason, malformed

# Nobody writes a probability with more digits.
_LONGEST = 24
# Words of a sentence that states a number; they say nothing about its size.
_STATING = words("""
    a am an be boxed confidence correct estimate final i i'd i'm is it it's level likelihood my of overall p prob
    probability say score that the there this to value with would
""")
_BEFORE = _STATING | words("about approx approximately around at certain confident likely roughly sure")
_AFTER = words("""
    a am certain certainty chance confidence confident correct i i'm is it it's likelihood likely of or probability
    right so sure that this true
""")
# A reason may have any words, except those that reverse or bound a confidence, change its scale, or take it back.
_REASON = re.compile(r"\b(?:because|since|as|given|due|based)\b", re.IGNORECASE)
_CHANGING = re.compile(
    r"\w+n't\b|, but\b|\b(?:against|alternativ\w*|another|anything|at (?:best|first|least|most)|bad|barely|basis|before"
    r"|bps|confused|contrary|differ\w*|doubled|doubt\w*|either|else|err|erred|erroneous|errors?|errs|except|fail\w*"
    r"|false|flawed|guess\w*|halved|hardly|hundred\w*|inaccurate|incorrect|initially|instead|invalid|joke|joking"
    r"|kidding|lack|lie|little|lowe?s?t?|lying|max|maximum|mille|million\w*|billion\w*|min|minimal|minimum|minus"
    r"|misremember|miss|mistak\w*|nah|neither|never|nil|no|nobody|none|nonsense|nope|nor|not|nothing|odds|off|opposite"
    r"|or|others?|otherwise|out of|pct|per|per ?cent\w*|plus|poor|previously|rather|risk\w*|sarcasm|scale|scarcely"
    r"|scratch|slip|squared|ten|tenths?|thousand\w*|times|uncertain\w*|unless|unlikely|unsure|untrue|versus|vs|wait|weak"
    r"|without|worst|wrong|wrongly|zero)\b",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"\b(?:my|the|this) (?:guess|answer)\b", re.IGNORECASE)
_SIGNS = frozenset(" \n()[]{}*_`\"'$|;~=\\.,:!")
_BULLET = re.compile(r"\A\s*-[ ]")
_PRODUCT = re.compile(r"\d%?[ ]{0,3}\*{1,4}[ ]{0,3}\.?\d")
_WRAPPED = re.compile(r"<([^<>]*)>")
_PERCENT = re.compile(r"(?<=\d)[ ]{0,3}(?:\\?%|(?:per ?cent|percentage|pct)\b)", re.IGNORECASE)
_RATIO = re.compile(r"(?<=\d)[ ]{0,3}(?:/|\bin\b|\(?\bout of\b)[ ]{0,3}(?=[\d.])", re.IGNORECASE)
_CLUMP = re.compile(r"[^\s()\[\]{}<>*_`\"'$|;~=\\]+")
# Scales that LLMs use for shares: "80 in 2020" is not one.
_SCALES = frozenset({*range(1, 21), 25, 30, 40, 50, *(10**power for power in range(2, 7))})
_NUMBER = r"(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+"
_BARE = re.compile(rf"\+?({_NUMBER})")
_COMMA = re.compile(r"(0,\d+|1,0{1,2})")
_SCIENTIFIC = re.compile(r"(\d(?:\.\d+)?e[+-]?\d{1,2})", re.IGNORECASE)
_PERCENTS = re.compile(rf"({_NUMBER}|[1-9]\d{{0,2}},\d{{1,2}})%")
_FRACTION = re.compile(rf"({_NUMBER})/({_NUMBER})")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)?|[.,]\d+")


def read_probability(text: str, *, is_cut: bool = False) -> float | Malformed:
    """Return the probability that a text states, if it states one and can mean nothing else.

    is_cut : the reply reached its limit at the end of the text, so a number there may lack digits.

    >>> read_probability("about 80%"), read_probability("9/10"), read_probability("0.9 (90%)")
    (0.8, 0.9, 0.9)
    >>> print(read_probability("0.95%").why)
    the number can be read in several ways
    """
    value = _value(plain(text), is_cut)
    return malformed(value, text) if isinstance(value, Reason) else float(value)


def scale_of(text: str) -> int | None:
    """Return the upper end of the scale of a text's numbers, 1 or 100; None if both occur, all are 0, or none is there.

    >>> scale_of("1"), scale_of("1%"), scale_of("1/10"), scale_of("0.9 (90%)")
    (1, 100, 100, None)
    """
    scales = set()
    for clump in _clumps(_with_signs(plain(text))):
        numbers = [Decimal(part[:_LONGEST].replace(",", ".")) for part in _DIGITS.findall(clump[0])]
        if _SCIENTIFIC.fullmatch(clump[0]):
            scales.add(1)
        elif any(numbers):
            scales.add(100 if "%" in clump[0] or max(numbers) > 1 else 1)
    return scales.pop() if len(scales) == 1 else None


def changes_nothing(before: str, after: str, may_precede: frozenset[str], may_follow: frozenset[str]) -> bool:
    """Return whether the words and signs around a confidence leave it as it is; a reason may follow in other words.

    >>> known = words("correct is it")
    >>> [changes_nothing("it is", after, known, known) for after in ("(correct)", "?", "since all say so", "as I err")]
    [True, False, True, False]
    """
    reason = _REASON.search(after)
    stated, explained = (after[: reason.start()], after[reason.start() :]) if reason else (after, "")
    has_known_words = words(before) <= may_precede and words(stated) <= may_follow and not _CHANGING.search(explained)
    return has_known_words and _SIGNS.issuperset(WORD.sub("", f"{before}{stated}{explained.replace('-', ' ')}"))


def unwrapped(text: str) -> str:
    """Return the text with round brackets for angle brackets, which LLMs copy from the prompt."""
    return _WRAPPED.sub(r"(\1)", text)


def _with_signs(text: str) -> str:
    """Return the text with signs instead of words for percents and shares."""
    return _RATIO.sub("/", _PERCENT.sub("%", unwrapped(text)))


def _clumps(text: str) -> list[re.Match[str]]:
    """Return the matches of the numbers, each with all that is written together with it."""
    return [clump for clump in _CLUMP.finditer(text) if any(letter.isdigit() for letter in clump[0])]


def _value(text: str, is_cut: bool) -> Decimal | Reason:
    # A fraction in one character, a superscript, a digit of another script.
    if any(letter.isnumeric() and not letter.isascii() for letter in text):
        return Reason.UNCLEAR_NUMBER
    if not any(letter.isdigit() for letter in text):
        return Reason.NO_CONFIDENCE
    if is_cut and (text[-1].isdigit() or text[-1] in ".,"):
        return Reason.CUT
    spelled = _ANSWER.sub("it", _with_signs(_BULLET.sub(" ", text, count=1)))
    clumps = _clumps(spelled)
    ends = [*(clump.start() for clump in clumps[1:]), len(spelled)]
    before = spelled[: clumps[0].start()]
    after = " ".join(spelled[clump.end() : end] for clump, end in zip(clumps, ends, strict=True))
    is_mark = clumps[0][0].rstrip(".,:!") in ("0", "1")
    may_precede, may_follow = (_STATING, _STATING) if is_mark else (_BEFORE, _AFTER)
    is_clear = changes_nothing(before, after, may_precede, may_follow) and not (is_mark and _REASON.search(after))
    if not is_clear or _PRODUCT.search(spelled):
        return Reason.UNCLEAR_NUMBER
    first, *others = (_meaning(clump) for clump in clumps)
    if isinstance(first, Reason):
        return first
    for value in others:
        if isinstance(value, Reason):
            return value
        # Two thirds and 0.67 are one number; 0.001 and 0.005 are two.
        if abs(value - first) > min(Decimal("0.005"), max(value, first) / 50):
            return Reason.SEVERAL_CONFIDENCES
    return first


def _meaning(clump: re.Match[str]) -> Decimal | Reason:
    """Return the meaning of one number."""
    written = clump[0].rstrip(".,:!")
    if len(written) > _LONGEST or (written == "0" and clump[0].startswith("0.")):
        return Reason.UNCLEAR_NUMBER
    # "80 points" and "1 chance in a hundred" are counts.
    if clump[0].isdecimal() and re.match(r"[ ]{0,3}[^\W\d_]", clump.string[clump.end() : clump.end() + 4]):
        return Reason.UNCLEAR_NUMBER
    if written.startswith("-"):
        return Reason.OUT_OF_RANGE
    if match := _PERCENTS.fullmatch(written):
        number = Decimal(match[1].replace(",", "."))
        is_slip = 0 < number < 1 or (number == 1 and match[1] != "1")
        return Reason.UNCLEAR_NUMBER if is_slip else _in_range(number / 100)
    if match := _FRACTION.fullmatch(written):
        return _fraction(match[1], match[2])
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
