"""The examples of the service, with the real packages."""

import json
import os
import runpy
import subprocess
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from qacal import QACalibrator, load
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
