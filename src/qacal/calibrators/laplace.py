r"""The hierarchical logistic model: random intercept and slope per group, fitted by Laplace's approximation.

For cell :math:`c` of group :math:`s` with feature :math:`x_c = (1, h_c)`,

.. math::
    \eta_c = x_c^\top (\beta + L v_s), \qquad v_s \sim N(0, I), \qquad \Sigma = L L^\top,

so that :math:`L v_s = (U_s, V_s)` are the paper's random effects. :math:`L` is lower triangular with free signs:
covariances of rank one or zero are ordinary points, not edges. Given :math:`\theta = (\beta, L)` each group has a
mode :math:`\hat v_s`, and the log likelihood is approximated by

.. math::
    F(\theta) = \sum_s \Big[ \ell_s(\beta + L \hat v_s) - \tfrac12 |\hat v_s|^2 - \tfrac12 \log\det M_s \Big],
    \qquad M_s = L^\top A_s L + I, \quad A_s = \sum_{c \in s} W_c x_c x_c^\top,

with :math:`W_c = w_c p_c (1 - p_c)`; binomial coefficients are left out. With :math:`g_s = \sum_c (wt_c - w_c p_c)
x_c`, :math:`C_s = L M_s^{-1} L^\top`, :math:`r_s = \sum_c W'_c \, (x_c^\top C_s x_c) \, x_c` (:math:`W'` by
:math:`\eta`), :math:`a_s = r_s - A_s C_s r_s`, :math:`z_s = M_s^{-1} L^\top r_s` and :math:`K_s = A_s - A_s C_s A_s`,
what group :math:`s` knows of :math:`\beta` when its own effects are unknown, the gradient is

.. math::
    \partial_\beta F = \sum_s g_s - \tfrac12 a_s, \qquad
    \partial_L F = \sum_s (g_s - \tfrac12 a_s) \hat v_s^\top - \tfrac12 g_s z_s^\top - K_s L.

Newton's method climbs :math:`F`, with the curvature of the Gaussian model that the approximation amounts to:

.. math::
    -\partial^2_\beta F \approx \sum_s K_s, \qquad
    -\partial^2_\Sigma F \approx \tfrac12 \sum_s K_s \otimes K_s, \qquad
    \partial_\Sigma F \approx \tfrac12 \sum_s g_s g_s^\top - K_s =: S.

For matrices of two by two, with :math:`A^*` the adjugate, these need no solver and hold at every rank:

.. math::
    C_s = (\Sigma + \det\Sigma \, A_s^*) / \det M_s, \qquad K_s = (A_s + \det A_s \, \Sigma^*) / \det M_s.

Everything works on cells: rows and cells give the same :math:`F` to the last digit. What belongs to groups is stored a
row per number and a column per group; a symmetric matrix is its three numbers (11, 12, 22).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from qacal.calibrators.group_cells import GroupCells, Runs, as_table
from qacal.calibrators.logistic import fit_logistic
from qacal.soundness import require, require_moderate
from qacal.values import Floats, Ints

# Above this many cells a first fit on this many values of x per group comes close, and the full cells only polish.
_COARSE_FROM = 4096
_COARSE_VALUES = 16

# The last step is the one that promises less than this, in log likelihood; it leaves a tenth of it or far less.
_PROMISE = 1e-4

# Modes are found until no score is above this; a group's log likelihood then misses less than that.
_MODE = 1e-4

# Groups that are all right beside groups that are all wrong have no maximum: the covariance would grow for ever. Beyond
# these walls (in logits, per standard deviation of x) a penalty stops it; fits inside are not touched.
_WALLS = np.array([30.0, 30.0, 10.0, 10.0, 10.0])

# Of symmetric matrices as three numbers: the adjugate, the unit, the weights in a quadratic form, and which products of
# two such numbers make up the Kronecker square.
_ADJUGATE = np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]])
_IDENTITY = np.array([[1.0], [0.0], [1.0]])
_TWICE = np.array([[1.0], [2.0], [1.0]])
_KRONECKER = np.repeat([[0, 1], [1, 2]], 2, axis=0).repeat(2, axis=1), np.tile([[0, 1], [1, 2]], (2, 2))


@dataclass(frozen=True)
class HierarchicalFit:
    r"""What was fitted, on the scale of the feature that was given.

    fixed : :math:`(B_0, B_1)`.
    covariance : :math:`\Sigma` of (U, V).
    effects : (U, V) per group, one row each.
    negative_log_likelihood : Laplace's approximation, without binomial coefficients.
    is_singular : the covariance has lost rank: the groups do not need one of the two effects, or either.
    """

    fixed: Floats
    covariance: Floats
    effects: Floats
    negative_log_likelihood: float
    is_singular: bool

    def require_sound(self, groups: int) -> None:
        """Refuse numbers that are not finite, or not of this many groups."""
        shapes = self.fixed.shape, self.covariance.shape, self.effects.shape
        expected = (2,), (2, 2), (groups, 2)
        require(shapes == expected, f"fixed, covariance and effects have shapes {shapes}; expected {expected}.")
        require_moderate(fixed=self.fixed, covariance=self.covariance, effects=self.effects)
        require_moderate(negative_log_likelihood=self.negative_log_likelihood)


class _Point(NamedTuple):
    """The model at given coefficients per group: per cell eta, e^-|eta|, p, W; per group g and A."""

    eta: Floats
    decay: Floats
    p: Floats
    W: Floats
    g: Floats
    A: Floats


def fit_hierarchical(x: Floats, w: Floats, wt: Floats, group: Ints) -> HierarchicalFit:
    """Fit the model to cells sorted by `group`; cells of group -1 have no random effects.

    Effects come back in the order of the groups (-1 left out). The optimum is the one that is reached from moderate
    effects. The likelihood of little data may have others, at effects of ten logits and more, where Laplace's
    approximation is at its worst; they are not looked for.
    """
    starts = np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])
    is_free = (group[starts] >= 0).astype(np.float64)
    total = w.sum()
    centre = float(w @ x / total)
    spread = float(np.sqrt(w @ (x - centre) ** 2 / total))
    scale = spread if spread > 1e-12 else 1.0
    runs = Runs((x - centre) / scale, w, wt, starts, np.diff(starts, append=len(x)), is_free)
    data: GroupCells = as_table(runs) or runs
    is_many = isinstance(data, Runs) and len(x) > max(_COARSE_FROM, 2 * _COARSE_VALUES * len(starts))
    coarse = runs.coarse(_COARSE_VALUES) if is_many else data
    beta = np.array(fit_logistic(*coarse.pooled()))
    pooled = _pooled_loss(beta, *data.pooled())
    # One group's effects cannot be told from the fixed ones; labels that a curve fits perfectly leave nothing over.
    if is_free.sum() < 2 or pooled <= 1e-6 * total:
        return _without_effects(x, w, wt, int(is_free.sum()))
    best = _climb(coarse, *_start(coarse, beta))
    if coarse is not data:
        best = _climb(data, best.theta, best.v)
    best = _flattened(data, best)
    beta, L = _unpack(best.theta)
    if best.loss >= pooled - _PROMISE or np.abs(L).max() < 1e-4:
        return _without_effects(x, w, wt, int(is_free.sum()))
    if spread <= 1e-12:
        L[1] = 0.0
    # Back from the standardised feature: U' + V'(x - centre)/scale = U + V x.
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale]])
    return HierarchicalFit(
        fixed=back @ beta,
        covariance=back @ L @ L.T @ back.T,
        effects=(back @ L @ best.v).T[is_free > 0],
        negative_log_likelihood=best.loss,
        is_singular=bool(np.linalg.cond(L) > 1e4),
    )


def _without_effects(x: Floats, w: Floats, wt: Floats, groups: int) -> HierarchicalFit:
    fixed = np.array(fit_logistic(x, w, wt))
    loss = _pooled_loss(fixed, x, w, wt)
    return HierarchicalFit(fixed, np.zeros((2, 2)), np.zeros((groups, 2)), loss, is_singular=True)


def _pooled_loss(fixed: Floats, x: Floats, w: Floats, wt: Floats) -> float:
    eta = fixed[0] + fixed[1] * x
    return float(w @ np.logaddexp(0, eta) - wt @ eta)


def _start(data: GroupCells, beta: Floats) -> tuple[Floats, Floats]:
    r"""Return theta and modes from one pass over the cells at the pooled curve.

    There :math:`g g^\top` is :math:`A + A \Sigma A` on average, which gives a covariance by moments, and with it the
    modes of the Gaussian model. A curve through the average of many curves is flatter than they are: with effects of
    variance :math:`\sigma^2`, by about :math:`\sqrt{1 + 0.346 \sigma^2}` on the scale of logits, which is given back.
    """
    at = _point(data, np.repeat(beta[:, None], len(data.is_free), axis=1))
    A = at.A * data.is_free
    p, q = at.g * data.is_free
    excess = np.array([p @ p, p @ q, q @ q]) - A.sum(1)
    # The three numbers of A Sigma A, as sums of products of those of A.
    (aa, ab, ac), (_, bb, bc), (_, _, cc) = (A @ A.T).tolist()
    design = np.array([[aa, 2 * ab, bb], [ab, ac + bb, bc], [bb, 2 * bc, cc]])
    u, w, v = np.linalg.lstsq(design, excess, rcond=1e-10)[0]
    values, vectors = np.linalg.eigh(np.array([[u, w], [w, v]]))
    # Moments may ask for less than nothing. Zero itself is no start: there the gradient by L vanishes.
    L = np.linalg.cholesky(vectors * np.clip(values, 0.05, 1.0) @ vectors.T)
    modes = _times(_shape(data, at, L, _penalised(data, at, L)).inverse, L.T @ at.g)
    return np.sqrt(1 + 0.346 * np.vdot(L, L)) * _pack(beta, L), modes


class _Shape(NamedTuple):
    """What the covariance makes of the curvature in each group: M^-1, C, K and log det M."""

    inverse: Floats
    C: Floats
    K: Floats
    log_determinant: float


class _Summit(NamedTuple):
    """Where the search stands: theta, the modes, the negative of F and its gradient, and what the curvature needs."""

    theta: Floats
    v: Floats
    loss: float
    gradient: Floats
    at: _Point
    shape: _Shape


def _climb(data: GroupCells, theta: Floats, v: Floats) -> _Summit:
    """Maximise F by Newton steps, shortened where they do not climb."""
    here = _evaluate(data, theta, v)
    for _ in range(200):
        values, vectors = np.linalg.eigh(_curvature(data, here))
        size = np.maximum(np.abs(values), 1e-6 * np.abs(values).max())
        step = -(vectors / size) @ (vectors.T @ here.gradient)
        promise = float(-here.gradient @ step / 2)
        longest = np.abs(step).max()
        if promise < _PROMISE and longest < 0.5:
            if values[0] >= 0:
                there = _evaluate(data, here.theta + step, _follow(here, step))
                return min(here, there, key=lambda summit: summit.loss)
            # A saddle: where an effect is zero the gradient by it is too, whether or not the rows ask for it.
            step = 0.25 * vectors[:, 0]
            longest = 0.25
        # Half a logit at a time: a bold step may cross into the region of another, wilder optimum.
        step *= min(1.0, 0.5 / longest)
        there = _evaluate(data, here.theta + step, _follow(here, step))
        while there.loss > here.loss and np.abs(step).max() > 1e-6:
            step = step / 4
            there = _evaluate(data, here.theta + step, _follow(here, step))
        if there.loss >= here.loss - _PROMISE / 100:
            break
        here = there
    return here if np.abs(here.gradient).max() <= 1e-3 * np.sqrt(data.w.sum()) else _polish(data, here)


def _flattened(data: GroupCells, best: _Summit) -> _Summit:
    """Return the fit with a covariance of rank one where that fits as well: the search nears it and never arrives."""
    beta, L = _unpack(best.theta)
    left, sizes, right = np.linalg.svd(L)
    if not 0 < sizes[1] < 0.03 * sizes[0]:
        return best
    flat = _evaluate(data, _pack(beta, left * [sizes[0], 0.0]), right @ best.v)
    return flat if flat.loss <= best.loss + _PROMISE else best


def _polish(data: GroupCells, here: _Summit) -> _Summit:
    """Go on by BFGS, where the likelihood is so flat or so bent that the Gaussian model's curvature leads nowhere."""
    from scipy.optimize import minimize

    values, vectors = np.linalg.eigh(_curvature(data, here))
    inverse = (vectors / np.maximum(np.abs(values), 1e-3 * np.abs(values).max())) @ vectors.T
    modes = [here.v]

    def loss(theta: Floats) -> tuple[float, Floats]:
        there = _evaluate(data, theta, modes[0])
        modes[0] = there.v
        return there.loss, there.gradient

    # Symmetric to the last digit: scipy insists on it.
    options: Any = {"gtol": 1e-5 * np.sqrt(data.w.sum()), "hess_inv0": (inverse + inverse.T) / 2}
    found = minimize(loss, here.theta, jac=True, method="BFGS", options=options)
    return min(here, _evaluate(data, np.asarray(found.x), modes[0]), key=lambda summit: summit.loss)


