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
_COARSE_VALUES = 16
_COARSE_FROM = 4096

# Steps before the curvature is measured.
_APPROACH = 5

# Groups that are all right beside groups that are all wrong have no maximum: the covariance would grow for ever. Beyond
# these walls (in logits, per standard deviation of x) a penalty stops it; fits inside are not touched.
_WALLS = np.array([30.0, 30.0, 10.0, 10.0, 10.0])


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

    Effects come back in the order of the groups (-1 left out).
    """
    starts = np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])
    is_free = (group[starts] >= 0).astype(np.float64)
    groups = int(is_free.sum())
    total = w.sum()
    centre = float((w * x).sum() / total)
    spread = float(np.sqrt((w * (x - centre) ** 2).sum() / total))
    a, b = fit_logistic(x, w, wt)
    pooled = _pooled_loss(a + b * x, w, wt)
    none = HierarchicalFit(np.array([a, b]), np.zeros((2, 2)), np.zeros((groups, 2)), pooled, is_singular=True)
    # One group's effects cannot be told from the fixed ones; labels that a curve fits perfectly leave nothing over.
    if groups < 2 or pooled <= 1e-6 * total:
        return none
    scale = spread if spread > 1e-12 else 1.0
    z = (x - centre) / scale
    data = _Data(z, w, wt, starts, np.diff(np.append(starts, len(x))), is_free)
    theta, v, loss = _maximise(data, np.array([a + b * centre, b * scale]))
    if loss >= pooled - 1e-9 * max(1.0, abs(pooled)):
        return none
    beta, L = _unpack(theta)
    if spread <= 1e-12:
        L[1] = 0.0
    # Back from the standardised feature: U' + V'(x - centre)/scale = U + V x.
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale]])
    covariance = back @ L @ L.T @ back.T
    return HierarchicalFit(
        fixed=back @ beta,
        covariance=covariance,
        effects=(v @ L.T @ back.T)[is_free > 0],
        negative_log_likelihood=float(loss),
        is_singular=bool(np.linalg.cond(L) > 1e4),
    )


def _pooled_loss(eta: Floats, w: Floats, wt: Floats) -> float:
    return float((w * np.logaddexp(0, eta) - wt * eta).sum())


def _maximise(data: _Data, beta: Floats) -> tuple[Floats, Floats, float]:
    """Return theta, the modes and the loss at the optimum that is reached from moderate effects.

    The likelihood of little data may have others, at effects of ten logits and more, where Laplace's approximation is
    at its worst. They are not looked for.
    """
    start = _pack(beta, 0.5 * np.eye(2))
    search = _Search(data)
    if len(data.z) > max(_COARSE_FROM, 2 * _COARSE_VALUES * len(data.starts)):
        coarse = _Search(_coarsen(data))
        theta, _ = search.run(*coarse.run(*coarse.approach(start)))
    else:
        theta, _ = search.run(*search.approach(start))
    return theta, search.v, search.loss


class _Search:
    """The outer maximisation over theta; remembers the modes, from which the next inner search starts."""

    def __init__(self, data: _Data) -> None:
        self.data = data
        self.v = np.zeros((len(data.starts), 2))
        self.loss = np.inf
        self.tolerance = 1e-5 * np.sqrt(data.w.sum())

    def approach(self, theta: Floats) -> tuple[Floats, Floats]:
        """Take a few safe steps towards the optimum, and measure the curvature there.

        Each step moves beta by a Newton step in which every mode follows, and Sigma to its expectation (EM).
        """
        beta, L = _unpack(theta)
        free = self.data.is_free[:, None]
        for _ in range(_APPROACH):
            at, self.v, M = _modes(self.data, beta, L, self.v)
            inverse = _inverse(M) * free[..., None]
            # Beta sees each group's information less what the group's own effects explain.
            seen = (at.A - at.A @ (L @ inverse @ L.T) @ at.A).sum(0)
            # Least squares, since a confidence that never varies tells nothing of the slope.
            move = np.linalg.lstsq(seen, at.g.sum(0))[0]
            beta = beta + move / max(1.0, np.abs(move).max())
            second = self.v[..., None] * self.v[:, None, :] * free[..., None] + inverse
            L = _factor(L @ (second.sum(0) / free.sum()) @ L.T)
        theta = _pack(beta, L)
        return theta, self._inverse_hessian(theta)

    def _inverse_hessian(self, theta: Floats) -> Floats:
        """Return the inverse curvature by differences of the gradient, made positive definite."""
        _, gradient = self.evaluate(theta)
        steps = 1e-4 * np.eye(5)
        hessian = np.stack([(self.evaluate(theta + step)[1] - gradient) / 1e-4 for step in steps])
        values, vectors = np.linalg.eigh(_symmetric(hessian))
        values = np.maximum(np.abs(values), 1e-3 * np.abs(values).max())
        return _symmetric(vectors / values @ vectors.T)

    def run(self, theta: Floats, inverse_hessian: Floats) -> tuple[Floats, Floats]:
        options: Any = {"gtol": self.tolerance, "hess_inv0": inverse_hessian, "maxiter": 200}
        found = minimize(self.evaluate, theta, jac=True, method="BFGS", options=options)
        self.loss = float(self.evaluate(found.x)[0])
        return np.asarray(found.x), _symmetric(np.asarray(found.hess_inv))

    def evaluate(self, theta: Floats) -> tuple[float, Floats]:
        """Return the negative of F and of its gradient."""
        beta, L = _unpack(theta)
        at, v, M = _modes(self.data, beta, L, self.v)
        self.v = v
        log_likelihood = (self.data.wt * at.eta).sum() - (
            self.data.w * (np.maximum(at.eta, 0) + np.log1p(at.decay))
        ).sum()
        value = log_likelihood - 0.5 * (v * v).sum() - 0.5 * np.log(_determinant(M)).sum()
        penalty, slope = _wall(theta)
        return penalty - float(value), slope - _gradient(self.data, at, v, L, M)


def _modes(data: _Data, beta: Floats, L: Floats, v: Floats) -> tuple[_Point, Floats, Floats]:
    """Return the model at the mode of every group: Newton's method, a group's step halved while it overshoots."""
    free = data.is_free[:, None]
    at = _point(data, beta + (v @ L.T) * free)
    score = (at.g @ L - v) * free
    for _ in range(100):
        M = L.T @ at.A @ L * free[..., None] + np.eye(2)
        if np.abs(score).max() < 1e-7:
            break
        step = (_inverse(M) @ score[..., None])[..., 0]
        size = np.linalg.norm(score, axis=1)
        for _ in range(30):
            moved = _point(data, beta + ((v + step) @ L.T) * free)
            new_score = (moved.g @ L - (v + step)) * free
            # Along a Newton step the score shrinks at first; where it has grown, the step was too long.
            grown = np.linalg.norm(new_score, axis=1) > size + 1e-9
            if not grown.any():
                break
            step = np.where(grown[:, None], step / 2, step)
        v, at, score = v + step, moved, new_score
    return at, v, L.T @ at.A @ L * free[..., None] + np.eye(2)


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


def _gradient(data: _Data, at: _Point, v: Floats, L: Floats, M: Floats) -> Floats:
    inverse = _inverse(M) * data.is_free[:, None, None]
    C = L @ inverse @ L.T
    quadratic = data.spread(C[:, 0, 0]) + data.z * (2 * data.spread(C[:, 0, 1]) + data.z * data.spread(C[:, 1, 1]))
    slope = at.W * (1 - 2 * at.p) * quadratic
    r = data.sums(slope, slope * data.z)[..., None]
    a = r - at.A @ C @ r
    half = at.g[..., None] - a / 2
    z = inverse @ L.T @ r
    by_beta = half.sum(0)[:, 0]
    by_L = (half @ v[:, None, :] - at.g[..., None] @ z.swapaxes(1, 2) / 2 - at.A @ L @ inverse).sum(0)
    return _pack(by_beta, by_L)


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


def _factor(covariance: Floats) -> Floats:
    """Return L of a covariance, pulled inside the walls and off singularity, where the gradient by L vanishes."""
    values, vectors = np.linalg.eigh(_symmetric(covariance))
    inside = np.clip(values, 1e-6, _WALLS[2:].min() ** 2 / 4)
    return np.asarray(np.linalg.cholesky(_symmetric(vectors * inside @ vectors.T)), dtype=np.float64)


def _wall(theta: Floats) -> tuple[float, Floats]:
    """Return the penalty for leaving the region in which fits of real data lie, and its gradient."""
    beyond = np.maximum(np.abs(theta) - _WALLS, 0.0)
    return float((beyond**2).sum()), 2 * beyond * np.sign(theta)


def _symmetric(H: Floats) -> Floats:
    """Remove what rounding left of asymmetry; scipy insists on none."""
    return np.asarray((H + H.T) / 2)


def _determinant(M: Floats) -> Floats:
    return np.asarray(M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] * M[..., 1, 0])


def _inverse(M: NDArray[np.float64]) -> Floats:
    """Invert many 2x2 matrices; written out, since a general solver spends its time on bookkeeping."""
    out = np.empty_like(M)
    out[..., 0, 0], out[..., 1, 1] = M[..., 1, 1], M[..., 0, 0]
    out[..., 0, 1], out[..., 1, 0] = -M[..., 0, 1], -M[..., 1, 0]
    return np.asarray(out / _determinant(M)[..., None, None])
