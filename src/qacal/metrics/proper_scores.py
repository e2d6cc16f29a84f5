"""Proper scores: only better probabilities improve them."""

from __future__ import annotations

import numpy as np

from qacal.errors import InputError
from qacal.metrics.binned import as_tally
from qacal.parameters import is_number, shown
from qacal.tally.arrays import ArrayLike, unit_values
from qacal.tally.tally import Tally

# Log loss cuts probabilities off here, as in scikit-learn: a wrong answer at 1.0 costs 36, not infinity.
LOG_CUT = float(np.finfo(np.float64).eps)
SHOWN_CUT = 0.001
"""Log losses of evaluations, and those that choose a score, cut probabilities off here: a wrong 1.0 costs 7."""


def brier_score(
    y_true: ArrayLike | Tally, y_prob: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the mean squared difference between probability and label.

    >>> round(brier_score([1, 0, 0, 0], [0.9, 0.9, 0.1, 0.1]), 3)
    0.21
    """
    cells = as_tally(y_true, y_prob, sample_weight=sample_weight)
    p = cells.confidence
    # Rounding may leave a tiny negative number, which would be shown as -0.
    return max(float((cells.wtt - 2 * p * cells.wt + p * p * cells.w).sum() / cells.w.sum()), 0.0)


def log_loss(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    cut: float = LOG_CUT,
) -> float:
    """Return the mean negative log likelihood; probabilities are cut off at `cut` and 1 - `cut`.

    >>> round(log_loss([1, 0], [0.9, 0.9]), 4)
    1.204
    """
    if not is_number(cut, LOG_CUT, 0.5):
        raise InputError(f"cut is {shown(cut)}; expected a number from {LOG_CUT:.1e} to 0.5, such as 0.001.")
    tally = as_tally(y_true, y_prob, sample_weight=sample_weight)
    p = np.clip(tally.confidence, cut, 1 - cut)
    return float(-(tally.wt * np.log(p) + (tally.w - tally.wt) * np.log1p(-p)).sum() / tally.w.sum())


def sharpness(y_prob: ArrayLike | Tally, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the variance of the probabilities; labels do not matter.

    >>> sharpness([0.5, 0.5, 1.0, 1.0])
    0.0625
    """
    if isinstance(y_prob, Tally):
        tally = as_tally(y_prob, None, sample_weight=sample_weight)
    else:
        stated = unit_values(y_prob, "y_prob")
        tally = Tally.of(stated, np.zeros(len(stated)), sample_weight=sample_weight)
    mean = (tally.w * tally.confidence).sum() / tally.w.sum()
    return float((tally.w * (tally.confidence - mean) ** 2).sum() / tally.w.sum())
