"""Every container with every column, with and without missing values, is read like a list."""

import itertools
import re
from contextlib import nullcontext

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from qacal import Column, InputError, QABinning, QACalibrator, QacalWarning, Tally, split, threshold_curve
from qacal.calibrators import PlattScaling
from tests.tables import each

# Integers that are equal as floats.
BIG = [2**60 + 1, 2**60 + 2, 2**60 + 1, 2**53 + 1, 2**53, 7]
COLUMNS = {
    "confidence": [0.7, 0.8, 0.9, 0.8, 0.7, 1.0],
    "correct": [True, False, True, True, False, True],
    "sample_weight": [1.0, 2.5, 1.0, 0.5, 3.0, 1.0],
    "groups": ["law", "art", "law", "art", "law", "physics"],
    "ids": ["q1", "q2", "q3", "q4", "q5", "q6"],
}
CASES = {
    **{name: (name, column) for name, column in COLUMNS.items()},
    "groups, large numbers": ("groups", BIG),
    "groups, truths": ("groups", [True, False, True, True, False, True]),
    "ids, large numbers": ("ids", BIG),
    "correct, numbers": ("correct", [1, 0, 1, 1, 0, 1]),
}
NULLABLE = {str: "string", bool: "boolean", int: "Int64", float: "Float64"}


def kind(values):
    return type(values[0])


def masked(values):
    is_gone = [value is None for value in values]
    filled = [values[0] if gone else value for value, gone in zip(values, is_gone, strict=True)]
    return np.ma.array(filled, mask=is_gone, dtype=object if kind(values) is str else None)


def in_chunks(array):
    """Return chunks that end with null, each with its own dictionary."""
    return pa.chunked_array([array[:2], array[2:]])


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "list with NaN": lambda x: [float("nan") if value is None else value for value in x],
    "list with pandas.NA": lambda x: [pd.NA if value is None else value for value in x],
    "list of a masked array": lambda x: list(masked(x)),
    "numpy, objects": lambda x: np.array(x, dtype=object),
    "numpy": lambda x: np.array(x, dtype=object) if None in x else np.array(x),
    "numpy, masked": masked,
    "pandas": lambda x: pd.Series(x, dtype=object, index=range(10, 10 + len(x))),
    "pandas, nullable": lambda x: pd.Series(x, dtype=NULLABLE[kind(x)]),
    "pandas, category": lambda x: pd.Series(x, dtype=NULLABLE[kind(x)]).astype("category"),
    "pandas, category of numpy's": lambda x: pd.Series(
        pd.Categorical.from_codes(
            [-1 if value is None else sorted({*x} - {None}).index(value) for value in x], sorted({*x} - {None})
        )
    ),
    "pandas, of Arrow": lambda x: pd.Series(x, dtype=pd.ArrowDtype(pa.array(x).type)),
    "pandas, index": lambda x: pd.Index(x, dtype=NULLABLE[kind(x)]),
    "pandas, array": lambda x: pd.array(x, dtype=NULLABLE[kind(x)]),
    "arrow": pa.array,
    "arrow, chunked": lambda x: in_chunks(pa.array(x)),
    "arrow, dictionary": lambda x: pa.array(x).dictionary_encode(),
    "arrow, chunked dictionary": lambda x: pa.chunked_array(
        [part.dictionary_encode() for part in in_chunks(pa.array(x)).chunks]
    ),
    "arrow, from pandas": lambda x: pa.Table.from_pandas(
        pd.DataFrame({"x": pd.Series(x, dtype=NULLABLE[kind(x)]).astype("category")})
    )["x"],
    "polars": pl.Series,
    "polars, categorical": lambda x: pl.Series(x, dtype=pl.Categorical) if kind(x) is str else pl.Series(x),
    "polars, enum": lambda x: pl.Series(x, dtype=pl.Enum(sorted({*x} - {None}))) if kind(x) is str else pl.Series(x),
    "narwhals": lambda x: nw.from_native(pl.Series(x), series_only=True),
    "narwhals, of Arrow": lambda x: nw.from_native(in_chunks(pa.array(x).dictionary_encode()), series_only=True),
}
every_container = pytest.mark.parametrize("container", CONTAINERS)