def _evaluate(data: GroupCells, theta: Floats, v: Floats) -> _Summit:
    beta, L = _unpack(theta)
    at, v, M = _modes(data, beta, L, v)
    shape = _shape(data, at, L, M)
    log_likelihood = np.vdot(data.wt, at.eta) - np.vdot(data.w, np.maximum(at.eta, 0) + np.log1p(at.decay))
    value = log_likelihood - 0.5 * np.vdot(v, v) - 0.5 * shape.log_determinant
    penalty, slope = _wall(theta)
    return _Summit(theta, v, penalty - float(value), slope - _gradient(data, at, v, L, shape), at, shape)


def _shape(data: GroupCells, at: _Point, L: Floats, M: Floats) -> _Shape:
    (a, _), (b, c) = L.tolist()
    sigma = np.array([[a * a], [a * b], [b * b + c * c]])
    determinant = _determinant(M)
    share = data.is_free / determinant
    C = (sigma + (a * c) ** 2 * (_ADJUGATE @ at.A)) * share
    K = at.A / determinant + _ADJUGATE @ sigma * (_determinant(at.A) * share)
    return _Shape(_ADJUGATE @ M * share, C, K, float(np.log(determinant).sum()))


def _curvature(data: GroupCells, here: _Summit) -> Floats:
    """Return the Gaussian model's curvature of the loss by theta."""
    a, b, c = (float(entry) for entry in here.theta[2:])
    K, g = here.shape.K * data.is_free, here.at.g * data.is_free
    S = (g @ g.T - _matrix(K.sum(1))) / 2
    # How Sigma = L L' moves with each entry of L, and how that bends.
    directions = np.array([[2 * a, b, b, 0.0], [0.0, a, a, 2 * b], [0.0, 0.0, 0.0, 2 * c]])
    bend = 2 * np.array([[S[0, 0], S[0, 1], 0.0], [S[0, 1], S[1, 1], 0.0], [0.0, 0.0, S[1, 1]]])
    out = np.zeros((5, 5))
    out[:2, :2] = _matrix(here.shape.K.sum(1))
    out[2:, 2:] = directions @ (K @ K.T)[_KRONECKER] @ directions.T / 2 - bend
    return out


