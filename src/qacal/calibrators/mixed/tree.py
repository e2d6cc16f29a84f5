r"""The hierarchical logistic model along a tree, fitted by Laplace-approximate maximum likelihood.

The likelihood is in `tree_likelihood.py`; Newton's method climbs it in :math:`\theta = (\beta, L)`,
:math:`\Sigma = L L^\top`. :math:`L` is lower triangular with free signs: covariances of rank one or zero are ordinary
points, not edges. On real answers six to nine evaluations are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qacal.calibrators.logistic import fit_logistic
from qacal.calibrators.mixed.cells import Runs, as_table
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
from qacal.storage import require, require_moderate
from qacal.tally.arrays import Floats, Ints

# Above this many cells a first fit on this many values of x per node comes close, and the full cells only polish.
_COARSE_FROM = 4096
_COARSE_VALUES = 16

# The last step is the one that promises less than this, in log likelihood; it leaves a tenth of it or far less.
_PROMISE = 1e-4


@dataclass(frozen=True)
class TreeFit:
    r"""What was fitted, on the scale of the feature that was given.

    fixed : :math:`\beta = (B_0, B_1)`, the root's coefficients.
    covariance : :math:`\Sigma`, by which nodes differ from their parents.
    effects : :math:`c_v - \beta` per node, one row each: its own part and those of its ancestors.
    negative_log_likelihood : Laplace's approximation, without binomial coefficients.
    is_singular : the covariance has lost rank: the nodes do not need one of the two effects, or either.
    """

    fixed: Floats
    covariance: Floats
    effects: Floats
    negative_log_likelihood: float
    is_singular: bool

    def validate(self, nodes: int) -> None:
        """Refuse numbers that are not finite, or not of this many nodes."""
        shapes = self.fixed.shape, self.covariance.shape, self.effects.shape
        expected = (2,), (2, 2), (nodes, 2)
        require(shapes == expected, f"fixed, covariance and effects have shapes {shapes}; expected {expected}.")
        require_moderate(fixed=self.fixed, covariance=self.covariance, effects=self.effects)
        require_moderate(negative_log_likelihood=self.negative_log_likelihood)


def fit_tree(x: Floats, w: Floats, wt: Floats, node: Ints, nodes: Nodes) -> TreeFit:
    """Fit the model to cells sorted by the node they belong to.

    As in the flat model, the optimum is the one that is reached from moderate effects.
    """
    total = w.sum()
    centre = float(w @ x / total)
    spread = float(np.sqrt(w @ (x - centre) ** 2 / total))
    scale = spread if spread > 1e-12 else 1.0
    data, coarse = _as_cells((x - centre) / scale, w, wt, node, nodes)
    beta = np.array(fit_logistic(*coarse.cells.pooled()))
    pooled = _pooled_loss(beta, *data.cells.pooled())
    # The effects of a single branch cannot be told from the fixed ones; labels that a curve fits leave nothing over.
    if nodes.tips < 2 or pooled <= 1e-6 * total:
        return _without_effects(x, w, wt, len(nodes))
    best = _search(data, coarse, beta)
    if not best.loss < pooled - _PROMISE or np.abs(best.theta[2:]).max() < 1e-4:
        return _without_effects(x, w, wt, len(nodes))
    # Back from the standardised feature: U' + V'(x - centre)/scale = U + V x.
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale if spread > 1e-12 else 0.0]])
    L = back @ factor(best.theta)
    return TreeFit(
        fixed=back @ best.theta[:2],
        covariance=L @ L.T,
        effects=(back @ (best.c - best.c[:, :1])).T,
        negative_log_likelihood=best.loss,
        is_singular=bool(np.linalg.cond(factor(best.theta)) > 1e4) or spread <= 1e-12,
    )


def _as_cells(z: Floats, w: Floats, wt: Floats, node: Ints, nodes: Nodes) -> tuple[Cells, Cells]:
    """Return the cells in their quickest form, and fewer of them for a first fit where they are many."""
    starts = np.concatenate([[0], np.flatnonzero(node[1:] != node[:-1]) + 1])
    runs = Runs(z, w, wt, starts, np.diff(starts, append=len(z)), np.ones(len(starts)))
    data = Cells(as_table(runs) or runs, node[starts], nodes)
    is_many = data.cells is runs and len(z) > max(_COARSE_FROM, 2 * _COARSE_VALUES * len(starts))
    return data, data._replace(cells=runs.coarse(_COARSE_VALUES)) if is_many else data


def _without_effects(x: Floats, w: Floats, wt: Floats, nodes: int) -> TreeFit:
    fixed = np.array(fit_logistic(x, w, wt))
    return TreeFit(fixed, np.zeros((2, 2)), np.zeros((nodes, 2)), _pooled_loss(fixed, x, w, wt), is_singular=True)


def _pooled_loss(fixed: Floats, x: Floats, w: Floats, wt: Floats) -> float:
    eta = fixed[0] + fixed[1] * x
    return float(w @ np.logaddexp(0, eta) - wt @ eta)


def _start(beta: Floats, nodes: Nodes) -> Floats:
    """Return theta with moderate effects. Zero is no start: there the gradient by L vanishes."""
    return np.append(beta, np.array([0.4, 0.0, 0.2]) / np.sqrt(len(nodes.levels)))


def _search(data: Cells, coarse: Cells, beta: Floats) -> Summit:
    best = _climb(coarse, _start(beta, data.nodes), np.zeros((2, len(data.nodes))))
    if coarse is not data:
        best = _climb(data, best.theta, best.y)
    return evaluate(data, best.theta, best.y, FINE_MODE)


def _climb(data: Cells, theta: Floats, y: Floats) -> Summit:
    """Maximise F by Newton steps."""
    here, is_top = _ascend(data, evaluate(data, theta, y), gaussian_curvature, 40)
    # Few rows may have a likelihood so flat or so bent that the Gaussian model's curvature leads nowhere.
    return here if is_top else _ascend(data, here, own_curvature, 20)[0]


def _ascend(data: Cells, here: Summit, curvature: Callable[[Cells, Summit], Floats], steps: int) -> tuple[Summit, bool]:
    """Take Newton steps, shortened where they do not climb; return where they lead, and whether that is the top."""
    for _ in range(steps):
        values, vectors = np.linalg.eigh(curvature(data, here))
        size = np.maximum(np.abs(values), 1e-6 * np.abs(values).max())
        step = -(vectors / size) @ (vectors.T @ here.gradient)
        promise = float(-here.gradient @ step / 2)
        longest = np.abs(step).max()
        if promise < _PROMISE and longest < 0.5:
            # What is zero but for rounding (slopes, where all scores are equal) is no saddle.
            if values[0] >= -1e-6 * values[-1]:
                there = evaluate(data, here.theta + step, here.y)
                return min(here, there, key=lambda summit: summit.loss), True
            # A saddle: where an effect is zero the gradient by it is too, whether or not the rows ask for it.
            step = 0.25 * vectors[:, 0]
            longest = 0.25
        # Half a logit at a time: a bold step may cross into the region of another, wilder optimum.
        step *= min(1.0, 0.5 / longest)
        there = evaluate(data, here.theta + step, here.y)
        while there.loss > here.loss and np.abs(step).max() > 1e-6:
            step = step / 4
            there = evaluate(data, here.theta + step, here.y)
        if there.loss >= here.loss - _PROMISE / 100:
            return here, False
        here = there
    return here, False
