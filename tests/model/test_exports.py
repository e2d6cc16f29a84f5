"""Exports: SQL and JSON give what `predict` gives, also at bin edges."""

import json
import sqlite3
import sys
from contextlib import closing
from datetime import date
from itertools import cycle, islice

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from sklearn.base import clone

from qacal import InputError, MarginBinning, MissingPackageError, NotFittedError, Paths, QABinning, Tally
from qacal.calibrators import (
    HierarchicalScaling,
    Identity,
    IsotonicCalibration,
    PlattScaling,
    TreeScaling,
    UniformMassBinning,
)
from qacal.calibrators.cells import Cells
from qacal.model.export import to_json
from qacal.model.sql import to_sql
from qacal.tally.arrays import seven_decimals
from qacal.tally.cells import last_read_as, snap
from qacal.tally.sql import DIALECTS
from tests.calibrators.contract import CALIBRATORS, name_of
from tests.sizes import FULL
from tests.tally.test_sql import quoted

EXPORTABLE = [calibrator for calibrator in CALIBRATORS if getattr(calibrator, "ties", "merge") == "merge"]
every_exportable = pytest.mark.parametrize("calibrator", EXPORTABLE, ids=name_of)
KINDS = ["none", "int", "text", "tree"]
every_kind = pytest.mark.parametrize("kind", KINDS)

NAMES = np.array(["law", "o'hara", 'a "b"', "größe", "; DROP TABLE rows; --", "two\nlines", None], dtype=object)


def groups_of(kind, rng, n, known=6):
    codes = rng.integers(-1, known, n)
    if kind == "none":
        return None
    if kind == "tree":
        return Paths(rng.integers(0, 16, n), rng.integers(0, 6, n), 4)
    return NAMES[codes] if kind == "text" else codes


def fitted(calibrator, kind, tied=True, n=400):
    rng = np.random.default_rng(3)
    h = rng.choice(np.linspace(0, 1, 21), n) if tied else rng.random(n)
    correct = rng.random(n) < 0.2 + 0.6 * h
    return clone(calibrator).fit(h, correct, groups=groups_of(kind, rng, n), ids=np.arange(n))


def asked(kind, seed=0, n=10_000):
    """Return random rows, then every hundredth and the floats next to it."""
    rng = np.random.default_rng(seed)
    grid = np.arange(201) / 200
    edges = np.clip(np.concatenate([grid, np.nextafter(grid, -1), np.nextafter(grid, 2), [0.001, 0.999]]), 0, 1)
    h = np.concatenate([rng.random(n), edges])
    labels = {
        "none": [None],
        "int": [None, -1, 0, 1, 2, 3, 4, 77],
        "text": [*NAMES.tolist(), "chess"],
        "tree": [None, -1, *range(16), 99],
    }[kind]
    return h, [labels[at] for at in rng.integers(0, len(labels), len(h))]


def run(expression, h, groups, confidence="confidence", group="group_id", types=("REAL", "")):
    with closing(sqlite3.connect(":memory:")) as base:
        try:
            base.execute("SELECT EXP(1e0), LN(1e0)")
        except sqlite3.OperationalError:  # a SQLite built without mathematical functions
            base.create_function("EXP", 1, lambda x: None if x is None else float(np.exp(x)), deterministic=True)
            base.create_function("LN", 1, lambda x: None if x is None else float(np.log(x)), deterministic=True)
        columns = f"{quoted(confidence, 'sqlite')} {types[0]}, {quoted(group, 'sqlite')} {types[1]}"
        base.execute(f"CREATE TABLE answers (number INTEGER PRIMARY KEY, {columns})")
        rows = [(None if x is None else float(x), label) for x, label in zip(h, groups, strict=True)]
        base.executemany("INSERT INTO answers VALUES (NULL, ?, ?)", rows)
        return [row[0] for row in base.execute(f"SELECT {expression} FROM answers ORDER BY number")]


def run_on_duckdb(expression, h, groups, confidence="confidence", group="group_id", types=("DOUBLE", "BIGINT")):
    names = [quoted(confidence, "duckdb"), quoted(group, "duckdb")]
    with duckdb.connect() as base:
        rows = pa.table({"h": pa.array(h), "g": pa.array(groups, pa.string() if types[1] == "VARCHAR" else None)})
        base.register("given", rows)
        declared = f"CAST(h AS {types[0]}) AS {names[0]}, CAST(g AS {types[1]}) AS {names[1]}"
        base.execute(f"CREATE TABLE answers AS SELECT row_number() OVER () AS number, {declared} FROM given")
        found = base.sql(f"SELECT {expression} AS calibrated FROM answers ORDER BY number").fetchnumpy()["calibrated"]
        return np.ma.filled(found.astype(float), np.nan)