def _follow(here: _Summit, step: Floats) -> Floats:
    """Return where the modes go, to first order, when theta takes a step."""
    _, L = _unpack(here.theta)
    by_beta, by_L = _unpack(step)
    pull = by_L.T @ here.at.g - L.T @ _times(here.at.A, by_beta[:, None] + by_L @ here.v)
    return here.v + _times(here.shape.inverse, pull)


def _modes(data: GroupCells, beta: Floats, L: Floats, v: Floats) -> tuple[_Point, Floats, Floats]:
    """Return the model at the mode of every group: Newton's method, a group's step halved while it overshoots."""
    common = beta[:, None]
    at = _point(data, common + L @ v)
    score = (L.T @ at.g - v) * data.is_free
    size = np.abs(score).max(axis=0)
    # Rounding may keep a score above the tolerance where effects are huge; a hundred steps are then as near as it gets.
    for _ in range(100):
        if size.max() < _MODE:
            break
        M = _penalised(data, at, L)
        step = _times(_ADJUGATE @ M / _determinant(M), score)
        before = np.maximum(size, _MODE)
        for _ in range(40):
            at = _point(data, common + L @ (v + step))
            score = (L.T @ at.g - (v + step)) * data.is_free
            size = np.abs(score).max(axis=0)
            # Along a Newton step the score shrinks at first; where it has grown, the step was too long.
            grown = size > before
            if not grown.any():
                break
            step = np.where(grown, step / 2, step)
        v = v + step
    return at, v, _penalised(data, at, L)


