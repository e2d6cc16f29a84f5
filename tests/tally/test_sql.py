"""Tallies made inside a database equal `Tally.of` on the same rows."""

import sqlite3
from contextlib import closing
from dataclasses import fields
from datetime import date

import duckdb
import numpy as np
import polars as pl
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError, Tally
from qacal.tally.sql import DIALECTS, column, dialect_of, written
from tests.service import databases
from tests.sizes import examples

TYPES = {"confidence": "DOUBLE PRECISION", "correct": "INTEGER", "weight": "DOUBLE PRECISION", "id": "INTEGER"}
EDGES = np.array([0.0, 5e-8, 0.005, 0.015, 0.045, 0.3, 0.1 + 0.2, 0.5, 0.995, 1.0])
EDGES = np.unique(np.clip(np.concatenate([EDGES, np.nextafter(EDGES, -1), np.nextafter(EDGES, 2)]), 0, 1)).tolist()
NAMES = ["subject", "group", "Order", 'a "b"', "a`b", "größe", "two\nlines", "x; DROP TABLE logs; --", "it's"]


def quoted(name, dialect):
    return written(column(name, dialect_of(dialect)), dialect_of(dialect))


def created(dialect, columns, types):
    declared = [f"{quoted(name, dialect)} {types.get(name, TYPES.get(name, 'TEXT'))}" for name in columns]
    return f"CREATE TABLE logs ({', '.join(declared)})", list(zip(*columns.values(), strict=True))


def on_sqlite(query, columns, types):
    create, rows = created("sqlite", columns, types)
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(create)
        base.executemany(f"INSERT INTO logs VALUES ({', '.join('?' * len(columns))})", rows)
        found = base.execute(query)
        names = [part[0] for part in found.description]
        return pl.DataFrame(found.fetchall(), schema=names, orient="row", infer_schema_length=None)


def on_duckdb(query, columns, types):
    create, rows = created("duckdb", columns, types)
    with duckdb.connect() as base:
        base.execute(create)
        base.executemany(f"INSERT INTO logs VALUES ({', '.join('?' * len(columns))})", rows)
        return base.sql(query).pl()


def on_postgres(connection, query, columns, types):
    create, rows = created("postgres", columns, types)
    connection.execute("DROP TABLE IF EXISTS logs")
    connection.execute(create)
    with connection.cursor() as cursor:
        if rows:
            cursor.executemany(f"INSERT INTO logs VALUES ({', '.join(['%s'] * len(columns))})", rows)
        cursor.execute(query)
        names = [part.name for part in cursor.description]
        return pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)


def through(dialect):
    """Return a function that runs the SQL of a dialect in DuckDB, as sqlglot translates it."""

    def run(query, columns, types):
        (translated,) = sqlglot.transpile(query, read=dialect, write="duckdb")
        return on_duckdb(translated, columns, types)

    return run


RUNS = {"sqlite": on_sqlite, "duckdb": on_duckdb}
RUNS |= {dialect: through(dialect) for dialect in DIALECTS if dialect not in RUNS}


@pytest.fixture(scope="module")
def postgres():
    if not databases.can_run():
        pytest.skip(databases.NEEDS)
    import psycopg

    with databases.postgres() as (folder, _, _):
        base = psycopg.connect(host=folder, user="qacal", dbname="postgres", autocommit=True, prepare_threshold=None)
        with base:
            yield lambda query, columns, types: on_postgres(base, query, columns, types)


def counted(run, dialect, columns, types=None, **options):
    return Tally.from_polars(run(Tally.sql("logs", dialect=dialect, **options), columns, types or {}))


def assert_same(found, expected):
    for one in fields(Tally):
        a, b = getattr(found, one.name), getattr(expected, one.name)
        if one.name == "partitions":
            assert list(a) == list(b)
            for name in a:
                assert a[name].decode(a[name].code) == b[name].decode(b[name].code)
        elif isinstance(a, np.ndarray) and expected.is_weighted:
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=one.name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=one.name)


def rows_of(rng, n=3000):
    stated = np.where(rng.random(n) < 0.5, rng.choice(EDGES, n), rng.random(n)).tolist()
    labels = rng.choice([0, 1, None], n, p=[0.4, 0.5, 0.1]).tolist()
    subjects = rng.choice(["law", "o'hara", 'a "b"', "größe", "\\", "", None], n).tolist()
    return {
        "confidence": stated,
        "correct": labels,
        "subject": subjects,
        "tenant": rng.choice([0, 7, 2**40, None], n).tolist(),
        "weight": rng.choice([0.0, 0.5, 1.0, 3.25], n).tolist(),
        "id": np.arange(n).tolist(),
    }


CASES = {
    "plain": {},
    "text": {"groups": "subject"},
    "two": {"groups": ["subject", "tenant"]},
    "grid": {"groups": "tenant", "resolution": 0.01},
    "thirds": {"resolution": 1 / 3},
    "ids": {"groups": "subject", "ids": "id"},
    "weights": {"groups": "subject", "sample_weight": "weight"},
}


