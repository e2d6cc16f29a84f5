r"""The hierarchical logistic model along a tree, fitted by Laplace's approximation.

For cell :math:`i` of node :math:`v` with feature :math:`x_i = (1, h_i)`,

.. math::
    \eta_i = x_i^\top c_v, \quad c_v = c_{pa(v)} + \delta_v, \quad \delta_v \sim N(0, \Sigma), \quad c_{root} = \beta:

every node is its parent and a shrunken part of its own, and one covariance serves all depths (`docs/decisions.md` says
why). With one level below the root this is the model of :mod:`qacal.calibrators.mixed.flat`. Given :math:`\beta` and
:math:`\Sigma`, the effects have a joint mode. There, with :math:`\delta_v = \Sigma y_v`, the log likelihood is
approximated by

.. math::
    F(\beta, \Sigma) = \sum_v \Big[ \ell_v(c_v) - \tfrac12 y_v^\top \Sigma y_v - \tfrac12 \log\det(I + \Lambda_v \Sigma)
    \Big].

Steps to the mode, :math:`\Lambda_v`, :math:`K_v` and the variances :math:`S_v` left of :math:`c_v` come from two passes
over the tree, below. Let :math:`G_v` be the sum of the scores :math:`\sum_i (wt_i - w_i p_i) x_i` over the subtree of
:math:`v` (at the mode, :math:`y_v = G_v`), and :math:`P_v = K_v - K_v S_{pa(v)} K_v` its information about
a common shift. The mode moves with the parameters: with :math:`r_v = \sum_i W'_i (x_i^\top S_v x_i) x_i`
(:math:`W = w p (1 - p)`, its slope by :math:`\eta`), and :math:`d` the Newton step for scores :math:`r`, let
:math:`a_v` be the sum of :math:`r - A d` over the subtree. Then

.. math::
    \partial_\beta F = G_{root} - \tfrac12 a_{root}, \qquad
    \partial_\Sigma F = \tfrac12 \sum_{v \ne root} G_v G_v^\top - \tfrac12 (a_v G_v^\top + G_v a_v^\top) - P_v.

Newton's method maximises :math:`F` in :math:`\theta = (\beta, L)`, :math:`\Sigma = L L^\top`. :math:`L` is lower
triangular with free signs: covariances of rank one or zero are ordinary points, not edges. On real answers six to nine
evaluations are enough. The search takes the curvature from the Gaussian model that the approximation amounts to, by its
average information: :math:`\Lambda_{root}` for :math:`\beta`, and :math:`\frac12 f_j^\top P f_k` for entries
:math:`j, k` of :math:`\Sigma`, where :math:`f_j` is how :math:`c` moves with the entry if :math:`y` stays, and
:math:`P f = A (f - d)` with :math:`d` the Newton step for scores :math:`A f`.

The Gaussian model is exact: one pass up the tree and one down. The rows of a node determine its :math:`c_v`, with the
curvature :math:`A_v` and the score :math:`g_v`. Going up, let :math:`\Lambda_v = A_v + \sum_{children} K` be the
information in the rows below :math:`v` about :math:`c_v`. Their information about its parent's is

.. math::
    K_v = \Lambda_v - \Lambda_v C_v \Lambda_v, \qquad C_v = \Sigma (I + \Lambda_v \Sigma)^{-1},

where :math:`C_v` is the variance left of :math:`\delta_v` if :math:`c_{pa(v)}` is known; and :math:`\prod_v \det(I +
\Lambda_v \Sigma)` is the determinant of the whole tree. For two by two, with :math:`A^*` the adjugate, these need no
solver and hold at every rank of :math:`\Sigma`, zero included:

.. math::
    \det(I + \Lambda\Sigma) = 1 + \mathrm{tr}\,\Lambda\Sigma + \det\Lambda\det\Sigma =: m, \qquad
    C = (\Sigma + \det\Sigma \, \Lambda^*) / m, \quad K = (\Lambda + \det\Lambda \, \Sigma^*) / m, \quad
    E := (I + \Lambda\Sigma)^{-1} = (I + \Lambda\Sigma)^* / m.

For the same reason effects are kept as :math:`\delta_v = \Sigma y_v`. What belongs to nodes is stored a row per number
and a column per node; a symmetric matrix is its three numbers (11, 12, 22), a general one its four.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from qacal.calibrators.curves import fit_logistic
from qacal.calibrators.mixed.common import GroupCells, MixedFit, Runs, determinant, matrix, pooled_loss, quickest, times
from qacal.calibrators.mixed.nodes import Nodes
from qacal.tally.arrays import Floats, Ints

# The last step is the first with a smaller expected gain of log likelihood; it leaves a tenth of that or less.
_LEAST_GAIN = 1e-4

# Newton's last step to the mode is the first below this, in logits; it leaves about its square.
_MODE = 1e-2
_FINE_MODE = 1e-7

# If some groups are all correct and others all wrong there is no maximum: the effects would grow without end. Beyond
# these walls, in logits per standard deviation of x, a penalty stops them; fits inside are not touched.
_FIXED_WALL = 30.0
_EFFECT_WALL = 10.0

# Of symmetric matrices as three numbers: the weights in a quadratic form, and the map to the adjugate.
_TWICE = np.array([[1.0], [2.0], [1.0]])
_ADJUGATE = np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]])


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
    best = evaluate(data, best.theta, best.y, _FINE_MODE)
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


# The likelihood


class Cells(NamedTuple):
    """The cells, the node of each of their groups, and the tree."""

    cells: GroupCells
    place: Ints
    nodes: Nodes


class Point(NamedTuple):
    """The model at some coefficients: per cell p and W, per node g and A, and the log likelihood."""

    p: Floats
    W: Floats
    g: Floats
    A: Floats
    log_likelihood: float


class Summit(NamedTuple):
    """The model at theta: the effects, the negative of F with its gradients, and what these are computed from."""

    theta: Floats
    y: Floats
    c: Floats
    loss: float
    gradient: Floats
    by_sigma: Floats
    G: Floats
    at: Point
    info: Information


def evaluate(data: Cells, theta: Floats, y: Floats, tolerance: float = _MODE) -> Summit:
    """Return everything at theta; `y` is where the search for the mode starts."""
    sigma = covariance_of(theta)
    at, c, y = _modes(data, theta[:2], sigma, y, tolerance)
    info = gather_information(data.nodes, at.A, sigma)
    value = at.log_likelihood - np.vdot(times(sigma[:, None], y), y) / 2 - info.log_determinant / 2
    by_beta, by_sigma, G = _gradient(data, at, info)
    penalty, from_beta, from_sigma = _wall(theta[:2], sigma)
    by_beta, by_sigma = from_beta - by_beta, from_sigma - by_sigma
    by_L = 2 * matrix(by_sigma) @ factor(theta)
    gradient = np.array([*by_beta, by_L[0, 0], by_L[1, 0], by_L[1, 1]])
    return Summit(theta, y, c, penalty - float(value), gradient, by_sigma, G, at, info)


def _modes(data: Cells, beta: Floats, sigma: Floats, y: Floats, tolerance: float) -> tuple[Point, Floats, Floats]:
    """Return the model, c and y at the joint mode: Newton's method, a step halved while it overshoots."""
    three = sigma[:, None]
    c = beta[:, None] + data.nodes.cumulated(times(three, y))
    at = _point(data, c)
    height = at.log_likelihood - np.vdot(times(three, y), y) / 2
    for _ in range(100):
        new, d = solve(data.nodes, gather_information(data.nodes, at.A, sigma), at.g, y)
        step = new - y
        size, least = 1.0, height - 1e-12 * abs(height)
        while True:
            at = _point(data, c + size * d)
            moved = y + size * step
            reached = at.log_likelihood - np.vdot(times(three, moved), moved) / 2
            if reached >= least or size <= 1e-8:
                break
            size /= 2
        c, y, height = c + size * d, moved, reached
        if size * np.abs(d).max() < tolerance:
            break
    return at, c, y