def outcome(name, column):
    """Return the cells of a column, or the position of its first invalid value."""
    try:
        return Tally.of(**{**COLUMNS, name: column}, n_blocks=16).to_polars()
    except InputError as error:
        return re.match(r"\w+\[\d\]", str(error))[0]


@every_container
def test_every_container_is_read_like_a_list(container):
    for case in CASES:
        for missing in [(), (1,), (0, 1, 5)]:
            assert_read_as_the_list_is(container, case, missing)


def assert_read_as_the_list_is(container, case, missing):
    name, values = CASES[case]
    values = [None if at in missing else value for at, value in enumerate(values)]
    if 0 in missing:
        values = values[::-1]
        values[0] = values[0] if values[0] is not None else CASES[case][1][0]
    expected, found = outcome(name, values), outcome(name, CONTAINERS[container](values))
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found.equals(expected), (found, expected)
    assert isinstance(expected, str) == (bool(missing) and name != "groups")


@every_container
def test_a_missing_group_is_none_and_the_other_groups_keep_their_rows(container):
    for values, sizes in (
        (["a", None, "b", "a", None, "b"], {None: 2, "a": 2, "b": 2}),
        ([2**60 + 1, None, 2**60 + 2, 2**60 + 1, 2**60 + 1, None], {None: 2, 2**60 + 1: 3, 2**60 + 2: 1}),
    ):
        tally = Tally.of(COLUMNS["confidence"], COLUMNS["correct"], groups=CONTAINERS[container](values))
        assert {label: cells.n for label, cells in tally} == sizes


def test_dates_that_are_missing_are_no_group():
    days = pd.Series(pd.to_datetime(["2025-01-31", None, "2025-02-01", None, None, None])).astype("datetime64[ns]")
    for column in (days, days.to_numpy(), pl.from_pandas(days), pa.array(days)):
        tally = Tally.of(COLUMNS["confidence"], COLUMNS["correct"], groups=column)
        assert [cells.n for _, cells in tally] == [4, 1, 1]


def test_booleans_with_a_missing_value_match_a_fit_without_one():
    model = QABinning(points_per_bin=1).fit([0.5] * 4, [1, 1, 0, 0], groups=np.array([True, True, False, False]))
    found = model.explain([0.5] * 3, groups=pd.array([True, None, False], dtype="boolean"))
    assert (found.calibrated.tolist(), found.group) == ([1.0, 0.5, 0.0], [True, None, False])


