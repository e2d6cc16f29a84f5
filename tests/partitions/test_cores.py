"""Portions of rows in threads, and products in small pieces."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qacal import InputError
from qacal.partitions import BisectingTree, KDTree, cores
from qacal.partitions.cores import SMALL_PRODUCT, multiply, share
from tests.partitions.rows import clouds, seeds


@given(st.integers(0, 50), st.integers(1, 20))
def test_every_row_is_in_one_portion(n_rows, at_once):
    done = []
    share(n_rows, at_once, lambda portions: done.extend(range(n_rows)[rows] for rows in portions))
    assert sorted(row for rows in done for row in rows) == list(range(n_rows))
    assert all(len(rows) <= at_once for rows in done)


def test_portions_are_done_in_threads(monkeypatch):
    """As many as there are cores; each waits here until the others have come."""
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 3)
    all_here = threading.Barrier(3, timeout=10)
    share(30, 10, lambda portions: all_here.wait())


def test_one_portion_needs_no_thread():
    threads = []
    share(5, 5, lambda portions: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


def test_what_goes_wrong_in_a_thread_is_raised():
    def work(portions):
        for rows in portions:
            if rows.start == 70:
                raise InputError("row 70")

    with pytest.raises(InputError, match="row 70"):
        share(100, 10, work)


@given(seeds, st.integers(1, 3000), st.sampled_from([1, 10, 65, 5_000]), st.sampled_from([1, 8, 32]))
@settings(max_examples=30)
def test_small_products_make_up_the_product(seed, n_rows, width, count):
    n_rows = min(n_rows, 2**21 // (width * count) + 3)
    rng = np.random.default_rng(seed)
    rows, directions = rng.integers(-9, 9, (n_rows, width)) * 1.0, rng.integers(-9, 9, (width, count)) * 1.0
    out = np.full((n_rows, count), np.nan)
    assert multiply(rows, directions, out) is out
    np.testing.assert_array_equal(out, rows @ directions)


def test_products_are_small(monkeypatch):
    """Also where pieces are uneven."""
    sizes = []

    def spy(rows, directions, out):
        sizes.append(rows.shape[-2] * directions.size)
        return matmul(rows, directions, out=out)

    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", spy)
    for n_rows, width in ((10_007, 65), (253, 65), (8192, 64), (60, 1_025)):
        multiply(np.zeros((n_rows, width)), np.zeros((width, 32)), np.zeros((n_rows, 32)))
    assert max(sizes) <= SMALL_PRODUCT


@pytest.mark.parametrize(
    "tree", [KDTree(max_depth=4), KDTree(max_depth=4, axes="coordinate"), BisectingTree(max_depth=4)]
)
def test_the_first_bad_row_is_named_whichever_thread_meets_it(tree):
    Z = clouds(0, n=60_000)
    tree.fit(Z[:500])
    Z[20_001:, 1] = np.nan
    for _ in range(5):
        with pytest.raises(InputError, match="the vector of row 20001 has nan at 1"):
            tree.assign(Z)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "tree", [KDTree(max_depth=7), KDTree(max_depth=7, axes="coordinate"), BisectingTree(max_depth=7)]
)
def test_places_do_not_depend_on_portions(tree, dtype):
    Z = clouds(0, n=50_000, width=20, count=40).astype(dtype)
    tree.fit(Z[:2_000])
    whole = tree.paths(Z)
    parts = [tree.paths(part) for part in np.array_split(Z, 113)]
    np.testing.assert_array_equal(whole.path, np.concatenate([part.path for part in parts]))
    np.testing.assert_array_equal(whole.exit, np.concatenate([part.exit for part in parts]))
    # However numbers lie in memory.
    np.testing.assert_array_equal(tree.paths(np.asfortranarray(Z)).path, whole.path)
    np.testing.assert_array_equal(tree.paths(Z[::2]).path, whole.path[::2])
