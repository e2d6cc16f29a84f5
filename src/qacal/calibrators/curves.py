r"""One curve for all rows: logistic (Platt scaling, "S" in the paper's tables), or isotonic.

The logistic curve is fitted by Newton's method on cells:

.. math:: \max_{a, b} \sum_c wt_c \, \eta_c - w_c \log(1 + e^{\eta_c}), \qquad \eta_c = a + b x_c

Unpenalised. Soft targets and weights need nothing special: they are in the sums.

The isotonic curve is the accuracy at a stated confidence, in logits, which never falls. Stated confidences are not a
scale: an LLM's 0.95 may be correct as often as its 0.8, and its 1.0 far more often. The groups of
:class:`~qacal.calibrators.TreeScaling` share such a curve; a group only shifts and stretches it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import numpy as np

from qacal.calibrators.base import Calibrator, Evidence, Feature, Properties, Rows, expit, feature_values
from qacal.parameters import MODERATE, MOST, Axes, Between, Rising
from qacal.tally.arrays import Floats
from qacal.tally.tally import Tally

_Pair: TypeAlias = tuple[float, float]

# The number of rows that are added to the lowest confidence (correct) and to the highest (wrong). Without them a level
# of the curve at 0 or 1 would have no logit.
_PSEUDO_ROWS = 1.0

_SCALE = 200

LOGITS = Between(-1000, 1000)
"""The logits of probabilities: that of the smallest float is -745."""


def fit_logistic(x: Floats, w: Floats, wt: Floats) -> tuple[float, float]:
    """Return (intercept, slope) of the maximum-likelihood logistic regression on cells.

    Where no maximum exists (all correct, or a threshold that separates correct from wrong) the iteration stops as
    soon as the fitted probabilities have reached the labels to 1e-10. Where every x is equal the slope is 0.

    >>> fit_logistic(np.array([0., 1.]), np.array([10., 10.]), np.array([5., 5.]))
    (0.0, 0.0)
    """
    total = float(w.sum())
    centre = float(w @ x) / total
    spread = float(np.sqrt(w @ (x - centre) ** 2 / total))
    is_flat = spread <= 1e-12
    z = np.zeros_like(x) if is_flat else (x - centre) / spread
    powers = np.array([np.ones_like(z), z, z * z])
    at = 0.0, 0.0
    right, p, g = _gradient(at, powers, w, wt)
    for _ in range(200):
        size = max(abs(g[0]), abs(g[1]))
        if size <= 1e-10 * total:
            break
        a, b, c = (powers @ (right - right * p)).tolist()
        step = (g[0] / a, 0.0) if is_flat else _solve(a, b, c, g)
        # From saturated probabilities a Newton step overshoots. Along it the gradient shrinks at first; where it has
        # grown, the step was too long.
        new = at[0] + step[0], at[1] + step[1]
        right, p, g = _gradient(new, powers, w, wt)
        while max(abs(g[0]), abs(g[1])) > size and max(abs(step[0]), abs(step[1])) > 1e-9:
            step = step[0] / 2, step[1] / 2
            new = at[0] + step[0], at[1] + step[1]
            right, p, g = _gradient(new, powers, w, wt)
        at = new
    slope = 0.0 if is_flat else at[1] / spread
    return at[0] - slope * centre, slope


def _gradient(at: _Pair, powers: Floats, w: Floats, wt: Floats) -> tuple[Floats, Floats, _Pair]:
    """Return the expected number of correct answers, the probabilities, and the gradient of the log likelihood."""
    # scipy's expit takes a sixth of the time on a few cells, and fitting may use scipy.
    from scipy import special

    p = special.expit(at[0] + at[1] * powers[1])
    right = w * p
    first, second = (powers[:2] @ (wt - right)).tolist()
    return right, p, (first, second)


def _solve(a: float, b: float, c: float, g: _Pair) -> _Pair:
    """Return the Newton step for the curvature ((a, b), (b, c))."""
    determinant = a * c - b * b
    if determinant <= 1e-14 * a * c:
        # Separated labels leave curvature in one direction only, so move along the gradient.
        return g[0] / (a + c), g[1] / (a + c)
    return (c * g[0] - b * g[1]) / determinant, (a * g[1] - b * g[0]) / determinant


@dataclass(frozen=True)
class LogisticMap:
    """p = 1 / (1 + exp(-(intercept + slope x)))."""

    intercept: Annotated[float, MODERATE]
    slope: Annotated[float, MODERATE]
    feature: Feature
    rows: Annotated[int, Between(1, MOST)]

    def apply(self, rows: Rows) -> Floats:
        return expit(self.intercept + self.slope * feature_values(rows.confidence, self.feature))

    def explain(self, rows: Rows) -> Evidence:
        return Evidence.of(rows.exact, self.apply(rows), rows=self.rows)

    def parameters(self) -> dict[str, Any]:
        return {"feature": self.feature}


def fit_platt(tally: Tally, feature: Feature = "confidence") -> LogisticMap:
    """Return the maximum-likelihood logistic curve of a tally."""
    x = feature_values(tally.confidence, feature)
    return LogisticMap(*fit_logistic(x, tally.w, tally.wt), feature=feature, rows=tally.n)


@dataclass(kw_only=True, eq=False, repr=False)
class PlattScaling(Calibrator):
    r"""Fit one logistic curve to all rows: :math:`p = \mathrm{logit}^{-1}(B_0 + B_1 h)`.

    Unpenalised maximum likelihood on the raw confidence, as in the paper.

    How to choose: with a few hundred rows nothing is safer. It ignores groups: one curve cannot correct an LLM that is
    too sure about law and not sure enough about physics.

    Parameters
    ----------
    feature : "confidence" (the paper's) or "logit" of it, cut off at 0.001 and 0.999.

    Examples
    --------
    >>> stated  = [0.5, 0.5, 0.5, 0.5, 0.9, 0.9, 0.9, 0.9]
    >>> correct = [0, 0, 0, 1, 0, 1, 1, 1]
    >>> PlattScaling().fit(stated, correct).predict([0.5, 0.7, 0.9]).round(3)
    array([0.25, 0.5 , 0.75])
    """

    feature: Feature = "confidence"
    maps_: LogisticMap = field(init=False)
    # Maximum likelihood with an intercept keeps the mean.
    properties = Properties(is_monotone=True, keeps_mean=True)

    def _fit_tally(self, tally: Tally) -> LogisticMap:
        return fit_platt(tally, self.feature)


@dataclass(frozen=True, eq=False)
class IsotonicCurve:
    """A curve given by knots, straight between them, flat outside: the score (a logit) of each confidence.

    >>> IsotonicCurve(np.array([0.5, 1.0]), np.array([-1.0, 3.0])).apply(np.array([0.0, 0.75, 1.0]))
    array([-1.,  1.,  3.])
    """

    confidence: Annotated[Floats, Axes("knots", may_be_empty=False), Between(0, 1), Rising()]
    score: Annotated[Floats, Axes("knots"), LOGITS, Rising(strictly=False)]

    def apply(self, confidence: Floats) -> Floats:
        """Return the score of each confidence."""
        # Between knots that nearly meet (5e-324 and 1e-323) a slope would be infinite. Multiplied by a power of two the
        # confidences are as exact as before, and slopes are finite.
        return np.interp(np.ldexp(confidence, _SCALE), np.ldexp(self.confidence, _SCALE), self.score)


def isotonic_shape(tally: Tally) -> IsotonicCurve:
    r"""Return the pooled curve of a tally: the logit of its isotonic regression.

    A level piece of the regression is one knot, at the average confidence of its rows. Straight lines between the knots
    are closer to the truth than steps: with token probabilities as confidence, held-out log loss is lower by .0015. On
    stated confidences, where most pieces are a single value, the two agree.

    >>> shape = isotonic_shape(Tally.of(np.repeat([0.6, 0.8], 10), np.repeat([0, 1, 0, 1], [5, 5, 2, 8])))
    >>> 1 / (1 + np.exp(-shape.score))  # 6 right of 11, 8 of 11: one pseudo-row each
    array([0.54545455, 0.72727273])
    """
    from scipy.optimize import isotonic_regression

    pooled = tally.pooled()
    scale = pooled.w.sum() / pooled.ww.sum()
    w, wt = pooled.w * scale, pooled.wt * scale
    w[0] += _PSEUDO_ROWS
    wt[0] += _PSEUDO_ROWS
    w[-1] += _PSEUDO_ROWS
    level = isotonic_regression(wt / w, weights=w).x
    # Pieces of equal height up to rounding are one.
    start = np.flatnonzero(np.append(True, np.diff(level) > 1e-9))
    stop = np.append(start[1:], len(level))
    level, h = level[start], pooled.confidence
    centre = np.add.reduceat(w * h, start) / np.add.reduceat(w, start)
    # Rounding must not move an average out of its piece, so that knots rise.
    return IsotonicCurve(np.clip(centre, h[start], h[stop - 1]), np.log(level / (1 - level)))
