"""The words around a number: whether they leave it as it is, or make it the probability of something else.

Before a number only words that change nothing may stand. After it most may, but none that turn it round ("that I am
wrong"), bind it ("at most"), put it on another scale ("out of ten") or give it to another answer ("that it's Lyon").
"""

from __future__ import annotations

import re

_HARMLESS_WORDS = """
    a about all am an and answer approx approximately around as at be believe boxed ca can certain certainty chance
    circa close confidence confident correct correctness estimate estimated estimation extremely fairly final given
    guess high highly i i'd i'm is it it's level likelihood likely low medium moderate moderately my near of overall p
    prob probability probably quite rather rating roughly say score so stated sure that that's the there think this to
    value very with would yes
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
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
_DOUBTING = "around close fairly low medium moderate moderately near probably quite rather roughly"
_CERTAIN_WORDS = """
    absolute absolutely accurate because being certainly complete completely definite definitely entirely exact fact
    full fully highest indeed known right since surely total totally true well
"""
_SURE = "certain certainty confident high highly likely probably sure yes"
_CLUELESS_WORDS = """
    any because cannot clue complete completely do don't guessing idea just know knowledge lowest no none not nothing or
    since unknown
"""
_BESIDE = {
    0: (_HARMLESS - frozenset(_SURE.split())) | frozenset(_CLUELESS_WORDS.split()),
    1: (_HARMLESS - frozenset(_DOUBTING.split())) | frozenset(_CERTAIN_WORDS.split()),
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
_CLAIMED_WORDS = """
    a accurate am an answer being case certain certainly chance clear common commonly confident correct easy fact guess
    i i'm in indeed is it it's known likely my obvious of one probability right sure that that's the there this to true
    very was well widely
"""
_CLAIMED = frozenset(_CLAIMED_WORDS.split())
_KNOWN = frozenset().union(_CLAIMED, *_BESIDE.values())
_LONGEST_NAME = 3


def is_harmless(text: str, first: int, end: int, answer: str = "") -> bool:
    """Return whether the words and signs around numbers leave them as they are.

    first, end : the place of the first number.
    answer : what the number should be the probability of, if that is known.

    >>> is_harmless("about 0.3", 6, 9)
    True
    >>> is_harmless("0.3 that it's Lyon", 0, 3, "Paris"), is_harmless("0.3 that it's Lyon", 0, 3, "Lyon")
    (False, True)
    """
    before = (word.lower() for word in _WORD.findall(text[:first]))
    is_left_alone = _HARMFUL.search(text) is None and all(word in _HARMLESS for word in before)
    return is_left_alone and not _is_of_another(text[end:], answer)


def agrees_with_whole(text: str, number: int, answer: str = "") -> bool:
    """Return whether all words beside a bare 0 or 1 say the same as it does.

    >>> agrees_with_whole("1 (certain)", 1), agrees_with_whole("1 (low)", 1), agrees_with_whole("0, no idea", 0)
    (True, False, True)
    """
    own = _words(answer)
    is_bare = all(letter.isalnum() or letter.isspace() or letter.isascii() for letter in text)
    return is_bare and all(word in _BESIDE[number] or word in own for word in _words(text))


def is_contradicted(text: str) -> bool:
    """Return whether words beside a 1.0 say that it is little.

    >>> is_contradicted("1.0 (very low)"), is_contradicted("1.0 (very high)")
    (True, False)
    """
    return _CONTRADICTED.search(text) is not None


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _is_of_another(text: str, answer: str) -> bool:
    """Return whether what follows a number names something else than the answer, or the answer to deny it."""
    own = _words(answer)
    reason = _REASON.search(text)
    said = text[: reason.start()] if reason else text
    claims = (_words(match[1]) for match in _CLAIM.finditer(said))
    is_denied = bool(own) and re.search(rf"\bnot[ ]{re.escape(answer[:80])}", said, re.IGNORECASE) is not None
    return is_denied or _is_name(said, own) or any(not words <= _CLAIMED | own for words in claims)


def _is_name(text: str, own: set[str]) -> bool:
    """Return whether nothing but a short name follows, and not that of the answer: "0.3 (Lyon)"."""
    words = _WORD.findall(text)
    is_short = 0 < len(words) <= _LONGEST_NAME and all(word[0].isupper() for word in words)
    return is_short and not any(word.lower() in _KNOWN | own for word in words)
