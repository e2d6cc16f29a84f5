"""Traps of the public API, one test each: what users of scikit-learn try first, and what they must get."""

import sys

import pytest

import qacal
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit


def test_a_missing_package_is_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="onnxruntime is not installed") as told:
        qacal.embedder("minilm")
    assert isinstance(told.value, qacal.QacalError)
    assert not isinstance(told.value, ValueError)
    assert told.value.name == "onnxruntime"


def test_a_silent_server_is_a_connection_error(tmp_path):
    rows = [{"id": 1, "question": "2 + 2?"}]
    with pytest.raises(ConnectionError, match="Is the server running") as told:
        elicit(rows, Client("http://127.0.0.1:9/v1", tries=1), Plan("tiny"), tmp_path / "run.db")
    assert isinstance(told.value, qacal.QacalError)
    assert not isinstance(told.value, ValueError)
