r"""The hierarchical logistic model: random intercept and slope per group, fitted by Laplace's approximation.

The likelihood is that of :mod:`qacal.calibrators.mixed.flat_likelihood`; Newton's method climbs it in :math:`\theta =
(\beta, L)`, :math:`\Sigma = L L^\top`. :math:`L` is lower triangular with free signs: covariances of rank one or zero
are ordinary points, not edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qacal.calibrators.mixed.common import GroupCells, MixedFit, Runs, pooled_loss, quickest
from qacal.calibrators.mixed.flat_likelihood import (
    NEAR,
    NEAR_ENOUGH,
    Summit,
    derivatives,
    evaluate,
    follow,
    moment_estimate,
    pack,
    unpack,
)
from qacal.calibrators.platt import fit_logistic
from qacal.tally.arrays import Floats, Ints

# A step with a smaller expected gain of log likelihood is not taken: the search ends.
_LEAST_GAIN = 1e-6

# Effects, or a second dimension of them, that gain less log likelihood than this are left out.
_WORTH = 1e-4


def fit_hierarchical(x: Floats, w: Floats, wt: Floats, group: Ints) -> MixedFit:
    """Fit the model to cells sorted by `group`; cells of group -1 have no random effects.

    Effects come back in the order of the groups (-1 left out). The optimum is the one that is reached from moderate
    effects. The likelihood of little data may have others, at effects of ten logits and more, where Laplace's
    approximation is at its worst; they are not searched for.
    """
    starts = np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])
    is_free = (group[starts] >= 0).astype(np.float64)
    groups = int(is_free.sum())
    total = float(w.sum())
    centre = float(w @ x) / total
    spread = float(np.sqrt(w @ (x - centre) ** 2 / total))
    scale = spread if spread > 1e-12 else 1.0
    runs = Runs((x - centre) / scale, w, wt, starts, np.append(starts[1:], len(x)) - starts, is_free)
    data, coarse = quickest(runs)
    beta = np.array(fit_logistic(*coarse.pooled()))
    pooled = pooled_loss(beta, *data.pooled())
    # One group's effects cannot be told from the fixed ones; labels that a curve fits perfectly leave nothing over.
    if groups < 2 or pooled <= 1e-6 * total:
        return MixedFit.without_effects(x, w, wt, groups)
    best = _climb(coarse, *moment_estimate(coarse, beta))
    if coarse is not data:
        best = _climb(data, best.theta, best.v)
    best = _flattened(data, best)
    beta, L = unpack(best.theta)
    if best.loss >= pooled - _WORTH or np.abs(L).max() < 1e-4:
        return MixedFit.without_effects(x, w, wt, groups)
    if spread <= 1e-12:
        L[1] = 0.0
    # Back from the standardised feature: U' + V'(x - centre)/scale = U + V x.
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale]])
    factor = back @ L
    return MixedFit(
        fixed=back @ beta,
        covariance=factor @ factor.T,
        effects=(factor @ best.v).T[is_free > 0],
        negative_log_likelihood=best.loss,
        is_singular=_flatness(L) < 1e-4,
    )


def _climb(data: GroupCells, theta: Floats, v: Floats) -> Summit:
    """Maximise F by Newton steps, shortened where they do not climb."""
    here = evaluate(data, theta, v, NEAR_ENOUGH)
    for _ in range(200):
        gradient, curvature = derivatives(data, here)
        values, vectors = np.linalg.eigh(curvature)
        size = np.abs(values)
        step = -(vectors / np.maximum(size, 1e-6 * size.max())) @ (gradient @ vectors)
        gain = -float(gradient @ step) / 2
        longest = float(np.abs(step).max())
        near = min(max(gain / 100, NEAR), NEAR_ENOUGH)
        if gain < _LEAST_GAIN and longest < 0.5:
            if values[0] >= 0:
                return here
            # A saddle: where an effect is zero the gradient by it is too, whether or not the rows ask for it.
            step = 0.25 * vectors[:, 0]
            longest = 0.25
        # Half a logit at a time: a bold step may cross into the region of another, wilder optimum.
        step *= min(1.0, 0.5 / longest)
        new = evaluate(data, here.theta + step, follow(here, step), near)
        while new.loss > here.loss and np.abs(step).max() > 1e-6:
            step = step / 4
            new = evaluate(data, here.theta + step, follow(here, step), near)
        if new.loss >= here.loss - _LEAST_GAIN:
            break
        here = new
    return here if np.abs(gradient).max() <= 1e-3 * np.sqrt(data.w.sum()) else _polish(data, here)


def _flattened(data: GroupCells, best: Summit) -> Summit:
    """Return the fit with a covariance of rank one where that fits as well: the search nears it and never arrives."""
    beta, L = unpack(best.theta)
    if not 0 < _flatness(L) < 0.03:
        return best
    left, sizes, right = np.linalg.svd(L)
    flat = evaluate(data, pack(beta, left * [sizes[0], 0.0]), right @ best.v)
    return flat if flat.loss <= best.loss + _WORTH else best


def _polish(data: GroupCells, here: Summit) -> Summit:
    """Go on by BFGS, where the likelihood is so flat or so bent that the Gaussian model's curvature leads nowhere."""
    from scipy.optimize import minimize

    values, vectors = np.linalg.eigh(derivatives(data, here)[1])
    inverse = (vectors / np.maximum(np.abs(values), 1e-3 * np.abs(values).max())) @ vectors.T
    modes = [here.v]

    def loss(theta: Floats) -> tuple[float, Floats]:
        new = evaluate(data, theta, modes[0])
        modes[0] = new.v
        return new.loss, derivatives(data, new)[0]

    # Symmetric to the last digit: scipy insists on it.
    options: Any = {"gtol": 1e-5 * np.sqrt(data.w.sum()), "hess_inv0": (inverse + inverse.T) / 2}
    result = minimize(loss, here.theta, jac=True, method="BFGS", options=options)
    return min(here, evaluate(data, np.asarray(result.x), modes[0]), key=lambda summit: summit.loss)


def _flatness(L: Floats) -> float:
    """Return the smaller singular value beside the larger, all but exactly where it is small."""
    return float(abs(L[0, 0] * L[1, 1]) / max(np.vdot(L, L), 1e-300))
