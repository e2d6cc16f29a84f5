"""The answers that are kept with the quiz: real ones, to today's questions, with labels by today's truth."""

import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from qacal.elicitation import matches
from qacal.local_llm import MODELS
from qacal.quiz import answers, provenance, questions

ROWS = answers()


def test_they_answer_the_questions_of_the_quiz():
    joined = ROWS.join(questions(), on="id", how="left")
    assert joined["question_right"].null_count() == 0
    assert (joined["question"] == joined["question_right"]).all()
    assert (joined["subject"] == joined["subject_right"]).all()
    assert ROWS["id"].is_unique().all()
    assert len(ROWS) >= 0.99 * len(questions())


def test_labels_are_those_of_todays_truth():
    """If facts were mended since: python -m benchmarks.quiz_answers makes the labels anew."""
    joined = ROWS.join(questions().select("id", "ground_truth"), on="id")
    wrong = [
        (row["question"], row["answer"], row["correct"])
        for row in joined.iter_rows(named=True)
        if matches(row["answer"], row["ground_truth"], row["question"]) != bool(row["correct"])
    ]
    assert wrong == []


def test_they_are_an_llms():
    """Topics differ, confidences repeat as stated ones do, and tokens tell more than the stated number."""
    by_topic = ROWS.group_by("subject").agg(pl.mean("correct"))["correct"]
    assert len(by_topic) >= 40
    assert by_topic.min() < 0.2
    assert by_topic.max() > 0.9
    assert 4 <= ROWS["confidence"].n_unique() <= 60
    assert ROWS["confidence"].is_between(0, 1).all()
    assert ROWS["confidence_tokens"].drop_nulls().is_between(0, 1).all()
    mean = {name: ROWS.group_by("correct").agg(pl.mean(name)).sort("correct")[name] for name in ROWS.columns[4:6]}
    assert mean["confidence_tokens"][1] - mean["confidence_tokens"][0] > mean["confidence"][1] - mean["confidence"][0]


def test_it_is_told_where_they_are_from():
    said = provenance()
    assert said["model"] == ROWS["model"].unique().item()
    assert said["prompt"] == ROWS["prompt"].unique().item()
    assert said["weights_sha256"] == MODELS["qwen2.5-1.5b"].digest
    assert said["stated"] == len(ROWS)
    assert said["questions"] == len(questions())


@pytest.mark.parametrize("folder", ["demo"])
def test_the_demo_runs_and_says_what_next(tmp_path, folder):
    script = Path(__file__).parents[2] / "examples" / "demo.py"
    done = subprocess.run([sys.executable, script, tmp_path / folder], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    brier = next(line.split() for line in lines if line.startswith("Brier score"))
    assert float(brier[-1]) < float(brier[-2])
    assert f"The report: {tmp_path / folder / 'report.html'}" in lines
    assert (tmp_path / folder / "report.html").stat().st_size > 100_000
    within = next(line.split() for line in lines if line.startswith("error within topics"))
    report = (tmp_path / folder / "report.html").read_text(encoding="utf-8")
    shown = re.search(r"within each group.*?</tr>", report, flags=re.DOTALL).group()
    assert within[-2:] == [*re.findall(r"<td[^>]*>(?:<strong>)?(\d\.\d{3})", shown)][::2]
    assert "right" in lines[3]
    assert len([line for line in lines if line.startswith("capitals")]) == 1
