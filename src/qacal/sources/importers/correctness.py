"""From the scores of evaluations to `correct`: 0, 1, or a share in between."""

from __future__ import annotations

import math
from typing import Any

from qacal.records.columns import LABELS
from qacal.sources.importers.base import Dropped, OffScale
from qacal.sources.importers.scales import is_unit, unit

# The letters are inspect's.
_WORDS = LABELS | {"c": 1.0, "i": 0.0, "noanswer": 0.0, "p": 0.5, "partial": 0.5}

_REMEDY = "Say from which score on an answer is right: --correct-at SCORE."


def graded(value: Any, correct_at: float | None = None, source: str = "the score") -> float | Dropped:
    """Return what a score says about correctness.

    correct_at : scores from this on are right and those below wrong. Without it a number must lie in [0, 1], and one
        that does not makes all of its source useless: the worst grade of 1 to 5 would be right.
    source : what gives the scores, in words.

    >>> graded("C"), graded(True), graded(0.4), graded(7, correct_at=5)
    (1.0, 1.0, 0.4, 1.0)
    >>> graded(7)
    Dropped(why='the score is outside 0 to 1')
    >>> graded({"accuracy": 1})
    Dropped(why='the score is an object, not one value')
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        word = value.strip().lower()
        return _WORDS[word] if word in _WORDS else _number(_parsed(word), correct_at, source)
    if isinstance(value, int | float):
        return _number(_parsed(value), correct_at, source)
    return Dropped(f"the score is {'an object' if isinstance(value, dict) else 'a list'}, not one value")


def _parsed(given: str | float) -> float:
    try:
        return float(given) if "_" not in str(given) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _number(number: float, correct_at: float | None, source: str) -> float | Dropped:
    if not math.isfinite(number):
        return Dropped("the score is neither a number nor a word for right or wrong")
    if correct_at is not None:
        return float(number >= correct_at)
    if not is_unit(number):
        return Dropped("the score is outside 0 to 1", OffScale(source, number, _REMEDY))
    return unit(number)
