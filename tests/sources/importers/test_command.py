"""`qacal import` as a person uses it: what is written, what is printed, and that the next command takes it."""

import json
import math

import numpy as np
import polars as pl
import pytest

from qacal.records.reading import read
from tests.cli.test_cli import ok, run
from tests.sources.importers import logs
from tests.sources.importers.logs import CASES, choice_row, sample, write_eval, write_lines


def test_rows_are_written_and_accounted_for(tmp_path):
    (path,) = logs.lm_eval(tmp_path)
    code, out, err = run("import", "lm-eval", path, "-o", tmp_path / "records.parquet")
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "3 rows read, 3 kept, 0 dropped.",
        "Confidence: 3 choice likelihood. Labelled: 3 of 3.",
        f"3 rows written to {tmp_path / 'records.parquet'}.",
    ]
    assert pl.read_parquet(tmp_path / "records.parquet")["answer"].to_list() == [case.answer for case in CASES]


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv", "jsonl.gz"])
def test_every_kind_of_file_is_read_as_records(ending, tmp_path):
    path = tmp_path / f"records.{ending}"
    ok("import", "promptfoo", *logs.promptfoo_lines(tmp_path), "-o", path)
    (batch,) = read(path, needs_labels=True)
    assert batch.question == [case.question for case in CASES]
    assert batch.confidence.tolist() == [case.confidence for case in CASES]
    assert batch.correct.tolist() == [case.correct for case in CASES]
    assert batch.values_of("model") == ["org:llm"]


def test_standard_output_has_the_rows_and_nothing_else(tmp_path):
    out = ok("import", "deepeval", *logs.deepeval(tmp_path), "-o", "-")
    assert [json.loads(line)["question"] for line in out.splitlines()] == [case.question for case in CASES]


def test_options_reach_the_importer(tmp_path):
    metrics = [{"name": "Grade", "success": False, "score": 3}]
    case = logs.deepeval_case(0, CASES[0], metricsData=metrics, metadata={"confidence": 95})
    path = logs.write_json(tmp_path / "test_run_1.json", {"testCases": [case]})
    options = ("--percent", "--metric", "Grade", "--correct-at", "2.5", "--model", "llm")
    row = json.loads(ok("import", "deepeval", path, "-o", "-", *options))
    assert (row["confidence"], row["correct"], row["model"]) == (0.95, 1.0, "llm")


def test_the_source_of_confidence_is_spelled_with_a_hyphen(tmp_path):
    out = ok("import", "lm-eval", *logs.lm_eval(tmp_path), "-o", "-", "--confidence-from", "choice-likelihood")
    assert len(out.splitlines()) == 3


def test_several_sources_are_pointed_out(tmp_path):
    cases = [
        logs.deepeval_case(0, CASES[0]),
        logs.deepeval_case(1, CASES[1], metadata={}, actualOutput=logs.reply(CASES[1])),
    ]
    path = logs.write_json(tmp_path / "test_run_1.json", {"testCases": cases})
    code, _, err = run("import", "deepeval", path, "-o", tmp_path / "records.jsonl")
    assert code == 0
    assert "Confidence: 1 metadata, 1 stated." in err
    assert "choose with --confidence-from" in err
    assert "several confidence sources" in run("fit", tmp_path / "records.jsonl", "-o", tmp_path / "model")[2]


def test_bad_rows_stop_the_import_or_are_written_apart(tmp_path):
    (path,) = logs.lm_eval(tmp_path)
    with path.open("a") as file:
        file.write("{broken\n")
    code, _, err = run("import", "lm-eval", path, "-o", tmp_path / "records.parquet")
    assert code == 1
    assert f"{path} line 4: the line is not JSON" in err
    assert not (tmp_path / "records.parquet").exists()
    options = ("-o", tmp_path / "records.parquet", "--skip-bad-rows", tmp_path / "bad.jsonl")
    code, _, err = run("import", "lm-eval", path, *options)
    assert code == 1
    assert "1 of 4 rows (25%)\n  1: not JSON" in err
    code, _, err = run("import", "lm-eval", path, *options, "--max-bad", "0.3")
    assert code == 0
    assert "4 rows read, 3 kept, 1 dropped:\n  1: the row is faulty" in err
    assert json.loads((tmp_path / "bad.jsonl").read_text())["place"] == "line 4"


