"""The contract of all partitions."""

import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from sklearn.base import clone

from qacal import InputError, NotFittedError
from qacal.model.saved import CLASSES
from qacal.partitions import (
    EMBEDDING,
    BisectingTree,
    Column,
    KDTree,
    KMeans,
    Partition,
    Product,
)
from qacal.storage import flatten, save, unflatten
from qacal.tally.groups import as_grouping
from tests.partitions.rows import AWKWARD, clouds, seeds
from tests.rebuilt import rebuilt
from tests.sizes import FULL, sized

OF_VECTORS = [
    KDTree(max_depth=3),
    KDTree(max_depth=7, axes="coordinate"),
    KDTree(max_depth=0),
    BisectingTree(max_depth=3),
    BisectingTree(max_depth=6, seed=5),
    BisectingTree(max_depth=0),
    KMeans(n_groups=4),
    KMeans(n_groups=1),
    KMeans(n_groups=500),
]
SAVED = [
    *OF_VECTORS,
    Column("subject"),
    Product(Column("subject"), BisectingTree(max_depth=2), KMeans(n_groups=2)),
]

every_vector_partition = pytest.mark.parametrize("partition", OF_VECTORS, ids=repr)
every_saved_partition = pytest.mark.parametrize("partition", SAVED, ids=repr)


def inputs(seed, n=300):
    subject = np.random.default_rng(seed).choice(["law", "art", None, 7], n)
    return {EMBEDDING: clouds(seed, n), "subject": subject.tolist()}


def taken(rows, index):
    return {name: [column[at] for at in index] for name, column in rows.items()}


def leaves(groups):
    column = as_grouping(groups, len(groups))
    return column.decode(column.leaves())


def written(partition):
    """Return what is saved of a partition as bytes."""
    plain, numbers = flatten(partition, CLASSES)
    return json.dumps(plain, allow_nan=False), numbers


def loaded(partition):
    """Return the partition after a way through JSON and bytes."""
    text, numbers = written(partition)
    return unflatten(Partition, json.loads(text), numbers, CLASSES)


@every_saved_partition
def test_loaded_partitions_are_the_same_to_the_bit(partition):
    fitted = partition.clone()._fit_rows(inputs(0))
    again = loaded(fitted)
    assert type(again) is type(fitted)
    assert repr(again) == repr(fitted)
    assert written(again) == written(fitted)
    assert leaves(again._groups_of(inputs(1))) == leaves(fitted._groups_of(inputs(1)))


@every_saved_partition
def test_row_order_is_irrelevant(partition):
    rows = inputs(3)
    order = np.random.default_rng(0).permutation(300)
    fitted = partition.clone()._fit_rows(rows)
    shuffled = partition.clone()._fit_rows(taken(rows, order))
    assert written(shuffled) == written(fitted)


@every_saved_partition
def test_predicting_changes_nothing(partition):
    fitted = partition.clone()._fit_rows(inputs(0))
    before = written(fitted)
    first = leaves(fitted._groups_of(inputs(2)))
    fitted._groups_of(inputs(5))
    assert leaves(fitted._groups_of(inputs(2))) == first
    assert written(fitted) == before


@every_saved_partition
def test_copies_have_the_same_parameters_and_are_not_fitted(partition):
    assert type(partition) in CLASSES
    for twin in (clone(partition), partition.clone()):
        assert twin is not partition
        assert repr(twin) == repr(partition)
    with pytest.raises(NotFittedError, match="call fit first"):
        partition.clone()._groups_of(inputs(0))


@every_saved_partition
def test_missing_columns_are_named(partition):
    fitted = partition.clone()._fit_rows(inputs(0))
    for method in (fitted._groups_of, partition.clone()._fit_rows):
        with pytest.raises(InputError, match=f"needs '{partition._needs[0]}', and the rows have 'question'"):
            method({"question": ["Why?"]})
        with pytest.raises(InputError, match="takes columns by name"):
            method([[1.0]])


@every_vector_partition
def test_bad_vectors_are_refused(partition):
    Z = clouds(0)
    fitted = partition.clone().fit(Z)
    for bad, message in (
        ([1.0, 2.0], "shape"),
        (np.zeros((0, 6)), "shape"),
        ([[1.0], [1.0, 2.0]], "as many in every row"),
        ([["a", "b"]], "expected numbers"),
        (None, "shape"),
    ):
        with pytest.raises(InputError, match=message):
            partition.clone().fit(bad)
        with pytest.raises(InputError, match=message):
            fitted.assign(bad)
    with pytest.raises(InputError, match=r"7 coordinates; the .* was fitted on 6"):
        fitted.assign(np.zeros((2, 7)))