FRAMES = {
    "pandas": lambda columns: pd.DataFrame(
        {name: pd.Series(x, dtype=NULLABLE[kind(x)]) for name, x in columns.items()}
    ),
    "pandas, categories": lambda columns: pd.DataFrame(
        {name: pd.Series(x, dtype=NULLABLE[kind(x)]).astype("category") for name, x in columns.items()}
    ),
    "arrow": pa.table,
    "arrow, dictionaries": lambda columns: pa.table(
        {name: pa.array(x).dictionary_encode() for name, x in columns.items()}
    ),
    "polars": pl.DataFrame,
    "columns of masked arrays": lambda columns: {name: masked(x) for name, x in columns.items()},
    "columns of Arrow": lambda columns: {name: pa.array(x).dictionary_encode() for name, x in columns.items()},
    "columns of pandas": lambda columns: {name: pd.Series(x, dtype=NULLABLE[kind(x)]) for name, x in columns.items()},
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("missing", ["nothing", "subject", "confidence", "correct", "id"])
def test_every_frame_of_records_is_read_like_a_list_of_dicts(frame, missing):
    n = 60
    columns = {
        "id": [2**60 + row for row in range(n)],
        "subject": ["law", "art", "physics"] * 20,
        "confidence": [0.7, 0.8, 0.9, 1.0] * 15,
        "correct": [1, 0, 1, 1, 0] * 12,
    }
    if missing != "nothing":
        columns[missing] = [None if row % 7 == 3 else value for row, value in enumerate(columns[missing])]
    objects = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def told(records):
        faults = []
        model = QACalibrator(partition=Column("subject"), calibrator=QABinning(points_per_bin=5))
        model.fit(records, on_fault=lambda fault: faults.append((fault.place, fault.problem)))
        summary = {(group.group, group.rows, group.accuracy) for group in model.describe_groups()}
        return faults, summary, model.rows_

    with pytest.warns(QacalWarning, match="9 of 60 rows have no label") if missing == "correct" else nullcontext():
        assert told(FRAMES[frame](columns)) == told(objects)


LAZY = pl.DataFrame({"a": COLUMNS["confidence"]}).lazy()
NO_COLUMNS = {
    "a lazy frame": (lambda: LAZY, "Collect it first"),
    "narwhals' lazy frame": (lambda: nw.from_native(LAZY), "Collect it first"),
    "an expression": (lambda: pl.col("a"), "expected a list or column"),
    "a generator": (lambda: (x for x in range(6)), "Make a list of it first"),
    "an iterator": (lambda: iter(range(6)), "Make a list of it first"),
    "a map": (lambda: map(str, range(6)), "Make a list of it first"),
    "a set": (lambda: set(range(6)), "Make a list of it first"),
    "values of a dict": (lambda: dict.fromkeys(range(6)).values(), "Make a list of it first"),
    "a number": (lambda: 0.5, "is one float; expected a list or column"),
    "a number of numpy": (lambda: np.array(0.5), "is one ndarray; expected a list or column"),
    "a text": (lambda: "abcdef", "is one str; expected a list or column"),
    "a class": (lambda: list, "is one type; expected a list or column"),
    "a frame": (lambda: LAZY.collect(), r"shape \(6, 1\)"),
}
RECORDS = {"id": COLUMNS["ids"], "subject": COLUMNS["groups"], "confidence": COLUMNS["confidence"]}
MODEL = QACalibrator(partition=Column("subject"), calibrator=QABinning(points_per_bin=2)).fit(
    {**RECORDS, "correct": COLUMNS["correct"]}
)
CALLS = {
    **{f"fit, {name}": lambda x, name=name: QABinning().fit(**{**COLUMNS, name: x}) for name in COLUMNS},
    "predict, groups": lambda x: MODEL.predict(COLUMNS["confidence"], groups=x),
    "explain, groups": lambda x: MODEL.calibrator_.explain(COLUMNS["confidence"], groups=x),
    "split": split,
    "thresholds": lambda x: threshold_curve(COLUMNS["correct"], COLUMNS["confidence"], thresholds=x),
    "records": lambda x: MODEL.calibrate({**RECORDS, "subject": x}),
    "a column's partition": lambda x: Column("subject").fit(x),
}


@each("call, given", itertools.product(CALLS, NO_COLUMNS))
def test_invalid_columns_are_refused_by_name(call, given):
    make, message = NO_COLUMNS[given]
    with pytest.raises(InputError, match=message):
        CALLS[call](make())


@pytest.mark.parametrize("given", [LAZY, nw.from_native(LAZY), pl.col("a"), 0.5, object(), {0.5}, {1: 2}])
def test_invalid_tables_are_refused(given):
    for call in (Tally.from_polars, *([] if isinstance(given, dict) else [MODEL.calibrate])):
        with pytest.raises(InputError, match=r"got|records are"):
            call(given)


def test_unused_groups_are_counted_or_refused():
    for groups in (LAZY, iter(range(6))):
        with pytest.raises(InputError, match=r"groups is one .* expected a list or column"):
            PlattScaling().fit(COLUMNS["confidence"], COLUMNS["correct"], groups=groups)


def test_columns_of_records_have_one_length():
    with pytest.raises(InputError, match=r"the columns of records have different lengths: .*'subject': 1"):
        MODEL.calibrate({**RECORDS, "subject": ["law"]})


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, lambda rows: pa.Table.from_pylist(rows)])
def test_a_narwhals_frame_is_unwrapped(frame):
    rows = [{"id": i, "confidence": 0.5 + i % 3 / 10, "correct": i % 2, "kind": "ab"[i % 2]} for i in range(60)]
    native = frame(rows)
    model = QACalibrator(partition=Column("kind"), calibrator=QABinning()).fit(nw.from_native(native))
    calibrated = model.calibrate(nw.from_native(native))
    assert type(calibrated) is type(native)
    np.testing.assert_array_equal(calibrated["calibrated"], model.calibrate(native)["calibrated"])
