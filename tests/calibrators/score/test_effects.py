"""Blocks of random effects, compared with a general optimiser and a derivative-free maximum of the Laplace evidence."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from qacal.calibrators.score.effects import FIXED, fit_effects

FIXED_PENALTY = 1e-3


def penalised_loss(b, X, y, penalty):
    """Minus the logarithm of likelihood times prior, one row after the other."""
    loss = 0.0
    for x, right in zip(X, y, strict=True):
        eta = float(x @ b)
        loss += np.logaddexp(0.0, eta) - right * eta
    return loss + 0.5 * sum(each * value**2 for each, value in zip(penalty, b, strict=True))


def penalties(block, variances):
    return np.array([FIXED_PENALTY if k == FIXED else 1 / variances[k] for k in block])


def mode(X, y, penalty):
    def both(b):
        p = expit(X @ b)
        loss = np.logaddexp(0.0, X @ b).sum() - y @ (X @ b) + 0.5 * (penalty * b) @ b
        return loss, X.T @ (p - y) + penalty * b

    return minimize(both, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}).x


def evidence(X, y, block, variances):
    """log of the integral of likelihood times prior, by Laplace, up to a constant: -loss + log det(prior)/2 - ..."""
    penalty = penalties(block, variances)
    b = mode(X, y, penalty)
    p = expit(X @ b)
    loss = np.logaddexp(0.0, X @ b).sum() - y @ (X @ b) + 0.5 * (penalty * b) @ b
    curvature = X.T @ (X * (p * (1 - p))[:, None]) + np.diag(penalty)
    return -loss + 0.5 * np.log(penalty).sum() - 0.5 * np.linalg.slogdet(curvature)[1]


def crossed(seed, sizes=(12, 5), spreads=(1.0, 0.4), n=400):
    """Return a design of an intercept, a slope and indicators of crossed values; labels; blocks."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    parts, blocks, eta = [np.ones((n, 1)), x[:, None]], [FIXED, FIXED], 0.3 + 0.8 * x
    for k, (size, spread) in enumerate(zip(sizes, spreads, strict=True)):
        value = rng.integers(0, size, n)
        eta = eta + spread * rng.normal(size=size)[value]
        parts.append(np.eye(size)[value])
        blocks += [k] * size
    return np.hstack(parts), (rng.random(n) < expit(eta)).astype(float), np.array(blocks)


def fitted(X, y, block, variances):
    return fit_effects(X, y, block, start=np.zeros(X.shape[1]), variances=np.asarray(variances, dtype=float))


@pytest.mark.parametrize("seed", range(5))
def test_coefficients_are_where_the_penalised_likelihood_is_highest(seed):
    X, y, block = crossed(seed)
    fit = fitted(X, y, block, [0.3, 0.3])
    # The last step was taken at variances within a tenth of those returned.
    expected = mode(X, y, penalties(block, fit.variances))
    np.testing.assert_allclose(fit.coefficients, expected, atol=0.05)
    assert penalised_loss(fit.coefficients, X, y, penalties(block, fit.variances)) == pytest.approx(
        penalised_loss(expected, X, y, penalties(block, fit.variances)), abs=0.01
    )


@pytest.mark.parametrize("seed", range(6))
def test_variances_are_where_the_evidence_is_highest(seed):
    """Within half a nat of what Nelder-Mead finds, from any start."""
    X, y, block = crossed(seed)
    start = np.log([0.3, 0.3])

    def minus(at):
        return -evidence(X, y, block, np.exp(np.clip(at, np.log(1e-5), np.log(100))))

    best = -minimize(minus, start, method="Nelder-Mead", options={"xatol": 0.05, "fatol": 0.01, "maxiter": 80}).fun
    for begin in ([0.3, 0.3], [10.0, 0.01]):
        fit = fitted(X, y, block, begin)
        assert evidence(X, y, block, fit.variances) > best - 0.5


def test_a_block_of_noise_loses_its_variance_and_an_informative_one_keeps_it():
    lost = []
    for seed in range(20):
        X, y, block = crossed(seed, sizes=(10, 30), spreads=(1.0, 0.0), n=800)
        fit = fitted(X, y, block, [0.3, 0.3])
        assert 0.2 < fit.variances[0] < 5
        lost.append(fit.variances[1])
    # Noise looks like a small effect in half of the draws, and never like a large one.
    assert np.median(lost) < 0.02
    assert max(lost) < 0.25


