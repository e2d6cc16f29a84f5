"""`qacal report` as a person uses it."""

import json

import polars as pl
import pytest

from tests.answers import answers
from tests.cli.test_cli import ok, run
from tests.report.rows import model
from tests.sizes import FULL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    model().save(path / "model")
    pl.DataFrame(answers(400, seed=1)).write_parquet(path / "test.parquet")
    return path


def test_it_writes_one_file_and_prints_its_path(folder, tmp_path):
    out = tmp_path / "report.html"
    command = (
        "report",
        folder / "model",
        folder / "test.parquet",
        "-o",
        out,
        "--threshold",
        "0.6",
        "--title",
        "<b>Mine",
    )
    code, printed, err = run(*command)
    assert (code, printed) == (0, "")
    assert f"Written to {out}" in err
    page = out.read_text(encoding="utf-8")
    assert '<h1 dir="auto">&lt;b&gt;Mine</h1>' in page
    assert "400 rows of" in page
    if FULL:
        run(*command)
        assert out.read_text(encoding="utf-8") == page
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.usefixtures("undrawn")
def test_standard_input_and_output(folder):
    lines = "".join(json.dumps(row) + "\n" for row in answers(200, seed=1)).encode()
    page = ok("report", folder / "model", "-", "-o", "-", "--groups", "topic", stdin=lines)
    assert page.startswith("<!DOCTYPE html>")
    assert "model on standard input" in page


@pytest.mark.usefixtures("undrawn")
def test_a_block_for_each_value(folder):
    page = ok("report", folder / "model", folder / "test.parquet", "-o", "-", "--by", "topic", "--examples", "0")
    assert page.count("<article") == 4
    assert "Which city" not in page


def test_refusals_leave_no_file(folder, tmp_path):
    def refused(rows, *options):
        pl.DataFrame(rows).write_parquet(tmp_path / "bad.parquet")
        code, _, err = run("report", folder / "model", tmp_path / "bad.parquet", "-o", tmp_path / "out.html", *options)
        assert not (tmp_path / "out.html").exists()
        return code, err

    rows = answers(60, seed=1)
    assert refused([{k: v for k, v in row.items() if k != "correct"} for row in rows])[0] == 1
    code, err = refused([row | {"correct": 0} for row in rows])
    assert code == 1
    assert "all 60 rows are wrong; a report needs correct and wrong answers" in err
    assert refused(rows, "--threshold", "80")[0] == 2
    assert refused(rows, "--examples", "-1")[0] == 2
    assert "subject" in refused(rows, "--groups", "subject")[1]
    code, _, err = run("report", tmp_path / "nothing", tmp_path / "bad.parquet", "-o", tmp_path / "out.html")
    assert code == 1
    code, _, err = run("report", folder / "model", tmp_path / "bad.parquet", "-o", tmp_path / "no" / "out.html")
    assert "does not exist" in err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("always::qacal.QacalWarning")
def test_rows_of_the_fit_are_reported(folder, tmp_path):
    pl.DataFrame(answers(300)).write_parquet(tmp_path / "fitted.parquet")
    code, _, err = run("report", folder / "model", tmp_path / "fitted.parquet", "-o", tmp_path / "r.html")
    assert code == 0
    assert "Note: the model was fitted on some of these questions; on those it looks better than it is." in err
