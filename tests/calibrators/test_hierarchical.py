"""The hierarchical model against lme4, against itself on rows, and at its edges."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit

from qacal.calibrators import HierarchicalScaling, PlattScaling
from qacal.calibrators.mixed import flat as laplace
from qacal.calibrators.mixed.common import Runs, as_table
from qacal.calibrators.mixed.flat import fit_hierarchical

REFERENCE = Path(__file__).parents[1] / "reference" / "lme4"
EXPECTED = {
    name: numbers
    for name, numbers in json.loads((REFERENCE / "expected.json").read_text()).items()
    if name != "made_by"
}


def table(name):
    return np.genfromtxt(REFERENCE / f"{name}.csv", delimiter=",", names=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_is_no_worse_than_lme4_and_agrees_with_it(name):
    rows, effects, lme4 = table(name), table(f"{name}_effects"), EXPECTED[name]
    group = rows["group"].astype(int)
    model = HierarchicalScaling().fit(rows["confidence"], rows["correct"], groups=group)
    fit = model.maps_.fit
    assert fit.negative_log_likelihood <= lme4["negative_log_likelihood"] + 1e-3
    place = np.searchsorted(effects["group"], group)
    eta = lme4["B0"] + effects["U"][place] + (lme4["B1"] + effects["V"][place]) * rows["confidence"]
    np.testing.assert_allclose(model.predict(rows["confidence"], groups=group), expit(eta), atol=2e-3)
    if fit.negative_log_likelihood > lme4["negative_log_likelihood"] - 1e-3:
        ours = [*fit.fixed, fit.covariance[0, 0], fit.covariance[1, 1], fit.covariance[0, 1]]
        np.testing.assert_allclose(ours, [lme4[k] for k in ("B0", "B1", "var_U", "var_V", "cov_UV")], atol=0.02)


def test_singular_fits_say_so():
    singular = {
        name
        for name in EXPECTED
        if HierarchicalScaling()
        .fit(table(name)["confidence"], table(name)["correct"], groups=table(name)["group"].astype(int))
        .maps_.fit.is_singular
    }
    determinant = {
        name: numbers["var_U"] * numbers["var_V"] - numbers["cov_UV"] ** 2 for name, numbers in EXPECTED.items()
    }
    assert {name for name, value in determinant.items() if value < 1e-6} <= singular
    assert "tied" not in singular


def simulated(seed=0, n=2000, groups=12, values=10):
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, groups, n))
    h = np.round(rng.beta(3, 1.3, n) * values) / values
    u, v = rng.normal(0, 0.7, groups), rng.normal(0, 1, groups)
    t = rng.random(n) < expit(-1 + u[group] + (2 + v[group]) * h)
    return h, t.astype(float), group


def test_rows_and_cells_give_the_same_likelihood():
    h, t, group = simulated()
    cells = HierarchicalScaling().fit(h, t, groups=group).maps_.fit
    order = np.lexsort((h, group))
    rows = fit_hierarchical(h[order], np.ones(len(h)), t[order], group[order])
    assert rows.negative_log_likelihood == pytest.approx(cells.negative_log_likelihood, abs=1e-6)
    np.testing.assert_allclose(rows.effects, cells.effects, atol=1e-4)


def test_a_table_of_shared_values_gives_the_same_likelihood_as_runs():
    h, t, group = simulated(n=900, groups=6)
    runs = as_data(h, t, group, is_free=np.array([0.0, 1, 1, 1, 1, 1]))
    table = as_table(runs)
    assert table is not None
    assert table.w.sum() == 900
    one, other = (evaluate(data, [0.3, 1.0, 0.5, -0.2, 0.4]) for data in (runs, table))
    assert one.loss == pytest.approx(other.loss, abs=1e-9)
    np.testing.assert_allclose(gradient(runs, one), gradient(table, other), rtol=1e-9)
    np.testing.assert_allclose(one.v, other.v, atol=1e-12)


def test_no_table_is_made_of_values_that_groups_do_not_share():
    assert as_table(as_data(*simulated(values=10**9))) is None
    h = np.concatenate([np.tile(np.arange(8) / 8, 8), np.linspace(0.001, 0.999, 64)])  # shared at first, then not
    assert as_table(as_data(h, np.zeros(128), np.repeat(np.arange(16), 8))) is None


def evaluate(data, theta, near=1e-12):
    return laplace.evaluate(data, np.asarray(theta), np.zeros((2, len(data.is_free))), near)


def gradient(data, summit):
    return laplace.derivatives(data, summit)[0]


def as_data(h, t, group, is_free=None):
    starts = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])
    free = np.ones(len(starts)) if is_free is None else is_free
    return Runs(h - h.mean(), np.ones(len(h)), t, starts, np.diff(np.append(starts, len(h))), free)


@pytest.mark.parametrize("theta", [[0.3, 1.0, 0.5, -0.2, 0.4], [0.0, 0.0, 1.5, 1.0, 0.0], [-1.0, 2.0, 0.0, 0.0, 0.7]])
def test_gradient_is_the_slope_of_the_likelihood(theta):
    data = as_data(*simulated(n=300, groups=5), is_free=np.array([0.0, 1, 1, 1, 1]))
    slope = approx_fprime(np.array(theta), lambda at: evaluate(data, at).loss, 1e-6)
    np.testing.assert_allclose(gradient(data, evaluate(data, theta)), slope, rtol=1e-4, atol=2e-3)


def test_curvature_is_close_to_the_likelihoods_own():
    """The average information leaves third derivatives out: near, not equal, and enough to climb by."""
    data = as_data(*simulated(n=6000, groups=30))
    best = laplace._climb(data, np.array([0.0, 1.0, 0.5, 0.0, 0.5]), np.zeros((2, 30)))
    curvature = laplace.derivatives(data, best)[1]
    at_best = gradient(data, evaluate(data, best.theta))
    own = np.stack([gradient(data, evaluate(data, best.theta + step)) - at_best for step in 1e-5 * np.eye(5)]) / 1e-5
    size = np.sqrt(np.diag(own))
    np.testing.assert_allclose(curvature / np.outer(size, size), own / np.outer(size, size), atol=0.2)


def test_the_last_step_to_the_modes_needs_no_pass(monkeypatch):
    """With near=1e-3, an expansion gives the likelihood to 1e-5, and the gradient."""
    data, theta = as_data(*simulated()), np.array([0.3, 1.0, 0.5, -0.2, 0.4])
    exact = evaluate(data, theta)
    passes, point = [], laplace._point
    monkeypatch.setattr(laplace, "_point", lambda *given: passes.append(given) or point(*given))
    near = laplace.evaluate(data, theta, exact.v + 0.004 * np.sin(np.arange(24)).reshape(2, 12), near=1e-3)
    assert len(passes) == 1
    assert near.loss == pytest.approx(exact.loss, abs=1e-5)
    np.testing.assert_allclose(near.v, exact.v, atol=2e-5)
    np.testing.assert_allclose(gradient(data, near), gradient(data, exact), atol=0.02)


def test_likelihood_is_laplace_of_the_integral_over_effects():
    """A slow version: modes by brute force, one group at a time."""
    from scipy.optimize import minimize

    h, t, group = simulated(n=200, groups=4)
    data = as_data(h, t, group)
    beta, L = np.array([0.2, 1.1]), np.array([[0.8, 0.0], [-0.3, 0.6]])
    total = 0.0
    for s in range(4):
        x = np.column_stack([np.ones((group == s).sum()), data.z[group == s]])
        y = t[group == s]

        def joint(v, x=x, y=y):
            eta = x @ (beta + L @ v)
            return -(y @ eta - np.logaddexp(0, eta).sum()) + 0.5 * v @ v

        v = minimize(joint, [0, 0], tol=1e-12).x
        p = expit(x @ (beta + L @ v))
        M = L.T @ (x.T * (p * (1 - p))) @ x @ L + np.eye(2)
        total += joint(v) + 0.5 * np.linalg.slogdet(M)[1]
    assert evaluate(data, [0.2, 1.1, 0.8, -0.3, 0.6]).loss == pytest.approx(total, abs=1e-5)


def test_no_other_start_finds_a_better_likelihood():
    for seed in range(4):
        h, t, group = simulated(seed=seed, n=600, groups=8)
        best = HierarchicalScaling().fit(h, t, groups=group).maps_.fit.negative_log_likelihood
        data = as_data(h, t, group)
        rng = np.random.default_rng(seed)
        for _ in range(5):
            other = laplace._climb(data, rng.normal(0, 1, 5), np.zeros((2, 8)))
            assert best <= other.loss + 1e-3


def test_one_group_is_platt():
    h, t, _ = simulated()
    one = HierarchicalScaling().fit(h, t, groups=np.zeros(len(h), dtype=int))
    np.testing.assert_array_equal(
        one.predict(h, groups=np.zeros(len(h), dtype=int)), PlattScaling().fit(h, t).predict(h)
    )


def test_unknown_groups_get_the_common_curve():
    h, t, group = simulated()
    model = HierarchicalScaling().fit(h, t, groups=group)
    b0, b1 = model.maps_.fit.fixed
    np.testing.assert_allclose(model.predict([0.7, 0.7, 0.7], groups=[99, -1, None]), expit(b0 + b1 * 0.7))


def test_rows_without_a_group_shape_only_the_common_curve():
    h, t, group = simulated(n=1500, groups=6)
    h2, t2, _ = simulated(seed=5, n=500)
    with_rows = (
        HierarchicalScaling()
        .fit(np.append(h, h2), np.append(t, t2), groups=np.append(group, np.full(500, -1)))
        .maps_.fit
    )
    assert len(with_rows.effects) == 6
    assert not np.allclose(with_rows.fixed, HierarchicalScaling().fit(h, t, groups=group).maps_.fit.fixed)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_correct_and_all_wrong(share):
    p = HierarchicalScaling().fit([0.5, 0.9] * 10, [share] * 20, groups=[0, 1, 1, 0] * 5).predict([0.5], groups=[1])
    np.testing.assert_allclose(p, share, atol=1e-6)


def test_groups_that_are_all_correct_beside_groups_all_wrong():
    """There is no maximum; the fit stops at its bounds, with probabilities near 0 and 1."""
    group = np.repeat(np.arange(10), 20)
    right = group % 2
    h = np.tile([0.5, 0.6, 0.7, 0.8], 50)
    p = HierarchicalScaling().fit(h, right, groups=group).predict(h, groups=group)
    np.testing.assert_allclose(p, right, atol=0.02)


def test_recovers_simulated_parameters():
    rng = np.random.default_rng(3)
    groups, n = 400, 100_000
    covariance = np.array([[0.5, -0.2], [-0.2, 0.8]])
    effects = rng.multivariate_normal([0, 0], covariance, groups)
    group = rng.integers(0, groups, n)
    h = np.round(rng.random(n) * 20) / 20
    t = rng.random(n) < expit(-1 + effects[group, 0] + (2 + effects[group, 1]) * h)
    fit = HierarchicalScaling().fit(h, t, groups=group).maps_.fit
    np.testing.assert_allclose(fit.fixed, [-1, 2], atol=0.15)
    np.testing.assert_allclose(fit.covariance, covariance, atol=0.2)
    assert np.corrcoef(fit.effects[:, 0], effects[:, 0])[0, 1] > 0.8


def test_continuous_cells_are_polished_on_all_of_them():
    """More cells than the coarse start uses; the result is still a stationary point of the full likelihood."""
    h, t, group = simulated(n=20_000, groups=20, values=10**9)
    order = np.lexsort((h, group))
    fit = fit_hierarchical(h[order], np.ones(len(h)), t[order], group[order])
    data = as_data(h[order], t[order], group[order])
    other = laplace._climb(data, np.array([0.0, 1.0, 0.5, 0.0, 0.5]), np.zeros((2, 20)))
    assert fit.negative_log_likelihood == pytest.approx(other.loss, abs=5e-5)
