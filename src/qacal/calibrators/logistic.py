r"""Logistic regression on cells, by Newton's method: the fit behind Platt scaling.

.. math:: \max_{a, b} \sum_c wt_c \, \eta_c - w_c \log(1 + e^{\eta_c}), \qquad \eta_c = a + b x_c

Unpenalised. Soft targets and weights need nothing special: they are in the sums.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from qacal.errors import InputError
from qacal.values import Floats

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
    total = w.sum()
    centre = float((w * x).sum() / total)
    spread = float(np.sqrt((w * (x - centre) ** 2).sum() / total))
    z = (x - centre) / spread if spread > 1e-12 else np.zeros_like(x)
    at = np.zeros(2)
    p, g = _slope(at, z, w, wt)
    for _ in range(200):
        size = np.abs(g).max()
        if size <= 1e-10 * total:
            break
        v = w * p * (1 - p)
        saa, sab, sbb = v.sum(), (v * z).sum(), (v * z * z).sum()
        step = _solve(saa, sab, sbb, g) if spread > 1e-12 else np.array([g[0] / saa, 0.0])
        # From saturated probabilities a Newton step overshoots. Along it the gradient shrinks at first; where it has
        # grown, the step was too long.
        p, g = _slope(at + step, z, w, wt)
        while np.abs(g).max() > size and np.abs(step).max() > 1e-9:
            step /= 2
            p, g = _slope(at + step, z, w, wt)
        at = at + step
    slope = at[1] / spread if spread > 1e-12 else 0.0
    return float(at[0] - slope * centre), float(slope)


def _slope(at: Floats, z: Floats, w: Floats, wt: Floats) -> tuple[Floats, Floats]:
    """Return the probabilities and the gradient of the log likelihood."""
    # Fitting may need scipy, and its version takes a sixth of the time on a few cells.
    from scipy import special

    p = special.expit(at[0] + at[1] * z)
    residual = wt - w * p
    return p, np.array([residual.sum(), residual @ z])


def _solve(saa: float, sab: float, sbb: float, g: Floats) -> Floats:
    determinant = saa * sbb - sab * sab
    if determinant <= 1e-14 * saa * sbb:
        # Separated: the curvature left is along one direction only, so move along the gradient.
        return g / (saa + sbb)
    return np.array([sbb * g[0] - sab * g[1], saa * g[1] - sab * g[0]]) / determinant