def known_to(model, kind, groups):
    return None if kind == "none" else [-1 if label is None and kind != "text" else label for label in groups]


@every_exportable
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "continuous"])
def test_sql_answers_as_predict_does(calibrator, tied):
    for kind in KINDS:
        assert_sql_answers_as_predict_does(calibrator, kind, tied)


def assert_sql_answers_as_predict_does(calibrator, kind, tied):
    """With 64-bit and 32-bit floats, and next to every edge."""
    model = fitted(calibrator, kind, tied)
    is_discrete = model.properties.is_discrete
    h, groups = asked(kind, n=10_000 if FULL else 1000)
    h = np.concatenate([h, edges_of(model)])
    groups = list(islice(cycle(groups), len(h)))
    # Curves are tested at seven decimals: a database does not round further digits as numpy does.
    h = h if is_discrete or isinstance(model, Identity) else seven_decimals(h)
    expected = model.predict(h, groups=known_to(model, kind, groups))
    np.testing.assert_allclose(
        run(to_sql(model, dialect="sqlite"), h, groups), expected, rtol=0, atol=0 if is_discrete else 1e-12
    )
    short = h.astype(np.float32).astype(float)
    if not isinstance(model, Identity):
        np.testing.assert_array_equal(model.predict(short, groups=known_to(model, kind, groups)), expected)
        np.testing.assert_allclose(
            run(to_sql(model, dialect="sqlite"), short, groups), expected, rtol=0, atol=0 if is_discrete else 1e-12
        )


@pytest.mark.parametrize("dialect", DIALECTS)
@every_exportable
def test_duckdb_answers_as_predict_does(calibrator, dialect):
    """In columns of all types; it runs the SQL of other dialects as sqlglot translates it."""
    for kind in KINDS if dialect == "duckdb" else ["text"]:
        model = fitted(calibrator, kind)
        expression, is_discrete = to_sql(model, dialect=dialect), model.properties.is_discrete
        if dialect != "duckdb":
            (expression,) = sqlglot.transpile(expression, read=dialect, write="duckdb")
        h, groups = asked(kind, n=200)
        h = np.concatenate([h, edges_of(model)])
        h = h if is_discrete or isinstance(model, Identity) else seven_decimals(h)
        groups = list(islice(cycle(groups), len(h)))
        expected = model.predict(h, groups=known_to(model, kind, groups))
        for column in ("DOUBLE", "FLOAT") if dialect == "duckdb" and not isinstance(model, Identity) else ("DOUBLE",):
            given = h.astype(np.float32).astype(float) if column == "FLOAT" else h
            found = run_on_duckdb(expression, given, groups, types=(column, "VARCHAR" if kind == "text" else "BIGINT"))
            np.testing.assert_allclose(found, expected, rtol=0, atol=0 if is_discrete else 1e-12)


def edges_of(model):
    """Return the edges of a model's maps and the floats next to them, 64 and 32 bits."""
    exported = to_json(model)["maps"]
    tops = [part["up_to"] for entry in exported for part in entry.get("bins", []) if part["up_to"] is not None]
    tops += [knot["confidence"] for entry in exported for knot in entry.get("knots", [])]
    tops = np.array(tops, dtype=float)
    ends = last_read_as(tops, seven_decimals)
    near = np.concatenate([tops, ends])
    short = near.astype(np.float32)
    for _ in range(2):
        short = np.concatenate([short, np.nextafter(short, np.float32(-1)), np.nextafter(short, np.float32(2))])
    return np.clip(np.concatenate([near, np.nextafter(near, -1), np.nextafter(near, 2), np.unique(short)]), 0, 1)


@every_exportable
def test_json_answers_as_predict_does(calibrator):
    for kind in KINDS:
        model = fitted(calibrator, kind)
        exported = json.loads(json.dumps(to_json(model), allow_nan=False))
        assert exported["calibrator"] == type(model).__name__
        assert exported["rules"]
        h, groups = asked(kind, n=300)
        found = [answer(exported, x, label) for x, label in zip(h.tolist(), groups, strict=True)]
        expected = model.predict(h, groups=known_to(model, kind, groups))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=kind)


