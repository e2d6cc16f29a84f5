"""Thousands of hostile inputs to the public functions give numbers within their range or a QacalError."""

import copy
import inspect
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st

import qacal
from qacal.metrics.calibration import estimate_calibration_error, estimate_maximum_calibration_error
from qacal.model.sql import to_sql
from tests.calibrators.contract import CALIBRATORS
from tests.model.test_exports import run
from tests.sizes import examples

# Examples are small, so shrinking is not needed.
PHASES = [Phase.explicit, Phase.generate]
FUZZ = examples(500, 15, phases=PHASES)

TINY = 5e-324
UNIT = st.sampled_from([0.0, -0.0, TINY, 1e-300, 1e-7, 0.3, 0.5, 0.8, 1 - 2**-53, 1.0])
ODD = st.sampled_from([float("nan"), float("inf"), -1.0, 1.5, 85, None, "0.8", b"x", True, 10**30, -(10**30), object()])
WEIGHTS = st.sampled_from([0.0, 1e-100, 1e-8, 0.5, 1.0, 3, 1e8, 1e100])
LABELS = st.sampled_from(["a", "b", "", "a\nb", "\x00", 1, 2**53 + 1, 2**64, -1, 1.5, None, True])
TEXTS = st.sampled_from(["a", "a\nb", "a\r\n  'b'", '"\n"', "; --"])

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "masked": lambda values: np.ma.masked_array(values, mask=[row == 0 for row in range(len(values))]),
    "objects": lambda values: np.array(values, dtype=object),
    "pandas": pd.Series,
    "nullable": lambda values: pd.Series(pd.array(values)),
    "category": lambda values: pd.Series(values, dtype="category"),
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
    """Return values in a container, or as a list if the container does not accept them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return CONTAINERS[kind](copy.copy(values))
    except Exception:
        return list(values)


def made(rows):
    """Return new containers for the columns: iterators can be read once."""
    return {name: contained(kind, values) for name, (kind, values) in rows.items()}


@st.composite
def columns(draw, elements, length, odd=ODD):
    """Draw a column and its container, sometimes with a wrong value or length."""
    values = draw(st.lists(elements, min_size=length, max_size=length))
    match draw(st.integers(0, 24)):
        case 0 if values:
            values[draw(st.integers(0, length - 1))] = draw(odd)
        case 1:
            values = values[1:]
    return draw(st.sampled_from([*["list", "numpy"] * 25, *CONTAINERS])), values


@st.composite
def row_sets(draw):
    """Draw columns of no, one or several rows: all correct, all wrong, or soft."""
    length = draw(st.sampled_from([12, 8, 5, 12, 8, 2, 1, 0]))
    correct = draw(st.sampled_from([st.sampled_from([0, 1]), st.just(1), st.just(0), st.booleans(), UNIT]))
    rows = {"confidence": draw(columns(UNIT, length)), "correct": draw(columns(correct, length))}
    labels = draw(st.sampled_from([LABELS, TEXTS, None]))
    rows |= {} if labels is None else {"groups": draw(columns(labels, length, LABELS))}
    rows |= {"sample_weight": draw(columns(WEIGHTS, length))} if draw(st.booleans()) else {}
    ids = draw(st.sampled_from([None, st.just(("list", range(length))), columns(TEXTS, length, LABELS)]))
    return rows if ids is None else rows | {"ids": draw(ids)}


def plain(column):
    """Return a column's values, to compare with later ones; None for iterators."""
    if isinstance(column, pl.LazyFrame) or hasattr(column, "__next__"):
        return None
    return repr((column.tolist(), column.dtype) if isinstance(column, np.ndarray) else column)


def called(function, **rows):
    """Return a function's result, or None if it raises a QacalError; check that the inputs are unchanged."""
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


def inside(values, low=0.0, high=1.0):
    values = np.asarray(values, dtype=np.float64)
    return bool(((values >= low) & (values <= high)).all())


def twelve(confidence=("list", [0.2, 0.5, 0.5, 0.9] * 3), correct=("list", [0, 1, 1, 0, 1, 1] * 2), **others):
    """Return twelve valid rows with these replacements."""
    return {"confidence": confidence, "correct": correct, **others}