@every_vector_partition
def test_masked_numbers_are_refused(partition):
    Z = clouds(0, n=500)
    masked = np.ma.masked_greater(Z, np.quantile(Z, 0.99))
    fitted = partition.clone().fit(np.ma.array(Z))
    for work in (lambda: partition.clone().fit(masked), lambda: fitted.assign(masked)):
        with pytest.raises(InputError, match="some numbers of the vectors are masked"):
            work()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@every_vector_partition
def test_values_that_are_not_finite_are_refused_with_their_place(partition, dtype):
    Z = clouds(0, n=20_000).astype(dtype)
    fitted = partition.clone().fit(Z[:500])
    for value in (np.nan, np.inf, -np.inf):
        Z[17_001, 0] = value
        with pytest.raises(InputError, match=f"the vector of row 17001 has {value} at 0; expected finite"):
            partition.clone().fit(Z)
        if getattr(partition, "max_depth", 1) == 0:  # a single group: vectors are not read
            assert not fitted.assign(Z).any()
            continue
        with pytest.raises(InputError, match=f"the vector of row 17001 has {value} at 0; expected finite"):
            fitted.assign(Z)


@every_vector_partition
def test_numbers_too_large_to_square_are_refused(partition):
    with pytest.raises(InputError, match=r"row 0 has 1e\+200 at 1"):
        partition.clone().fit([[0.0, 1e200]])


@every_vector_partition
def test_difficult_vectors(partition):
    for name, Z in AWKWARD.items():
        fitted = partition.clone().fit(Z)
        groups = fitted.assign(Z)
        assert groups.dtype == np.int64, name
        assert (groups >= 0).all(), name
        assert groups.tolist() == [int(fitted.assign(z[None])[0]) for z in Z], name
        assert fitted.fitted_.sizes.sum() == len(Z), name
        assert written(loaded(fitted)) == written(fitted), name
        same = (Z[:, None] == Z).all(axis=2)
        assert (groups[:, None] == groups)[same].all(), name


@every_vector_partition
def test_sizes_are_those_of_the_fitting_rows(partition):
    Z = clouds(2)
    fitted = partition.clone().fit(Z)
    sizes = fitted.fitted_.sizes
    np.testing.assert_array_equal(np.bincount(fitted.assign(Z), minlength=len(sizes)), sizes)


@given(seeds)
def test_float32_and_float64_agree(seed):
    """float32 vectors have the same groups after conversion to float64."""
    Z = clouds(seed).astype(np.float32)
    for partition in (KDTree(max_depth=4), KDTree(max_depth=4, axes="coordinate"), KMeans(n_groups=5)):
        narrow, wide = partition.clone().fit(Z), partition.clone().fit(Z.astype(np.float64))
        assert written(narrow) == written(wide)
        np.testing.assert_array_equal(narrow.assign(Z), wide.assign(Z.astype(np.float64)))


@every_vector_partition
def test_rounding_to_float32_moves_few_rows(partition):
    """Only vectors very close to a boundary change their group."""
    fitted = partition.clone().fit(clouds(0, n=500))
    new = clouds(1, n=20_000)
    assert np.mean(fitted.assign(new) != fitted.assign(new.astype(np.float32))) < 1e-3


@every_vector_partition
def test_whole_numbers_lists_and_other_layouts(partition):
    Z = np.round(clouds(0, n=60) * 3).astype(np.int64)
    fitted = partition.clone().fit(Z.tolist())
    expected = fitted.assign(Z)
    column_of_lists = np.empty(len(Z), dtype=object)
    column_of_lists[:] = Z.tolist()
    for same in (Z.tolist(), np.asfortranarray(Z.astype(float)), Z.astype(np.float16), column_of_lists):
        np.testing.assert_array_equal(fitted.assign(same), expected)
    np.testing.assert_array_equal(fitted.assign(Z[::-3]), expected[::-3])