def _point(data: Cells, c: Floats) -> Point:
    cells = data.cells
    eta = cells.polynomial(np.take(c, data.place, axis=1))
    decay = np.exp(-np.abs(eta))
    larger = 1 / (1 + decay)
    smaller = decay * larger
    p = np.where(eta >= 0, larger, smaller)
    W = cells.w * (larger * smaller)
    g, A = (_by_node(data, cells.moments(part, k)) for part, k in ((cells.wt - cells.w * p, 1), (W, 2)))
    return Point(p, W, g, A, float(np.vdot(cells.wt, eta) - np.vdot(cells.w, np.maximum(eta, 0) + np.log1p(decay))))


def _by_node(data: Cells, of_places: Floats) -> Floats:
    out = np.zeros((len(of_places), len(data.nodes)))
    out[:, data.place] = of_places
    return out


def _gradient(data: Cells, at: Point, info: Information) -> tuple[Floats, Floats, Floats]:
    """Return the gradients of F by beta and by Sigma, and the scores of all subtrees."""
    nodes = data.nodes
    S = posterior_covariances(nodes, info)
    slope = at.W * (1 - 2 * at.p) * data.cells.polynomial(np.take(S * _TWICE, data.place, axis=1))
    r = _by_node(data, data.cells.moments(slope, 1))
    _, d = solve(nodes, info, r, np.zeros_like(r))
    G, a = np.split(nodes.subtree_sums(np.concatenate([at.g, r - times(at.A, d)])), 2)
    half = G - a / 2
    P = info.K - (_congruence(info.K[[0, 1, 1, 2]]) * np.take(S, nodes.parent, axis=1)).sum(axis=1)
    # G G' - (a G' + G a') / 2, the sum over all nodes but the root.
    product = half[:, 1:] @ G[:, 1:].T - G[:, 1:] @ a[:, 1:].T / 2
    return half[:, 0], (product[[0, 0, 1], [0, 1, 1]] - P.sum(axis=1)) / 2, G