GAPS = ["a", None, "b"] * 4
LARGE = [2**60 + 1, 2**60 + 2, None] * 4
IDS = ("list", range(12))
# Inputs that once went wrong; the first is a masked value.
KNOWN = {
    "nulls in a dictionary": twelve(groups=("dictionary", GAPS)),
    "nulls in dictionaries": {
        name: ("dictionary", values)
        for name, (_, values) in twelve(ids=("", GAPS), sample_weight=("", [1.0, None] * 6)).items()
    },
    "masked confidences": twelve(confidence=("masked", [7.0] + [0.5] * 11)),
    "masked": twelve(
        ("masked", [0.5] * 12), ("masked", [1] * 12), groups=("masked", [1] * 12), ids=("masked", [1] * 12)
    ),
    "large numbers with NA": twelve(groups=("nullable", LARGE), ids=("nullable", LARGE)),
    "weights that differ by 1e16": twelve(
        sample_weight=("list", [1e8, 1e8, 1e-8, 1e-8] * 3), groups=("list", ["a", "b"] * 6), ids=IDS
    ),
    "denormal": twelve(("list", [0.0, TINY, 2 * TINY, 3 * TINY] * 3), groups=("list", ["a", "b"] * 6), ids=IDS),
    "lines": twelve(groups=("list", ["a\nb", "a\n  b", "'\n'"] * 4)),
    "one row that outweighs all": twelve(("list", [0.5] * 12), sample_weight=("list", [1e100, *[1e8] * 11])),
    "one question that outweighs all": {
        "confidence": ("numpy", [1e-300, 0.0, TINY, 0.5, 0.5, 1.0, 0.5, 0.0]),
        "correct": ("tuple", [1] * 8),
        "sample_weight": ("numpy", [1e100, 1e8, 1e-100, 1.0, 0.0, 1e-8, 1e-8, 1.0]),
        "ids": ("dictionary", ["a\nb", 2**64, "a\nb", 1, "a", 1, 2**53 + 1, 2**64]),
    },
    "as often right as asked for": twelve(correct=("list", [0, 0.8, 1.0] * 4), groups=("list", list("aaabbbcccddd"))),
    "lazy": twelve(("lazy", [0.5] * 12)),
    "lazy groups": twelve(groups=("lazy", [1] * 12)),
    "iterator": twelve(("iterator", [0.5] * 12)),
    "iterators": twelve(
        correct=("iterator", [1] * 12),
        groups=("iterator", GAPS),
        sample_weight=("generator", [1] * 12),
        ids=("iterator", GAPS),
    ),
}


def known(*cases):
    """Add these examples to those that are drawn."""
    return lambda test: [test := example(*case)(test) for case in cases][-1]


# The same calibrators as in their contract, for few rows.
SMALL = [
    type(it)(**{**it.get_params(), **({"points_per_bin": 2} if it.get_params().get("points_per_bin") else {})})
    for it in CALIBRATORS
]


@examples(1_500, 20, phases=PHASES)
@given(st.sampled_from(SMALL), row_sets())
@known(*((calibrator, rows) for calibrator in SMALL for rows in KNOWN.values()))
def test_calibrators(calibrator, rows):
    model = type(calibrator)(**calibrator.get_params())
    if called(model.fit, **made(rows)) is None:
        return
    asked = {name: rows[name] for name in ("confidence", "groups", "ids") if name in rows}
    elsewhere = {"confidence": ("numpy", [0.0, TINY, 0.3, 1 - 2**-53, 1.0]), "ids": ("list", range(5))}
    for questions in (asked, elsewhere):
        found = called(model.predict, **made(questions))
        assert found is not None
        assert inside(found), found
        evidence = called(model.explain, **made(questions))
        np.testing.assert_array_equal(evidence.calibrated, found)
        assert len(evidence.to_polars()) == len(found)
        assert (evidence.rows >= 0).all()
        if model.properties.is_certified:
            assert inside(evidence.low)
            assert inside(evidence.high)
            assert (evidence.low <= evidence.high).all()
    expression = called(lambda: to_sql(model, dialect="sqlite"))
    labels = sorted({label for label in rows.get("groups", ("", []))[1] if isinstance(label, str)})
    if expression is not None and labels:
        h = np.linspace(0.1, 0.9, len(labels))
        np.testing.assert_allclose(run(expression, h, labels), model.predict(h, groups=labels), rtol=0, atol=1e-9)


