"""Vectors from a column of any type; errors name the first bad row."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from qacal import InputError
from qacal.embedders import ColumnEmbedder, Embedder, embedder

ROWS = [[0.5, 1.0, -2.0], [0.0, 0.25, 1e-3]]


@pytest.mark.parametrize(
    "column",
    [
        ROWS,
        [tuple(row) for row in ROWS],
        [np.array(row) for row in ROWS],
        [json.dumps(row) for row in ROWS],
        [json.dumps(row).encode() for row in ROWS],
        np.array(ROWS),
        pd.Series(ROWS),
        pl.Series(ROWS),
        pl.Series(ROWS, dtype=pl.Array(pl.Float32, 3)),
        pl.Series([json.dumps(row) for row in ROWS]),
        pa.array(ROWS),
        pa.chunked_array([pa.array(ROWS)]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}",
)
def test_columns_of_every_type(column):
    got = ColumnEmbedder("z").vectors(column)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.array(ROWS, dtype=np.float32))


def test_the_length_is_set_by_the_first_rows():
    column = embedder("column:z")
    assert isinstance(column, Embedder)
    assert isinstance(column, ColumnEmbedder)
    assert column.dim is None
    assert column.vectors([]).shape == (0, 0)
    before = column.digest
    column.vectors(ROWS)
    assert column.dim == 3
    assert column.digest == ColumnEmbedder("z", dim=3).digest != before
    assert column.vectors([]).shape == (0, 3)
    with pytest.raises(InputError, match=r"z\[0\] has 2 numbers; expected 3"):
        column.vectors([[1, 2]])


def test_a_refused_column_sets_no_length():
    column = ColumnEmbedder("z")
    with pytest.raises(InputError):
        column.vectors([[1, 2], [1, 2, 3]])
    assert column.dim is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (None, "is None"),
        ("[1, 2", r"is '\[1, 2'"),
        ("word", "is 'word'"),
        ([], r"is \[\]"),
        ([[1.0, 2.0]], "expected a list of numbers"),
        ([1.0, [2.0]], "expected a list of numbers"),
        ({"a": 1}, "expected a list of numbers"),
        (["1", "2"], "expected a list of numbers"),
        ([True, False], "expected a list of numbers"),
        ([1.0, None], "expected a list of numbers"),
        (3.0, "is 3.0"),
        ([0.0, float("nan")], "has nan at 1; expected finite numbers"),
        ([float("inf"), 0.0], "has inf at 0; expected finite numbers"),
        ("[1, NaN]", "has nan at 1"),
        ([0.0, 1e300], r"has 1e\+300 at 1"),
        ([1.0] * 1000 + [None], r"\.\.\.; expected"),
    ],
)
def test_the_first_bad_row_is_named(bad, message):
    with pytest.raises(InputError, match=rf"z\[1\] .*{message}|z\[1\] {message}"):
        ColumnEmbedder("z").vectors([[1.0, 2.0], bad, bad])


def test_text_cannot_be_embedded():
    with pytest.raises(InputError, match="reads vectors from the column 'z' and cannot embed text"):
        ColumnEmbedder("z").embed(["q"], ["a"])


def test_the_digest_depends_on_name_and_length():
    digests = {ColumnEmbedder(name, dim).digest for name in ("a", "b") for dim in (None, 2, 3)}
    assert len(digests) == 6
