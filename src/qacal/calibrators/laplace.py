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
:math:`\eta`), :math:`a_s = r_s - A_s C_s r_s` and :math:`z_s = M_s^{-1} L^\top r_s`, the gradient is

.. math::
    \partial_\beta F = \sum_s g_s - \tfrac12 a_s, \qquad
    \partial_L F = \sum_s (g_s - \tfrac12 a_s) \hat v_s^\top - \tfrac12 g_s z_s^\top - A_s L M_s^{-1}.

Newton's method climbs :math:`F`, with the curvature of the Gaussian model that the approximation amounts to. With
:math:`K_s = A_s - A_s C_s A_s`, what group :math:`s` knows of :math:`\beta` when its own effects are unknown,

.. math::
    -\partial^2_\beta F \approx \sum_s K_s, \qquad
    -\partial^2_\Sigma F \approx \tfrac12 \sum_s K_s \otimes K_s, \qquad
    \partial_\Sigma F \approx \tfrac12 \sum_s g_s g_s^\top - K_s =: S.

Everything works on cells: rows and cells give the same :math:`F` to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from qacal.calibrators.logistic import fit_logistic
from qacal.records import Floats, Ints

# Above this many cells a first fit on this many values of x per group comes close, and the full cells only polish.
_COARSE_FROM = 4096
_COARSE_VALUES = 16

# The search ends when the next step promises less than this, in log likelihood.
_PROMISE = 1e-7

# Modes are found until no score is above this; the log likelihood then misses its square.
_MODE = 1e-5

# Groups that are all right beside groups that are all wrong have no maximum: the covariance would grow for ever. Beyond
# these walls (in logits, per standard deviation of x) a penalty stops it; fits inside are not touched.
_WALLS = np.array([30.0, 30.0, 10.0, 10.0, 10.0])

_ENTRIES = np.array([[[1.0, 0], [0, 0]], [[0, 0], [1.0, 0]], [[0, 0], [0, 1.0]]])  # of L, in the order of theta
_SYMMETRIC = np.array([[[1.0, 0], [0, 0]], [[0, 1.0], [1.0, 0]], [[0, 0], [0, 1.0]]])


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


@dataclass(frozen=True)
class _Data:
    """Cells in runs, one run a group. The first run may hold rows without a group: their effects are zero."""

    z: Floats
    w: Floats
    wt: Floats
    starts: Ints
    lengths: Ints
    is_free: Floats  # 1 for groups, 0 for the run without one

    def sums(self, *columns: Floats) -> Floats:
        return np.stack([np.add.reduceat(column, self.starts) for column in columns], axis=-1)

    def spread(self, per_group: Floats | Ints) -> Any:
        return np.repeat(per_group, self.lengths)


@dataclass(frozen=True)
class _Point:
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
    centre = float((w * x).sum() / total)
    spread = float(np.sqrt((w * (x - centre) ** 2).sum() / total))
    scale = spread if spread > 1e-12 else 1.0
    data = _Data((x - centre) / scale, w, wt, starts, np.diff(np.append(starts, len(x))), is_free)
    coarse = _coarsen(data) if len(x) > max(_COARSE_FROM, 2 * _COARSE_VALUES * len(starts)) else data
    beta = np.array(fit_logistic(coarse.z, coarse.w, coarse.wt))
    pooled = _pooled_loss(beta[0] + beta[1] * data.z, w, wt)
    # One group's effects cannot be told from the fixed ones; labels that a curve fits perfectly leave nothing over.
    if is_free.sum() < 2 or pooled <= 1e-6 * total:
        return _without_effects(x, w, wt, int(is_free.sum()))
    best = _climb(coarse, _start(coarse, beta), np.zeros((len(starts), 2)))
    if coarse is not data:
        best = _climb(data, best.theta, best.v)
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
        effects=(best.v @ L.T @ back.T)[is_free > 0],
        negative_log_likelihood=best.loss,
        is_singular=bool(np.linalg.cond(L) > 1e4),
    )


def _without_effects(x: Floats, w: Floats, wt: Floats, groups: int) -> HierarchicalFit:
    a, b = fit_logistic(x, w, wt)
    loss = _pooled_loss(a + b * x, w, wt)
    return HierarchicalFit(np.array([a, b]), np.zeros((2, 2)), np.zeros((groups, 2)), loss, is_singular=True)


def _pooled_loss(eta: Floats, w: Floats, wt: Floats) -> float:
    return float((w * np.logaddexp(0, eta) - wt * eta).sum())


