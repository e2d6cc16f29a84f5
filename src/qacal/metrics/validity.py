"""Validity: how many rows are in bins that miss by at most epsilon (the paper's marginal calibration, as a curve)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.errors import InputError
from qacal.metrics.binned import BinChoice, Binned, as_tally
from qacal.metrics.noise import check_redraws, redraw
from qacal.tally.arrays import ArrayLike, Floats, require_sorted
from qacal.tally.groups import Paths
from qacal.tally.tally import BLOCKS, Tally


@dataclass(frozen=True)
class ValidityCurve:
    """For each epsilon, the share of rows whose bin misses by at most that much.

    share : as measured; with noise, so below the truth.
    calibrated : what a perfectly calibrated score of this size would measure on average.
    """

    epsilon: Floats
    share: Floats
    calibrated: Floats

    def at(self, epsilon: float) -> float:
        """Return the share of rows whose bin misses by at most `epsilon`, or the next smaller value of the curve."""
        if epsilon < self.epsilon[0]:
            raise InputError(f"epsilon is {epsilon}; the curve starts at {self.epsilon[0]}.")
        return float(self.share[np.searchsorted(self.epsilon, epsilon, side="right") - 1])


def validity_curve(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    bins: BinChoice = None,
    epsilons: ArrayLike | None = None,
    redraws: int = 199,
    seed: int = 0,
) -> ValidityCurve:
    """Return the share of rows whose bin misses by at most epsilon: the paper's marginal calibration, as a curve.

    epsilons : rising; 0, 0.01, ..., 1 by default.

    >>> curve = validity_curve(np.tile([1, 0], 500), np.repeat([0.5, 0.9], 500))
    >>> curve.at(0.1), curve.at(0.4)
    (0.5, 1.0)
    """
    binned = Binned.of(as_tally(y_true, y_prob, groups, sample_weight, ids, n_blocks=BLOCKS), bins)
    grid = np.arange(101) / 100 if epsilons is None else require_sorted(epsilons, "epsilons")
    check_redraws(redraws)
    weight = binned.weight

    def shares(residuals: Floats) -> Floats:
        # Rounding must not push a bin that misses by exactly epsilon beyond it.
        misses = np.abs(residuals) / weight - 1e-12
        order = np.argsort(misses, axis=-1)
        through = np.concatenate([[0.0], np.cumsum(weight[order])]) / weight.sum()
        return np.asarray(through[np.searchsorted(misses[order], grid, side="right")])

    drawn = redraw(binned, lambda rows: np.stack([shares(row) for row in rows]), redraws, seed)
    return ValidityCurve(
        grid, shares(binned.residual), drawn.mean(axis=0) if len(drawn) else np.full(len(grid), np.nan)
    )