def assert_counts_as_of_does(run, dialect):
    rng = np.random.default_rng(0)
    for name, options in CASES.items():
        columns = rows_of(rng)
        if name == "ids":
            assert not counted(run, dialect, columns, {"tenant": "BIGINT"}, **options).is_clustered
            columns["id"][5] = columns["id"][7]
            columns["correct"][5] = columns["correct"][7] = 1
        found = counted(run, dialect, columns, {"tenant": "BIGINT"}, **options)
        assert found.is_clustered == (name == "ids")
        assert_same(found, expected_of(columns, **options))


def expected_of(columns, groups=(), sample_weight=None, ids=None, resolution=None, **_):
    kept = [at for at, label in enumerate(columns["correct"]) if label is not None]
    part = {name: [values[at] for at in kept] for name, values in columns.items()}
    names = [groups] if isinstance(groups, str) else groups
    return Tally.of(
        part["confidence"],
        part["correct"],
        groups={name: part[name] for name in names},
        sample_weight=None if sample_weight is None else part[sample_weight],
        ids=None if ids is None else part[ids],
        resolution=resolution,
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_database_counts_as_tally_of_does(dialect):
    """SQLite and DuckDB run their own SQL; DuckDB runs that of the others as sqlglot translates it."""
    assert_counts_as_of_does(RUNS[dialect], dialect)


@pytest.mark.heavy
def test_postgresql_counts_as_tally_of_does(postgres):
    assert_counts_as_of_does(postgres, "postgres")


def assert_reads_types_of_columns(run, dialect, booleans=(True, False)):
    stated, labels = [0.8, 0.8, 0.3, 1.0], [1, 0, 1, 1]
    expected = Tally.of(stated, labels)
    for kind in ("INTEGER", "REAL", "DOUBLE PRECISION", "NUMERIC(3, 1)"):
        assert_same(counted(run, dialect, {"confidence": stated, "correct": labels}, {"correct": kind}), expected)
    for kind in ("REAL", "NUMERIC(3, 1)"):
        assert_same(counted(run, dialect, {"confidence": stated, "correct": labels}, {"confidence": kind}), expected)
    columns = {"confidence": stated, "correct": [booleans[1 - label] for label in labels]}
    assert_same(counted(run, dialect, columns, {"correct": "BOOLEAN"}), expected)
    soft = counted(run, dialect, {"confidence": stated, "correct": [0.25, 1, 0, 0.5]}, {"correct": "DOUBLE PRECISION"})
    assert_same(soft, Tally.of(stated, [0.25, 1, 0, 0.5]))
    for label, kind in [(True, "BOOLEAN"), (date(2026, 1, 2), "DATE"), (0.5, "DOUBLE PRECISION")]:
        if dialect != "sqlite":  # which has none of these types
            columns = {"confidence": [0.8, 0.3], "correct": [1, 0], "g": [label, None]}
            assert_same(counted(run, dialect, columns, {"g": kind}, groups="g"), expected_of(columns, groups="g"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_labels_and_confidences_may_have_any_type_of_number(dialect):
    assert_reads_types_of_columns(RUNS[dialect], dialect)


@pytest.mark.heavy
def test_labels_and_confidences_may_have_any_type_of_number_in_postgresql(postgres):
    assert_reads_types_of_columns(postgres, "postgres")


NAN = float("nan")
REFUSED = [
    ({"confidence": [0.5, 85.0], "correct": [1, 1]}, {}, "is 85.0; expected 0 to 1"),
    ({"confidence": [0.5, -0.1], "correct": [1, 1]}, {"resolution": 0.1}, "is -0.1; expected 0 to 1"),
    ({"confidence": [0.5, None], "correct": [1, 1]}, {}, "is None; expected a number"),
    ({"confidence": [0.5, None], "correct": [1, 1]}, {"resolution": 0.1}, "is None; expected a number"),
    ({"confidence": [0.5, NAN], "correct": [1, 1]}, {}, "is (nan|None); expected"),
    ({"confidence": [0.5, 0.5], "correct": [2, 0]}, {}, "wt is null in 1 cell: some of their labels"),
    ({"confidence": [0.5, 0.5], "correct": [-1, 1]}, {}, "wt is null in 1 cell: some of their labels"),
    (
        {"confidence": [0.5, 0.5], "correct": [1, 1], "weight": [None, 1.0]},
        {"sample_weight": "weight"},
        "w is null",
    ),
    (
        {"confidence": [0.5, 0.5], "correct": [1, 1], "weight": [-1.0, 3.0]},
        {"sample_weight": "weight"},
        "w is null",
    ),
    ({"confidence": [0.5, 0.5], "correct": [1, 1], "weight": [0.0, 0.0]}, {"sample_weight": "weight"}, "is empty"),
    ({"confidence": [0.5, 0.5], "correct": [1, 1], "id": [None, 1]}, {"ids": "id"}, "some rows have no id"),
    ({"confidence": [0.5], "correct": [None]}, {}, "table is empty"),
]


def assert_refuses(run, dialect):
    for columns, options, message in REFUSED:
        with pytest.raises(InputError, match=message):
            counted(run, dialect, columns, **options)
    if dialect != "sqlite":  # which stores NaN as NULL
        nan = {"confidence": [0.5, 0.5], "correct": [float("nan"), 1.0]}
        with pytest.raises(InputError, match="wt is null"):
            counted(run, dialect, nan, {"correct": "DOUBLE PRECISION"})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_tally_of_refuses_is_refused_when_the_cells_are_read(dialect):
    assert_refuses(RUNS[dialect], dialect)


def test_text_among_the_labels_of_sqlite_is_refused():
    """CAST('yes' AS REAL) would be 0 there."""
    with pytest.raises(InputError, match="wt is null"):
        counted(on_sqlite, "sqlite", {"confidence": [0.5, 0.5], "correct": ["yes", 1]}, {"correct": "TEXT"})


@pytest.mark.heavy
def test_what_tally_of_refuses_is_refused_from_postgresql(postgres):
    assert_refuses(postgres, "postgres")


def any_rows():
    labels = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
    row = st.tuples(
        st.one_of(st.sampled_from(EDGES), st.floats(0, 1)),
        st.sampled_from([0, 1]),
        st.one_of(st.none(), st.sampled_from(["'", '"', "`", "\\", "--", "%s", "é", "e\u0301"]), labels),
    )
    return st.lists(row, min_size=1, max_size=12)


@examples(200, 4)
@given(any_rows(), st.sampled_from(NAMES), st.sampled_from([None, 1.0, 0.5, 0.1, 0.01, 1 / 7]))
def test_any_names_and_labels(rows, name, resolution):
    stated, labels, groups = zip(*rows, strict=True)
    columns = {"confidence": stated, f"{name} correct": labels, name: groups}
    options = {"groups": name, "correct": f"{name} correct", "resolution": resolution}
    expected = Tally.of(stated, labels, groups={name: list(groups)}, resolution=resolution)
    for dialect in ("sqlite", "duckdb"):
        types = {f"{name} correct": "INTEGER"}
        assert_same(counted(RUNS[dialect], dialect, columns, types, **options), expected)


@pytest.mark.heavy
@examples(100)
@given(any_rows(), st.sampled_from(NAMES), st.sampled_from([None, 0.5, 0.01]))
def test_any_names_and_labels_in_postgresql(postgres, rows, name, resolution):
    stated, labels, groups = zip(*rows, strict=True)
    columns = {"confidence": stated, f"{name} correct": labels, name: groups}
    options = {"groups": name, "correct": f"{name} correct", "resolution": resolution}
    expected = Tally.of(stated, labels, groups={name: list(groups)}, resolution=resolution)
    assert_same(counted(postgres, "postgres", columns, {f"{name} correct": "INTEGER"}, **options), expected)


def test_a_table_may_be_a_select_or_a_function(tmp_path):
    file = tmp_path / "it's.parquet"
    pl.DataFrame({"confidence": [0.5, 0.9], "correct": [1, 0], "day": [1, 2]}).write_parquet(file)
    source = "read_parquet('" + str(file).replace("'", "''") + "')"
    with duckdb.connect() as base:
        for table, n in [(source, 2), (f"SELECT * FROM {source} WHERE day = 1", 1), (f"(SELECT * FROM {source})", 2)]:
            assert Tally.from_polars(base.sql(Tally.sql(table, dialect="duckdb")).pl()).n == n


@pytest.mark.parametrize("table", ["", "a, b", "logs; DROP TABLE logs", "DROP TABLE logs", "logs WHERE 1", 7, None])
def test_other_tables_are_refused(table):
    with pytest.raises(InputError, match="expected the name of a table, or a SELECT"):
        Tally.sql(table, dialect="duckdb")


def test_other_arguments_are_refused():
    for options, message in [
        ({"dialect": "mysql"}, "expected one of bigquery, duckdb"),
        ({"dialect": "duckdb", "resolution": 1e-4}, r"in SQL, expected 0.001 or more.*snapped"),
        ({"dialect": "duckdb", "resolution": 0}, "expected 1/k"),
        ({"dialect": "duckdb", "groups": 7}, "groups is 7; expected the name of a column"),
        ({"dialect": "duckdb", "groups": [None]}, "None is not the name of a column"),
        ({"dialect": "duckdb", "confidence": ""}, "'' is not the name of a column"),
    ]:
        with pytest.raises(InputError, match=message):
            Tally.sql("logs", **options)


def test_sqlite_does_not_take_a_missing_column_for_a_text():
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        counted(on_sqlite, "sqlite", {"confidence": [0.5], "correct": [1]}, groups="subjekt")


def test_tallies_of_two_databases_add():
    rng = np.random.default_rng(1)
    days = [rows_of(rng, 500), rows_of(rng, 500)]
    queries = [Tally.sql("logs", dialect=dialect, groups="subject") for dialect in ("sqlite", "duckdb")]
    first, second = (
        Tally.from_polars(run(query, day, {}))
        for run, query, day in zip((on_sqlite, on_duckdb), queries, days, strict=True)
    )
    both = {name: days[0][name] + days[1][name] for name in days[0]}
    added = first + second
    assert added.is_sum
    np.testing.assert_array_equal(added.wt, expected_of(both, groups="subject").wt)
