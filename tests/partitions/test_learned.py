"""The learned tree: its score against slow twins, its cuts against the distance, and when it gives up."""

import numpy as np
import pytest

from qacal import InputError
from qacal.partitions import BisectingTree, LearnedTree
from qacal.partitions.base import one_thread
from qacal.partitions.bisecting import ENOUGH_ROWS, bisect
from qacal.partitions.learned import FEWEST_ROWS, SPREADS, _lowered, miscalibration, ridge
from qacal.tally.vectors import labelled_rows
from tests.partitions.rows import clouds, labels


def answers(seed, n=2_000, width=8, strength=1.5):
    """Vectors, confidences and labels: answers are righter than stated along the last coordinate, the least varied."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, width)) * np.linspace(2, 1, width)
    confidence = rng.choice([0.6, 0.8, 1.0], n)
    truth = 1 / (1 + np.exp(-(4 * confidence - 3 + strength * Z[:, -1])))
    return Z, confidence, (rng.random(n) < truth) * 1.0


def fit(tree, Z, confidence, correct):
    return tree.fit(Z, confidence=confidence, correct=correct)


def same_cuts(one, two):
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("directions", "offsets", "sizes"))


def printed_ridge(X, y, w, spread):
    """Return intercept and slope by the normal equations; the intercept is not penalised."""
    A = np.column_stack([np.ones(len(X)), X])
    penalty = np.diag([0.0] + [spread**-2.0] * X.shape[1])
    return np.linalg.solve(A.T @ (A * w[:, None]) + penalty, A.T @ (w * y))


def printed_error(X, y, w, spread):
    """Fit without each row in turn and see how far off it is."""
    error = 0.0
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        a, *b = printed_ridge(X[rest], y[rest], w[rest], spread)
        error += w[i] * (y[i] - a - X[i] @ b) ** 2
    return error


@pytest.mark.parametrize(("seed", "shape"), [(0, (30, 3)), (1, (12, 20)), (2, (40, 1))])
def test_the_penalty_is_the_one_that_is_best_for_rows_left_out(seed, shape):
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=shape), rng.uniform(0.05, 0.25, shape[0])
    y = X[:, 0] + rng.normal(size=shape[0])
    best = min(SPREADS, key=lambda spread: printed_error(X, y, w, spread))
    np.testing.assert_allclose(ridge(X, y, w), printed_ridge(X, y, w, best)[1:], atol=1e-9)


def test_no_slope_where_none_helps():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(300, 5)), rng.normal(size=300), np.ones(300)
    X -= np.outer(y, y @ X) / (y @ y)  # nothing of y is left in X
    assert not ridge(X, y, w).any()


def test_the_score_is_near_the_logits_it_stands_for():
    Z, confidence, correct = answers(0, n=20_000, strength=0.5)
    slope = miscalibration(Z, confidence, correct)
    np.testing.assert_allclose(slope, [0] * 7 + [0.5], atol=0.06)


def test_what_the_confidence_tells_is_not_learned_again():
    """Topics differ in accuracy, and the LLM knows: there is nothing to find."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3_000, 4))
    confidence = np.where(Z[:, 0] > 0, 0.9, 0.5)
    correct = rng.random(3_000) < confidence
    known = fit(LearnedTree(max_depth=1), Z, confidence, correct).describe()["spread"]
    unknown = fit(LearnedTree(max_depth=1), Z, np.full(3_000, 0.7), correct).describe()["spread"]
    assert known < 0.1 < 0.5 < unknown


def test_groups_differ_where_the_llm_is_wrong():
    """Along the direction of least variance, which clusters alone do not follow."""
    Z, confidence, correct = answers(0)
    new, _, _ = answers(1)
    for tree, apart in (
        (fit(LearnedTree(max_depth=1), Z, confidence, correct), True),
        (BisectingTree(max_depth=1), False),
    ):
        group = (tree if apart else tree.fit(Z)).assign(new)
        gap = abs(new[group == 1, -1].mean() - new[group == 0, -1].mean())
        assert (gap > 1.4) == apart


@pytest.mark.parametrize("pull", [0.5, 2.0, 50.0])
def test_cuts_are_those_of_the_distance(pull):
    """A vector goes to the nearer of two centres when the score is one more coordinate, and so on below."""
    Z, confidence, correct = answers(2)
    tree = fit(LearnedTree(max_depth=4, pull=pull), Z, confidence, correct).fitted_
    Z, confidence, correct = labelled_rows(Z, confidence, correct)
    X = Z - Z.mean(axis=0)
    X /= np.sqrt((X**2).sum(axis=1).mean())
    slope = pull * miscalibration(X, confidence, correct)
    with one_thread():
        lifted = bisect(np.column_stack([X, X @ slope]), 4, 0)
    np.testing.assert_array_equal(tree.paths(Z).path, lifted.paths(np.column_stack([X, X @ slope])).path)
    np.testing.assert_allclose(np.linalg.norm(_lowered(lifted, slope)[0], axis=1), 1)


def test_a_strong_pull_makes_quantiles_of_the_score():
    Z, confidence, correct = answers(3)
    group = fit(LearnedTree(max_depth=2, pull=1e6), Z, confidence, correct).assign(Z)
    slope = miscalibration(Z, confidence, correct)
    order = np.argsort(Z @ slope)
    assert (np.diff(group[order]) != 0).sum() == 3