def gaussian_curvature(data: Cells, here: Summit) -> Floats:
    """Return the curvature of the loss by theta, with the average information of the Gaussian model."""
    a, b, c = (float(entry) for entry in here.theta[2:])
    directions = np.array([[2 * a, b, 0.0], [0.0, a, 2 * b], [0.0, 0.0, 2 * c]])
    S = here.by_sigma
    bend = 2 * np.array([[S[0], S[1], 0.0], [S[1], S[2], 0.0], [0.0, 0.0, S[2]]])
    out = np.zeros((5, 5))
    out[:2, :2] = matrix(here.info.Lambda[:, 0])
    out[2:, 2:] = directions @ _information(data, here) @ directions.T + bend
    return out


def own_curvature(data: Cells, here: Summit) -> Floats:
    """Return the curvature of the loss itself, by differences of its gradient."""
    out = np.zeros((5, 5))
    for entry, step in enumerate(1e-4 * np.eye(5)):
        above, below = (evaluate(data, here.theta + way, here.y, _FINE_MODE) for way in (step, -step))
        out[entry] = (above.gradient - below.gradient) / 2e-4
    return (out + out.T) / 2


def _information(data: Cells, here: Summit) -> Floats:
    """Return f' P f / 2 for the three entries of Sigma, where P f = A (f - d) with d the step for scores A f."""
    nodes, G, zero = data.nodes, here.G, np.zeros(len(data.nodes))
    own = np.array([[G[0], G[1], zero], [zero, G[0], G[1]]])
    own[..., 0] = 0.0
    f = nodes.cumulated(own)
    A = here.at.A[:, None]
    score = times(A, f)
    _, d = solve(nodes, here.info, score, np.zeros_like(score))
    return np.asarray(np.einsum("ijn,ikn->jk", score, f - d) / 2)


def covariance_of(theta: Floats) -> Floats:
    """Return the three numbers of Sigma."""
    a, b, c = theta[2:].tolist()
    return np.array([a * a, a * b, b * b + c * c])


def factor(theta: Floats) -> Floats:
    """Return L."""
    return np.array([[theta[2], 0.0], [theta[3], theta[4]]])


def _wall(beta: Floats, sigma: Floats) -> tuple[float, Floats, Floats]:
    """Return the penalty for leaving the region in which fits of real data lie, and its gradients."""
    fixed = np.maximum(np.abs(beta) - _FIXED_WALL, 0.0)
    width = float(np.sqrt(sigma[0] + sigma[2]))
    beyond = max(width - _EFFECT_WALL, 0.0)
    slope = beyond / width if beyond else 0.0
    return float(fixed @ fixed) + beyond**2, 2 * fixed * np.sign(beta), slope * np.array([1.0, 0.0, 1.0])


