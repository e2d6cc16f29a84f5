"""Further columns that tell something about whether an answer is correct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.checking.confidences import number_of
from qacal.metrics.scores import Auroc, auroc_of_counts
from qacal.tally.arrays import Floats, is_missing

# A column with more values does not group the questions.
_MOST_LEVELS = 50
# A column with more values than there are thousandths is neither groups nor a confidence.
_MOST_VALUES = 1_001
# A value with fewer labelled rows is ignored.
_ROWS_A_LEVEL = 20
# Significance level of the test; divided by the number of columns.
_CHANCE = 0.01
# A column that separates correct from wrong answers this well is itself a label.
_TOO_GOOD = 0.99
_VECTOR = 8


@dataclass(frozen=True)
class UsefulColumn:
    """A column that a fit could use.

    use : "confidence", "groups" or "vectors".
    options : the options of `qacal fit` that use it, the first of them recommended.
    auroc : of a confidence, how well it separates correct from wrong answers.
    values, low, high : of groups, their number, and the lowest and highest accuracy.
    """

    name: str
    use: str
    options: tuple[str, ...]
    auroc: Auroc | None = None
    values: int = 0
    low: float = float("nan")
    high: float = float("nan")


class OtherColumn:
    """Counts labelled rows and correct answers for each value of a column; it stops if there are too many values.

    Numbers from 0 to 1 count as thousandths.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_done = False
        self._counts: dict[Any, list[float]] = {}
        self._is_vector = False

    def add(self, values: Sequence[Any], labels: Floats) -> None:
        """Add rows; unlabelled rows have NaN."""
        for value, label in zip(values, labels.tolist(), strict=True):
            if is_missing(value):
                continue
            if not isinstance(value, str | int | float | np.generic):
                self._is_vector = _is_vector(value)
                self._stop()
                return
            if math.isnan(label):
                continue
            number = None if isinstance(value, bool) else number_of(value)
            key = value if number is None or not 0 <= number <= 1 else round(number, 3)
            counts = self._counts.setdefault(key, [0.0, 0.0])
            counts[0] += 1
            counts[1] += label
            if len(self._counts) > _MOST_VALUES:
                self._stop()
                return

    def _stop(self) -> None:
        self.is_done = True
        self._counts = {}

    def use(self, columns: int) -> UsefulColumn | None:
        """Return how a fit could use the column; None if it tells nothing, or is a label.

        columns : the number of columns tested.
        """
        if self._is_vector:
            return UsefulColumn(self.name, "vectors", (f"--embedder column:{self.name}",))
        if len(self._counts) > 2 and all(isinstance(key, float) and 0 <= key <= 1 for key in self._counts):
            rows, right = np.array([counts for _, counts in sorted(self._counts.items())]).T
            auroc = auroc_of_counts(right, rows - right)
            if auroc.low <= 0.5 or auroc.value >= _TOO_GOOD:
                return None
            return UsefulColumn(self.name, "confidence", (f"--feature {self.name}:confidence",), auroc)
        levels = [counts for counts in self._counts.values() if counts[0] >= _ROWS_A_LEVEL]
        if len(self._counts) > _MOST_LEVELS or len(levels) < 2:
            return None
        rows, right = np.array(levels).T
        mean = float(right.sum() / rows.sum())
        share = right / rows
        is_label = bool((np.minimum(share, 1 - share) < 1 - _TOO_GOOD).all())
        if not 0 < mean < 1 or is_label or _by_chance(rows, right, mean) * columns > _CHANCE:
            return None
        options = (f"--feature {self.name}", f"--partition column:{self.name}")
        low, high = float(share.min()), float(share.max())
        return UsefulColumn(self.name, "groups", options, values=len(self._counts), low=low, high=high)


def _by_chance(rows: Floats, right: Floats, mean: float) -> float:
    """Return the p-value of equal accuracy for all values (chi-squared test)."""
    from scipy import special

    statistic = float(((right - rows * mean) ** 2 / (rows * mean * (1 - mean))).sum())
    return float(special.chdtrc(len(rows) - 1, statistic))


def _is_vector(value: Any) -> bool:
    """Return whether a value is a list of numbers, as embeddings are."""
    try:
        numbers = list(value)
    except TypeError:
        return False
    return len(numbers) >= _VECTOR and all(isinstance(number, float | np.floating) for number in numbers)
