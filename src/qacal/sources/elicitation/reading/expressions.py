"""Confidence in words: the expressions of Fagen-Ulmschneider (2015) that the prompt lists, with their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from qacal.records.columns import require_expressions
from qacal.sources.elicitation.reading.characters import plain, words
from qacal.sources.elicitation.reading.numbers import changes_nothing, read_probability, unwrapped
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

# "Very likely", "not likely" and "almost certain to fail" say something else: only these words, and a reason, may be
# beside an expression.
_HARMLESS = words("""
    a am an answer be believe chance chances confidence consider correct description estimate feel final guess have i
    i'd i'm is it it's level likelihood my of overall probability rate say seems so that that's the there there's think
    this to with would
""")


def read_expression(
    text: str, expressions: Mapping[str, float] = EXPRESSIONS, *, is_cut: bool = False
) -> float | Malformed:
    """Return the number of the expression in a text, if there is just one and nothing changes its meaning.

    Capitals, quotes and a short sentence around it do not matter. Among expressions with the same beginning the longest
    counts, so that "Probably Not" is not "Probably". A number beside it must be the same.

    is_cut : the reply reached its limit at the end of the text: "Probably" may have become "Probably Not".

    >>> read_expression("I'd say it is highly unlikely.")
    0.05
    >>> print(read_expression("Not likely").why)
    the expression is not one of the list
    """
    numbers, pattern = _compiled(tuple(expressions.items()))
    spelled = unwrapped(plain(text))
    matches = list(pattern.finditer(spelled))
    if not matches:
        return malformed(Reason.UNKNOWN_EXPRESSION if spelled.strip() else Reason.NO_CONFIDENCE, text)
    if len({match.lastindex for match in matches}) > 1:
        return malformed(Reason.SEVERAL_CONFIDENCES, text)
    if is_cut and matches[-1].end() == len(spelled.rstrip(" ")):
        return malformed(Reason.CUT, text)
    number = numbers[(matches[0].lastindex or 1) - 1]
    before, after = (pattern.sub(" ", part) for part in (spelled[: matches[-1].start()], spelled[matches[-1].end() :]))
    if any(letter.isdigit() for letter in before + after):
        if read_probability(f"{before} {after}") != number:
            return malformed(Reason.SEVERAL_CONFIDENCES, text)
        before, after = (re.sub(r"[\d%/]", " ", part) for part in (before, after))
    if not changes_nothing(before, after, _HARMLESS, _HARMLESS):
        return malformed(Reason.UNKNOWN_EXPRESSION, text)
    return number


@lru_cache(maxsize=16)
def _compiled(items: tuple[tuple[str, float], ...]) -> tuple[list[float], re.Pattern[str]]:
    """Return the numbers of expressions, and a pattern with a group for each; the longest come first."""
    require_expressions(dict(items))
    longest_first = sorted(items, key=lambda item: len(item[0]), reverse=True)
    groups = (r"[\s-]{1,3}".join(map(re.escape, re.split(r"[\s-]+", name.strip()))) for name, _ in longest_first)
    pattern = re.compile(rf"(?<![\w'-])(?:{'|'.join(f'({group})' for group in groups)})(?![\w'])", re.IGNORECASE)
    return [number for _, number in longest_first], pattern
