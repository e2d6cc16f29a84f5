"""The mixed model of a tree, compared with dense matrices and with the flat model; edge cases."""

import numpy as np
import pytest
from scipy.special import expit

from qacal import InputError, Paths, Tally
from qacal.calibrators import HierarchicalScaling, TreeScaling
from qacal.calibrators.curves import isotonic_shape
from qacal.calibrators.mixed import tree as tree_laplace
from qacal.calibrators.mixed.common import Runs, matrix
from qacal.calibrators.mixed.flat import fit_hierarchical
from qacal.calibrators.mixed.nodes import nodes_of
from qacal.calibrators.mixed.tree import (
    Cells,
    covariance_of,
    fit_tree,
    gather_information,
    gaussian_curvature,
    own_curvature,
    posterior_covariances,
)
from qacal.calibrators.mixed.tree import evaluate as evaluate_from
from qacal.tally.groups import as_grouping
from tests.rebuilt import rebuilt

THETAS = [[0.3, 1.0, 0.5, -0.2, 0.4], [0.0, 0.2, 0.6, 0.4, 0.0], [-0.5, 1.0, 0.0, 0.0, 0.7], [0.1, 0.9, 0.0, 0.0, 0.0]]


def tree_rows(n=300, depth=3, seed=0, sizes=(0.7, 0.4), exits=True):
    """Return rows of a tree with effects at every node; some leave it early, and one leaf has no rows."""
    rng = np.random.default_rng(seed)
    path = rng.integers(0, 2**depth - 1, n)
    left_at = (
        np.where(rng.random(n) < 0.25, rng.integers(0, depth + 1, n), depth + 1) if exits else np.full(n, depth + 1)
    )
    x = np.round(rng.normal(size=n), 1)
    coefficient = np.tile([[0.2], [1.0]], n)
    for level in range(1, depth + 1):
        effects = rng.normal(size=(2, 2**level)) * np.array(sizes)[:, None]
        coefficient = coefficient + effects[:, path >> (depth - level)] * (left_at > level)
    right = rng.random(n) < expit(coefficient[0] + coefficient[1] * x)
    return x, right.astype(float), Paths(path, left_at, depth)


def as_cells(x, t, groups, w=None, max_depth=None):
    """The arguments of `fit_tree`, one row a cell."""
    column = as_grouping(groups, len(x))
    nodes = nodes_of(column, max_depth)
    node = nodes.find(column)
    w = np.ones(len(x)) if w is None else w
    order = np.lexsort((x, node))
    return x[order], w[order], (w * t)[order], node[order], nodes


def as_data(x, w, wt, node, nodes):
    starts = np.concatenate([[0], np.flatnonzero(np.diff(node)) + 1])
    runs = Runs(x, w, wt, starts, np.diff(starts, append=len(x)), np.ones(len(starts)))
    return Cells(runs, node[starts], nodes)


def evaluate(data, theta):
    start = np.zeros((2, len(data.nodes)))
    return evaluate_from(data, np.asarray(theta, dtype=float), start, 1e-9)


