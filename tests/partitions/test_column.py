"""Columns of labels: which values are labels, which are missing, and which can be saved."""

import datetime
import enum
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from qacal import InputError
from qacal.errors import ArtifactError
from qacal.partitions import Column
from qacal.storage import flatten, save, unflatten


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


def labels(values, new=None):
    column = Column("subject").fit(values)
    return column.assign(values if new is None else new).tolist()


def test_labels_come_back_as_they_were():
    for values in (
        ["law", "art", "law"],
        [3, 1, 2],
        [0.5, 0.25],
        [Level.LOW, Level.HIGH],
        [datetime.date(2025, 1, 31)],
        ["2", 2, "a"],
        [("a", 1), ("b", 2)],
        [" ", "-"],
    ):
        assert labels(values) == values


def test_missing_values_have_no_group():
    for missing in (None, "", float("nan"), np.nan, pd.NA, -1):
        assert labels(["law", missing, "art"]) == ["law", None, "art"]
    assert labels([None, None]) == [None, None]


def test_whole_numbers_in_a_column_with_gaps():
    assert labels([1.0, float("nan"), 2.0]) == [1, None, 2]
    assert labels([1, 2], [2.0, float("nan")]) == [2, None]


def test_booleans():
    """Booleans count as 0 and 1, with or without missing values, in fit and in assign."""
    assert labels([True, False, True]) == [1, 0, 1]
    assert labels([True, False], [None, True]) == [None, 1]
    assert labels([True, None, False], [False, True]) == [False, True]


def test_columns_of_tables():
    values = ["law", None, "art"]
    for column in (
        pl.Series(values),
        pd.Series(values),
        pd.Series(values, dtype="category"),
        pl.Series(values).to_arrow(),
    ):
        assert labels(column) == values
    assert labels(pl.Series([5, None, 7])) == [5, None, 7]
    assert labels(np.array(["law", "art"])) == ["law", "art"]


def test_unseen_labels_have_no_group():
    assert labels(["law", 2], ["chess", "2", 2, 3, "law"]) == [None, None, 2, None, "law"]


def test_many_texts_of_polars_have_the_groups_of_a_list():
    column = Column("subject").fit(["law", "law", "art", "Ärzte"])
    for values in (["law", "chess", None, "", "Ärzte"], ["chess", "go"], [None, None], ["law"]):
        many = values * 3000
        few, found = column._groups(many), column._groups(pl.Series(many, dtype=pl.String))
        assert found.labels == few.labels
        assert np.array_equal(found.code, few.code)
        assert column.assign(pl.Series(many, dtype=pl.String)).tolist() == column.assign(many).tolist()
    with pytest.raises(InputError, match="subject has labels that are text; those of the fit are numbers"):
        Column("subject").fit([1, 2]).assign(pl.Series(["law"] * 3000))


def test_labels_of_another_type_are_refused():
    with pytest.raises(InputError, match="labels that are numbers; those of the fit are text"):
        labels(["1", "2"], [1, 2])
    assert labels(["1", "2"], [None]) == [None]
    assert labels([None], ["law"]) == [None]


def test_refusals():
    for values, message in (
        ("law", "subject is one str; expected a list or column"),
        ([["a", "b"]], "expected a label"),
        ([{"a": 1}], "expected a label"),
        (np.array(["2025-01-31"], dtype="datetime64[D]"), "write them as text"),
    ):
        with pytest.raises(InputError, match=message):
            labels(values)
    for name in (None, "", 3):
        with pytest.raises(InputError, match="the name of a Column"):
            Column(name).fit(["a"])


def test_labels_are_in_the_order_of_their_counts():
    fitted = Column("subject").fit(["art", "law", "law", None]).fitted_
    assert (fitted.labels, fitted.counts) == (("law", "art"), (2, 1))


def test_text_and_numbers_stay_apart_in_a_file():
    column = Column("subject").fit(["2", 2, "true", True, 0.5, "0.5", "ü"])
    plain, numbers = flatten(column, [Column])
    again = unflatten(Column, json.loads(json.dumps(plain, allow_nan=False)), numbers, [Column])
    values = ["0.5", 0.5, "2", 2, "ü", None]
    assert again.assign(values).tolist() == column.assign(values).tolist() == values


def test_labels_that_cannot_be_saved(tmp_path):
    for label in (Level.LOW, datetime.date(2025, 1, 31), float("inf")):
        column = Column("subject").fit(["law", label])
        with pytest.raises(ArtifactError, match=r"fitted_.labels.\d is .* Convert|labels.\d is inf"):
            save(tmp_path / "column", column, [Column])


def test_repr_and_needs():
    assert repr(Column("subject")) == "Column('subject')"
    assert Column("subject")._needs == ("subject",)


def test_a_column_that_is_an_id_makes_no_groups():
    assert len(Column("user").fit(range(10_000)).fitted_.labels) == 10_000
    with pytest.raises(InputError, match=r"user has 10,001 different values, .* at most 10,000 .*--feature user"):
        Column("user").fit(range(10_001))
