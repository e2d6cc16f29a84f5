import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qacal.tally.bins import mass_bins, search_within
from qacal.tally.groups import GroupIndex
from qacal.tally.tally import Tally


@given(st.integers(0, 2**32 - 1), st.sampled_from(["left", "right"]))
def test_searching_many_segments_is_searchsorted_in_each(seed, side):
    rng = np.random.default_rng(seed)
    stretches = [np.sort(rng.choice(np.linspace(0, 1, 7), rng.integers(0, 9))) for _ in range(rng.integers(1, 6))]
    ordered = np.append(np.concatenate(stretches), 0.5)
    ends = np.cumsum([len(stretch) for stretch in stretches])
    of = rng.integers(0, len(stretches), 50)
    values = rng.choice(np.linspace(0, 1, 13), 50)
    expected = [
        ends[k] - len(stretches[k]) + np.searchsorted(stretches[k], v, side) for k, v in zip(of, values, strict=True)
    ]
    starts = ends - [len(stretch) for stretch in stretches]
    np.testing.assert_array_equal(search_within(ordered, values, starts[of], ends[of], side), expected)


def test_chunks_do_not_matter():
    rng = np.random.default_rng(0)
    values = rng.random(100_000)
    edges = np.sort(rng.random(999))
    zeros = np.zeros(len(values), dtype=np.int64)
    np.testing.assert_array_equal(search_within(edges, values, zeros, zeros + 999), np.searchsorted(edges, values))


def test_small_and_large_indexes_agree():
    codes = np.array([0, 3, 5])
    asked = np.array([-1, 0, 1, 3, 5, 6, 2**40])
    np.testing.assert_array_equal(GroupIndex(codes, np.array([1, 2, 3])).find(asked), [0, 1, 0, 2, 3, 0, 0])
    far = np.append(codes, 2**40)
    np.testing.assert_array_equal(GroupIndex(far, np.array([1, 2, 3, 4])).find(asked), [0, 1, 0, 2, 3, 0, 4])
    nobody = np.array([], dtype=np.int64)
    np.testing.assert_array_equal(GroupIndex(nobody, nobody).find(asked), np.zeros(7))


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_bins_have_enough_rows_and_never_split_a_value(seed, b):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 80)
    tally = Tally.of(
        rng.choice(np.linspace(0, 1, rng.integers(1, 30)), n), rng.integers(0, 2, n), groups=rng.integers(0, 3, n)
    )
    bins = mass_bins(tally, b)
    totals = dict(zip(*np.unique(np.repeat(tally.grouping.code, tally.rows), return_counts=True), strict=True))
    assert bins.rows.sum() == n
    for group, rows in zip(bins.group, bins.rows, strict=True):
        assert rows >= min(b, totals[group])
    # Bins are minimal: one value less would be too few rows, except in the last.
    for k in range(len(bins)):
        is_last = k + 1 == len(bins) or bins.group[k + 1] != bins.group[k]
        if not is_last:
            assert bins.rows[k] - tally.rows[bins.stop[k] - 1] < b
    np.testing.assert_array_equal(bins.of_cell, np.repeat(np.arange(len(bins)), bins.stop - bins.start))
