"""The examples of the service, with the real packages."""

import json
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

from qacal import BadRows, QACalibrator, Tally, load
from tests.answers import answers
from tests.service.test_clients import LITELLM, OPENAI, needs_litellm, needs_openai, proxy
from tests.service.upstreams import stubbed

EXAMPLES = Path(__file__).parents[1] / "examples"
QUESTION = "Which city is the capital of Arden?"


def test_a_handler_of_fastapi(tmp_path, monkeypatch):
    model = QACalibrator(features=()).fit(answers(500)).set_threshold(0.6)
    model.save(tmp_path / "model")
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    app = runpy.run_path(str(EXAMPLES / "fastapi_app.py"))["app"]
    row = {"question": QUESTION, "answer": "Belmar", "confidence": 0.9}
    with TestClient(app) as client:
        found = client.post("/trust", json=row).json()
    expected = json.loads(json.dumps(model.explain(**row)))
    assert found == {name: expected[name] for name in ("calibrated", "low", "high", "decision", "parts")}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("python", "example"),
    [
        pytest.param(OPENAI, "langchain_chat.py", marks=needs_openai),
        pytest.param(LITELLM, "litellm_completion.py", marks=needs_litellm),
    ],
)
def test_a_client_of_the_proxy(tmp_path, python, example):
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with stubbed() as stub, proxy(tmp_path, stub.url) as (url, model):
        stub.probability = 0.8
        done = subprocess.run(
            [python, EXAMPLES / example, QUESTION, "parrot-1"],
            capture_output=True,
            text=True,
            check=False,
            env={**bare, "QACAL_URL": url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )
    assert done.returncode == 0, done.stderr
    expected = load(model).explain(QUESTION, stub.answer, 0.8)["calibrated"]
    assert done.stdout.strip() == f"{stub.answer} -- confidence {expected:.2f}"


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs Spark: pip install pyspark, and Java 17")
def test_spark_answers_and_counts_as_python_does(tmp_path):
    model = QACalibrator(features=()).fit(answers(800))
    model.save(tmp_path / "model")
    rows = pl.DataFrame(answers(600, seed=4)).drop("model").with_columns(correct=pl.col("correct").cast(pl.Boolean))
    rows = rows.with_columns(confidence=pl.when(pl.int_range(pl.len()) % 50 > 0).then("confidence"))
    rows.write_parquet(tmp_path / "rows.parquet")
    labelled = rows.drop_nulls("confidence")
    labelled.write_parquet(tmp_path / "labelled.parquet")
    for source, cells in (("rows", []), ("labelled", [tmp_path / "tally.parquet"])):
        subprocess.run(
            [sys.executable, EXAMPLES / "spark_apply.py", "model", f"{source}.parquet", "out", *cells],
            check=True,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        found = pl.read_parquet(tmp_path / "out" / "*.parquet").sort("id")
        expected = model.calibrate(rows if source == "rows" else labelled, on_fault=BadRows()).sort("id")
        assert found["calibrated"].null_count() == (12 if source == "rows" else 0)
        for name in ("calibrated", "low", "high"):
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-12)
    tally = Tally.from_polars(pl.read_parquet(tmp_path / "tally.parquet"))
    direct = Tally.of(labelled["confidence"], labelled["correct"])
    for name in ("confidence", "rows", "wt", "wtt", "wwtt"):
        np.testing.assert_array_equal(getattr(tally, name), getattr(direct, name))


def test_the_example_for_spark_compiles():
    path = EXAMPLES / "spark_apply.py"
    compile(path.read_text(encoding="utf-8"), path, "exec")
