r"""The hierarchical logistic model: random intercept and slope per group, fitted by Laplace's approximation.

For cell :math:`c` of group :math:`j` with feature :math:`x_c = (1, h_c)`,

.. math::
    \eta_c = x_c^\top (\beta + L v_j), \qquad v_j \sim N(0, I), \qquad \Sigma = L L^\top,

so that :math:`L v_j = (U_j, V_j)` are the paper's random effects. :math:`L` is lower triangular with free signs:
covariances of rank one or zero are ordinary points, not edges. Given :math:`\theta = (\beta, L)` each group has a
mode :math:`\hat v_j`, and the log likelihood is approximated by

.. math::
    F(\theta) = \sum_j \Big[ \ell_j(\beta + L \hat v_j) - \tfrac12 |\hat v_j|^2 - \tfrac12 \log\det M_j \Big],
    \qquad M_j = L^\top A_j L + I, \quad A_j = \sum_{c \in j} W_c x_c x_c^\top,

with :math:`W_c = w_c p_c (1 - p_c)`; binomial coefficients are left out. With :math:`g_j = \sum_c (wt_c - w_c p_c)
x_c`, :math:`C_j = L M_j^{-1} L^\top`, :math:`r_j = \sum_c W'_c \, (x_c^\top C_j x_c) \, x_c` (:math:`W'` by
:math:`\eta`), :math:`z_j = M_j^{-1} L^\top r_j`, :math:`a_j = r_j - A_j L z_j` and :math:`K_j = A_j - A_j C_j A_j`,
the information of group :math:`j` about :math:`\beta` when its own effects are unknown, the gradient is

.. math::
    \partial_\beta F = \sum_j g_j - \tfrac12 a_j, \qquad
    \partial_L F = \sum_j (g_j - \tfrac12 a_j) \hat v_j^\top - \tfrac12 g_j z_j^\top - K_j L.

The search takes the curvature from the Gaussian model that the approximation amounts to. Of its expected and its
observed curvature, the average is by far the closest to that of :math:`F`, and the traces in them cancel (Gilmour,
Thompson and Cullis 1995): for directions :math:`E`, :math:`E'` of :math:`\Sigma`,

.. math::
    -\partial^2_\beta F \approx \sum_j K_j, \qquad
    -\partial_\beta \partial_E F \approx \tfrac12 \sum_j K_j E g_j, \qquad
    -\partial_E \partial_{E'} F \approx \tfrac12 \sum_j g_j^\top E K_j E' g_j, \qquad
    \partial_\Sigma F \approx \tfrac12 \sum_j g_j g_j^\top - K_j =: S.

For matrices of two by two, with :math:`A^*` the adjugate, these need no solver and hold at every rank:

.. math::
    M_j^{-1} = (L^\top A_j L + I)^* / \det M_j, \qquad K_j = (A_j + \det A_j \, \Sigma^*) / \det M_j.

Newton's method maximises :math:`F` in :math:`\theta`. Everything works on cells: rows and cells give the same :math:`F`
to the last digit. Arrays of groups have a row per number and a column per group; a symmetric matrix is its three
numbers (11, 12, 22).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from qacal.calibrators.curves import fit_logistic
from qacal.calibrators.mixed.common import GroupCells, MixedFit, Runs, determinant, matrix, pooled_loss, quickest, times
from qacal.tally.arrays import Floats, Ints

# A step with a smaller expected gain of log likelihood is not taken: the search ends.
_LEAST_GAIN = 1e-6

# Effects, or a second dimension of them, that gain less log likelihood than this are left out.
_WORTH = 1e-4

# The search for the modes ends where the next step would gain less than this, in log likelihood of all groups
# together; that step is taken by expansion. While theta has far to go, a hundredth of the gain of its step is near
# enough, up to a limit.
_NEAR = 1e-8
_NEAR_ENOUGH = 1e-3

# If some groups are all correct and others all wrong there is no maximum: the covariance would grow without end. Beyond
# these walls (in logits, per standard deviation of x) a penalty stops it; fits inside are not touched.
_WALLS = np.array([30.0, 30.0, 10.0, 10.0, 10.0])

# Of symmetric matrices as three numbers: the unit, and the weights in a quadratic form.
_IDENTITY = np.array([[1.0], [0.0], [1.0]])
_TWICE = np.array([[1.0], [2.0], [1.0]])


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
    here = evaluate(data, theta, v, _NEAR_ENOUGH)
    for _ in range(200):
        gradient, curvature = derivatives(data, here)
        values, vectors = np.linalg.eigh(curvature)
        size = np.abs(values)
        step = -(vectors / np.maximum(size, 1e-6 * size.max())) @ (gradient @ vectors)
        gain = -float(gradient @ step) / 2
        longest = float(np.abs(step).max())
        near = min(max(gain / 100, _NEAR), _NEAR_ENOUGH)
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


# The likelihood


class Summit(NamedTuple):
    """The model at theta.

    theta, L, beyond : the parameters, and how far they are outside the walls.
    v, g, A, r, inverse, det : per group the mode, and there g, A, r, M^-1 and det M.
    loss : the negative of F, and the penalty for being outside.
    """

    theta: Floats
    L: Floats
    beyond: Floats
    v: Floats
    g: Floats
    A: Floats
    r: Floats
    inverse: Floats
    det: Floats
    loss: float


class _Point(NamedTuple):
    """The model at some coefficients per group: per cell eta, p and W; per group g and A."""

    eta: Floats
    p: Floats
    W: Floats
    g: Floats
    A: Floats


def evaluate(data: GroupCells, theta: Floats, v: Floats, near: float = _NEAR) -> Summit:
    r"""Return the negative of F at theta; the search for the modes starts at v.

    From near the modes, where the score is :math:`s = L^\top g - v`, the last step :math:`d = M^{-1} s` is taken by
    expansion, without a pass over the cells: :math:`F` rises by :math:`\tfrac12 s^\top d - \tfrac12 r^\top L d`, and
    :math:`g` falls by :math:`A L d`.
    """
    beta, L = unpack(theta)
    at, v, score, inverse, det = _near_modes(data, beta, L, v, near)
    # The quadratic form of C is a polynomial in the feature, and its sum with W' x one of moments of W'.
    C = _congruence(L) @ inverse * _TWICE
    third = data.moments(at.W * (1 - 2 * at.p), 3)
    r = C[0] * third[:2] + C[1] * third[1:3] + C[2] * third[2:]
    # log(1 - p) is log p - eta.
    log_likelihood = np.vdot(data.w, np.log(at.p)) - np.vdot(data.w - data.wt, at.eta)
    value = log_likelihood - 0.5 * np.vdot(v, v) - 0.5 * np.log(det).sum()
    step = times(inverse, score)
    shift = L @ step
    value += 0.5 * np.vdot(score, step) - 0.5 * np.vdot(r, shift)
    g = at.g - times(at.A, shift)
    beyond = theta - np.maximum(np.minimum(theta, _WALLS), -_WALLS)
    loss = float(beyond @ beyond - value)
    return Summit(theta, L, beyond, v + step, g, at.A, r, inverse, det, loss)


def _near_modes(
    data: GroupCells, beta: Floats, L: Floats, v: Floats, near: float
) -> tuple[_Point, Floats, Floats, Floats, Floats]:
    """Return the model close to the mode of every group, v and the score there, M^-1 and det M.

    Newton's method, a group's step halved while it overshoots.
    """
    common, to_adjugate = beta[:, None], _adjugate_map(L)
    at = _point(data, common + L @ v)
    score = (L.T @ at.g - v) * data.is_free
    for tries in range(101):
        inverse, det = _inverse(data, at.A, to_adjugate)
        step = times(inverse, score)
        if np.vdot(score, step) < 2 * near or tries == 100:
            break
        size = np.abs(score).max(axis=0)
        for _ in range(40):
            at = _point(data, common + L @ (v + step))
            score = (L.T @ at.g - (v + step)) * data.is_free
            # Along a Newton step the score shrinks at first; where it has grown, the step was too long.
            grown = np.abs(score).max(axis=0) > np.maximum(size, 1e-4)
            if not grown.any():
                break
            step = np.where(grown, step / 2, step)
        v = v + step
    return at, v, score, inverse, det


def _point(data: GroupCells, coefficients: Floats) -> _Point:
    # e^-eta must be finite; below -700 the probability is zero either way.
    eta = np.maximum(data.polynomial(coefficients), -700.0)
    p = np.exp(-eta)
    p += 1
    np.reciprocal(p, out=p)
    right = data.w * p
    W = right - right * p
    return _Point(eta, p, W, data.moments(data.wt - right, 1), data.moments(W, 2))


def _inverse(data: GroupCells, A: Floats, to_adjugate: Floats) -> tuple[Floats, Floats]:
    """Return M^-1 (zero where there are no effects) and det M of every group."""
    adjugate = to_adjugate @ (A * data.is_free) + _IDENTITY
    det = determinant(adjugate)
    return adjugate * (data.is_free / det), det


def follow(here: Summit, step: Floats) -> Floats:
    """Return where the modes go, to first order, when theta takes a step."""
    by_beta, by_L = unpack(step)
    pull = by_L.T @ here.g - here.L.T @ times(here.A, by_beta[:, None] + by_L @ here.v)
    return here.v + times(here.inverse, pull)


def derivatives(data: GroupCells, here: Summit) -> tuple[Floats, Floats]:
    """Return the gradient of the loss by theta, and its curvature in the Gaussian model."""
    (a, _), (b, c) = here.L.tolist()
    adjugate = np.array([[b * b + c * c], [-a * b], [a * a]])
    K = (here.A + adjugate * (determinant(here.A) * data.is_free)) / here.det
    total = matrix(K @ data.is_free)
    z = times(here.inverse, here.L.T @ here.r)
    half = here.g - (here.r - times(here.A, here.L @ z)) / 2
    by_L = half @ here.v.T - here.g @ z.T / 2 - total @ here.L
    gradient = 2 * here.beyond - pack(half.sum(1), by_L)
    return gradient, _curvature(here, K, here.g * data.is_free, total)


def _curvature(here: Summit, K: Floats, g: Floats, total: Floats) -> Floats:
    (a, _), (b, c) = here.L.tolist()
    # E g for each entry of L, with E how Sigma = L L' moves with it: the two rows of each.
    first = np.array([[2 * a, b], [0.0, a], [0.0, 0.0]]) @ g
    second = np.array([[b, 0.0], [a, 2 * b], [0.0, 2 * c]]) @ g
    K_first, K_second = K[0] * first + K[1] * second, K[1] * first + K[2] * second
    # And how that bends: twice S.
    (s, t), (_, u) = (g @ g.T - total).tolist()
    bend = np.array([[s, t, 0.0], [t, u, 0.0], [0.0, 0.0, u]])
    out = np.empty((5, 5))
    out[:2, :2] = matrix(K.sum(1))
    out[0, 2:] = out[2:, 0] = K_first.sum(1) / 2
    out[1, 2:] = out[2:, 1] = K_second.sum(1) / 2
    out[2:, 2:] = (K_first @ first.T + K_second @ second.T) / 2 - bend
    return out


def moment_estimate(data: GroupCells, beta: Floats) -> tuple[Floats, Floats]:
    r"""Return theta and modes from one pass over the cells at the pooled curve.

    There :math:`g g^\top` is :math:`A + A \Sigma A` on average, which gives a covariance by moments, and with it the
    modes of the Gaussian model. A curve through the average of many curves is flatter than they are: with effects of
    variance :math:`\sigma^2`, by about :math:`k = \sqrt{1 + 0.346 \sigma^2}` on the scale of logits. beta and L are
    multiplied by it; on the flat scale the moments show :math:`\sigma^2 / k^2`.
    """
    at = _point(data, np.repeat(beta[:, None], len(data.is_free), axis=1))
    A, g = at.A * data.is_free, at.g * data.is_free
    (pp, pq), (_, qq) = (g @ g.T).tolist()
    excess = np.array([pp, 2 * pq, qq]) - A.sum(1) * _TWICE[:, 0]
    # The three numbers of A Sigma A, as sums of products of those of A; the middle one twice, for symmetry.
    (aa, ab, ac), (_, bb, bc), (_, _, cc) = (A @ A.T).tolist()
    design = np.array([[aa, 2 * ab, bb], [2 * ab, 2 * (ac + bb), 2 * bc], [bb, 2 * bc, cc]])
    # A feature of one value says nothing of slopes: the ridge then makes them zero.
    design += 1e-10 * (1 + aa + cc) * np.eye(3)
    values, vectors = np.linalg.eigh(matrix(np.linalg.solve(design, excess)))
    # Moments may be negative, and with little data they miss by this much. Zero is no start: there the gradient by L
    # vanishes.
    least = min(0.05, max(0.01, math.sqrt(2 / max(cc, 1.0))))
    L = np.linalg.cholesky(vectors * np.minimum(np.maximum(values, least), 1.0) @ vectors.T)
    modes = times(_inverse(data, at.A, _adjugate_map(L))[0], L.T @ g)
    return pack(beta, L) / math.sqrt(1 - 0.346 * np.vdot(L, L)), modes


def pack(beta: Floats, L: Floats) -> Floats:
    """Return theta."""
    return np.array([beta[0], beta[1], L[0, 0], L[1, 0], L[1, 1]])


def unpack(theta: Floats) -> tuple[Floats, Floats]:
    """Return beta and L."""
    return theta[:2], np.array([[theta[2], 0.0], [theta[3], theta[4]]])


def _congruence(L: Floats) -> Floats:
    """Return the map from the three numbers of X to those of L X L'."""
    (a, _), (b, c) = L.tolist()
    return np.array([[a * a, 0.0, 0.0], [a * b, a * c, 0.0], [b * b, 2 * b * c, c * c]])


def _adjugate_map(L: Floats) -> Floats:
    """Return the map from the three numbers of A to those of the adjugate of L' A L."""
    (a, _), (b, c) = L.tolist()
    return np.array([[0.0, 0.0, c * c], [0.0, -a * c, -b * c], [a * a, 2 * a * b, b * b]])
