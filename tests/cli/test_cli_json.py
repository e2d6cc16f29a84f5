"""`--json` of commands that write files: one document, notes on standard error; shell completion."""

import json
import os
import subprocess
import sys

import polars as pl
import pytest

from tests.answers import answers
from tests.cli.test_cli import ok, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("json")
    pl.DataFrame(answers(800)).write_parquet(path / "a.parquet")
    pl.DataFrame(answers(300, seed=1)).write_parquet(path / "kept.parquet")
    ok("fit", path / "a.parquet", "-o", path / "model", "--partition", "column:topic")
    return path


def test_split(folder, tmp_path):
    files = ("-o", tmp_path / "x.parquet", "--rest", tmp_path / "y.parquet")
    found = json.loads(ok("split", folder / "a.parquet", *files, "--json"))
    assert found["output"]["rows"] + found["rest"]["rows"] == 800
    assert found["output"]["file"] == str(tmp_path / "x.parquet")
    assert found["rest"]["questions"] == pl.read_parquet(tmp_path / "y.parquet")["id"].n_unique()


def test_fit(folder, tmp_path):
    code, out, err = run("fit", folder / "a.parquet", "-o", tmp_path / "model", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["model"] == str(tmp_path / "model")
    assert 0.65 < found["rows"] / 800 < 0.75
    assert 0.85 < found["rows_learned_from"] / 800 < 0.95
    assert [trial["name"] for trial in found["tried"] if trial["is_chosen"]] == [found["score"]]
    assert found["calibrator"] == "MarginBinning"
    assert found["bands"] >= 1
    for width in ("median_epsilon_of_a_row", "median_half_width_of_a_group"):
        assert 0 < found[width] < 0.5
    assert "certificates" not in found
    assert "Saved to" in err
    steps = json.loads(
        ok("fit", folder / "a.parquet", "-o", tmp_path / "steps", "--calibrator", "step-binning", "--json")
    )
    assert steps["rows"] + steps["rows_learned_from"] == 800
    assert sum(steps["certificates"].values()) == steps["groups"]
    by = json.loads(ok("fit", folder / "a.parquet", "-o", tmp_path / "set", "--by", "model", "--json"))
    assert by["models"]["parrot-1"]["rows"] == found["rows"]


def test_apply(folder, tmp_path):
    command = ("apply", folder / "model", folder / "kept.parquet", "--json")
    found = json.loads(ok(*command, "-o", tmp_path / "out.parquet", "--threshold", "0.5"))
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert found["rows_written"] == 300
    assert found["columns"] == out.columns
    assert found["answered"] == (out["decision"] == "answer").sum()
    assert json.loads(ok(*command, "-o", tmp_path / "plain.parquet"))["answered"] is None
    code, _, err = run(*command)
    assert code == 2
    assert "name a file with -o" in " ".join(err.split())


@pytest.mark.usefixtures("undrawn")
def test_report(folder, tmp_path):
    rows = (folder / "model", folder / "kept.parquet")
    found = json.loads(ok("report", *rows, "-o", tmp_path / "r.html", "--json"))
    measured = json.loads(ok("evaluate", rows[1], "--model", rows[0], "--json"))
    assert (tmp_path / "r.html").exists()
    assert found["rows"] == 300
    for name in ("before", "after", "verdict"):
        assert found[name] == measured[name]
    by_name = {group["group"]: group for group in found["groups"]}
    assert len(by_name) == len(measured["groups"])
    assert all(by_name[group["group"]] | group == by_name[group["group"]] for group in measured["groups"])
    by = json.loads(ok("report", *rows, "-o", tmp_path / "by.html", "--by", "topic", "--json"))
    assert sum(part["rows"] for part in by["parts"].values()) == 300


def test_the_shell_completes_commands_and_options():
    code = "from qacal.cli.main import main; main()"

    def completed(line):
        asked = {"_QACAL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        environment = {**os.environ, **asked, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
        return done.stdout.decode().split()

    assert completed("qacal ev") == ["evaluate"]
    assert "--fail-above" in completed("qacal evaluate --fail")
