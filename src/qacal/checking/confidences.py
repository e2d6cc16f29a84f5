"""The scale of confidences: 0 to 1, percents, grades, words, or a mixture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.records.columns import parse_number
from qacal.tally.arrays import Floats, is_missing

# Up to this share of numbers off the scale are slips; more of them are another scale.
_SLIPS = 0.02
# A column with more different words is not a confidence in words.
_MOST_WORDS = 30


def number_of(value: Any) -> float | None:
    """Return a value, or the text of a number, as a finite number; None if it is not one.

    >>> number_of("0,85"), number_of("85%"), number_of(True), number_of("high")
    (0.85, 0.85, 1.0, None)
    """
    number = parse_number(value)
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Scale:
    """The scale of confidences.

    kind : "0-1", "percent", "grades" (0 to `most`), "mixed" (fractions and percents), "logarithms", "words", "unknown";
        None without a confidence.
    low, high : the smallest and the largest number.
    most : the number for certain.
    fractions, above : counts of numbers between 0 and 1, and above 1.
    words : the most frequent words, up to 30, with their counts.
    """

    kind: str | None
    low: float
    high: float
    most: float
    fractions: int
    above: int
    words: dict[str, int]


def scale_of(numbers: Floats, words: Counter[str]) -> Scale:
    """Return the scale of most confidences.

    >>> [scale_of(np.array(some), Counter()).kind for some in ([0.9, 1.0], [0, 85, 90], [7, 8, 10], [0.9, 85], [-0.1])]
    ['0-1', 'percent', 'grades', 'mixed', 'logarithms']
    """
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (math.nan, math.nan)
    fractions = int(np.count_nonzero((numbers > 0) & (numbers < 1)))
    above = int(np.count_nonzero(numbers > 1))
    kind, most = _kind(numbers, words, fractions, above)
    return Scale(kind, low, high, most, fractions, above, dict(words.most_common(_MOST_WORDS)))


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
    """Return the scale of a column of confidences."""
    numbers = [(value, number_of(value)) for value in values if not is_missing(value)]
    words = Counter(value for value, number in numbers if number is None and isinstance(value, str))
    return scale_of(np.array([number for _, number in numbers if number is not None]), words)
