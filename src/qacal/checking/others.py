"""Further columns that tell something about whether an answer is correct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.checking.confidences import number_of
from qacal.metrics.ranking import Auroc, auroc_of_counts
from qacal.tally.arrays import Floats, is_missing

# A column with more values does not group the questions.
_MOST_LEVELS = 50
_BINS = 1_000
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
    """Gathers the relation of a column to the labels, in constant memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._levels: dict[Any, list[float]] | None = {}
        self._bins: Floats | None = np.zeros((_BINS + 1, 2))
        self._distinct: set[float] = set()
        self._is_vector = False

    @property
    def is_done(self) -> bool:
        """Whether further rows would change nothing."""
        return self._levels is None and self._bins is None

    def add(self, values: Sequence[Any], labels: Floats) -> None:
        """Add rows; unlabelled rows have NaN."""
        rows = [row for row, value in enumerate(values) if not is_missing(value)]
        present, label = [values[row] for row in rows], labels[rows]
        if not all(isinstance(value, str | int | float | np.generic) for value in present):
            self._is_vector = _is_vector(present[0])
            self._levels = self._bins = None
            return
        if self._levels is not None:
            self._add_levels(present, label, self._levels)
        if self._bins is not None:
            self._add_numbers(present, label, self._bins)

    def _add_levels(self, values: Sequence[Any], labels: Floats, levels: dict[Any, list[float]]) -> None:
        for value, label in zip(values, labels.tolist(), strict=True):
            if math.isnan(label):
                continue
            counts = levels.setdefault(value, [0.0, 0.0])
            counts[0] += 1
            counts[1] += label
            if len(levels) > _MOST_LEVELS:
                self._levels = None
                return

    def _add_numbers(self, values: Sequence[Any], labels: Floats, bins: Floats) -> None:
        numbers = [None if isinstance(value, bool) else number_of(value) for value in values]
        column = np.array(numbers, dtype=np.float64)
        if not ((column >= 0) & (column <= 1)).all():
            self._bins = None
            return
        if len(self._distinct) <= 2:
            self._distinct.update(np.unique(column).tolist())
        is_labelled = ~np.isnan(labels)
        places = np.rint(column[is_labelled] * _BINS).astype(np.int64)
        np.add.at(bins[:, 0], places, 1 - labels[is_labelled])
        np.add.at(bins[:, 1], places, labels[is_labelled])

    def use(self, columns: int) -> UsefulColumn | None:
        """Return how a fit could use the column; None if it tells nothing, or is a label.

        columns : the number of columns tested.
        """
        if self._is_vector:
            return UsefulColumn(self.name, "vectors", (f"--embedder column:{self.name}",))
        if self._bins is not None and len(self._distinct) > 2:
            auroc = auroc_of_counts(self._bins[:, 1], self._bins[:, 0])
            if auroc.low <= 0.5 or auroc.value >= _TOO_GOOD:
                return None
            return UsefulColumn(self.name, "confidence", (f"--extra-confidence {self.name}",), auroc)
        return self._groups(columns)

    def _groups(self, columns: int) -> UsefulColumn | None:
        levels = [counts for counts in (self._levels or {}).values() if counts[0] >= _ROWS_A_LEVEL]
        if len(levels) < 2:
            return None
        rows, right = np.array(levels).T
        mean = float(right.sum() / rows.sum())
        share = right / rows
        is_label = bool((np.minimum(share, 1 - share) < 1 - _TOO_GOOD).all())
        if not 0 < mean < 1 or is_label or _by_chance(rows, right, mean) * columns > _CHANCE:
            return None
        options = (f"--feature {self.name}", f"--partition column:{self.name}")
        low, high = float(share.min()), float(share.max())
        return UsefulColumn(self.name, "groups", options, values=len(self._levels or ()), low=low, high=high)


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