def answer(exported, x, group):
    """Read an export by its rules alone."""
    x = x if exported["form"] == "identity" else float(np.rint(float(np.float32(x)) * 1e7) / 1e7)
    if exported["form"] == "identity":
        return x
    for entry in reversed(exported["maps"]):
        reads = any(first <= group <= last for first, last in entry["read_by"]) if is_ranges(entry, group) else None
        if reads or (reads is None and group is not None and group in entry["read_by"]):
            break
    else:
        entry = exported["maps"][0]
    if exported["form"] == "bins":
        return next(part["calibrated"] for part in entry["bins"] if part["up_to"] is None or x <= part["up_to"])
    if exported["form"] == "knots":
        pairs = [(knot["confidence"], knot["calibrated"]) for knot in entry["knots"]]
        return np.interp(x, *zip(*pairs, strict=True))
    cut = min(max(x, 0.001), 0.999)
    feature = x if entry["feature"] == "confidence" else np.log(cut / (1 - cut))
    if entry["feature"] == "isotonic":
        feature = np.interp(x, *zip(*((knot["confidence"], knot["score"]) for knot in exported["shape"]), strict=True))
    calibrated = 1 / (1 + np.exp(-(entry["intercept"] + entry["slope"] * feature)))
    for band in exported.get("bands", []):
        if band["up_to"] is None or x <= band["up_to"]:
            return band["plus"] + band["times"] * calibrated
    return calibrated


def is_ranges(entry, group):
    return group is not None and any(isinstance(reader, list) for reader in entry["read_by"])


def test_json_of_bins_holds_the_evidence():
    model = QABinning(points_per_bin=50).fit(
        np.full(200, 0.8), np.repeat([1, 0, 1, 0], [65, 35, 95, 5]), groups=np.repeat(["law", "physics"], 100)
    )
    exported = to_json(model)
    assert [entry["group"] for entry in exported["maps"]] == [None, "law", "physics"]
    assert [entry["source"] for entry in exported["maps"]] == ["root", "group", "group"]
    assert [entry["read_by"] for entry in exported["maps"]] == [[], ["law"], ["physics"]]
    law = model.explain([0.8], groups=["law"])
    expected = {"above": None, "up_to": None, "calibrated": 0.65, "low": law.low[0], "high": law.high[0], "rows": 100}
    assert exported["maps"][1]["bins"] == [expected]
    assert (exported["alpha"], exported["certificate"]) == (0.1, "uniform")


def test_curves_with_margins_keep_their_intervals_in_json_and_their_shifts_in_sql():
    """The LLM is more often right where it is less sure, so answers of both bands are moved."""
    rng = np.random.default_rng(0)
    h, subject = rng.choice([0.5, 0.9], 4000), rng.choice(["art", "law"], 4000)
    right = rng.random(4000) < np.where(h == 0.5, 0.9, 0.3) - 0.1 * (subject == "law")
    subject[:9] = "odd"
    model = MarginBinning().fit(h, right, groups=subject)
    assert (model.maps_.shift != 0).all()
    exported = to_json(model)
    asked, groups = np.repeat([0.2, 0.5, 0.50001, 0.9, 1.0], 4), ["art", "law", "odd", "new"] * 5
    evidence = model.explain(asked, groups=groups)
    found = [answer(exported, x, label) for x, label in zip(asked.tolist(), groups, strict=True)]
    np.testing.assert_allclose(found, evidence.calibrated, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        run(to_sql(model, dialect="sqlite"), asked, groups), evidence.calibrated, rtol=0, atol=1e-12
    )
    bands = [exported["bands"][at] for at in np.repeat([0, 0, 1, 1, 1], 4)]
    low = [x - band["below"] for x, band in zip(found, bands, strict=True)]
    high = [x + band["over"] for x, band in zip(found, bands, strict=True)]
    np.testing.assert_allclose(np.maximum(low, 0), evidence.low, atol=1e-12)
    np.testing.assert_allclose(np.minimum(high, 1), evidence.high, atol=1e-12)
    ends = {entry["group"]: (entry["group_low"], entry["group_high"]) for entry in exported["maps"]}
    expected = list(zip(evidence.group_low[:2].tolist(), evidence.group_high[:2].tolist(), strict=True))
    assert ends == {None: (None, None), "art": expected[0], "law": expected[1], "odd": (None, None)}


