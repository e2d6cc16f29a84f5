"""A model as functions of DuckDB gives what `calibrate` gives."""

import duckdb
import numpy as np
import polars as pl
import pytest

from qacal import Column, InputError, MissingPackageError, QABinning, QACalibrator, register_duckdb
from qacal.model.model_set import ModelSet
from tests.answers import answers

LLMS = ("parrot-1", "parrot-2")
NUMBERS = ("calibrated", "low", "high", "group_low", "group_high", "unlike")


@pytest.fixture(scope="module")
def model():
    return QACalibrator(features=()).fit(answers(1500)).set_threshold(0.6)


@pytest.fixture
def base():
    with duckdb.connect() as connection:
        yield connection


def given(base, rows):
    columns = pl.DataFrame(rows)
    base.register("given", columns)
    base.execute("CREATE TABLE logs AS SELECT row_number() OVER () AS number, * FROM given")
    return columns


def test_a_text_model_answers_as_calibrate_does(model, base):
    """In more than one call: DuckDB passes 2,048 rows at a time."""
    columns = given(base, [{**row, "id": at} for at, row in enumerate(answers(3000, seed=7))])
    register_duckdb(base, model)
    expected = model.calibrate(columns.select("question", "answer", "confidence"))
    found = base.sql(
        "SELECT qacal_calibrate(question, answer, confidence) AS p, qacal_evidence(question, answer, confidence) AS e "
        "FROM logs ORDER BY number"
    ).pl()
    np.testing.assert_allclose(found["p"], expected["calibrated"], rtol=0, atol=1e-12)
    evidence = found["e"].struct.unnest()
    for name in NUMBERS:
        np.testing.assert_allclose(evidence[name], expected[name], rtol=0, atol=1e-12, err_msg=name)
    assert evidence["source"].to_list() == expected["source"].to_list()
    assert evidence["decision"].to_list() == expected["decision"].to_list()
    assert evidence["group"].to_list() == expected["group"].cast(pl.String).to_list()
    ((mean,),) = base.sql("SELECT avg(qacal_calibrate(question, answer, confidence)) FROM logs").fetchall()
    assert mean == pytest.approx(expected["calibrated"].mean(), abs=1e-12)


def test_rows_that_cannot_be_used_are_null(model, base):
    register_duckdb(base, model)
    query = """SELECT qacal_calibrate(q, a, c), qacal_evidence(q, a, c) IS NULL
        FROM (VALUES ('2 + 2?', '4', 0.9), ('2 + 2?', '4', NULL), ('2 + 2?', '4', 85), ('2 + 2?', '4', 'nan'::DOUBLE),
                     (NULL, '4', 0.9), ('2 + 2?', NULL, 0.9)) rows(q, a, c)"""
    found = base.sql(query).fetchall()
    (expected,) = model.predict([{"question": "2 + 2?", "answer": "4", "confidence": 0.9}])
    assert found[0] == (pytest.approx(expected, abs=1e-12), False)
    assert found[1:] == [(None, True)] * 5
    assert base.sql("SELECT qacal_calibrate(NULL, NULL, NULL)").fetchall() == [(None,)]


def test_further_columns_are_further_arguments_and_models_have_prefixes(base, model):
    rows = [{**row, "tenant": at % 3} for at, row in enumerate(answers(900))]
    other = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=20)).fit(rows)
    columns = given(base, answers(400, seed=5))
    register_duckdb(base, model)
    with pytest.raises(InputError, match=r"has a function qacal_calibrate; pass another prefix"):
        register_duckdb(base, other, columns={"topic": "VARCHAR"})
    with pytest.raises(InputError, match=r"pass columns=\{'topic': 'VARCHAR'\}"):
        register_duckdb(base, other, prefix="by_topic")
    register_duckdb(base, other, columns={"topic": "VARCHAR"}, prefix="by_topic")
    found = base.sql("SELECT by_topic_calibrate(question, answer, confidence, topic) FROM logs ORDER BY number")
    np.testing.assert_array_equal([row[0] for row in found.fetchall()], other.calibrate(columns)["calibrated"])


def test_several_llms_are_answered_by_a_set_of_models(base):
    rows = [*answers(600), *({**row, "id": f"b{row['id']}"} for row in answers(600, 3, llm="parrot-2"))]
    by = {llm: QACalibrator(features=()).fit([row for row in rows if row["model"] == llm]) for llm in LLMS}
    columns = given(base, answers(300, 8) + answers(300, 9, llm="parrot-2"))
    register_duckdb(base, ModelSet("model", by), columns={"model": "VARCHAR"})
    found = base.sql("SELECT qacal_calibrate(question, answer, confidence, model) FROM logs ORDER BY number").fetchall()
    expected = ModelSet("model", by).calibrate(columns)["calibrated"]
    np.testing.assert_allclose([row[0] for row in found], expected, rtol=0, atol=1e-12)


def test_wrong_arguments_are_refused(base, model, monkeypatch):
    with pytest.raises(InputError, match=r"expected a fitted one, or qacal.load"):
        register_duckdb(base, "model")
    with pytest.raises(InputError, match=r"expected one of duckdb.connect"):
        register_duckdb("logs.duckdb", model)
    monkeypatch.setattr("qacal.model.duckdb.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="pip install pyarrow"):
        register_duckdb(base, model)
