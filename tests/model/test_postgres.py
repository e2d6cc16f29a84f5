"""Exported SQL on a real PostgreSQL: every type of column gives what `predict` gives."""

import functools
import glob
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from qacal import QABinning
from qacal.calibrators import Identity, PlattScaling
from qacal.model.sql import to_sql
from qacal.tally.arrays import seven_decimals
from tests.model.test_exports import KINDS, asked, edges_of, every_exportable, fitted, known_to
from tests.tally.test_sql import quoted

INITDB = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None)

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(INITDB is None, reason="needs PostgreSQL: apt-get install postgresql"),
    pytest.mark.skipif(
        os.geteuid() == 0 and not (shutil.which("runuser") and Path("/etc/passwd").read_text().count("\npostgres:")),
        reason="PostgreSQL does not run as root, and there is no user postgres",
    ),
]

TYPES = {"none": "TEXT", "int": "INTEGER", "text": "TEXT", "tree": "BIGINT"}


@pytest.fixture(scope="module")
def ask():
    """Return a function that sends a script to a private server, which listens on a socket in its own folder."""
    # PostgreSQL does not run as root, and the path of a socket has at most a hundred characters.
    owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        data = Path(folder) / "data"
        if owner:
            shutil.chown(folder, "postgres")
        start = functools.partial(subprocess.run, check=True, capture_output=True, cwd="/", text=True)
        start([*owner, INITDB, "-D", data, "-U", "qacal", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
        control = [*owner, str(Path(INITDB).with_name("pg_ctl")), "-D", str(data), "-w"]
        options = f"-c listen_addresses= -c fsync=off -k {folder}"
        start([*control, "-l", f"{folder}/log", "-o", options, "start"])
        psql = [*owner, shutil.which("psql") or Path(INITDB).with_name("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1"]
        try:
            yield lambda script: start([*psql, "-h", folder, "-U", "qacal", "postgres"], input=script).stdout
        finally:
            start([*control, "-m", "immediate", "stop"])


def run(ask, expression, h, groups, types, confidence="confidence", group="group_id"):
    """Copy rows into a table; return the value of the expression for each row, and its type."""
    columns = f"{quoted(confidence, 'postgres')} {types[0]}, {quoted(group, 'postgres')} {types[1]}"
    rows = "\n".join(f"{at}\t{copied(x)}\t{copied(label)}" for at, (x, label) in enumerate(zip(h, groups, strict=True)))
    printed = ask(
        f"CREATE TEMP TABLE answers (number INTEGER, {columns});\nCOPY answers FROM stdin;\n{rows}\n\\.\n"
        f"CREATE TEMP TABLE calibrated AS SELECT number, {expression} AS calibrated FROM answers;\n"
        "SELECT DISTINCT pg_typeof(calibrated) FROM calibrated;\n"
        "COPY (SELECT calibrated FROM calibrated ORDER BY number) TO stdout;\n"
    )
    kind, *values = printed.splitlines()
    return kind, np.array([None if value == "\\N" else float(value) for value in values])


def copied(value):
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return str(value).lower() if isinstance(value, bool) else repr(value)


@every_exportable
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_as_predict_has_it(ask, calibrator, kind):
    """The result has one type, whatever the model and the column: PostgreSQL reads 0.8e0 as NUMERIC."""
    model = fitted(calibrator, kind, tied=False)
    expression, is_discrete, is_identity = (
        to_sql(model, dialect="postgres"),
        model.properties.is_discrete,
        isinstance(model, Identity),
    )
    h, groups = asked(kind, n=500)
    h = np.concatenate([h, edges_of(model)])
    h = h if is_discrete or is_identity else seven_decimals(h)
    groups = [groups[at % len(groups)] for at in range(len(h))]
    expected = model.predict(h, groups=known_to(model, kind, groups))
    for column in ("DOUBLE PRECISION", "REAL", "NUMERIC"):
        given = h.astype(np.float32).astype(float) if column == "REAL" else h
        result, found = run(ask, expression, given.tolist(), groups, (column, TYPES[kind]))
        assert result == (column.lower() if is_identity else "double precision")
        tolerance = 1e-7 if is_identity and column == "REAL" else 0 if is_discrete else 1e-12
        np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=tolerance)


LABELS = [
    "a\\nb",
    "\\",
    "\\'",
    "'; --",
    "100%",
    "%s",
    "$1",
    ":x",
    "?",
    "\r\n",
    "\t",
    "a ",
    "a",
    "",
    "NULL",
    "\\N",
    "🙂",
    "é",
    "e\u0301",
]


@pytest.mark.parametrize(
    ("labels", "column"),
    [
        (LABELS, "TEXT"),
        (LABELS, "VARCHAR(20)"),
        ([True, False], "BOOLEAN"),
        ([-3, 0, 2**31, 2**62], "BIGINT"),
        ([0.1, -2.5, 1e-300, 1e300], "DOUBLE PRECISION"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels_of_any_content_are_found(ask, labels, column):
    groups = np.empty(10 * len(labels), dtype=object)
    groups[:] = labels * 10
    rng = np.random.default_rng(0)
    model = QABinning(points_per_bin=5).fit(rng.random(len(groups)), rng.random(len(groups)), groups=groups)
    h, groups = rng.random(len(groups) + 10), [*groups, *[None] * 10]
    expected = model.predict(h, groups=groups)
    assert len(np.unique(expected)) > len(labels)
    # A column whose name is a reserved word, and one that needs quotes.
    names = {"confidence": '% of\n"it"', "group": "group"}
    _, found = run(ask, to_sql(model, dialect="postgres", **names), h.tolist(), groups, ("REAL", column), **names)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("column", ["DOUBLE PRECISION", "REAL", "NUMERIC"])
def test_impossible_confidences_are_null_and_steep_curves_do_not_overflow(ask, column):
    """exp above 700 is an error in PostgreSQL, and NaN is greater than all numbers."""
    for feature in ("confidence", "logit"):
        model = fitted(PlattScaling(feature=feature), "none")
        object.__setattr__(model.maps_, "slope", 1e5)
        object.__setattr__(model.maps_, "intercept", -5e4 if feature == "confidence" else 0.0)
        h = np.round(np.linspace(0, 1, 1001), 7)
        impossible = [float("nan"), float("inf"), float("-inf"), -0.1, 1.1, 85.0, None]
        _, found = run(
            ask, to_sql(model, dialect="postgres"), [*h.tolist(), *impossible], [None] * (len(h) + 7), (column, "TEXT")
        )
        assert list(found[-7:]) == [None] * 7
        # NUMERIC computes in decimals, so steep curves have other last digits.
        np.testing.assert_allclose(found[:-7].astype(float), model.predict(h), rtol=0, atol=1e-9)