def test_margins_of_a_learned_score_are_refused():
    h = np.random.default_rng(0).random(500)
    model = MarginBinning()
    model._fit_cells(Tally.of(h, h > 0.5), Cells(np.array([0.5, np.inf]), 0), None)
    with pytest.raises(InputError, match=r"learned score, which a table cannot compute.*tree-binning"):
        to_json(model)


@pytest.mark.parametrize("depth", [0, 1, 3, None])
@pytest.mark.parametrize(
    "calibrator",
    [QABinning(points_per_bin=30), HierarchicalScaling(), TreeScaling(), IsotonicCalibration(pooling="none")],
    ids=name_of,
)
def test_a_tree_cut_at_a_depth_is_asked_by_the_groups_that_the_evidence_names(calibrator, depth):
    model = fitted(clone(calibrator).set_params(max_depth=depth), "tree")
    h, leaves = asked("tree", n=2000)
    h = h if model.properties.is_discrete else seven_decimals(h)
    evidence = model.explain(h, groups=known_to(model, "tree", leaves))
    # Groups without rows have no name in the evidence; they use the map of their code.
    shift = 0 if depth is None else 4 - depth
    groups = [leaf if leaf is None or not 0 <= leaf < 16 else leaf >> shift for leaf in leaves]
    assert all(name is None or name == group for name, group in zip(evidence.group, groups, strict=True))
    found = np.array(run(to_sql(model, dialect="sqlite"), h, groups), dtype=float)
    np.testing.assert_allclose(found, evidence.calibrated, rtol=0, atol=1e-12)


def test_null_and_impossible_confidences_are_null():
    for calibrator in (Identity(), PlattScaling(), QABinning(points_per_bin=30), IsotonicCalibration()):
        expression = to_sql(fitted(calibrator, "int"), dialect="sqlite")
        assert run(expression, [None, 85.0, -0.1, 1.0000001], [1, 1, 1, None]) == [None] * 4


@pytest.mark.parametrize("resolution", [1.0, 0.5, 0.2, 0.1, 0.05, 0.04, 0.01, 1 / 3, 1 / 7, 0.001])
def test_thresholds_before_snapping_are_exact(resolution):
    grid = snap(np.linspace(0, 1, round(1 / resolution) + 1), resolution)
    last = last_read_as(grid, lambda h: snap(h, resolution))
    assert last[-1] == 1
    np.testing.assert_array_equal(snap(last, resolution), grid)
    np.testing.assert_array_equal(snap(np.nextafter(last[:-1], 2), resolution), grid[1:])


@pytest.mark.parametrize("resolution", [0.5, 0.2, 0.05, 0.04])
def test_halves_are_rounded_as_numpy_rounds_them(resolution):
    rng = np.random.default_rng(0)
    h = rng.random(500)
    model = UniformMassBinning(points_per_bin=1, resolution=resolution).fit(h, rng.random(500))
    halves = (np.arange(round(1 / resolution)) + 0.5) * resolution
    halves = np.concatenate([halves, np.nextafter(halves, 0), np.nextafter(halves, 1)])
    np.testing.assert_array_equal(
        run(to_sql(model, dialect="sqlite"), halves, [None] * len(halves)), model.predict(halves)
    )


def test_jittered_ties_are_refused_and_distinct_scores_are_not():
    with pytest.raises(InputError, match=r'hash of an id.*fit with --ties merge .in Python: ties="merge".'):
        to_sql(fitted(QABinning(points_per_bin=7, ties="jitter"), "int"), dialect="sqlite")
    with pytest.raises(InputError, match="hash of an id"):
        to_json(fitted(QABinning(points_per_bin=7, ties="jitter"), "int"))
    rng = np.random.default_rng(0)
    model = UniformMassBinning(points_per_bin=7, ties="jitter").fit(
        h := rng.permutation(100) / 100, rng.random(100) < h
    )
    h = np.concatenate([h, edges_of(model), rng.random(1000)])
    np.testing.assert_array_equal(run(to_sql(model, dialect="sqlite"), h, [None] * len(h)), model.predict(h))


