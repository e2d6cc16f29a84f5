"""The bisecting tree compared with a slow version, and the properties of its cuts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from qacal import InputError
from qacal.partitions import BisectingTree
from qacal.partitions.base import ROUNDING
from qacal.partitions.bisecting import ENOUGH_ROWS, Bisections
from tests.partitions.rows import clouds, grid, seeds
from tests.sizes import FULL, examples


def printed_assign(tree, z):
    """Node by node: right if z.w > c; the children of node k are 2k + 1 and 2k + 2."""
    node = 0
    for _ in range(tree.depth):
        total = sum(a * b for a, b in zip(z.tolist(), tree.directions[node].tolist(), strict=True))
        node = 2 * node + 1 + (total > tree.offsets[node])
    return node - (2**tree.depth - 1)


def random_tree(seed, depth, width):
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(2**depth - 1, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions[rng.random(len(directions)) < 0.1] = 0  # nodes that do not split
    offsets = np.where(directions.any(axis=1), rng.normal(size=len(directions)) / 3, 0.0)
    return Bisections(directions, offsets, np.zeros(2**depth, dtype=np.int64))


@given(seeds, st.integers(0, 13), st.integers(1, 6))
def test_paths_are_the_printed_walk(seed, depth, width):
    tree = random_tree(seed, depth, width)
    Z = np.random.default_rng(seed + 1).normal(size=(30, width))
    paths = tree.paths(Z)
    assert paths.path.tolist() == [printed_assign(tree, z) for z in Z]
    assert paths.exit.tolist() == [depth + 1] * 30


def exact_assign(tree, Z):
    """Assign all rows node by node, with more digits than float64."""
    node = np.zeros(len(Z), dtype=np.int64)
    for _ in range(tree.depth):
        total = (Z.astype(np.longdouble) * tree.directions[node]).sum(axis=1)
        node = 2 * node + 1 + (total > tree.offsets[node])
    return node - (2**tree.depth - 1)


@given(seeds, st.sampled_from([4, 7]), st.sampled_from([3, 64, 300]), st.sampled_from([1.0, 1e-40, 1e40]))
@examples(40)
def test_rows_near_a_plane_have_the_group_that_exact_products_give(seed, depth, width, scale):
    """Rows at all distances from the planes, down to the last digits."""
    rng = np.random.default_rng(seed)
    tree = random_tree(seed, depth, width)
    Z = rng.normal(size=(2_000, width))
    node = rng.integers(0, 2**depth - 1, len(Z))
    to_plane = ((Z * tree.directions[node]).sum(axis=1) - tree.offsets[node])[:, None] * tree.directions[node]
    Z = (Z - to_plane * (1 - 10.0 ** -rng.integers(0, 11, (len(Z), 1)))) * scale
    scaled = Bisections(tree.directions, tree.offsets * scale, tree.sizes)
    np.testing.assert_array_equal(scaled.paths(Z).path, exact_assign(scaled, Z))


def test_chunks_give_the_same_paths():
    """More rows than one chunk."""
    tree = random_tree(0, 7, 3)
    Z = np.random.default_rng(1).normal(size=(40_000, 3))
    whole = tree.paths(Z).path
    np.testing.assert_array_equal(whole, np.concatenate([tree.paths(part).path for part in np.array_split(Z, 9)]))
    assert whole[-5:].tolist() == [printed_assign(tree, z) for z in Z[-5:]]


def best_cut(values):
    """Return the cut with the least sum of squares around the two means, by trying all cuts."""
    ordered = np.sort(values)
    costs = [ordered[:k].var() * k + ordered[k:].var() * (len(ordered) - k) for k in range(1, len(ordered))]
    k = int(np.argmin(costs)) + 1
    return (ordered[:k].mean() + ordered[k:].mean()) / 2


def printed_tree(values, depth):
    """Return the groups of numbers by repeated best cuts."""
    if depth == 0 or len(values) == 0 or (values == values[0]).all():
        return np.zeros(len(values), dtype=int)
    right = values > best_cut(values)
    groups = np.empty(len(values), dtype=int)
    groups[~right] = printed_tree(values[~right], depth - 1)
    groups[right] = printed_tree(values[right], depth - 1) + 2 ** (depth - 1)
    return groups


@given(seeds, st.integers(0, 3))
def test_is_the_tree_of_best_cuts(seed, depth):
    """On a line, 2-means can try every cut. Clusters of clusters have one clear optimum."""
    rng = np.random.default_rng(seed)
    values = np.repeat([0.0, 1.0, 10.0, 11.0, 100.0, 101.0, 110.0, 111.0], rng.integers(1, 6, 8))
    values = rng.permutation(values + rng.choice([-0.1, 0.1], 1))
    tree = BisectingTree(max_depth=depth).fit(values[:, None])
    np.testing.assert_array_equal(tree.assign(values[:, None]), printed_tree(values, depth))


@given(seeds, st.integers(0, 5))
@examples(15)
def test_one_walk_gives_the_groups_of_every_depth(seed, depth):
    Z, new = clouds(seed, n=60, width=3), clouds(seed + 1, n=40, width=3)
    paths = BisectingTree(max_depth=5).fit(Z).paths(new)
    np.testing.assert_array_equal(paths.groups(depth), BisectingTree(max_depth=depth).fit(Z).assign(new))


@given(seeds)
@examples(15)
def test_row_order_is_irrelevant(seed):
    for Z in (clouds(seed, n=80), grid(seed), clouds(seed, n=3 * ENOUGH_ROWS)):
        tree = BisectingTree(max_depth=4).fit(Z).fitted_
        again = BisectingTree(max_depth=4).fit(np.random.default_rng(seed).permutation(Z)).fitted_
        assert tree.directions.tobytes() == again.directions.tobytes()
        assert tree.offsets.tobytes() == again.offsets.tobytes()


def test_rows_on_a_boundary_stay_on_one_side():
    """Rows halfway between two centres, at any position along the plane, go left, alone and in any batch."""
    rng = np.random.default_rng(0)
    fitting = clouds(0, n=2_000, width=40, count=30)
    tree = BisectingTree(max_depth=6).fit(fitting)
    half_way = tree.fitted_.offsets - ROUNDING * np.linalg.norm(fitting, axis=1).max()
    Z = rng.normal(size=(63, 160, 40))
    for rows, w, c in zip(Z, tree.fitted_.directions, half_way, strict=True):
        rows -= np.outer(rows @ w - c, w)
    Z = Z.reshape(-1, 40)
    together = tree.assign(Z)
    assert (together[:160] < 32).all()  # the rows on the root's boundary
    some = slice(None, None, 1 if FULL else 10)
    np.testing.assert_array_equal(together[some], [tree.assign(z[None])[0] for z in Z[some]])
    np.testing.assert_array_equal(together, np.concatenate([tree.assign(part) for part in np.array_split(Z, 77)]))


def test_a_vector_halfway_goes_left():
    tree = BisectingTree(max_depth=1).fit([[0.0, 0.3], [1.0, 0.3]])
    assert tree.assign([[0.5, 99.0], [0.5, -99.0], [0.50001, 0.0]]).tolist() == [0, 0, 1]


def test_no_vector_is_outside():
    tree = BisectingTree(max_depth=3).fit(clouds(0))
    far = tree.paths(clouds(1) * 1e6)
    assert (far.exit == 4).all()


def test_nodes_of_equal_rows_do_not_split():
    Z = np.repeat([[0.0, 0.0], [1.0, 2.0]], 10, axis=0)
    tree = BisectingTree(max_depth=3).fit(Z)
    assert tree.assign(Z).tolist() == [0] * 10 + [4] * 10
    assert tree.fitted_.directions.any(axis=1).tolist() == [True] + [False] * 6
    assert tree.fitted_.sizes.tolist() == [10, 0, 0, 0, 10, 0, 0, 0]


def test_cuts_between_clouds_and_not_through_them():
    """A topic with a tenth of the rows: a median cannot separate it, a cut between clusters does."""
    rng = np.random.default_rng(0)
    is_rare = rng.random(1000) < 0.1
    Z = rng.normal(size=(1000, 8)) + np.where(is_rare, 6.0, 0.0)[:, None]
    np.testing.assert_array_equal(BisectingTree(max_depth=1).fit(Z).assign(Z), is_rare)


def within(Z, groups):
    """Return the sum of squares around the means of groups."""
    return sum(((Z[groups == g] - Z[groups == g].mean(axis=0)) ** 2).sum() for g in np.unique(groups))


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_finds_two_clouds_as_all_rows_do(seed):
    """Two clouds have one best cut; more have several good ones, and a tree need not find the best."""
    Z = clouds(seed, n=6 * ENOUGH_ROWS, width=20, count=2)
    best = KMeans(2, n_init=10, random_state=0).fit(Z)
    assert within(Z, BisectingTree(max_depth=1).fit(Z).assign(Z)) < 1.001 * best.inertia_


@pytest.mark.parametrize("n_other", [1, 2, 50])
@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_rows_that_differ_are_found_beyond_a_sample_of_equal_rows(n_other, noise):
    """Thousands of rows are equal up to rounding, and a sample may miss the few others."""
    rng = np.random.default_rng(0)
    is_other = np.arange(8 * ENOUGH_ROWS) < n_other
    Z = np.where(is_other, 0.9, 0.3)[:, None] + noise * rng.choice([-1, 1], (len(is_other), 3))
    np.testing.assert_array_equal(BisectingTree(max_depth=1).fit(Z).assign(Z), is_other)


def test_the_seed_is_used():
    """On vectors without clusters, starts matter."""
    Z = np.random.default_rng(0).normal(size=(300, 8))
    trees = {BisectingTree(max_depth=3, seed=seed).fit(Z).fitted_.offsets.tobytes() for seed in range(4)}
    assert len(trees) > 1


def test_refusals():
    for parameters, message in (
        ({"max_depth": 21}, "max_depth is 21; expected a whole number from 0 to 20"),
        ({"max_depth": -1}, "max_depth is -1"),
        ({"max_depth": 2.0}, "max_depth is 2.0"),
        ({"max_depth": True}, "max_depth is True"),
        ({"seed": "x"}, "seed is 'x'; expected a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            BisectingTree(**parameters).fit([[1.0]])
    with pytest.raises(InputError, match="200 coordinates has room for at most 19 levels"):
        BisectingTree(max_depth=20).fit(np.zeros((2, 200)))
