r"""Logistic regression on cells, by Newton's method: the fit behind Platt scaling.

.. math:: \max_{a, b} \sum_c wt_c \, \eta_c - w_c \log(1 + e^{\eta_c}), \qquad \eta_c = a + b x_c

Unpenalised. Soft targets and weights need nothing special: they are in the sums.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from qacal.errors import InputError
from qacal.tally.arrays import Floats

Feature: TypeAlias = Literal["confidence", "logit"]

# A stated 1.0 has an infinite logit. Cut off here it stands 6.9 logits from the middle, far but not so far that
# it alone decides the slope.
LOGIT_CUT = 1e-3


def feature_values(confidence: Floats, feature: Feature) -> Floats:
    """Return what the regression sees of a confidence: itself, as the paper has it, or its logit.

    >>> feature_values(np.array([0.5, 1.0]), "logit").round(3)
    array([0.   , 6.907])
    """
    if feature == "confidence":
        return confidence
    if feature == "logit":
        inside = np.clip(confidence, LOGIT_CUT, 1 - LOGIT_CUT)
        return np.asarray(np.log(inside / (1 - inside)))
    raise InputError(f'feature is {feature!r}; expected "confidence" or "logit".')


def expit(eta: Floats) -> Floats:
    """Return 1 / (1 + exp(-eta)), for eta of any size, with numpy alone: fitted curves must apply without scipy.

    >>> expit(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    decay = np.exp(-np.abs(eta))
    return np.asarray(np.where(eta >= 0, 1.0, decay) / (1.0 + decay))


def fit_logistic(x: Floats, w: Floats, wt: Floats) -> tuple[float, float]:
    """Return (intercept, slope) of the maximum-likelihood logistic regression on cells.

    Where no maximum exists (all right, or a threshold that separates right from wrong) the iteration stops as
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
    right, p, g = _slope(at, powers, w, wt)
    for _ in range(200):
        size = max(abs(g[0]), abs(g[1]))
        if size <= 1e-10 * total:
            break
        a, b, c = (powers @ (right - right * p)).tolist()
        step = (g[0] / a, 0.0) if is_flat else _solve(a, b, c, g)
        # From saturated probabilities a Newton step overshoots. Along it the gradient shrinks at first; where it has
        # grown, the step was too long.
        there = at[0] + step[0], at[1] + step[1]
        right, p, g = _slope(there, powers, w, wt)
        while max(abs(g[0]), abs(g[1])) > size and max(abs(step[0]), abs(step[1])) > 1e-9:
            step = step[0] / 2, step[1] / 2
            there = at[0] + step[0], at[1] + step[1]
            right, p, g = _slope(there, powers, w, wt)
        at = there
    slope = 0.0 if is_flat else at[1] / spread
    return at[0] - slope * centre, slope


_Pair: TypeAlias = tuple[float, float]


def _slope(at: _Pair, powers: Floats, w: Floats, wt: Floats) -> tuple[Floats, Floats, _Pair]:
    """Return how many right answers are expected, the probabilities, and the gradient of the log likelihood."""
    # Fitting may need scipy, and its version takes a sixth of the time on a few cells.
    from scipy import special

    p = special.expit(at[0] + at[1] * powers[1])
    right = w * p
    first, second = (powers[:2] @ (wt - right)).tolist()
    return right, p, (first, second)


def _solve(a: float, b: float, c: float, g: _Pair) -> _Pair:
    determinant = a * c - b * b
    if determinant <= 1e-14 * a * c:
        # Separated: the curvature left is along one direction only, so move along the gradient.
        return g[0] / (a + c), g[1] / (a + c)
    return (c * g[0] - b * g[1]) / determinant, (a * g[1] - b * g[0]) / determinant