def test_curves_too_steep_for_exp_are_written_with_their_ends():
    for feature in ("confidence", "logit"):
        model = fitted(PlattScaling(feature=feature), "none")
        object.__setattr__(model.maps_, "slope", 1e5)
        object.__setattr__(model.maps_, "intercept", -5e4 if feature == "confidence" else 0.0)
        expression = to_sql(model, dialect="sqlite")
        assert "> 700.0e0 THEN 1.0e0" in " ".join(expression.split())
        h = seven_decimals(np.concatenate([np.linspace(0, 1, 101), 0.5 + np.linspace(-0.01, 0.01, 101)]))
        np.testing.assert_allclose(run(expression, h, [None] * len(h)), model.predict(h), rtol=0, atol=1e-9)


def test_groups_of_several_types_are_refused():
    groups = np.empty(200, dtype=object)
    groups[:] = [2, "2"] * 100
    model = QABinning().fit(np.full(200, 0.5), np.tile([0, 1], 100), groups=groups)
    with pytest.raises(InputError, match="int and str; a column has one type"):
        to_sql(model, dialect="sqlite")
    assert [entry["group"] for entry in to_json(model)["maps"]] == [None, 2, "2"]


def test_values_that_sql_and_json_cannot_represent_are_refused():
    groups = np.empty(200, dtype=object)
    groups[:] = [(1, 2), (3, 4)] * 100
    model = QABinning().fit(np.full(200, 0.5), np.tile([0, 1], 100), groups=groups)
    with pytest.raises(InputError, match="convert groups to text before fitting"):
        to_sql(model, dialect="sqlite")
    for labels in (["a\0b", "c"], ["\ud800", "c"], [float("inf"), 1.0]):
        model = QABinning().fit(np.full(200, 0.5), np.tile([0, 1], 100), groups=labels * 100)
        with pytest.raises(InputError, match="no equal in SQL"):
            to_sql(model, dialect="sqlite")
    for label in (date(2024, 1, 1), "\ud800", float("inf"), 10**5000):
        groups[:] = [label, 1] * 100
        model = QABinning().fit(np.full(200, 0.5), np.tile([0, 1], 100), groups=groups)
        with pytest.raises(InputError, match=r"the export cannot be JSON: .* Convert groups to text"):
            to_json(model)
    with pytest.raises(NotFittedError, match="call fit"):
        to_sql(QABinning(), dialect="sqlite")
    for column in ("", "\ud800", None):
        with pytest.raises(InputError, match="not the name of a column"):
            to_sql(fitted(Identity(), "none"), dialect="sqlite", confidence=column)
    for dialect in ("mysql", "DUCKDB", None, 7):
        with pytest.raises(InputError, match="expected one of bigquery, duckdb, postgres, snowflake, spark, sqlite"):
            to_sql(fitted(Identity(), "none"), dialect=dialect)


@pytest.mark.parametrize(
    "column", ["group", "order", "a b", 'a"b', "Größe", "1st", "x;--", "select", "Mixed", "two\nlines"]
)
def test_names_are_quoted_where_they_must_be(column):
    model = fitted(QABinning(points_per_bin=30), "text")
    h, groups = asked("text", n=200)
    confidence = f"{column} of it"
    expression = to_sql(model, dialect="sqlite", confidence=confidence, group=column)
    found = run(expression, h, groups, confidence=confidence, group=column, types=("REAL", "TEXT"))
    np.testing.assert_array_equal(found, model.predict(h, groups=groups))
    expression = to_sql(model, dialect="duckdb", confidence=confidence, group=column)
    found = run_on_duckdb(expression, h, groups, confidence=confidence, group=column, types=("DOUBLE", "VARCHAR"))
    np.testing.assert_array_equal(found, model.predict(h, groups=groups))


def test_sqlite_does_not_take_a_missing_column_for_a_text():
    expression = to_sql(fitted(QABinning(points_per_bin=30), "text"), dialect="sqlite", group="subjekt")
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        run(expression, [0.5], ["law"], group="subject")


def test_json_needs_no_sqlglot(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    for name in ("qacal.tally.sql", "qacal.model.sql"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert to_json(fitted(Identity(), "none"))["form"] == "identity"
    with pytest.raises(MissingPackageError, match=r"sqlglot is not installed; run .*'.\[sql\]'"):
        Tally.sql("logs", dialect="duckdb")
