"""What to expect of each threshold, from other rows: where to start testing, and how many rows are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, log, nan
from typing import Any

import numpy as np

from qacal.calibrators.base import expit
from qacal.calibrators.platt import fit_logistic
from qacal.metrics.selective import accepted_sums
from qacal.tally.arrays import Floats
from qacal.tally.bins import group_runs
from qacal.tally.tally import Tally
from qacal.thresholds.curve import ThresholdCurve, binomial_tail, relative_entropy

# At the start, expect this many times the rows that can show anything: there may be fewer.
_SLACK = 1.25
# In the forecast of a group, all rows together count as this many rows.
_SHARED_ROWS = 20.0
_POWER = 0.8
# With fewer accepted rows, the number of rows needed cannot be estimated.
_FEWEST_SEEN = 20


@dataclass(frozen=True, eq=False)
class Forecast:
    """Scores of other rows, in rising order: how many rows have each, and how many of them are correct.

    Only shares and accuracies matter, not the number of rows.

    >>> seen = Forecast(np.array([0.6, 0.9]), np.array([50.0, 50.0]), np.array([30.0, 48.0]))
    >>> seen.start(np.array([0.6, 0.9, 1.0]), 200, 0.9, 0.1)  # 0.6 accepts too many wrong answers, 1.0 accepts none
    1
    """

    score: Floats
    rows: Floats
    right: Floats

    def smoothed(self) -> Forecast:
        """Return the same rows with the accuracies of a logistic curve, which is better with few rows."""
        if not len(self.score):
            return self
        intercept, slope = fit_logistic(self.score, self.rows, self.right)
        return Forecast(self.score, self.rows, self.rows * expit(intercept + slope * self.score))

    def within(self, everywhere: Forecast) -> Forecast:
        """Return the forecast of this group, shrunk towards the forecast of all rows."""
        share = _SHARED_ROWS / max(float(everywhere.rows.sum()), 1e-300)
        score = np.concatenate([self.score, everywhere.score])
        order = np.argsort(score, kind="stable")
        rows = np.concatenate([self.rows, everywhere.rows * share])
        right = np.concatenate([self.right, everywhere.right * share])
        return Forecast(score[order], rows[order], right[order])

    def start(self, candidates: Floats, rows: int, accuracy: float, alpha: float) -> int:
        """Return the index of the candidate with the strongest expected evidence from `rows` rows."""
        seen, right = accepted_sums(self.score, candidates, self.rows, self.right)
        expected = rows * seen / max(float(self.rows.sum()), 1e-300)
        has_enough = expected >= _SLACK * fewest_rows(accuracy, alpha)
        if not has_enough.any():
            return 0
        mean = right / np.maximum(seen, 1e-300)
        evidence = np.sign(mean - accuracy) * expected * relative_entropy(mean, accuracy)
        evidence = np.where(has_enough, evidence, -np.inf)
        return int(np.flatnonzero(evidence == evidence.max())[-1])


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What to expect of all rows, and of each known group.

    >>> others = Tally.of([0.6, 0.9, 0.9], [0, 1, 1], groups=["law", "law", "art"])
    >>> Forecasts.of(others).groups["law"].rows
    array([1., 1.])
    """

    everywhere: Forecast
    groups: Mapping[Any, Forecast]

    @staticmethod
    def of(tally: Tally) -> Forecasts:
        """Return the forecasts from a tally of other rows."""
        everywhere = cells_of(tally.pooled()).get(None, NOTHING).smoothed()
        return Forecasts(everywhere, {} if tally.grouping is None else cells_of(tally))

    def expected(self, group: Any) -> Forecast:
        """Return the forecast of a group, or of all rows for None."""
        if group is None:
            return self.everywhere
        return self.groups.get(group, NOTHING).within(self.everywhere)


NOTHING = Forecast(np.empty(0), np.empty(0), np.empty(0))
"""The cells of no rows."""


def cells_of(tally: Tally) -> dict[Any, Forecast]:
    """Return the cells of each group; under None if the tally has no groups."""
    tally = tally.without_blocks().without_ties()
    column = tally.grouping
    out = {}
    for code, first, last in zip(*(bound.tolist() for bound in group_runs(tally)), strict=True) if len(tally) else ():
        if column is None or code >= 0:
            name = None if column is None else column.label(code)
            rows = tally.rows[first:last].astype(np.float64)
            out[name] = Forecast(tally.confidence[first:last], rows, tally.wt[first:last])
    return out


def fewest_rows(accuracy: float, alpha: float) -> int:
    """Return the least k with accuracy^k <= alpha: fewer accepted rows show nothing, even if all are correct.

    >>> fewest_rows(0.9, 0.1), fewest_rows(0.95, 0.05)
    (22, 59)
    """
    return ceil(log(alpha) / log(accuracy) - 1e-9)


def rows_needed(curve: ThresholdCurve, accuracy: float) -> float:
    """Return an estimate of how many rows would certify some threshold in four of five cases.

    Infinity if no threshold reaches the target; NaN if only thresholds that accept a few rows do. The estimate uses the
    shares and accuracies of the curve, with one more row at the target accuracy: 20 correct answers of 20 do not mean
    an accuracy of 1.
    """
    from scipy import special

    means = (curve.right + accuracy) / (curve.accepted + 1)
    # A smaller excess may be rounding, and would need billions of rows.
    able = (curve.accepted > 0) & (means > accuracy + 1e-5)
    if not able.any():
        return inf if (curve.accepted >= _FEWEST_SEEN).any() else nan
    able &= curve.accepted >= _FEWEST_SEEN
    if not able.any():
        return nan
    mean = means[able]
    noise = np.sqrt(accuracy * (1 - accuracy)) * special.ndtri(1 - curve.alpha)
    spread = noise + np.sqrt(mean * (1 - mean)) * special.ndtri(_POWER)
    accepted = np.maximum((spread / (mean - accuracy)) ** 2, fewest_rows(accuracy, curve.alpha))
    best = int(np.argmin(accepted / curve.coverage[able]))
    exact = _accepted_needed(float(accepted[best]), float(mean[best]), accuracy, curve.alpha)
    return ceil(exact / float(curve.coverage[able][best]))


def _accepted_needed(about: float, mean: float, accuracy: float, alpha: float) -> int:
    """Return the exact number of accepted rows, near an approximate one."""
    from scipy import special

    rows = np.unique(np.maximum(np.ceil(about * np.geomspace(0.6, 1.7, 33)), fewest_rows(accuracy, alpha)))
    # The fewest correct answers that pass the test: one more than the least c with P(Bin <= c) >= 1 - alpha.
    passing = np.minimum(np.ceil(special.bdtrik(1 - alpha, rows, accuracy)) + 1, rows)
    power = binomial_tail(passing, rows, mean)
    return int(rows[np.argmax(power >= _POWER)] if (power >= _POWER).any() else rows[-1])
