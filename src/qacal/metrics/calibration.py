r"""Calibration error, overall and per group, with its noise.

.. math:: CE(h; \beta) = \mathrm{E} \big| \mathrm{E}[Y \mid h, \beta] - h \big|

Without groups it is CE(h). The *plug-in* estimate is the paper's: bins in every group, and the average over rows of
:math:`|\text{mean } t - \text{mean } p|` of their bin. It is biased upwards, by more the more bins there are, so it
comes with its noise floor and a p-value. Methods are compared by the *debiased* estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.guarantee import check_alpha
from qacal.metrics.binned import BinChoice, Binned
from qacal.metrics.noise import debiased_square, held_out_maximum, p_value, plugin_error, redraw
from qacal.metrics.scores import as_tally
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import ArrayLike
from qacal.tally.groups import Paths
from qacal.tally.tally import BLOCKS, Tally


@dataclass(frozen=True)
class CalibrationError:
    """Estimates of a calibration error.

    plugin : the paper's number, a mean absolute error.
    floor : the plug-in error that a perfectly calibrated score of this size would have on average. It and the p-value
        are NaN for a tally of dependent rows, or soft targets, without blocks.
    p_value : how often a perfectly calibrated score would have a plug-in error as large as `plugin` or larger.
    debiased : the *root mean squared* error without the noise, from pairs of different rows in a bin. A root mean
        square is never below a mean absolute error, so it may exceed `plugin`. Below 0 if there is less than noise
        would give: no error can be seen. NaN if no bin has two rows (for the maximum: rows in both halves).
    low, high : a (1 - alpha) interval for the debiased error, by the jackknife over blocks of questions, and no shorter
        than the noise of the residuals allows. NaN for a tally that was counted without blocks
        (``Tally.of(..., ids=, n_blocks=256)`` counts with them).
    is_clustered : rows of one question were treated as dependent.
    """

    plugin: float
    floor: float
    p_value: float
    debiased: float
    low: float
    high: float
    bins: int
    rows: int
    is_clustered: bool

    def __repr__(self) -> str:
        interval = "[no interval]" if np.isnan(self.low) else f"[{self.low:.4f}, {self.high:.4f}]"
        return (
            f"{type(self).__name__}(debiased={self.debiased:.4f} {interval}, "
            f"plugin={self.plugin:.4f}, floor={self.floor:.4f}, p_value={self.p_value:.3g}, "
            f"bins={self.bins}, rows={self.rows})"
        )


def estimate_calibration_error(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    bins: BinChoice = None,
    redraws: int = 199,
    alpha: float = 0.05,
    seed: int = 0,
) -> CalibrationError:
    r"""Return every estimate of CE(h), or with groups CE(h; beta): debiased with its interval, plug-in, noise floor.

    Parameters
    ----------
    y_true, y_prob, groups, sample_weight : the rows; or a tally in place of all.
    ids : the question's id. Several rows of one question are treated as dependent.
    bins : None takes one bin per distinct confidence if these are few, else 15 of equal mass in each group; "outputs"
        or a number decides. To compare methods, give all the same number, such as 15.
    redraws : for the noise floor and the p-value; the smallest p-value is 1 / (redraws + 1).
    alpha, seed : of the interval, and of the redraws.

    Returns
    -------
    :class:`CalibrationError`. With :math:`S` the sum of :math:`w(t - p)` in a bin, :math:`W` the sum of :math:`w`, the
    debiased estimate is the signed root of :math:`\sum W (S^2 - \sum_i s_i^2) / (W^2 - \sum_i w_i^2) / \sum W` over
    bins with two rows or more, :math:`i` a row, or a block of questions where rows are dependent.

    Examples
    --------
    Confidences that are perfectly calibrated, in 64 groups: the plug-in error is all noise.

    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([0.5, 0.6, 0.7, 0.8, 0.9], size=1400)
    >>> correct = rng.random(1400) < stated
    >>> error = estimate_calibration_error(correct, stated, groups=rng.integers(0, 64, 1400))
    >>> round(error.plugin, 2), round(error.floor, 2), error.low < 0 < error.high
    (0.15, 0.16, True)
    """
    check_alpha(alpha)
    binned = Binned.of(as_tally(y_true, y_prob, groups, sample_weight, ids, n_blocks=BLOCKS), bins)
    plugin = float(plugin_error(binned, binned.residual))
    drawn = redraw(binned, redraws, seed)
    debiased, low, high = map(_signed_root, debiased_square(binned, alpha))
    return CalibrationError(
        plugin=plugin,
        floor=float(drawn.mean()) if len(drawn) else float("nan"),
        p_value=p_value(plugin, drawn) if len(drawn) else float("nan"),
        debiased=debiased,
        low=low,
        high=high,
        bins=len(binned.bins),
        rows=binned.tally.n,
        is_clustered=binned.is_clustered,
    )


def calibration_error(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    bins: BinChoice = None,
) -> float:
    """Return the debiased calibration error: the root mean squared error of the bins without the noise of few rows.

    Below 0 if the bins miss by less than noise would: no error can be seen. The parameters are those of
    :func:`estimate_calibration_error`, which adds the interval, the paper's plug-in estimate and its noise floor.

    >>> round(calibration_error(np.tile([1, 1, 0], 300), np.full(900, 0.9)), 2)
    0.23
    """
    binned = Binned.of(as_tally(y_true, y_prob, groups, sample_weight, ids, n_blocks=BLOCKS), bins)
    return _signed_root(debiased_square(binned, alpha=0.05)[0])


@dataclass(frozen=True)
class MaximumCalibrationError:
    """The error of the worst bin, and which bin it is.

    plugin : as measured; the worst of many bins is mostly noise.
    debiased : the worst bin of one half of the questions is measured in the other half, and both ways are averaged: on
        average no larger than the true maximum. NaN if no bin has rows in both halves, or the tally has no blocks.
    group, stated, observed, bin_rows : of the worst bin, the group, mean confidence, accuracy and number of rows.
    """

    plugin: float
    debiased: float
    group: Any
    stated: float
    observed: float
    bin_rows: int


def estimate_maximum_calibration_error(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    bins: BinChoice = None,
    min_rows: int = 1,
) -> MaximumCalibrationError:
    """Estimate the error of the worst bin, MCE; with groups, of the worst bin of any group, beta-MCE.

    The parameters are those of :func:`estimate_calibration_error`, and `min_rows`: bins with fewer rows are left out.
    With the paper's 1, the worst bin of real data is mostly one row that happened to be wrong; with 50 it is worth a
    look.

    Examples
    --------
    >>> stated, correct = np.repeat([0.5, 0.9], 500), np.tile([1, 0], 500)
    >>> worst = estimate_maximum_calibration_error(correct, stated)
    >>> worst.plugin, worst.stated, worst.observed, worst.bin_rows
    (0.4, 0.9, 0.5, 500)
    """
    binned = Binned.of(as_tally(y_true, y_prob, groups, sample_weight, ids, n_blocks=BLOCKS), bins)
    rows, mean_residual = binned.bins.rows, binned.residual / binned.weight
    if not is_whole(min_rows, 0):
        raise InputError(f"min_rows is {shown(min_rows)}; expected a whole number of 0 or more.")
    enough = rows >= min_rows
    if not enough.any():
        raise InputError(f"min_rows is {min_rows}; the largest bin has {int(rows.max())} rows.")
    worst = int(np.where(enough, np.abs(mean_residual), -1.0).argmax())
    observed = float(binned.bins.mean[worst])
    column = binned.tally.grouping
    return MaximumCalibrationError(
        plugin=float(abs(mean_residual[worst])),
        debiased=held_out_maximum(binned, enough),
        group=None if column is None else column.label(int(binned.bins.group[worst])),
        stated=observed - float(mean_residual[worst]),
        observed=observed,
        bin_rows=int(rows[worst]),
    )


def maximum_calibration_error(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    bins: BinChoice = None,
    min_rows: int = 1,
) -> float:
    """Return the debiased error of the worst bin; see :func:`estimate_maximum_calibration_error`.

    >>> round(maximum_calibration_error(np.tile([1, 0], 500), np.repeat([0.5, 0.9], 500)), 1)
    0.4
    """
    tally = as_tally(y_true, y_prob, groups, sample_weight, ids, n_blocks=BLOCKS)
    return estimate_maximum_calibration_error(tally, bins=bins, min_rows=min_rows).debiased


def _signed_root(square: float) -> float:
    """Return the root of a squared error, with its sign, within -1 to 1, where every error is."""
    return float(np.clip(np.sign(square) * np.sqrt(abs(square)), -1, 1))
