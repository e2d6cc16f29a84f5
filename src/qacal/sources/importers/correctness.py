"""From the scores of an evaluation to `correct`: 0, 1, or a share in between."""

from __future__ import annotations

import math
from typing import Any

from qacal.records.columns import LABELS
from qacal.sources.importers.base import Dropped, OffScale
from qacal.sources.importers.confidences import bare_number, is_unit, unit

# The letters are inspect's.
_WORDS = LABELS | {"c": 1.0, "i": 0.0, "noanswer": 0.0, "p": 0.5, "partial": 0.5}

_REMEDY = "Say from which score on an answer is right: --correct-at SCORE."


def graded(value: Any, correct_at: float | None = None, source: str = "the score") -> float | Dropped:
    """Return the correctness that a score means.

    correct_at : scores from this on are correct, those below wrong. By default a number must lie in [0, 1], and one
        that does not makes the whole source useless: the worst grade of 1 to 5 would be correct.
    source : where the scores come from, in words.

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
        if word in _WORDS:
            return _WORDS[word]
        value = word
    elif not isinstance(value, int | float):
        return Dropped(f"the score is {'an object' if isinstance(value, dict) else 'a list'}, not one value")
    number = bare_number(value)

    if not math.isfinite(number):
        return Dropped("the score is neither a number nor a word for right or wrong")
    if correct_at is not None:
        return float(number >= correct_at)
    if not is_unit(number):
        return Dropped("the score is outside 0 to 1", OffScale(source, number, _REMEDY))
    return unit(number)
