"""`qacal watch`: the table, the exit code, and JSON."""

import json

import polars as pl
import pytest

from qacal import Column, QACalibrator
from tests.cli.test_cli import run
from tests.model.test_watching import answers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    QACalibrator(partition=Column("subject")).fit(answers(0, 2000)).save(folder / "model")
    for name, loss in (("same", 0.0), ("worse", 0.3)):
        pl.DataFrame(answers(10_000, 800, seed=1, loss=loss)).write_ndjson(folder / f"{name}.jsonl")
    return folder


def test_no_alarm(folder):
    code, out, _ = run("watch", folder / "model", folder / "same.jsonl")
    assert code == 0
    assert "No alarm after 800 labels" in out
    assert "group law" in out
    assert "Stated confidence: 0.75 on average, and 0.75 in the fit." in out


def test_an_alarm_is_exit_code_3_and_fits_into_80_columns(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("watch", folder / "model", folder / "worse.jsonl")
    assert code == 3
    assert "Alarm after" in out
    assert "fit a new model" in out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    # Other answers of a band may have another mean, so that its name may be outside of what is promised.
    assert 'The number in "answers around" is their mean probability in the fit; what is promised' in " ".join(
        out.split()
    )
    assert any(line.lstrip().startswith("group law") and line.split()[-1].isdigit() for line in lines)


def test_json_has_all_intervals(folder):
    code, out, _ = run("watch", folder / "model", folder / "worse.jsonl", "--json", "--alpha", 0.01)
    said = json.loads(out)
    assert code == 3
    assert said["is_alarm"]
    assert said["alpha"] == 0.01
    assert said["intervals"][0]["broken_after"] == min(
        one["broken_after"] for one in said["intervals"] if one["broken_after"]
    )
    assert {one["kind"] for one in said["intervals"]} == {"all", "band", "group"}


def test_wrong_use(folder):
    code, _, said = run("watch", folder / "model", folder / "same.jsonl", "--alpha", 2)
    assert code == 2
    assert "alpha is 2" in said
