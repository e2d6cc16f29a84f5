"""What the kd-tree adds to its twin in tests/test_kdtree.py: all places, principal axes, descriptions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError
from qacal.partitions import KDTree
from tests.partitions.rows import clouds, grid, seeds


def printed_paths(Z, depth, new):
    """The paper's appendix by recursion, and the exit of each row: the first depth at which it is out of bounds."""
    width = Z.shape[1]

    def insert(node, level, z):
        if level == depth:
            return ()
        m = level % width
        pivot = np.median(node[:, m]) if len(node) else np.inf
        turn = int(z[m] > pivot)
        side = node[node[:, m] > pivot] if turn else node[node[:, m] <= pivot]
        return (turn, *insert(side, level + 1, z))

    def leaves_at(z):
        outside = (
            level + 1
            for level in range(depth)
            if not Z[:, level % width].min() <= z[level % width] <= Z[:, level % width].max()
        )
        return next(outside, depth + 1)

    return [int("".join(map(str, insert(Z, 0, z))) or "0", 2) for z in new], [leaves_at(z) for z in new]


@given(seeds, st.integers(0, 5), st.integers(1, 4))
def test_every_place_is_the_papers(seed, depth, width):
    Z, new = grid(seed, 1 + seed % 40, width), grid(seed + 1, 30, width) * 1.2
    paths = KDTree(max_depth=depth, axes="coordinate").fit(Z).paths(new)
    turns, exits = printed_paths(Z, depth, new)
    assert paths.path.tolist() == turns
    assert paths.exit.tolist() == exits


@given(seeds, st.integers(0, 6))
def test_principal_trees_roll_up(seed, depth):
    Z, new = clouds(seed, n=50, width=4), clouds(seed + 1, n=40, width=4)
    paths = KDTree(max_depth=6).fit(Z).paths(new)
    np.testing.assert_array_equal(paths.groups(depth), KDTree(max_depth=depth).fit(Z).assign(new))


@given(seeds)
def test_principal_axes_of_turned_vectors_give_the_same_groups(seed):
    """Principal axes turn with the vectors, up to their signs; two rows are together or not as before."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(64, 4)) * [8.0, 4.0, 2.0, 1.0]
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    one, two = (KDTree(max_depth=3).fit(vectors).assign(vectors) for vectors in (Z, Z @ turn))
    # A median between two rows goes either way round when an axis changes its sign, so sizes are even.
    np.testing.assert_array_equal(one[:, None] == one, two[:, None] == two)


def test_fitting_rows_are_all_inside():
    """Those that are bounds themselves too, in any batch."""
    for width in (3, 40, 300):
        Z = clouds(0, n=400, width=width)
        tree = KDTree(max_depth=8).fit(Z)
        assert all((tree.assign(part) >= 0).all() for size in (1, 7, 400) for part in np.array_split(Z, size))


def test_coordinates_that_no_level_splits_on_are_not_read():
    Z = clouds(0)
    tree = KDTree(max_depth=2, axes="coordinate").fit(Z)
    new = Z.copy()
    new[:, 2:] = np.nan
    np.testing.assert_array_equal(tree.assign(new), tree.assign(Z))


def test_refusals():
    for depth in (-1, 21, 1.5, None, "6", True):
        with pytest.raises(InputError, match=r"max_depth is .*; expected a whole number from 0 to 20"):
            KDTree(max_depth=depth).fit([[1.0]])
