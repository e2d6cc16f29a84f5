import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from qacal import InputError, NotFittedError
from qacal.partitions import KDTree


def printed_tree(Z, depth):
    """The paper's construction, node by node: median pivot, <= goes left, one coordinate a level, wrapping round."""
    nodes = {(): np.arange(len(Z))}
    pivots = {}
    for level in range(depth):
        m = level % Z.shape[1]
        below = {}
        for path, rows in nodes.items():
            pivots[path] = np.median(Z[rows, m]) if len(rows) else np.inf
            left = Z[rows, m] <= pivots[path]
            below[(*path, 0)], below[(*path, 1)] = rows[left], rows[~left]
        nodes = below
    return pivots


def printed_assign(Z, depth, pivots, z):
    used = {level % Z.shape[1] for level in range(depth)}
    if any(z[m] < Z[:, m].min() or z[m] > Z[:, m].max() for m in used):
        return -1
    path = ()
    for level in range(depth):
        path = (*path, int(z[level % Z.shape[1]] > pivots[path]))
    return int("".join(map(str, path)) or "0", 2)


@given(st.integers(0, 2**32 - 1), st.integers(0, 5), st.integers(1, 4))
def test_is_the_papers_tree(seed, depth, width):
    rng = np.random.default_rng(seed)
    Z = np.round(rng.normal(size=(rng.integers(1, 40), width)), rng.integers(0, 4))
    new = np.round(rng.normal(size=(30, width)) * 1.3, 2)
    tree = KDTree(max_depth=depth, axes="coordinate").fit(Z)
    pivots = printed_tree(Z, depth)
    np.testing.assert_array_equal(tree.assign(new), [printed_assign(Z, depth, pivots, z) for z in new])


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_one_walk_gives_the_groups_of_every_depth(seed, depth):
    """The tree of depth d is the tree of depth D cut off, wrap-around and bounds included."""
    rng = np.random.default_rng(seed)
    Z, new = rng.normal(size=(50, 3)), rng.normal(size=(40, 3)) * 1.5
    paths = KDTree(max_depth=6, axes="coordinate").fit(Z).paths(new)
    shallow = KDTree(max_depth=depth, axes="coordinate").fit(Z)
    np.testing.assert_array_equal(paths.groups(depth), shallow.assign(new))


def test_principal_axes_see_what_coordinates_do_not():
    """Two clouds along a diagonal: the first principal axis tells them apart, the first coordinate hardly."""
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


def test_manners():
    tree = KDTree(max_depth=3)
    assert clone(tree).get_params() == {"max_depth": 3, "axes": "principal"}
    assert repr(tree) == "KDTree(max_depth=3)"
    with pytest.raises(NotFittedError, match="call fit first"):
        tree.assign([[1.0]])
    for Z, message in (
        ([1.0, 2.0], "shape"),
        (np.zeros((0, 3)), "shape"),
        ([[1.0, float("nan")]], "the vector of row 0 has nan at 1"),
    ):
        with pytest.raises(InputError, match=message):
            tree.fit(Z)
    with pytest.raises(InputError, match="max_depth is 99"):
        KDTree(max_depth=99).fit([[1.0]])
    with pytest.raises(InputError, match="axes is 'random'"):
        KDTree(axes="random").fit([[1.0]])
    with pytest.raises(InputError, match="3 coordinates; the tree was fitted on 2"):
        KDTree(max_depth=1).fit([[1.0, 2.0], [2.0, 1.0]]).assign([[1.0, 2.0, 3.0]])


def test_a_row_alone_has_the_group_it_has_in_a_batch():
    """Sums round differently in batches; rows that are pivots or bounds must not notice."""
    rng = np.random.default_rng(0)
    for Z in (np.eye(6)[np.arange(60) % 6], rng.normal(size=(300, 96))):
        tree = KDTree(max_depth=5).fit(Z)
        together = tree.assign(Z)
        np.testing.assert_array_equal(together, [tree.assign(z[None])[0] for z in Z])
        assert (together >= 0).all()


def test_vectors_that_are_all_equal():
    for Z in (np.ones((1, 3)), np.ones((20, 3))):
        assert KDTree(max_depth=2).fit(Z).assign(Z).tolist() == [0] * len(Z)