def test_determined_columns_are_counted():
    X, y, block = crossed(0, sizes=(4, 4), spreads=(2.0, 2.0), n=4000)
    fit = fitted(X, y, block, [1.0, 1.0])
    assert (fit.determined > 2.5).all()
    assert (fit.determined < 4).all()


@pytest.mark.parametrize("seed", range(3))
def test_separable_rows_have_finite_coefficients(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=60)
    X = np.column_stack([np.ones(60), x, np.eye(6)[rng.integers(0, 6, 60)]])
    y = (x > 0).astype(float)
    fit = fitted(X, y, np.array([FIXED, FIXED, *[0] * 6]), [0.3])
    assert np.isfinite(fit.coefficients).all()
    assert np.abs(fit.coefficients).max() < 60
    assert ((X @ fit.coefficients > 0) == (y > 0)).all()


@pytest.mark.parametrize("label", [0.0, 1.0, 0.5])
def test_rows_that_are_all_equal(label):
    X, _, block = crossed(0)
    fit = fitted(X, np.full(len(X), label), block, [0.3, 0.3])
    p = expit(X @ fit.coefficients)
    assert np.abs(p - label).max() < 0.02


def test_no_blocks_is_logistic_regression():
    X, y, _ = crossed(1)
    X = X[:, :2]
    fit = fitted(X, y, np.array([FIXED, FIXED]), [])
    np.testing.assert_allclose(fit.coefficients, mode(X, y, np.full(2, FIXED_PENALTY)), atol=1e-4)
    assert len(fit.variances) == len(fit.determined) == 0


def test_a_block_without_columns_converges(monkeypatch):
    """A column with one value has no effects: its variance goes to its limit and stays there."""
    from qacal.calibrators.score import effects

    steps = []
    share = effects._share
    monkeypatch.setattr(effects, "_share", lambda *given: steps.append(1) or share(*given))
    X, y, block = crossed(2, spreads=(1.0, 1.0))
    with_none = fitted(X, y, block, [0.3, 0.3, 0.3])
    assert len(steps) < 15
    np.testing.assert_allclose(with_none.coefficients, fitted(X, y, block, [0.3, 0.3]).coefficients, atol=0.02)


def test_soft_labels_are_shares():
    """A label of 0.25 is a quarter of a correct row and three quarters of a wrong one."""
    X, y, _ = crossed(3)
    X, soft = X[:, :2], np.where(y > 0, 0.75, 0.25)
    apart = np.vstack([X] * 4)
    labels = np.concatenate([(soft > at).astype(float) for at in (0.0, 0.3, 0.6, 0.9)])
    found = fitted(X, soft, np.array([FIXED, FIXED]), []).coefficients
    np.testing.assert_allclose(found, fitted(apart, labels, np.array([FIXED, FIXED]), []).coefficients, atol=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_words_and_other_columns_are_one_penalised_regression(seed):
    """Alternating steps end where a general optimiser of all columns ends."""
    from scipy.sparse import random_array

    from qacal.calibrators.score.effects import _WORD_PENALTY
    from qacal.calibrators.score.words import WordRows

    rng = np.random.default_rng(seed)
    X, _, block = crossed(seed)
    cells = random_array((len(X), 300), density=0.05, rng=rng)
    words = WordRows(*map(np.asarray, (*cells.coords, cells.data)), cells.shape)
    y = (rng.random(len(X)) < expit(X[:, 1] + words @ rng.normal(size=300))).astype(float)
    fit = fit_effects(X, y, block, start=np.zeros(X.shape[1]), variances=np.array([0.3, 0.3]), words=words)
    both = np.hstack([X, cells.toarray()])
    penalty = np.concatenate([penalties(block, fit.variances), np.full(300, _WORD_PENALTY)])
    expected = mode(both, y, penalty)
    np.testing.assert_allclose(both @ np.concatenate([fit.coefficients, fit.words]), both @ expected, atol=0.06)
    again = fit_effects(X, y, block, start=fit.coefficients, variances=fit.variances, words=words, word_start=fit.words)
    np.testing.assert_allclose(X @ again.coefficients + words @ again.words, both @ expected, atol=0.06)
