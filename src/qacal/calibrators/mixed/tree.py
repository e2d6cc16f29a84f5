r"""The hierarchical logistic model along a tree, fitted by Laplace-approximate maximum likelihood.

The likelihood is in `tree_likelihood.py`; Newton's method climbs it in :math:`\theta = (\beta, L)`,
:math:`\Sigma = L L^\top`. :math:`L` is lower triangular with free signs: covariances of rank one or zero are ordinary
points, not edges. On real answers six to nine evaluations are enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qacal.calibrators.mixed.common import MixedFit, Runs, pooled_loss, quickest
from qacal.calibrators.mixed.nodes import Nodes
from qacal.calibrators.mixed.tree_likelihood import (
    FINE_MODE,
    Cells,
    Summit,
    evaluate,
    factor,
    gaussian_curvature,
    own_curvature,
)
from qacal.calibrators.platt import fit_logistic
from qacal.tally.arrays import Floats, Ints

# The last step is the first with a smaller expected gain of log likelihood; it leaves a tenth of that or less.
_LEAST_GAIN = 1e-4


def fit_tree(x: Floats, w: Floats, wt: Floats, node: Ints, nodes: Nodes) -> MixedFit:
    """Fit the model to cells sorted by the node they belong to.

    As in the flat model, the optimum is the one that is reached from moderate effects.
    """
    total = w.sum()
    centre = float(w @ x / total)
    spread = float(np.sqrt(w @ (x - centre) ** 2 / total))
    scale = spread if spread > 1e-12 else 1.0
    starts = np.concatenate([[0], np.flatnonzero(node[1:] != node[:-1]) + 1])
    runs = Runs((x - centre) / scale, w, wt, starts, np.diff(starts, append=len(x)), np.ones(len(starts)))
    cells, coarse = quickest(runs)
    beta = np.array(fit_logistic(*coarse.pooled()))
    pooled = pooled_loss(beta, *cells.pooled())
    # The effects of a single branch cannot be told from the fixed ones; labels that a curve fits leave nothing over.
    if nodes.tips < 2 or pooled <= 1e-6 * total:
        return MixedFit.without_effects(x, w, wt, len(nodes))
    # The search starts with moderate effects: at zero the gradient by L vanishes.
    theta = np.append(beta, np.array([0.4, 0.0, 0.2]) / np.sqrt(len(nodes.levels)))
    data = Cells(cells, node[starts], nodes)
    best = _climb(data._replace(cells=coarse), theta, np.zeros((2, len(nodes))))
    if coarse is not cells:
        best = _climb(data, best.theta, best.y)
    best = evaluate(data, best.theta, best.y, FINE_MODE)
    if not best.loss < pooled - _LEAST_GAIN or np.abs(best.theta[2:]).max() < 1e-4:
        return MixedFit.without_effects(x, w, wt, len(nodes))
    # Back from the standardised feature: U' + V'(x - centre)/scale = U + V x.
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale if spread > 1e-12 else 0.0]])
    L = back @ factor(best.theta)
    return MixedFit(
        fixed=back @ best.theta[:2],
        covariance=L @ L.T,
        effects=(back @ (best.c - best.c[:, :1])).T,
        negative_log_likelihood=best.loss,
        is_singular=bool(np.linalg.cond(factor(best.theta)) > 1e4) or spread <= 1e-12,
    )


def _climb(data: Cells, theta: Floats, y: Floats) -> Summit:
    """Maximise F by Newton steps."""
    here, is_top = _ascend(data, evaluate(data, theta, y), gaussian_curvature, 40)
    # Few rows may have a likelihood so flat or so bent that the Gaussian model's curvature leads nowhere.
    return here if is_top else _ascend(data, here, own_curvature, 20)[0]


def _ascend(data: Cells, here: Summit, curvature: Callable[[Cells, Summit], Floats], steps: int) -> tuple[Summit, bool]:
    """Take Newton steps, shortened where they do not climb; return the last point, and whether it is the top."""
    for _ in range(steps):
        values, vectors = np.linalg.eigh(curvature(data, here))
        size = np.maximum(np.abs(values), 1e-6 * np.abs(values).max())
        step = -(vectors / size) @ (vectors.T @ here.gradient)
        gain = float(-here.gradient @ step / 2)
        longest = np.abs(step).max()
        if gain < _LEAST_GAIN and longest < 0.5:
            # A curvature of zero but for rounding (slopes, where all scores are equal) is no saddle.
            if values[0] >= -1e-6 * values[-1]:
                new = evaluate(data, here.theta + step, here.y)
                return min(here, new, key=lambda summit: summit.loss), True
            # A saddle: where an effect is zero the gradient by it is too, whether or not the rows ask for it.
            step = 0.25 * vectors[:, 0]
            longest = 0.25
        # Half a logit at a time: a bold step may cross into the region of another, wilder optimum.
        step *= min(1.0, 0.5 / longest)
        new = evaluate(data, here.theta + step, here.y)
        while new.loss > here.loss and np.abs(step).max() > 1e-6:
            step = step / 4
            new = evaluate(data, here.theta + step, here.y)
        if new.loss >= here.loss - _LEAST_GAIN / 100:
            return here, False
        here = new
    return here, False