def _start(data: _Data, beta: Floats) -> Floats:
    r"""Return theta with a covariance by moments: at the pooled curve, g g' is A + A Sigma A on average."""
    at = _point(data, np.tile(beta, (len(data.starts), 1)))
    A = at.A * data.is_free[:, None, None]
    excess = _upper((at.g[:, :, None] * at.g[:, None, :] * data.is_free[:, None, None] - A).sum(0))
    design = np.stack([_upper((A @ basis @ A).sum(0)) for basis in _SYMMETRIC], axis=1)
    u, c, v = np.linalg.lstsq(design, excess, rcond=1e-10)[0]
    values, vectors = np.linalg.eigh(np.array([[u, c], [c, v]]))
    # Moments may ask for less than nothing. Zero itself is no start: there the gradient by L vanishes.
    inside = np.clip(values, 0.05, 1.0)
    return _pack(beta, np.linalg.cholesky(vectors * inside @ vectors.T))


@dataclass(frozen=True)
class _Summit:
    """Where the search stands: theta, the modes, the negative of F and its gradient, and what the curvature needs."""

    theta: Floats
    v: Floats
    loss: float
    gradient: Floats
    at: _Point
    inverse: Floats


def _climb(data: _Data, theta: Floats, v: Floats) -> _Summit:
    """Maximise F by Newton steps, shortened where they do not climb."""
    here = _evaluate(data, theta, v)
    for _ in range(200):
        values, vectors = np.linalg.eigh(_curvature(data, here))
        size = np.maximum(np.abs(values), 1e-6 * np.abs(values).max())
        step = -(vectors / size) @ (vectors.T @ here.gradient)
        if -here.gradient @ step / 2 < _PROMISE:
            if values[0] >= 0:
                break
            # A saddle: where an effect is zero the gradient by it is too, whether or not the rows ask for it.
            step = 0.25 * vectors[:, 0]
        # Half a logit at a time: a bold step may cross into the region of another, wilder optimum.
        step *= min(1.0, 0.5 / np.abs(step).max())
        there = _evaluate(data, here.theta + step, _follow(data, here, step))
        while there.loss > here.loss and np.abs(step).max() > 1e-6:
            step = step / 4
            there = _evaluate(data, here.theta + step, _follow(data, here, step))
        if there.loss >= here.loss - _PROMISE / 10:
            break
        here = there
    return here if np.abs(here.gradient).max() <= 1e-3 * np.sqrt(data.w.sum()) else _polish(data, here)


def _polish(data: _Data, here: _Summit) -> _Summit:
    """Go on by BFGS, where the likelihood is so flat or so bent that the Gaussian model's curvature leads nowhere."""
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


def _evaluate(data: _Data, theta: Floats, v: Floats) -> _Summit:
    beta, L = _unpack(theta)
    at, v, M = _modes(data, beta, L, v)
    log_likelihood = data.wt @ at.eta - data.w @ (np.maximum(at.eta, 0) + np.log1p(at.decay))
    value = log_likelihood - 0.5 * (v * v).sum() - 0.5 * np.log(_determinant(M)).sum()
    inverse = _inverse(M) * data.is_free[:, None, None]
    penalty, slope = _wall(theta)
    return _Summit(theta, v, penalty - float(value), slope - _gradient(data, at, v, L, inverse), at, inverse)


def _curvature(data: _Data, here: _Summit) -> Floats:
    """Return the Gaussian model's curvature of the loss by theta."""
    _, L = _unpack(here.theta)
    at = here.at
    K = at.A - at.A @ _congruent(here.inverse, L.T) @ at.A
    free = K[data.is_free > 0]
    g = at.g[data.is_free > 0]
    S = (g.T @ g - free.sum(0)) / 2
    # How Sigma = L L' moves with each entry of L, and how that bends.
    directions = np.stack([E @ L.T + L @ E.T for E in _ENTRIES]).reshape(3, 4)
    flat = free.reshape(-1, 4)
    kronecker = (flat.T @ flat).reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    bend = 2 * np.array([[S[0, 0], S[0, 1], 0.0], [S[0, 1], S[1, 1], 0.0], [0.0, 0.0, S[1, 1]]])
    out = np.zeros((5, 5))
    out[:2, :2] = K.sum(0)
    out[2:, 2:] = directions @ kronecker @ directions.T / 2 - bend
    return out


def _follow(data: _Data, here: _Summit, step: Floats) -> Floats:
    """Return where the modes go, to first order, when theta takes a step."""
    _, L = _unpack(here.theta)
    by_beta, by_L = _unpack(step)
    pull = here.at.g @ by_L - _times(here.at.A, by_beta + here.v @ by_L.T) @ L
    return here.v + _times(here.inverse, pull)


