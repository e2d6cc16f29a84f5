"""From the scores of evaluations to `correct`: 0, 1, or a share in between."""

from __future__ import annotations

import math
from typing import Any

from qacal.importers.base import Dropped

_WORDS = {
    **dict.fromkeys(("c", "correct", "yes", "true", "pass", "passed", "right"), 1.0),
    **dict.fromkeys(("i", "incorrect", "no", "false", "fail", "failed", "wrong", "n", "noanswer"), 0.0),
    **dict.fromkeys(("p", "partial"), 0.5),
}


def graded(value: Any, correct_at: float | None = None) -> float | Dropped:
    """Return what a score says about correctness.

    correct_at : scores from this on are right and those below wrong. Without it a number must lie in [0, 1].

    >>> graded("C"), graded(True), graded(0.4), graded(7, correct_at=5)
    (1.0, 1.0, 0.4, 1.0)
    >>> graded(7)
    Dropped(why='the score is outside 0 to 1 (a threshold is given by --correct-at)')
    >>> graded({"accuracy": 1})
    Dropped(why='the score is an object, not one value')
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        word = value.strip().lower()
        return _WORDS[word] if word in _WORDS else _number(_parsed(word), correct_at)
    if isinstance(value, int | float):
        return _number(_parsed(value), correct_at)
    return Dropped(f"the score is {'an object' if isinstance(value, dict) else 'a list'}, not one value")


def _parsed(given: str | float) -> float:
    try:
        return float(given) if "_" not in str(given) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _number(number: float, correct_at: float | None) -> float | Dropped:
    if not math.isfinite(number):
        return Dropped("the score is neither a number nor a word for right or wrong")
    if correct_at is not None:
        return float(number >= correct_at)
    if not 0 <= number <= 1:
        return Dropped("the score is outside 0 to 1 (a threshold is given by --correct-at)")
    return number