# The passes over the tree


class Information(NamedTuple):
    """What the pass up finds for every node. Of the root, which has no part of its own, C, K and E are zero.

    transposed : the four numbers of E'.
    """

    sigma: Floats
    Lambda: Floats
    C: Floats
    K: Floats
    E: Floats
    transposed: Floats
    log_determinant: float


def gather_information(nodes: Nodes, A: Floats, sigma: Floats) -> Information:
    """Return the information in the rows, for curvatures A of all nodes and the three numbers of a covariance."""
    Lambda, K, m = A.copy(), np.zeros_like(A), np.ones(A.shape[1])
    column, adjugate, det_sigma = sigma[:, None], _ADJUGATE @ sigma[:, None], float(determinant(sigma))
    for family in reversed(nodes.families):
        level = family.children
        here = Lambda[:, level]
        det_here = determinant(here)
        m[level] = size = (sigma * _TWICE[:, 0]) @ here + det_sigma * det_here + 1
        K[:, level] = (here + det_here * adjugate) / size
        family.add_to_parents(K[:, level], Lambda)
    share = 1 / m
    share[0] = 0.0
    C = (column + det_sigma * (_ADJUGATE @ Lambda)) * share
    E = (_adjugate_of_product(sigma) @ Lambda + np.array([[1.0], [0.0], [0.0], [1.0]])) * share
    return Information(sigma, Lambda, C, K, E, E[[0, 2, 1, 3]], float(np.log(m).sum()))


def solve(nodes: Nodes, info: Information, g: Floats, y: Floats) -> tuple[Floats, Floats]:
    r"""Return (y, d): the effects to which one Newton step leads, and how far it moves every :math:`c_v`.

    They maximise :math:`\sum_v g_v^\top d_v - \frac12 d_v^\top A_v d_v - \frac12 y_v^\top \Sigma y_v` for scores g at
    effects that stand at y so far. Several problems may be solved at once: g and y may have further axes in the middle.
    """
    # A column per node, with room for several problems between.
    parts = (*info[:2], *info[3:6])
    sigma, Lambda, K, E, transposed = (part.reshape(len(part), *[1] * (g.ndim - 2), -1) for part in parts)
    delta = times(sigma, y)
    eta, stay = g.copy(), y - _times4(E, y)
    for family in reversed(nodes.families):
        level = family.children
        family.add_to_parents(_times4(E[..., level], eta[..., level]) + stay[..., level], eta)
    alone = _times4(E, eta + times(Lambda, delta))
    # Alone is where a node goes if its parent stays; else y = alone - K d_parent, and I - Sigma K = E'.
    d = times(sigma, alone) - delta
    for level, parents in nodes.levels:
        d[..., level] += _times4(transposed[..., level], np.take(d, parents, axis=-1))
    return alone - times(K, np.take(d, nodes.parent, axis=-1)), d


def posterior_covariances(nodes: Nodes, info: Information) -> Floats:
    r"""Return what the rows leave unknown of every :math:`c_v`: :math:`S_v = C_v + E_v^\top S_{pa(v)} E_v`."""
    S, turn = info.C.copy(), _congruence(info.E)
    for level, parents in nodes.levels:
        S[:, level] += (turn[:, :, level] * np.take(S, parents, axis=1)).sum(axis=1)
    return S


def _times4(E: Floats, x: Floats) -> Floats:
    """Return E x for general matrices."""
    return np.asarray(E[::2] * x[0] + E[1::2] * x[1])


def _adjugate_of_product(sigma: Floats) -> Floats:
    """Return the matrix that makes the adjugate of Lambda Sigma, its four numbers, of the three of Lambda."""
    a, b, c = sigma.tolist()
    return np.array([[0.0, b, c], [-b, -c, 0.0], [0.0, -a, -b], [a, b, 0.0]])


def _congruence(E: Floats) -> Floats:
    """Return the matrices that make E' S E, its three numbers, of the three of S."""
    a, b, c, d = E
    return np.array([[a * a, 2 * a * c, c * c], [a * b, a * d + b * c, c * d], [b * b, 2 * b * d, d * d]])