def _penalised(data: GroupCells, at: _Point, L: Floats) -> Floats:
    """Return M of every group."""
    (a, _), (b, c) = L.tolist()
    square = np.array([[a * a, 2 * a * b, b * b], [0.0, a * c, b * c], [0.0, 0.0, c * c]])
    return np.asarray(square @ (at.A * data.is_free) + _IDENTITY)


def _point(data: GroupCells, coefficients: Floats) -> _Point:
    eta = data.polynomial(coefficients)
    decay = np.exp(-np.abs(eta))
    larger = 1 / (1 + decay)
    smaller = decay * larger
    p = np.where(eta >= 0, larger, smaller)
    W = data.w * (larger * smaller)
    return _Point(eta, decay, p, W, data.moments(data.wt - data.w * p, 1), data.moments(W, 2))


def _gradient(data: GroupCells, at: _Point, v: Floats, L: Floats, shape: _Shape) -> Floats:
    slope = at.W * (1 - 2 * at.p) * data.polynomial(shape.C * _TWICE)
    r = data.moments(slope, 1)
    half = at.g - (r - _times(at.A, _times(shape.C, r))) / 2
    z = _times(shape.inverse, L.T @ r)
    return _pack(half.sum(1), half @ v.T - at.g @ z.T / 2 - _matrix(shape.K @ data.is_free) @ L)


def _pack(beta: Floats, L: Floats) -> Floats:
    return np.array([beta[0], beta[1], L[0, 0], L[1, 0], L[1, 1]])


def _unpack(theta: Floats) -> tuple[Floats, Floats]:
    return theta[:2], np.array([[theta[2], 0.0], [theta[3], theta[4]]])


def _wall(theta: Floats) -> tuple[float, Floats]:
    """Return the penalty for leaving the region in which fits of real data lie, and its gradient."""
    beyond = np.maximum(np.abs(theta) - _WALLS, 0.0)
    return float(beyond @ beyond), 2 * beyond * np.sign(theta)


def _matrix(three: Floats) -> Floats:
    return three[[0, 1, 1, 2]].reshape(2, 2)


def _times(A: Floats, x: Floats) -> Floats:
    """Return A x in every group."""
    return np.asarray(A[:2] * x[0] + A[1:] * x[1])


def _determinant(M: Floats) -> Floats:
    return np.asarray(M[0] * M[2] - M[1] * M[1])