@pytest.mark.parametrize("why", ["no pull", "few rows", "all right", "one row"])
def test_without_a_score_it_is_a_bisecting_tree(why):
    Z, confidence, correct = answers(0, n={"few rows": FEWEST_ROWS - 1, "one row": 1}.get(why, 500))
    tree = LearnedTree(max_depth=3, pull=0.0 if why == "no pull" else 2.0, seed=4)
    fit(tree, Z, confidence, np.ones(len(Z)) if why == "all right" else correct)
    assert same_cuts(tree.fitted_, BisectingTree(max_depth=3, seed=4).fit(Z).fitted_)
    assert tree.describe()["spread"] == 0


def test_labels_that_are_noise_pull_little():
    spreads = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(400, 20))
        tree = fit(LearnedTree(max_depth=1), Z, np.full(400, 0.8), rng.random(400) < 0.6)
        spreads.append(tree.describe()["spread"])
    assert np.median(spreads) < 0.1  # of which a tree makes next to nothing: the distance counts squares
    assert min(spreads) == 0
    assert max(spreads) < 0.4


def test_soft_targets():
    Z, confidence, correct = answers(0)
    soft = np.where(correct == 1, 0.9, 0.2)
    hard, softly = (fit(LearnedTree(max_depth=1), Z, confidence, y).fitted_.directions[0] for y in (correct, soft))
    assert abs(hard @ softly) > 0.95


LONG_AND_AWKWARD = {
    "far from zero": clouds(0) + 1e6,
    "huge": clouds(0) * 1e90,
    "tiny": clouds(0) * 1e-140,
    "tiny beyond squares": clouds(0) * 1e-200,
    "wider than long": clouds(0, width=400),
    "constant": np.full((300, 3), 0.1),
    "two values": np.repeat([[0.0, 1.0], [1.0, 0.0]], [270, 30], axis=0),
    "equal up to rounding": np.resize([0.1 + 0.2, 0.3], 300)[:, None],
}


@pytest.mark.parametrize("name", LONG_AND_AWKWARD)
def test_awkward_vectors_with_labels_enough(name):
    Z = LONG_AND_AWKWARD[name]
    tree = fit(LearnedTree(max_depth=3), Z, **labels(Z))
    groups = tree.assign(Z)
    np.testing.assert_array_equal(np.bincount(groups, minlength=8), tree.fitted_.sizes)
    assert groups.tolist() == [int(tree.assign(z[None])[0]) for z in Z]
    assert np.isfinite(tree.fitted_.spread)


def test_scale_and_place_of_vectors_do_not_matter():
    Z, confidence, correct = answers(0, n=ENOUGH_ROWS)  # of more, other vectors have other hashes: another sample
    trees = [fit(LearnedTree(max_depth=3), moved, confidence, correct) for moved in (Z, Z * 1024, Z + 16)]
    groups = [tree.assign(moved) for tree, moved in zip(trees, (Z, Z * 1024, Z + 16), strict=True)]
    assert min(np.mean(groups[0] == other) for other in groups[1:]) > 0.97


def test_float32_and_float64_agree():
    Z, confidence, correct = answers(0)
    Z = Z.astype(np.float32)
    narrow, wide = (fit(LearnedTree(max_depth=3), z, confidence, correct) for z in (Z, Z.astype(np.float64)))
    assert same_cuts(narrow.fitted_, wide.fitted_)


def test_equal_vectors_with_other_labels_in_any_order():
    rng = np.random.default_rng(0)
    Z, confidence, correct = answers(0, n=600)
    Z = np.round(Z)
    order = rng.permutation(600)
    one = fit(LearnedTree(max_depth=3), Z, confidence, correct)
    two = fit(LearnedTree(max_depth=3), Z[order], confidence[order], correct[order])
    assert same_cuts(one.fitted_, two.fitted_)
    assert one.fitted_.spread == two.fitted_.spread > 0


def test_refusals():
    Z, confidence, correct = answers(0, n=10)
    for given, message in (
        ({}, "learns from labels, and got none"),
        ({"confidence": confidence}, "learns from labels, and got none"),
        ({"confidence": confidence[:9], "correct": correct}, "10 vectors and 9 confidences"),
        ({"confidence": confidence, "correct": correct[:9]}, "correct has 9 values and confidence has 10"),
        ({"confidence": confidence * 100, "correct": correct}, "If these are percents"),
        ({"confidence": confidence, "correct": [None] * 10}, r"correct\[0\] is None"),
    ):
        with pytest.raises(InputError, match=message):
            LearnedTree().fit(Z, **given)
    for parameters, message in (
        ({"max_depth": 21}, "max_depth is 21"),
        ({"pull": -1}, "pull is -1; expected a number from 0 to 1e"),
        ({"pull": float("nan")}, "pull is nan"),
        ({"pull": True}, "pull is True"),
        ({"seed": "x"}, "seed is 'x'"),
    ):
        with pytest.raises(InputError, match=message):
            fit(LearnedTree(**parameters), Z, confidence, correct)
    with pytest.raises(InputError, match="needs 'correct', and the rows have 'embedding', 'confidence'"):
        LearnedTree()._fit_rows({"embedding": Z, "confidence": confidence})
    with pytest.raises(InputError, match="a learned tree of 200 coordinates has room for at most 19 levels"):
        fit(LearnedTree(max_depth=20), np.zeros((10, 200)), confidence, correct)
