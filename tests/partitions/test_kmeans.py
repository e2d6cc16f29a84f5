"""k-means: the nearest centre, groups in a fixed order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError
from qacal.partitions import KMeans
from tests.partitions.rows import clouds, grid, seeds


def printed_nearest(centres, z):
    distances = [sum((a - b) ** 2 for a, b in zip(z, centre, strict=True)) for centre in centres.tolist()]
    return distances.index(min(distances))


@given(seeds, st.integers(1, 8))
def test_each_vector_goes_to_the_nearest_centre(seed, n_groups):
    groups = KMeans(n_groups=n_groups).fit(clouds(seed, n=60, width=3))
    new = clouds(seed + 1, n=30, width=3)
    assert groups.assign(new).tolist() == [printed_nearest(groups.fitted_.centres, z) for z in new.tolist()]


@given(seeds)
def test_row_order_is_irrelevant(seed):
    for Z in (clouds(seed, n=80), grid(seed)):
        one = KMeans(n_groups=5).fit(Z).fitted_
        two = KMeans(n_groups=5).fit(np.random.default_rng(seed).permutation(Z)).fitted_
        assert one.centres.tobytes() == two.centres.tobytes()


def test_groups_are_numbered_by_size_and_then_by_centre():
    Z = np.repeat([[5.0], [0.0], [9.0], [-4.0]], [3, 2, 7, 3], axis=0)
    groups = KMeans(n_groups=4).fit(Z)
    assert groups.fitted_.centres.ravel().tolist() == [9.0, -4.0, 5.0, 0.0]
    assert groups.fitted_.sizes.tolist() == [7, 3, 3, 2]


def test_fewer_vectors_than_groups():
    groups = KMeans(n_groups=10).fit([[1.0], [1.0], [2.0]])
    assert len(groups.fitted_.sizes) == 2
    assert groups.assign([[1.2], [1.8], [1.5]]).tolist() == [0, 1, 0]


def test_rows_as_near_to_two_centres_take_the_first():
    rng = np.random.default_rng(0)
    groups = KMeans(n_groups=12).fit(clouds(0, n=1000, width=40, count=12))
    centres = groups.fitted_.centres
    pairs = rng.integers(0, len(centres), (3_000, 2))
    Z = (centres[pairs[:, 0]] + centres[pairs[:, 1]]) / 2
    together = groups.assign(Z)
    np.testing.assert_array_equal(together, [groups.assign(z[None])[0] for z in Z])
    first, last = pairs.min(axis=1), pairs.max(axis=1)
    assert (together == first).mean() > 0.2  # elsewhere a third centre is mostly nearer
    assert not ((together == last) & (first != last)).any()


def test_refusals():
    for n_groups in (0, -3, 2.0, "8", None, True, 2**21):
        with pytest.raises(InputError, match=r"n_groups is .*; expected a whole number from 1"):
            KMeans(n_groups=n_groups).fit([[1.0]])
    with pytest.raises(InputError, match="seed is None"):
        KMeans(seed=None).fit([[1.0]])