@every_vector_partition
def test_a_row_alone_has_the_group_it_has_in_a_batch(partition):
    n = sized(10_000)
    Z = clouds(0, n=n, width=40, count=30)
    fitted = partition.clone().fit(Z[:2_000])
    together = fitted.assign(Z)
    for size in (1, 2, 3, 7, 100, 1_111):
        some = n if FULL else min(n, 200 * size)
        np.testing.assert_array_equal(
            together[:some], np.concatenate([fitted.assign(Z[a : min(a + size, some)]) for a in range(0, some, size)])
        )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@every_vector_partition
def test_vectors_are_never_copied_whole(partition, dtype):
    fitted = partition.clone().fit(clouds(0, width=64))
    Z = np.broadcast_to(clouds(1, n=1, width=64).astype(dtype), (200_000, 64))
    tracemalloc.start()
    fitted._groups(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < Z.nbytes


WITHOUT_OTHERS = """
import pathlib, sys
sys.modules["sklearn"] = sys.modules["scipy"] = sys.modules["threadpoolctl"] = None
from qacal.model.saved import CLASSES
from qacal.partitions import Partition
from qacal.storage import load
from qacal.tally.groups import as_grouping
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    partition = load(folder, Partition, CLASSES)
    partition._groups_of({"embedding": [[0.0] * 6], "subject": ["law"]})
    print(folder.name)
"""


def test_applying_needs_numpy_alone(tmp_path):
    for at, partition in enumerate(SAVED):
        save(tmp_path / f"{at:02}", partition.clone()._fit_rows(inputs(0)), CLASSES)
    run = subprocess.run([sys.executable, "-c", WITHOUT_OTHERS, str(tmp_path)], capture_output=True, text=True)
    assert run.stderr == ""
    assert run.stdout.split() == [f"{at:02}" for at in range(len(SAVED))]


@pytest.mark.parametrize(
    ("partition", "changes", "match"),
    [
        (KDTree(max_depth=2), {"pivots": np.array([0.0, np.nan, 0.0])}, r"pivots\[1\] is nan"),
        (KDTree(max_depth=2), {"pivots": np.zeros(4)}, "one pivot for each node"),
        (KDTree(max_depth=2), {"low": np.array([0.0, np.inf])}, r"low\[1\] is inf"),
        (KDTree(max_depth=2), {"axes": np.zeros((0, 6))}, "axes is empty"),
        (KDTree(max_depth=2), {"axes": np.full((2, 6), 1e200)}, r"axes\[0\] is 1e\+200"),
        (KDTree(max_depth=2), {"width": 9}, "axes have another width"),
        (KDTree(max_depth=2), {"sizes": np.array([1, 1, 1, -1])}, r"sizes\[3\] is -1"),
        (BisectingTree(max_depth=2), {"directions": np.full((3, 6), np.inf)}, r"directions\[0\] is inf"),
        (
            BisectingTree(max_depth=2),
            {"directions": np.zeros((7, 6))},
            r"offsets has shape \[3\]; expected \[7\]",
        ),
        (BisectingTree(max_depth=2), {"sizes": np.zeros(3, dtype=np.int64)}, "for 3 leaves"),
        (BisectingTree(max_depth=2), {"offsets": np.full(3, np.nan)}, r"offsets\[0\] is nan"),
        (KMeans(n_groups=3), {"centres": np.full((3, 6), 1e200)}, r"centres\[0\] is 1e\+200"),
        (KMeans(n_groups=3), {"centres": np.zeros((3, 0))}, "centres is empty"),
        (Column("subject"), {"labels": ("law", "law", 7)}, "a label twice"),
        (Column("subject"), {"counts": (1, 2)}, "one count above 0 for each label"),
    ],
)
def test_states_that_no_fit_can_make_are_refused(partition, changes, match):
    fitted = partition.clone()._fit_rows(inputs(0))
    rebuilt(fitted)
    fitted.fitted_ = replace(fitted.fitted_, **changes)
    with pytest.raises(InputError, match=match):
        rebuilt(fitted)


def test_parameters_that_are_not_those_of_the_fit_are_refused():
    for partition, changes, match in (
        (KDTree(max_depth=2), {"max_depth": 3}, "max_depth is 3, and the tree has 2 levels"),
        (KMeans(n_groups=3), {"n_groups": 2}, "n_groups is 2, and there are 3 centres"),
    ):
        with pytest.raises(InputError, match=match):
            rebuilt(partition.clone()._fit_rows(inputs(0)).set_params(**changes))