class Dense:
    """A slow version: the effects of all nodes in one vector, their Hessian in one matrix."""

    def __init__(self, cells, theta):
        x, w, wt, node, nodes = cells
        self.beta, L = np.array(theta[:2]), np.array([[theta[2], 0.0], [theta[3], theta[4]]])
        n = len(nodes)
        ancestors = np.zeros((n, n))
        for v in range(n):
            at = v
            while at > 0:
                ancestors[v, at] = 1.0
                at = nodes.parent[at]
        self.to_c = np.kron(ancestors, L)
        X = np.column_stack([np.ones(len(x)), x])
        place = np.zeros((len(x), n))
        place[np.arange(len(x)), node] = 1.0
        self.design = (place[:, :, None] * X[:, None, :]).reshape(len(x), 2 * n) @ self.to_c
        self.u = np.zeros(2 * n)
        for _ in range(60):
            eta = X @ self.beta + self.design @ self.u
            p = expit(eta)
            self.H = (self.design.T * (w * p * (1 - p))) @ self.design + np.eye(2 * n)
            self.u = self.u + np.linalg.solve(self.H, self.design.T @ (wt - w * p) - self.u)
        joint = w @ np.logaddexp(0, eta) - wt @ eta + self.u @ self.u / 2
        self.loss = joint + np.linalg.slogdet(self.H)[1] / 2

    @property
    def c(self):
        return self.beta[:, None] + (self.to_c @ self.u).reshape(-1, 2).T

    @property
    def covariances(self):
        S = self.to_c @ np.linalg.inv(self.H) @ self.to_c.T
        return [S[2 * v : 2 * v + 2, 2 * v : 2 * v + 2] for v in range(len(S) // 2)]


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("soft", [False, True], ids=["rows", "soft and weighted"])
def test_likelihood_modes_and_covariances_are_those_of_dense_matrices(theta, soft):
    x, t, paths = tree_rows()
    w = None
    if soft:
        rng = np.random.default_rng(1)
        t, w = 0.8 * t + 0.2 * rng.random(len(t)), rng.exponential(size=len(t))
    cells = as_cells(x, t, paths, w)
    twin, here = Dense(cells, theta), evaluate(as_data(*cells), theta)
    assert here.loss == pytest.approx(twin.loss, abs=1e-9)
    np.testing.assert_allclose(here.c, twin.c, atol=1e-9)
    S = posterior_covariances(cells[-1], gather_information(cells[-1], here.at.A, covariance_of(here.theta)))
    np.testing.assert_allclose([matrix(three) for three in S.T], twin.covariances, atol=1e-12)


@pytest.mark.parametrize("theta", THETAS)
def test_gradient_is_the_slope_of_the_likelihood(theta):
    data = as_data(*as_cells(*tree_rows()))
    # From both sides: the likelihood has a kink where an effect is zero.
    ends = [[evaluate(data, theta + side * step).loss for step in 1e-4 * np.eye(5)] for side in (1, -1)]
    slope = np.subtract(*ends) / 2e-4
    np.testing.assert_allclose(evaluate(data, theta).gradient, slope, rtol=1e-6, atol=1e-5)


def test_curvature_is_close_to_the_likelihoods_own():
    data = as_data(*as_cells(*tree_rows(n=20_000, depth=6, exits=False)))
    best = tree_laplace._climb(data, np.array([0.0, 1.0, 0.5, 0.0, 0.5]), np.zeros((2, len(data.nodes))))
    gaussian, own = (curvature(data, best) for curvature in (gaussian_curvature, own_curvature))
    np.testing.assert_allclose(np.diag(gaussian), np.diag(own), rtol=0.15)


def test_one_level_is_the_flat_model():
    for seed in range(3):
        x, t, paths = tree_rows(n=800, depth=4, seed=seed, exits=seed > 0)
        cells = as_cells(x, t, paths.groups(4))
        ours, flat = fit_tree(*cells), fit_hierarchical(*cells[:3], cells[3] - 1)
        assert ours.negative_log_likelihood == pytest.approx(flat.negative_log_likelihood, abs=1e-4)
        np.testing.assert_allclose(ours.effects[1:], flat.effects, atol=5e-3)
        np.testing.assert_allclose(ours.covariance, flat.covariance, atol=5e-3)


def test_flat_groups_and_a_tree_of_depth_1_are_hierarchical_scaling():
    rng = np.random.default_rng(0)
    groups, h = rng.integers(-1, 12, 3000), rng.choice(np.linspace(0, 1, 11), 3000)
    right = rng.random(3000) < expit(-1 + rng.normal(size=13)[groups] + 2 * h)
    known = HierarchicalScaling().fit(h, right, groups=groups).predict(h, groups=groups)
    np.testing.assert_allclose(
        TreeScaling(feature="confidence").fit(h, right, groups=groups).predict(h, groups=groups), known, atol=1e-3
    )
    halves = Paths(groups % 2, np.full(3000, 2), 1)
    one, other = (TreeScaling().fit(h, right, groups=column) for column in (halves, groups % 2))
    np.testing.assert_allclose(one.predict(h, groups=halves), other.predict(h, groups=groups % 2), atol=1e-9)


def test_rows_and_cells_give_the_same_likelihood():
    x, t, paths = tree_rows(n=3000, depth=4)
    h = np.clip(np.round(expit(x), 2), 0, 1)
    cells = TreeScaling(feature="confidence").fit(h, t, groups=paths).maps_.fit
    rows = fit_tree(*as_cells(h, t, paths))
    assert rows.negative_log_likelihood == pytest.approx(cells.negative_log_likelihood, abs=1e-5)
    np.testing.assert_allclose(rows.effects, cells.effects, atol=1e-3)


def test_no_other_start_finds_a_better_likelihood():
    for seed in range(4):
        cells = as_cells(*tree_rows(n=600, depth=4, seed=seed))
        data, best = as_data(*cells), fit_tree(*cells).negative_log_likelihood
        rng = np.random.default_rng(seed)
        for _ in range(4):
            other = tree_laplace._climb(data, rng.normal(0, 1, 5), np.zeros((2, len(data.nodes))))
            assert best <= other.loss + 1e-3


def test_continuous_cells_are_polished_on_all_of_them():
    x, t, paths = tree_rows(n=12_000, depth=3)
    cells = as_cells(x + 1e-6 * np.random.default_rng(0).random(len(x)), t, paths)
    fit, data = fit_tree(*cells), as_data(*cells)
    other = tree_laplace._climb(data, np.array([0.0, 1.0, 0.5, 0.0, 0.5]), np.zeros((2, len(data.nodes))))
    assert fit.negative_log_likelihood == pytest.approx(other.loss, abs=1e-3)


def test_recovers_simulated_parameters():
    x, t, paths = tree_rows(n=100_000, depth=8, seed=3, sizes=(0.5, 0.3), exits=False)
    fit = fit_tree(*as_cells(x, t, paths))
    np.testing.assert_allclose(fit.covariance, [[0.25, 0], [0, 0.09]], atol=0.05)
    assert not fit.is_singular


def test_slopes_that_do_not_differ_give_a_singular_covariance():
    x, t, paths = tree_rows(n=4000, depth=5, seed=4, sizes=(0.7, 0.0))
    fit = fit_tree(*as_cells(x, t, paths))
    assert np.linalg.eigvalsh(fit.covariance)[0] < 0.02
    assert np.linalg.eigvalsh(fit.covariance)[1] > 0.2


def test_leaves_that_are_noise_change_nothing():
    """Four groups that differ, each cut into four more at random: the random cuts get no effect."""
    rng = np.random.default_rng(0)
    n = 6000
    path, h = rng.integers(0, 64, n), rng.choice([0.5, 0.7, 0.9], n)
    right = rng.random(n) < np.array([0.2, 0.4, 0.6, 0.8])[path >> 4]
    p = TreeScaling().fit(h, right, groups=Paths(path, np.full(n, 7), 6)).predict(h, groups=path)
    own = np.bincount(path, weights=right)[path] / np.bincount(path)[path]
    truth = np.array([0.2, 0.4, 0.6, 0.8])[path >> 4]
    assert np.sqrt(np.mean((p - truth) ** 2)) < 0.75 * np.sqrt(np.mean((own - truth) ** 2))


def branching():
    """Leaves 0, 1 and 2 of four have rows; some rows leave the tree at depth 2, below node 1 of depth 1."""
    path, left_at = np.repeat([0, 1, 2, 2, 0], [100, 80, 60, 20, 10]), np.repeat([3, 3, 3, 2, 0], [100, 80, 60, 20, 10])
    right = np.random.default_rng(0).random(270) < np.repeat([0.2, 0.4, 0.8, 0.9, 0.5], [100, 80, 60, 20, 10])
    h = np.tile([0.5, 0.8, 0.9], 90)
    return TreeScaling().fit(h, right, groups=Paths(path, left_at, 2))


def test_rows_are_answered_by_the_last_node_on_their_path_that_has_rows():
    model = branching()
    fit = model.maps_.fit
    np.testing.assert_array_equal(model.maps_.lineage.depth, [0, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(model.maps_.lineage.owner, [-1, 0, 1, 0, 1, 2])
    asked = Paths(np.array([0, 1, 2, 3, 2, 0, 1]), np.array([3, 3, 3, 3, 2, 2, 1]), 2)
    evidence = model.explain(np.full(7, 0.8), groups=asked)
    assert evidence.source.tolist() == ["group", "group", "group", "ancestor", "ancestor", "ancestor", "root"]
    assert evidence.rows.tolist() == [100, 80, 60, 80, 80, 180, 270]
    assert evidence.group == [0, 1, 2, None, None, None, None]
    x = model.maps_.shape.apply(np.array([0.8]))
    node = [3, 4, 5, 2, 2, 1, 0]
    eta = fit.fixed[0] + fit.effects[node, 0] + (fit.fixed[1] + fit.effects[node, 1]) * x
    np.testing.assert_allclose(evidence.calibrated, expit(eta))


def test_unknown_groups_and_no_groups_get_the_common_curve():
    model = branching()
    p = model.predict([0.8, 0.8, 0.8], groups=[99, -1, None])
    np.testing.assert_array_equal(p, model.predict([0.8, 0.8, 0.8]))
    assert model.explain([0.8]).source[0] == "root"


def test_a_single_branch_has_no_effects():
    rng = np.random.default_rng(0)
    h, right = rng.random(200), rng.integers(0, 2, 200)
    chain = Paths(np.full(200, 5), np.where(rng.random(200) < 0.3, 2, 4), 3)
    fit = TreeScaling(feature="confidence").fit(h, right, groups=chain).maps_.fit
    assert not fit.effects.any()
    assert fit.is_singular


def test_groups_that_are_all_correct_beside_groups_all_wrong():
    """There is no maximum; the fit stops at its bounds, with probabilities near 0 and 1."""
    path = np.repeat(np.arange(16), 20)
    right = (path >> 1) % 2
    h = np.tile([0.5, 0.6, 0.7, 0.8], 80)
    paths = Paths(path, np.full(320, 5), 4)
    for feature in ("isotonic", "confidence", "logit"):
        p = TreeScaling(feature=feature).fit(h, right, groups=paths).predict(h, groups=paths)
        np.testing.assert_allclose(p, right, atol=0.02)


def test_a_tree_deeper_than_its_rows():
    rng = np.random.default_rng(0)
    h = rng.choice([0.5, 0.9], 50)
    right = rng.random(50) < h
    deep = Paths(rng.integers(0, 2**18, 50), rng.integers(0, 8, 50), 18)
    p = TreeScaling().fit(h, right, groups=deep).predict(h, groups=deep)
    assert ((p > 0) & (p < 1)).all()


def test_the_shape_rises_and_has_a_logit_everywhere():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 50, 2000):
        h = rng.random(n)
        for right in (np.zeros(n), np.ones(n), (h > 0.5).astype(float), rng.random(n) < h):
            shape = isotonic_shape(Tally.of(h, right))
            rebuilt(shape)
            assert np.abs(shape.score).max() <= np.log(n + 1) + 1e-9
            assert (np.diff(shape.apply(np.linspace(0, 1, 101))) >= 0).all()


def test_a_value_whose_answers_are_all_correct_is_above_the_rest():
    """9 of 9 correct at 1.0, with one wrong pseudo-row: 0.9."""
    shape = isotonic_shape(Tally.of(np.repeat([0.5, 1.0], [10, 9]), np.repeat([0, 1], [5, 14])))
    np.testing.assert_allclose(expit(shape.score), [6 / 11, 9 / 10])


def test_refusals():
    with pytest.raises(InputError, match="feature is 'odd'; expected"):
        TreeScaling(feature="odd").fit([0.5], [1])
    with pytest.raises(InputError, match="max_depth is 3, and the groups are not a tree"):
        TreeScaling(max_depth=3).fit([0.5, 0.6], [1, 0], groups=["a", "b"])
    with pytest.raises(InputError, match="max_depth is 3; the groups are a tree of depth 1"):
        TreeScaling(max_depth=3).fit([0.5, 0.6], [1, 0], groups=Paths(np.array([0, 1]), np.array([2, 2]), 1))


def test_maps_that_no_fit_made_are_refused():
    from dataclasses import replace

    maps = branching().maps_
    rebuilt(maps)
    for change in (
        {"intercept": maps.intercept + 1},
        {"rows": maps.rows[:-1]},
        {"shape": None},
        {"max_depth": 1},
        {"shape": replace(maps.shape, score=-maps.shape.score)},
        {"fit": replace(maps.fit, effects=maps.fit.effects[:-1])},
    ):
        with pytest.raises(InputError):
            rebuilt(replace(maps, **change))


def test_unknown_features_are_refused():
    with pytest.raises(InputError, match='feature is \'steps\'; expected "isotonic", "confidence" or "logit"'):
        TreeScaling(feature="steps").fit([0.8], [1])
