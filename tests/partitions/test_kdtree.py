"""The kd-tree compared with the paper's algorithm, and its principal axes."""

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
def test_every_path_is_the_papers(seed, depth, width):
    Z, new = grid(seed, 1 + seed % 40, width), grid(seed + 1, 30, width) * 1.2
    paths = KDTree(max_depth=depth, axes="coordinate").fit(Z).paths(new)
    turns, exits = printed_paths(Z, depth, new)
    assert paths.path.tolist() == turns
    assert paths.exit.tolist() == exits


@given(seeds, st.integers(0, 6), st.sampled_from(["principal", "coordinate"]))
def test_one_walk_gives_the_groups_of_every_depth(seed, depth, axes):
    """The tree of depth d is the tree of depth D cut off, wrap-around and bounds included."""
    Z, new = clouds(seed, n=50, width=4), clouds(seed + 1, n=40, width=4)
    paths = KDTree(max_depth=6, axes=axes).fit(Z).paths(new)
    np.testing.assert_array_equal(paths.groups(depth), KDTree(max_depth=depth, axes=axes).fit(Z).assign(new))


def test_principal_axes_see_what_coordinates_do_not():
    """Two clouds along a diagonal: the first principal axis separates them, the first coordinate hardly."""
    rng = np.random.default_rng(0)
    cloud = rng.integers(0, 2, 2000)
    direction = np.ones(16) / 4
    Z = rng.normal(size=(2000, 16)) + np.outer(cloud * 2 - 1, direction) * 3
    agreement = {}
    for axes in ("principal", "coordinate"):
        groups = KDTree(max_depth=1, axes=axes).fit(Z).assign(Z)
        same = np.mean(groups == cloud)
        agreement[axes] = max(same, 1 - same)
    assert agreement["principal"] > 0.97
    assert agreement["coordinate"] < 0.85


def test_groups_are_of_about_equal_size():
    Z = np.random.default_rng(0).normal(size=(1024, 8))
    counts = np.bincount(KDTree(max_depth=4).fit(Z).assign(Z))
    assert counts.tolist() == [64] * 16


@given(seeds)
def test_principal_axes_of_turned_vectors_give_the_same_groups(seed):
    """Principal axes rotate with the vectors, up to their signs; the same rows are grouped together."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(64, 4)) * [8.0, 4.0, 2.0, 1.0]
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    one, two = (KDTree(max_depth=3).fit(vectors).assign(vectors) for vectors in (Z, Z @ turn))
    # Even sizes: with an odd one, the median row changes sides when an axis changes its sign.
    np.testing.assert_array_equal(one[:, None] == one, two[:, None] == two)


def test_fitting_rows_are_all_inside():
    """Including rows on the bounds, in any batch."""
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
    with pytest.raises(InputError, match="axes is 'random'"):
        KDTree(axes="random").fit([[1.0]])
