"""Confidence in words: the expressions of Fagen-Ulmschneider (2015) that the prompt lists, with their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from qacal.records.columns import require_expressions
from qacal.sources.elicitation.reading.characters import plain, words
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.elicitation.reply import Malformed, Reason, malformed

EXPRESSIONS: Mapping[str, float] = MappingProxyType(
    {
        "Almost No Chance": 0.02,
        "Highly Unlikely": 0.05,
        "Chances Are Slight": 0.1,
        "Little Chance": 0.1,
        "Unlikely": 0.2,
        "Probably Not": 0.25,
        "About Even": 0.5,
        "Better Than Even": 0.6,
        "Likely": 0.7,
        "Probably": 0.7,
        "Very Good Chance": 0.8,
        "Highly Likely": 0.9,
        "Almost Certain": 0.95,
    }
)

# "Very likely" and "not likely" are other expressions, so only words that change nothing may precede one.
_HARMLESS = words("""
    a am an answer as be believe chance chances confidence consider correct description estimate feel final guess have i
    i'd i'm is it it's level likelihood my of overall probability rate say seems so that that's the there there's think
    this to with would
""")
# "Almost certain to fail": up to the next stop or reason, every word that follows must be one of these too.
_FOLLOWING = _HARMLESS | words("accurate being indeed in opinion right true very well was")
_CLAUSE = re.compile(r"[^,.;:!()\n]*?(?=[,.;:!()\n]|[ ]-|\b(?:because|since|as|given|due)\b|$)")
# Words that reverse an expression or make it a bound, anywhere after it.
_REVERSING = """
    against alternative alternatives another anything bad barely confused contrary differ different doubt doubtful
    doubts either else err erred erroneous error errors errs except fail failed failing fails failure false flawed
    hardly inaccurate incorrect instead invalid joke joking kidding lack lie lying misremember miss mistake mistaken
    mistakes neither never nil no nobody none nonsense nope nor not nothing off opposite other others otherwise rather
    risk risks risky sarcasm scarcely scratch slip uncertain uncertainty unless unlikely unsure untrue wait without
    wrong wrongly zero
"""
_REVERSED = re.compile(
    r"\?|\w+n't\b|, but\b|[\u2600-\u27bf\U0001f300-\U0001faff]|\bor (?:less|lower|worse|more|higher|better)\b"
    rf"|\b(?:{'|'.join(_REVERSING.split())})\b",
    re.IGNORECASE,
)


def read_expression(
    text: str, expressions: Mapping[str, float] = EXPRESSIONS, *, is_cut: bool = False
) -> float | Malformed:
    """Return the number of the expression in a text, if there is just one and nothing changes its meaning.

    Capitals, quotes and a sentence around it do not matter. Among expressions with the same beginning the longest
    counts, so that "Probably Not" is not "Probably". A number beside it must be the same.

    is_cut : the reply reached its limit at the end of the text: "Probably" may have become "Probably Not".

    >>> read_expression("I'd say it is highly unlikely.")
    0.05
    >>> print(read_expression("Not likely").why)
    the expression is not one of the list
    """
    numbers, pattern = _compiled(tuple(expressions.items()))
    spelled = plain(text)
    matches = list(pattern.finditer(spelled))
    if not matches:
        return malformed(Reason.UNKNOWN_EXPRESSION if spelled.strip() else Reason.NO_CONFIDENCE, text)
    if len({match.lastindex for match in matches}) > 1:
        return malformed(Reason.SEVERAL_CONFIDENCES, text)
    if is_cut and matches[-1].end() == len(spelled.rstrip(" ")):
        return malformed(Reason.CUT, text)
    if _REVERSED.search(spelled, matches[-1].end()) or not _has_harmless_words(spelled, matches):
        return malformed(Reason.UNKNOWN_EXPRESSION, text)
    number = numbers[(matches[0].lastindex or 1) - 1]
    if any(letter.isdigit() for letter in spelled) and read_probability(pattern.sub(" ", spelled)) != number:
        return malformed(Reason.SEVERAL_CONFIDENCES, text)
    return number


def _has_harmless_words(text: str, matches: list[re.Match[str]]) -> bool:
    """Return whether the words before each expression, and right after the last one, change nothing."""
    clause = _CLAUSE.match(text, matches[-1].end())
    starts = [0, *(match.end() for match in matches)]
    before = "\n".join(text[start : match.start()] for start, match in zip(starts, matches, strict=False))
    return words(before) <= _HARMLESS and words("" if clause is None else clause[0]) <= _FOLLOWING


@lru_cache(maxsize=16)
def _compiled(items: tuple[tuple[str, float], ...]) -> tuple[list[float], re.Pattern[str]]:
    """Return the numbers of expressions, and a pattern with a group for each; the longest come first."""
    require_expressions(dict(items))
    longest_first = sorted(items, key=lambda item: len(item[0]), reverse=True)
    groups = (r"[\s-]{1,3}".join(map(re.escape, re.split(r"[\s-]+", name.strip()))) for name, _ in longest_first)
    pattern = re.compile(rf"(?<![\w'-])(?:{'|'.join(f'({group})' for group in groups)})(?![\w'])", re.IGNORECASE)
    return [number for _, number in longest_first], pattern
