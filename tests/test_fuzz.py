"""Some thousand hostile inputs to the public functions: numbers within their range, or an error in words."""

import copy
import inspect
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import qacal

MANY = settings(max_examples=100)

TINY = 5e-324
UNIT = st.sampled_from([0.0, -0.0, TINY, 1e-300, 1e-7, 0.3, 0.5, 0.8, 1 - 2**-53, 1.0])
ODD = st.sampled_from([float("nan"), float("inf"), -1.0, 1.5, 85, None, "0.8", b"x", True, 10**30, -(10**30), object()])
WEIGHTS = st.sampled_from([0.0, 1e-100, 1e-8, 0.5, 1.0, 3, 1e8, 1e100])
LABELS = st.sampled_from(["a", "b", "", "a\nb", "\x00", 1, 2**53 + 1, 2**64, -1, 1.5, None, True])

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "masked": lambda values: np.ma.masked_array(values, mask=[row == 0 for row in range(len(values))]),
    "objects": lambda values: np.array(values, dtype=object),
    "pandas": pd.Series,
    "polars": lambda values: pl.Series(values, strict=False),
    "arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "dictionary": lambda values: pa.array(values).dictionary_encode(),
    "lazy": lambda values: pl.LazyFrame({"a": values}, strict=False),
    "frame": lambda values: pl.DataFrame({"a": values}, strict=False),
    "iterator": iter,
    "generator": lambda values: (value for value in values),
    "set": lambda values: set(map(str, values)),
    "text": str,
}


def contained(kind, values):
    """Return values in a container; as a list where it does not take them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return CONTAINERS[kind](copy.copy(values))
    except Exception:
        return list(values)


@st.composite
def columns(draw, elements, length, odd=ODD):
    """A column of some length, in any container; now and then with a value, or a length, that is wrong."""
    values = draw(st.lists(elements, min_size=length, max_size=length))
    match draw(st.integers(0, 9)):
        case 0 if values:
            values[draw(st.integers(0, length - 1))] = draw(odd)
        case 1:
            values = values[1:]
    return contained(draw(st.sampled_from([*["list", "numpy"] * 4, *CONTAINERS])), values)


@st.composite
def row_sets(draw):
    """Columns of rows: none, one, some; all right, all wrong, soft."""
    length = draw(st.sampled_from([0, 1, 2, 5, 20, 40]))
    correct = draw(st.sampled_from([st.just(1), st.just(0), st.sampled_from([0, 1]), st.booleans(), UNIT]))
    rows = {"confidence": draw(columns(UNIT, length)), "correct": draw(columns(correct, length))}
    rows |= {"groups": draw(columns(LABELS, length, LABELS))} if draw(st.booleans()) else {}
    rows |= {"weights": draw(columns(WEIGHTS, length))} if draw(st.booleans()) else {}
    ids = st.sampled_from([np.arange(length), [str(row) for row in range(length)]])
    return rows | ({"ids": draw(ids)} if draw(st.booleans()) else {})


def plain(column):
    """Return what a column holds, to compare it with what it holds later; None for what is used up by looking."""
    if isinstance(column, pl.LazyFrame) or hasattr(column, "__next__"):
        return None
    return repr(column.tolist() if isinstance(column, np.ndarray) else column)


def called(function, **rows):
    """Return what a function gives; None if it refuses, in words. What it was given stays as it was."""
    before = {name: plain(column) for name, column in rows.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", qacal.QacalWarning)
            found = function(**rows)
    except qacal.QacalError as error:
        found = None
        said = str(error)
        assert said
    assert {name: plain(column) for name, column in rows.items()} == before
    return found


def inside(values):
    values = np.asarray(values, dtype=np.float64)
    return bool(((values >= 0) & (values <= 1)).all())


HALF = np.array([0.5])
# Weights that differ by 1e16; confidences next to 0; a null in a dictionary of Arrow; a mask; what is no column.
RIGHT, IDS = [0, 1] * 20, range(40)
JITTERED = {"confidence": np.arange(40) / 40, "correct": RIGHT, "weights": [1e8] * 20 + [1e-8] * 20, "ids": IDS}
DENORMAL = {"confidence": np.arange(40) % 4 * TINY, "correct": RIGHT, "groups": ["a", "b"] * 20, "ids": IDS}
LACKING = pa.array(["a", None, "b"]).dictionary_encode()
DICTIONARY = {"confidence": HALF.repeat(3), "correct": [0, 1, 1], "groups": LACKING}
MASKED = {"confidence": np.ma.masked_array([0.5, 7.0], mask=[False, True]), "correct": [0, 1]}
LAZY = {"confidence": pl.LazyFrame({"a": [0.5]}), "correct": [1]}
ITERATOR = {"confidence": iter([0.5]), "correct": [1]}


SHARES = {
    "auac": (qacal.auac, float),
    "aurc": (qacal.aurc, lambda found: found.aurc),
    "brier": (qacal.brier_score, lambda found: found.score),
    "sharpness": (qacal.sharpness, float),
    "coverage": (qacal.risk_coverage_curve, lambda found: found.coverage),
    "curve": (qacal.threshold_curve, lambda found: found.coverage),
    "tally": (qacal.Tally.of, lambda found: found.mean),
    "loss": (qacal.log_loss, lambda found: found / 40),
}


@pytest.mark.parametrize("name", SHARES)
@MANY
@given(row_sets())
@example(JITTERED)
@example(DENORMAL)
@example(DICTIONARY)
@example(MASKED)
@example(LAZY)
def test_measures(name, rows):
    function, measured = SHARES[name]
    known = inspect.signature(function).parameters
    rows = {column: values for column, values in rows.items() if column in known}
    found = called(lambda **given: measured(function(**given)), **rows)
    assert found is None or inside(found), found


@MANY
@given(st.integers(0, 4).flatmap(lambda length: columns(LABELS, length, LABELS)))
def test_splits(ids):
    parts = called(qacal.split, ids=ids)
    assert parts is None or set(parts.tolist()) <= {0, 1}


@MANY
@given(*[st.one_of(UNIT, ODD, st.integers(-2, 10**7))] * 4)
def test_planning(b, n, alpha, nu):
    for function in (qacal.epsilon, qacal.points_per_bin, qacal.epsilon_of_bins, qacal.n_bins):
        found = called(lambda function=function: function(b, n, alpha, nu))
        assert found is None or (np.isfinite(found) and found > 0)


def test_iterators_are_refused():
    with pytest.raises(qacal.InputError, match="confidence is"):
        qacal.brier_score(**ITERATOR)