def error_parts(found):
    """Check the parts of an estimated error (debiased estimates may be negative); return the plug-in error."""
    assert inside([found.plugin, found.floor, found.p_value])
    if not np.isnan(found.debiased):
        assert inside(found.debiased, -1)
    if not np.isnan(found.low):
        assert inside([found.low, found.high], -1)
        assert found.low <= found.high
    return found.plugin


def certified_parts(found):
    assert found.to_dict()
    for part in found.parts:
        assert inside([part.alpha, part.start, part.p_value, part.coverage, part.low, part.high, part.withheld_share])
        assert part.low <= part.high
        assert part.accepted <= part.rows
        assert np.isfinite(part.withheld)
        assert part.threshold is None or inside(part.threshold)
        assert part.rows_needed is None or part.rows_needed > 0
    return [part.accuracy for part in found.parts if part.accuracy is not None]


def cost_parts(found):
    policies = (found.rule_policy, found.seen_policy)
    costs = [policy.cost for policy in policies] + [found.always, found.never]
    assert np.isfinite(costs).all(), found
    return [policy.coverage for policy in policies]


def curve_parts(found):
    assert len(found.to_polars()) == len(found.threshold)
    accuracy = found.accuracy[found.accepted > 0]
    return np.concatenate([found.coverage, found.low, found.high, accuracy])


_NAMES = {"confidence": "y_prob", "correct": "y_true"}

SHARES = {
    "auac": (qacal.metrics.auac, float),
    "aurc": (qacal.metrics.aurc, float),
    "brier": (qacal.metrics.brier_score, float),
    "error": (partial(estimate_calibration_error, redraws=9), error_parts),
    "maximum": (estimate_maximum_calibration_error, lambda found: found.plugin),
    "sharpness": (qacal.metrics.sharpness, float),
    "coverage": (qacal.metrics.risk_coverage_curve, lambda found: found.coverage),
    "certified": (partial(qacal.certified_threshold, accuracy=0.6), certified_parts),
    "cheapest": (partial(qacal.cheapest_threshold, wrong=3, abstain=1), cost_parts),
    "curve": (qacal.threshold_curve, curve_parts),
    "tally": (qacal.Tally.of, lambda found: found.mean),
    "loss": (qacal.metrics.log_loss, lambda found: found / 40),
}


@FUZZ
@given(row_sets())
@known(*((rows,) for rows in KNOWN.values()))
def test_measures(rows):
    for name, (function, measured) in SHARES.items():
        taken = inspect.signature(function).parameters
        rows_of = {_NAMES.get(column, column) if "y_prob" in taken else column: it for column, it in made(rows).items()}
        columns = {column: values for column, values in rows_of.items() if column in taken}
        found = called(lambda function=function, measured=measured, **given: measured(function(**given)), **columns)
        assert found is None or inside(found), (name, found)


@FUZZ
@given(st.integers(0, 4).flatmap(lambda length: columns(LABELS, length, LABELS)))
def test_splits(ids):
    parts = called(qacal.split, ids=contained(*ids))
    assert parts is None or set(parts.tolist()) <= {0, 1}


@FUZZ
@given(*[st.one_of(UNIT, ODD, st.integers(-2, 10**7))] * 4)
def test_planning(b, n, alpha, nu):
    for function in (qacal.planning.epsilon, qacal.planning.points_per_bin):
        found = called(lambda function=function: function(b, n, alpha, nu))
        assert found is None or (np.isfinite(found) and found > 0)


@pytest.mark.parametrize("kind", ["lazy", "iterator", "generator"])
@pytest.mark.parametrize("name", ["confidence", "correct", "groups", "sample_weight", "ids"])
def test_invalid_columns_are_refused(kind, name):
    rows = made(twelve(**{name: (kind, [1] * 12)}))
    for function in (qacal.Tally.of, *(it.fit for it in SMALL)):
        with pytest.raises(qacal.InputError, match=f"{name} is one"):
            function(**rows)
    with pytest.raises(qacal.InputError, match=f"{_NAMES.get(name, name)} is one"):
        qacal.metrics.calibration_error(**{_NAMES.get(column, column): values for column, values in rows.items()})