def test_a_failed_import_changes_no_file(tmp_path):
    out = tmp_path / "records.jsonl"
    out.write_text("before\n")
    scores = {name: {"value": "C", "answer": "Paris"} for name in ("match", "includes")}
    path = write_eval(tmp_path / "quiz.eval", [sample(0, CASES[0], scores=scores)])
    code, _, err = run("import", "inspect", path, "-o", out)
    assert code == 1
    assert "there are several scorers: match, includes. Choose one with --metric." in err
    assert out.read_text() == "before\n"
    assert sorted(tmp_path.iterdir()) == [path, out]


def confident(folder, *numbers):
    """A log with these confidences in its metadata."""
    cases = [logs.deepeval_case(at, CASES[0], metadata={"confidence": number}) for at, number in enumerate(numbers)]
    return logs.write_json(folder / "test_run_1.json", {"testCases": cases})


def test_an_unclear_scale_writes_nothing_and_says_what_to_type(tmp_path):
    path, out = confident(tmp_path, 95, 80, 1, 0, 60, 1), tmp_path / "records.jsonl"
    code, _, err = run("import", "deepeval", path, "-o", out)
    assert code == 1
    assert "is 95; expected 0 to 1" in err
    assert "pass --percent" in err
    assert list(tmp_path.iterdir()) == [path]
    ok("import", "deepeval", path, "-o", out, "--percent")
    assert [json.loads(line)["confidence"] for line in out.read_text().splitlines()] == [0.95, 0.8, 0.01, 0, 0.6, 0.01]


def test_fractions_are_not_read_as_percents(tmp_path):
    path, out = confident(tmp_path, *(n / 20 for n in range(21))), tmp_path / "records.jsonl"
    code, _, err = run("import", "deepeval", path, "-o", out, "--percent")
    assert code == 1
    assert "no confidence is above 1, so these are not percents; leave out --percent" in err
    assert list(tmp_path.iterdir()) == [path]
    ok("import", "deepeval", path, "-o", out)


def test_fractions_among_percents_are_refused(tmp_path):
    path, out = confident(tmp_path, *(0.7 if n % 2 else 80 for n in range(20))), tmp_path / "records.jsonl"
    code, _, err = run("import", "deepeval", path, "-o", out, "--percent")
    assert code == 1
    assert "10 of 20 confidences lie between 0 and 1, and others reach 80: fractions among percents." in err


def test_a_row_that_decompresses_to_too_much_is_refused_unless_allowed(tmp_path):
    path = write_eval(tmp_path / "quiz.eval", [sample(7, CASES[0], store=[[]] * 50_000)])
    code, out, err = run("--max-row-mb", "0.1", "import", "inspect", path, "-o", "-")
    assert (code, out) == (1, "")
    assert "samples/7_epoch_1.json: what is packed in it is larger than 0.1 MB" in err
    assert len(ok("--max-row-mb", "1", "import", "inspect", path, "-o", "-").splitlines()) == 1


def test_wrong_use_is_refused_before_the_work(tmp_path):
    (path,) = logs.lm_eval(tmp_path)
    assert "cannot tell the format" in run("import", "lm-eval", path, "-o", tmp_path / "records.xls")[2]
    assert "lm-eval has no observation to choose" in run("import", "lm-eval", path, "-o", "-", "--observation", "x")[2]
    assert "named twice" in run("import", "lm-eval", path, "-o", path)[2]
    code, _, err = run("import", "excel", path, "-o", "-")
    assert (code, "there is no format 'excel'" in err) == (2, True)


def test_a_model_is_fitted_on_what_was_imported(tmp_path):
    """From a log of lm-eval to calibrated confidences, for an overconfident LLM."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(400):
        sure = rng.uniform(0.5, 1.0)
        target = 0 if rng.random() < 0.5 + (sure - 0.5) / 4 else 1
        doc = {"question": f"Is {number} the same as {number + target}?", "subject": "sums"}
        likelihoods = [math.log(sure), math.log(1 - sure)]
        rows.append(choice_row(number, ["yes", "no"], likelihoods, target, doc=doc, acc=float(target == 0)))
    path = write_lines(tmp_path / "org__llm" / "samples_quiz_2026-11-15T19-20-00.jsonl", rows)
    ok("import", "lm-eval", path, "-o", tmp_path / "records.parquet")
    ok("fit", tmp_path / "records.parquet", "-o", tmp_path / "model", "--partition", "column:subject")
    ok("apply", tmp_path / "model", tmp_path / "records.parquet", "-o", tmp_path / "out.parquet")
    out = pl.read_parquet(tmp_path / "out.parquet")
    before, after = ((out[name] - out["correct"]).mean() for name in ("confidence", "calibrated"))
    assert abs(after) < 0.05 < before