def _modes(data: _Data, beta: Floats, L: Floats, v: Floats) -> tuple[_Point, Floats, Floats]:
    """Return the model at the mode of every group: Newton's method, a group's step halved while it overshoots."""
    free = data.is_free[:, None]
    at = _point(data, beta + (v @ L.T) * free)
    score = (at.g @ L - v) * free
    # Rounding may keep a score above the tolerance where effects are huge; a hundred steps are then as near as it gets.
    for _ in range(100):
        size = np.abs(score).max(axis=1)
        if size.max() < _MODE:
            break
        step = _times(_inverse(_penalised(data, at, L)), score)
        for _ in range(40):
            at = _point(data, beta + ((v + step) @ L.T) * free)
            score = (at.g @ L - (v + step)) * free
            # Along a Newton step the score shrinks at first; where it has grown, the step was too long.
            grown = np.abs(score).max(axis=1) > np.maximum(size, _MODE)
            if not grown.any():
                break
            step = np.where(grown[:, None], step / 2, step)
        v = v + step
    return at, v, _penalised(data, at, L)


def _penalised(data: _Data, at: _Point, L: Floats) -> Floats:
    """Return M of every group."""
    return _congruent(at.A, L) * data.is_free[:, None, None] + np.eye(2)


def _point(data: _Data, coefficients: Floats) -> _Point:
    eta = data.spread(coefficients[:, 0]) + data.spread(coefficients[:, 1]) * data.z
    decay = np.exp(-np.abs(eta))
    larger = 1 / (1 + decay)
    p = np.where(eta >= 0, larger, decay * larger)
    W = data.w * larger * (decay * larger)
    residual = data.wt - data.w * p
    Wz = W * data.z
    sums = data.sums(residual, residual * data.z, W, Wz, Wz * data.z)
    A = sums[:, [2, 3, 3, 4]].reshape(-1, 2, 2)
    return _Point(eta, decay, p, W, sums[:, :2], A)


def _gradient(data: _Data, at: _Point, v: Floats, L: Floats, inverse: Floats) -> Floats:
    C = _congruent(inverse, L.T)
    quadratic = data.spread(C[:, 0, 0]) + data.z * (2 * data.spread(C[:, 0, 1]) + data.z * data.spread(C[:, 1, 1]))
    slope = at.W * (1 - 2 * at.p) * quadratic
    r = data.sums(slope, slope * data.z)
    a = r - _times(at.A, _times(C, r))
    half = at.g - a / 2
    z = _times(inverse, r @ L)
    # The sum over groups of A L M^-1, in one product.
    spread = np.tensordot(at.A, L @ inverse, axes=([0, 2], [0, 1]))
    return _pack(half.sum(0), half.T @ v - at.g.T @ z / 2 - spread)


def _coarsen(data: _Data) -> _Data:
    """Merge neighbouring cells of a group, so that few are left; the sums stay, z becomes their average."""
    place = np.arange(len(data.z)) - data.spread(data.starts)
    size = np.maximum(data.spread(data.lengths) // _COARSE_VALUES, 1)
    slot = place // size
    new = np.concatenate([[True], slot[1:] != slot[:-1]])
    new[data.starts] = True
    starts = np.flatnonzero(new)
    w = np.add.reduceat(data.w, starts)
    z = np.add.reduceat(data.w * data.z, starts) / w
    runs = np.searchsorted(starts, data.starts)
    return _Data(z, w, np.add.reduceat(data.wt, starts), runs, np.diff(np.append(runs, len(starts))), data.is_free)


def _pack(beta: Floats, L: Floats) -> Floats:
    return np.array([beta[0], beta[1], L[0, 0], L[1, 0], L[1, 1]])


def _unpack(theta: Floats) -> tuple[Floats, Floats]:
    return theta[:2], np.array([[theta[2], 0.0], [theta[3], theta[4]]])


def _wall(theta: Floats) -> tuple[float, Floats]:
    """Return the penalty for leaving the region in which fits of real data lie, and its gradient."""
    beyond = np.maximum(np.abs(theta) - _WALLS, 0.0)
    return float((beyond**2).sum()), 2 * beyond * np.sign(theta)


def _upper(M: Floats) -> Floats:
    return M[[0, 0, 1], [0, 1, 1]]


def _congruent(A: Floats, L: Floats) -> Floats:
    """Return L' A L for many A: one product with the Kronecker square of L."""
    square = np.multiply.outer(L, L).swapaxes(1, 2).reshape(4, 4)
    return (A.reshape(-1, 4) @ square).reshape(-1, 2, 2)


def _times(A: Floats, x: Floats) -> Floats:
    """Return A x for many A and as many x."""
    return np.asarray(np.einsum("sij,sj->si", A, x))


def _determinant(M: Floats) -> Floats:
    return np.asarray(M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] * M[..., 1, 0])


def _inverse(M: NDArray[np.float64]) -> Floats:
    """Invert many 2x2 matrices; written out, since a general solver spends its time on bookkeeping."""
    out = np.empty_like(M)
    out[..., 0, 0], out[..., 1, 1] = M[..., 1, 1], M[..., 0, 0]
    out[..., 0, 1], out[..., 1, 0] = -M[..., 0, 1], -M[..., 1, 0]
    return np.asarray(out / _determinant(M)[..., None, None])
