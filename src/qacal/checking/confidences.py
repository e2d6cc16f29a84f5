"""On which scale confidences are: 0 to 1, percents, grades, words, or several at once."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from qacal.records.columns import number_in
from qacal.tally.arrays import Floats, is_missing

_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*%?\s*")
# Up to this share of the numbers, what is off the scale is a slip; more of them are a scale of their own.
_SLIPS = 0.02
# More words than this are no words for a confidence.
_MOST_WORDS = 30


def number_of(value: Any) -> float | None:
    """Return the number that a value is, or is written as; None if it is none. A comma may be its decimal point.

    >>> number_of("0,85"), number_of("85%"), number_of(True), number_of("high")
    (0.85, 85.0, 1.0, None)
    """
    if isinstance(value, bool | int | float | Decimal | np.generic):
        try:
            number = float(value)
        except (OverflowError, ValueError, TypeError):
            return None
    elif isinstance(value, str):
        number = number_in(value.replace(",", ".") if has_comma(value) else value, most=100.0)
    else:
        return None
    return number if math.isfinite(number) else None


def has_comma(value: Any) -> bool:
    """Return whether a value is a number that is written with a decimal comma."""
    return isinstance(value, str) and _COMMA.fullmatch(value) is not None


@dataclass(frozen=True)
class Scale:
    """On which scale confidences are.

    kind : "0-1", "percent", "grades" (0 to `most`), "mixed" (fractions and percents), "logarithms", "words", "unknown";
        None without a confidence.
    low, high : the smallest and the largest number.
    most : the number that means certain.
    fractions, above : how many numbers lie between 0 and 1, and above 1.
    words : the commonest words, up to 30, and how often each occurs.
    commas : how many numbers are written with a decimal comma.
    """

    kind: str | None
    low: float
    high: float
    most: float
    fractions: int
    above: int
    words: dict[str, int]
    commas: int


def scale_of(numbers: Floats, words: Counter[str], commas: int = 0) -> Scale:
    """Return the scale that most confidences are on.

    >>> [scale_of(np.array(some), Counter()).kind for some in ([0.9, 1.0], [0, 85, 90], [7, 8, 10], [0.9, 85], [-0.1])]
    ['0-1', 'percent', 'grades', 'mixed', 'logarithms']
    """
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (math.nan, math.nan)
    fractions = int(np.count_nonzero((numbers > 0) & (numbers < 1)))
    above = int(np.count_nonzero(numbers > 1))
    kind, most = _kind(numbers, words, fractions, above)
    return Scale(kind, low, high, most, fractions, above, dict(words.most_common(_MOST_WORDS)), commas)


def _kind(numbers: Floats, words: Counter[str], fractions: int, above: int) -> tuple[str | None, float]:
    count, few = len(numbers), _SLIPS * len(numbers)
    if not count or words.total() > count:
        return ("words" if 1 < len(words) <= _MOST_WORDS else None), 1.0
    if above <= few:
        negative = int(np.count_nonzero(numbers < 0))
        return ("0-1", 1.0) if negative <= few else ("logarithms" if numbers.max() <= 0 else "unknown", 1.0)
    if count - np.count_nonzero((numbers >= 0) & (numbers <= 100)) > few:
        return "unknown", float(numbers.max())
    if fractions > few:
        return "mixed", 1.0
    highest = float(numbers[numbers <= 100].max())
    return ("percent", 100.0) if highest > 10 else ("grades", 10.0 if highest > 5 else 5.0)


def scale_of_values(values: Sequence[Any]) -> Scale:
    """Return the scale of confidences as they were written."""
    numbers = [(value, number_of(value)) for value in values if not is_missing(value)]
    words = Counter(value for value, number in numbers if number is None and isinstance(value, str))
    return scale_of(np.array([number for _, number in numbers if number is not None]), words)
