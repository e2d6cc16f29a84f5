r"""One yardstick for all hierarchical fits: Laplace's negative log likelihood, one group after the other.

With :math:`\Sigma = L L^\top`, group :math:`s` loses

.. math:: \min_v \Big[ -\ell_s(\beta + L v) + \tfrac12 |v|^2 \Big] + \tfrac12 \log\det(L^\top A_s L + I)

where :math:`A_s` is the curvature of :math:`-\ell_s` at the minimum. It shares no code with qacal's solver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Answers

Floats = NDArray[np.float64]


def laplace_loss(answers: Answers, fixed: Floats, covariance: Floats) -> float:
    """Return the negative log likelihood of the rows at given fixed effects and covariance of (intercept, slope)."""
    values, vectors = np.linalg.eigh(covariance)
    L = vectors * np.sqrt(np.maximum(values, 0.0))
    order = np.argsort(answers.groups, kind="stable")
    cuts = np.flatnonzero(np.diff(answers.groups[order])) + 1
    return sum(_group_loss(answers.confidence[rows], answers.correct[rows], fixed, L) for rows in np.split(order, cuts))


def _group_loss(h: Floats, y: NDArray[np.int64], fixed: Floats, L: Floats) -> float:
    X = np.column_stack([np.ones_like(h), h])
    offset, Z = X @ fixed, X @ L

    def loss(v: Floats) -> float:
        eta = offset + Z @ v
        return float(np.logaddexp(0.0, eta).sum() - y @ eta + v @ v / 2)

    v = np.zeros(2)
    for _ in range(100):
        p = 1 / (1 + np.exp(-(offset + Z @ v)))
        gradient = v - Z.T @ (y - p)
        curvature = (Z.T * (p * (1 - p))) @ Z + np.eye(2)
        if np.abs(gradient).max() < 1e-9:
            break
        step = np.linalg.solve(curvature, gradient)
        while loss(v - step) > loss(v) + 1e-9:
            step /= 2
        v = v - step
    return loss(v) + float(np.linalg.slogdet(curvature)[1]) / 2
