from decimal import Decimal
from enum import Enum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import NO_GROUP, InputError, Paths
from qacal.tally import groups
from qacal.tally.groups import as_grouping
from tests.rebuilt import rebuilt


def codes(values):
    return as_grouping(values, len(values))


def test_whole_numbers_of_any_type_are_their_own_codes():
    for values in (
        [3, 0, 3],
        np.array([3, 0, 3], dtype=np.uint8),
        [3.0, 0.0, 3.0],
        pd.Series([3, 0, 3], dtype="Int64"),
    ):
        column = codes(values)
        assert column.labels is None
        np.testing.assert_array_equal(column.code, [3, 0, 3])


def test_whole_floats_are_whole_numbers_whatever_is_beside_them():
    alone = codes(np.array([2.0, -2.0, -1.0]))
    for beside in (None, float("nan"), 0.5, "text"):
        for form in (list, lambda values: np.array(values, dtype=object), pl.Series):
            if isinstance(beside, str) and form is pl.Series:
                continue
            column = codes(form([2.0, -2.0, -1.0, beside]))
            labels = [column.label(code) for code in column.code.tolist()]
            assert labels[:3] == [alone.label(code) for code in alone.code.tolist()] == [2, -2, None]
            assert [type(label) for label in labels[:2]] == [int, int]


def test_missing_labels_are_no_group():
    for values in ([3, None], [3.0, float("nan")], pd.Series([3, None], dtype="Int64"), [3, -1]):
        np.testing.assert_array_equal(codes(values).code, [3, NO_GROUP])
    for values in (
        ["a", None],
        pd.Series(["a", None]),
        pd.Categorical(["a", None]),
        np.array(["a", np.nan], dtype=object),
    ):
        np.testing.assert_array_equal(codes(values).code, [0, NO_GROUP])


def test_negative_and_huge_numbers_are_labels():
    for values in ([-7, 2, -7], np.array([2**63 + 5, 2, 2**63 + 5], dtype=np.uint64)):
        column = codes(values)
        assert column.decode(column.code) == [int(value) for value in values]
        assert (column.code >= 0).all()
        np.testing.assert_array_equal(column.encode([2, 99], 2).code, [column.code[1], NO_GROUP])


def test_mixed_labels_are_sorted_by_type_then_value():
    assert codes(["b", 2, "a", 10, True]).labels == (True, 2, 10, "a", "b")


def test_unknown_labels_become_no_group():
    column = codes(["law", "art"])
    np.testing.assert_array_equal(column.encode(["art", "zoo", None], 3).code, [0, NO_GROUP, NO_GROUP])
    with pytest.raises(InputError, match="groups has labels that are numbers; those of the fit are text"):
        column.encode([0, 1], 2)
    np.testing.assert_array_equal(codes([1, 2]).encode(["1", 2], 2).code, [NO_GROUP, 2])


def test_nodes_of_a_tree():
    paths = Paths(np.array([0b101, 0b011, 0b111]), np.array([4, 2, 0]), 3)
    column = codes(paths)
    np.testing.assert_array_equal(column.leaves(), [5, -1, -1])
    np.testing.assert_array_equal(column.at_depth(1).leaves(), [1, 0, -1])
    np.testing.assert_array_equal(paths.groups(1), [1, 0, -1])
    # Turns after the exit do not matter.
    np.testing.assert_array_equal(column.code, [0b101, 0b000, 0b000])
    for depth in (-1, 4):
        with pytest.raises(InputError, match="depths 0 to 3"):
            paths.groups(depth)
        with pytest.raises(InputError, match="depths 0 to 3"):
            column.at_depth(depth)


def test_a_fit_on_a_tree_reads_leaves_and_deeper_trees():
    column = codes(Paths(np.array([0, 1, 2, 3]), np.full(4, 3), 2))
    np.testing.assert_array_equal(column.encode([3, 4, -1], 3).leaves(), [3, -1, -1])
    deeper = Paths(np.array([0b1101]), np.array([5]), 4)
    np.testing.assert_array_equal(column.encode(deeper, 1).leaves(), [0b11])
    with pytest.raises(InputError, match="depth 1; the fit had depth 2"):
        column.encode(Paths(np.array([0]), np.array([2]), 1), 1)
    with pytest.raises(InputError, match="leaf numbers or Paths"):
        column.encode(["law"], 1)


def test_paths_that_do_not_fit_their_depth():
    with pytest.raises(InputError, match=r"path\[1\] is 4; a tree of depth 2 has paths below 4"):
        codes(Paths(np.array([3, 4]), np.array([3, 3]), 2))
    with pytest.raises(InputError, match="depth 60; expected 0 to 20"):
        codes(Paths(np.array([3]), np.array([3]), 60))
    with pytest.raises(InputError, match="one label per row"):
        as_grouping([[1, 2]], 1)


class Subject(Enum):
    LAW = 1
    ART = 2


def test_labels_of_any_type():
    for values in (
        [Subject.LAW, Subject.ART],
        [1 + 2j, 3j],
        [Decimal("1.5"), Decimal("sNaN")],
    ):
        column = codes(values)
        assert column.decode(column.code)[0] == values[0]
    assert codes([np.int64(-1), "a"]).code.tolist() == [NO_GROUP, 0]
    with pytest.raises(InputError, match=r"groups\[1\] is \{\}; expected a label"):
        codes(np.array(["a", {}], dtype=object))
    with pytest.raises(InputError, match="rows of different lengths"):
        codes([[1, 2], [3]])


@pytest.mark.parametrize("column", [pl.Series, pa.array])
def test_large_integers_beside_missing_values_stay_distinct(column):
    values = [2**60 + 1, 2**60 + 2, None]
    np.testing.assert_array_equal(codes(column(values)).code, [2**60 + 1, 2**60 + 2, NO_GROUP])


def test_distinct_groups_are_those_of_the_rows_each_once():
    rng = np.random.default_rng(0)
    column = codes(rng.integers(-1, 5, 100)).distinct()
    np.testing.assert_array_equal(column.code, np.arange(5))
    paths = Paths(rng.integers(0, 8, 200), rng.integers(0, 5, 200), 3)
    column = as_grouping(paths, 200)
    places = set(zip(column.code.tolist(), column.exit.tolist(), strict=True))
    few = column.distinct()
    assert list(zip(few.code.tolist(), few.exit.tolist(), strict=True)) == sorted(places)
    for depth in range(4):
        there, here = few.at_depth(depth).leaves(), column.at_depth(depth).leaves()
        np.testing.assert_array_equal(np.unique(there), np.unique(here))
    rebuilt(few)


@given(st.lists(st.sampled_from([None, "", "law", "art", "é", "Law"]), max_size=30), st.integers(0, 3))
def test_codes_of_texts_are_the_same_by_polars_and_by_python(labels, cut):
    chunks = (pl.Series(part, dtype=pl.String) for part in (labels[:cut], labels[cut:]))
    texts = pl.concat(chunks, rechunk=False)
    slow, fast = groups._from_objects(texts.to_list()), groups._from_texts(texts)
    assert fast.labels == slow.labels
    assert fast.code.tolist() == slow.code.tolist()
    assert fast.code.dtype == np.int64
