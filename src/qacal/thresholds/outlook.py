"""What other rows lead us to expect of each threshold, and so where to begin testing and how many rows it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, log, nan
from typing import Any

import numpy as np

from qacal.calibrators.platt import expit, fit_logistic
from qacal.tally.arrays import Floats, Ints
from qacal.tally.bins import group_runs
from qacal.tally.tally import Tally
from qacal.thresholds.curve import ThresholdCurve, accepted_sums, binomial_tail, relative_entropy

# A start where a quarter more rows are expected than could ever pass: fewer may come.
_SLACK = 1.25

# What is known of all groups counts, in each, as so many rows of its own.
_SHARED_ROWS = 20.0

_POWER = 0.8

# Fewer accepted rows than this say too little of an accuracy to tell how many rows it takes.
_FEWEST_SEEN = 20


@dataclass(frozen=True, eq=False)
class Forecast:
    """Scores of rows that are not tested, rising: how many there were of each, and how many of these were right.

    Only shares and accuracies matter, not how many rows they come from.

    >>> seen = Forecast(np.array([0.6, 0.9]), np.array([50.0, 50.0]), np.array([30.0, 48.0]))
    >>> seen.start(np.array([0.6, 0.9, 1.0]), 200, 0.9, 0.1)  # 0.6 accepts too many wrong answers, 1.0 accepts none
    1
    """

    score: Floats
    rows: Floats
    right: Floats

    def smoothed(self) -> Forecast:
        """Return the same rows, as often right as a logistic curve says: of few rows, a curve tells more than they."""
        if not len(self.score):
            return self
        intercept, slope = fit_logistic(self.score, self.rows, self.right)
        return Forecast(self.score, self.rows, self.rows * expit(intercept + slope * self.score))

    def within(self, everywhere: Forecast) -> Forecast:
        """Return this group's outlook, steadied by that of all groups."""
        share = _SHARED_ROWS / max(float(everywhere.rows.sum()), 1e-300)
        score = np.concatenate([self.score, everywhere.score])
        order = np.argsort(score, kind="stable")
        rows = np.concatenate([self.rows, everywhere.rows * share])
        right = np.concatenate([self.right, everywhere.right * share])
        return Forecast(score[order], rows[order], right[order])

    def start(self, candidates: Floats, rows: int, accuracy: float, alpha: float) -> int:
        """Return the place of the candidate at which `rows` rows should give the strongest evidence."""
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
    """What to expect of all rows, and of each group that is known.

    >>> others = Tally.of([0.6, 0.9, 0.9], [0, 1, 1], groups=["law", "law", "art"])
    >>> Forecasts.of(others).groups["law"].rows
    array([1., 1.])
    """

    everywhere: Forecast
    groups: Mapping[Any, Forecast]

    @staticmethod
    def of(tally: Tally) -> Forecasts:
        """Return the outlook of rows that are not tested."""
        pooled = cells_of(tally.pooled()).get(None, NOTHING)
        groups = {} if tally.grouping is None else cells_of(tally)
        return Forecasts(_outlook(pooled).smoothed(), {name: _outlook(cells) for name, cells in groups.items()})

    def expected(self, group: Any) -> Forecast:
        """Return what to expect of a group; of all rows for None."""
        if group is None:
            return self.everywhere
        return self.groups.get(group, _outlook(NOTHING)).within(self.everywhere)


NOTHING = (np.empty(0), np.empty(0, dtype=np.int64), np.empty(0))
"""The cells of no rows."""


def cells_of(tally: Tally) -> dict[Any, tuple[Floats, Ints, Floats]]:
    """Return (scores, rows, right) of each group that has a name; under None if the tally has no groups."""
    tally = tally.without_blocks().without_ties()
    column = tally.grouping
    out = {}
    for code, first, last in zip(*(bound.tolist() for bound in group_runs(tally)), strict=True) if len(tally) else ():
        if column is None or code >= 0:
            name = None if column is None else column.label(code)
            out[name] = tally.confidence[first:last], tally.rows[first:last], tally.wt[first:last]
    return out


def _outlook(cells: tuple[Floats, Ints, Floats]) -> Forecast:
    return Forecast(cells[0], cells[1].astype(np.float64), cells[2])


def fewest_rows(accuracy: float, alpha: float) -> int:
    r"""Return how many accepted rows, all right, can show an accuracy at all: the least k with accuracy^k <= alpha.

    >>> fewest_rows(0.9, 0.1), fewest_rows(0.95, 0.05)
    (22, 59)
    """
    return ceil(log(alpha) / log(accuracy) - 1e-9)


def rows_needed(curve: ThresholdCurve, accuracy: float) -> float:
    """Return how many rows would certify some threshold four times out of five.

    Infinity if no threshold was seen to reach the target; NaN if only thresholds that accept a handful of rows were.
    An estimate, from the shares and accuracies that were seen, with one row more that is as good as the target: twenty
    right answers out of twenty are no accuracy of 1.
    """
    from scipy import special

    means = (curve.right + accuracy) / (curve.accepted + 1)
    # To show less of an excess, which rounding alone may give, would take billions of rows.
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
    """Return the exact number of accepted rows near an approximate one."""
    rows = np.unique(np.maximum(np.ceil(about * np.geomspace(0.6, 1.7, 33)), fewest_rows(accuracy, alpha)))
    power = binomial_tail(_passing(rows, accuracy, alpha), rows, mean)
    return int(rows[np.argmax(power >= _POWER)] if (power >= _POWER).any() else rows[-1])


def _passing(rows: Floats, accuracy: float, alpha: float) -> Floats:
    """Return the fewest right answers that pass, of rows that can."""
    from scipy import special

    # A continuous solution of P(Bin <= c) = 1 - alpha; rounding may leave it one off on either side.
    about = np.ceil(special.bdtrik(1 - alpha, rows, accuracy))
    tries = about + np.array([[0.0], [1.0], [2.0]])
    passes = binomial_tail(np.minimum(tries, rows), rows, accuracy) <= alpha
    fewest = np.where(passes[0], tries[0], np.where(passes[1], tries[1], tries[2]))
    return np.asarray(np.minimum(fewest, rows))
