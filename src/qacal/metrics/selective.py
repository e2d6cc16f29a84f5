r"""Selective answering: answer above a threshold, abstain below.

Both areas use rows in the order of their confidence. The order of equal confidences is arbitrary, so an area is its
expected value over all orders of the ties.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from qacal.metrics.scores import by_confidence
from qacal.tally.arrays import ArrayLike, Floats, require_sorted
from qacal.tally.tally import Tally

# In hundredths, each the float nearest to its decimal: linspace puts 0.7 above a stated 0.7.
GRID = np.arange(101) / 100


@dataclass(frozen=True)
class AccuracyConfidenceCurve:
    """For each threshold: the share of rows with at least that confidence, and their accuracy; 0 if there are none."""

    threshold: Floats
    coverage: Floats
    accuracy: Floats


def accuracy_confidence_curve(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    thresholds: ArrayLike = GRID,
) -> AccuracyConfidenceCurve:
    """Return coverage and accuracy of answering where ``y_prob >= threshold``.

    >>> accuracy_confidence_curve([0, 1], [0.5, 0.9], thresholds=[0, 0.9, 1]).accuracy
    array([0.5, 1. , 0. ])
    """
    tally = by_confidence(y_true, y_prob, sample_weight)
    grid = require_sorted(thresholds, "thresholds")
    accepted, right = accepted_sums(tally.confidence, grid, tally.w, tally.wt)
    accuracy = np.divide(right, accepted, out=np.zeros(len(grid)), where=accepted > 0)
    return AccuracyConfidenceCurve(grid, accepted / tally.w.sum(), accuracy)


def accepted_sums(score: Floats, thresholds: Floats, *columns: ArrayLike) -> list[Floats]:
    """Return, for each threshold, the sum of each column over the cells with at least that score; scores rise."""
    first = np.searchsorted(score, thresholds)
    return [np.append(np.cumsum(np.asarray(column, float)[::-1])[::-1], 0.0)[first] for column in columns]


def auac(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    thresholds: ArrayLike = GRID,
) -> float:
    """Return the area under the accuracy-confidence curve (the paper's AUAC).

    Accuracy of the rows with ``y_prob >= t``, 0 where there are none, by the trapezoid rule over thresholds.
    Stretching confidences towards 1 raises it without ranking anything better; see :func:`aurc` for ranking.

    >>> auac([0, 1], [0.5, 1.0])
    0.7475
    """
    curve = accuracy_confidence_curve(y_true, y_prob, sample_weight=sample_weight, thresholds=thresholds)
    return float(np.trapezoid(curve.accuracy, curve.threshold))


@dataclass(frozen=True)
class RiskCoverageCurve:
    """The share of wrong answers among the accepted, for each coverage that a threshold can reach."""

    coverage: Floats
    risk: Floats
    threshold: Floats


def risk_coverage_curve(
    y_true: ArrayLike | Tally, y_prob: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> RiskCoverageCurve:
    """Return the risk-coverage curve, from the strictest threshold to accepting all.

    >>> curve = risk_coverage_curve([0, 1, 0], [0.5, 0.9, 0.9])
    >>> curve.coverage.round(2), curve.risk.round(2)
    (array([0.67, 1.  ]), array([0.5 , 0.67]))
    """
    tally = by_confidence(y_true, y_prob, sample_weight)
    accepted, wrong = np.cumsum(tally.w[::-1]), np.cumsum((tally.w - tally.wt)[::-1])
    return RiskCoverageCurve(accepted / accepted[-1], wrong / accepted, tally.confidence[::-1])


def aurc(
    y_true: ArrayLike | Tally, y_prob: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Return the area under the risk-coverage curve: the mean over k of the risk among the k most confident rows.

    Lower is better. Ties count with their expected value over all orders: a run of :math:`m` equal rows of risk
    :math:`r`, after :math:`N` rows with :math:`E` wrong, adds :math:`\sum_{j=1}^m (E + jr)/(N + j)`, which is
    :math:`(E - Nr)(\psi(N+m+1) - \psi(N+1)) + mr` with the digamma function.

    Examples
    --------
    >>> round(aurc([1, 0, 1], [0.9, 0.8, 0.7]), 3)
    0.278
    >>> round(aurc([1, 0, 1], [0.8, 0.8, 0.8]), 3)  # no ranking: the overall risk
    0.333
    """
    tally = by_confidence(y_true, y_prob, sample_weight)
    # A mean weight of 1 makes weighted rows count like rows.
    scale = tally.n / tally.w.sum()
    rows, wrong = tally.w[::-1] * scale, (tally.w - tally.wt)[::-1] * scale
    before = np.cumsum(rows) - rows
    wrong_before = np.cumsum(wrong) - wrong
    rate = wrong / rows
    harmonic = digamma(before + rows + 1) - digamma(before + 1)
    return float(((wrong_before - before * rate) * harmonic + wrong).sum() / rows.sum())
