"""`qacal questions` as a person uses it, without the hub."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from qacal.sources.elicitation.question import read_questions
from qacal.sources.questions import COLUMNS
from qacal.sources.questions.quiz import questions
from tests.cli.test_cli import ok, run


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_the_quiz_needs_no_download_and_can_be_asked(tmp_path, ending):
    path = tmp_path / f"questions.{ending}"
    code, printed, said = run("questions", "quiz", "-o", path)
    assert (code, printed) == (0, ""), said
    assert said == f"Questions of quiz: {len(questions()):,}.\n"
    asked = list(read_questions(path))
    whole = questions().rows(named=True)
    assert [(one.id, one.text, one.ground_truth) for one in asked] == [
        (row["id"], row["question"], tuple(row["ground_truth"])) for row in whole
    ]
    assert [one.choices for one in asked] == [tuple(row["choices"]) if row["choices"] else None for row in whole]


def test_columns_are_those_of_every_benchmark(tmp_path):
    assert run("questions", "quiz", "-o", tmp_path / "quiz.parquet")[0] == 0
    assert pl.read_parquet(tmp_path / "quiz.parquet").equals(questions().select(COLUMNS))


def test_a_few_questions_on_standard_output():
    code, printed, said = run("questions", "quiz", "--limit", "50")
    assert code == 0
    rows = [json.loads(line) for line in printed.splitlines()]
    assert len(rows) == 50
    assert len({row["subject"] for row in rows}) > 15
    assert said == f"Questions of quiz: 50 of {len(questions()):,}.\n"


def test_wrong_use_and_missing_packages_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    out = tmp_path / "questions.parquet"
    for arguments, code, said in (
        (("squad",), 2, "NAME is 'squad'; expected one of quiz, triviaqa, sciq, bigbench, openbookqa, mmlu."),
        (("quiz", "--split", "test"), 2, "the quiz has no such option; leave out --split."),
        (("quiz", "--no-choices"), 2, "leave out --choices and --no-choices."),
        (("quiz", "--from", "elsewhere"), 2, "leave out --from."),
        (("quiz", "--limit", "0"), 2, "--limit"),
        (("bigbench",), 1, "name yours: --task NAME"),
        (
            ("sciq",),
            1,
            "qacal: sciq: the package datasets is not installed; run in the clone of qacal: ",
        ),
    ):
        got, printed, error = run("questions", *arguments, "-o", out)
        assert (got, printed) == (code, ""), arguments
        assert said in " ".join(error.split()), arguments
        assert "Traceback" not in error
    assert run("questions", "quiz", "-o", tmp_path / "questions.txt")[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_answers_in_csv_is_written_as_the_docs_have_it(tmp_path):
    docs = (Path(__file__).parents[3] / "docs" / "questions.md").read_text(encoding="utf-8")
    lines = docs.partition("    question,ground_truth\n")[2].partition("\n\n")[0].splitlines()
    sums, capitals = (line.strip() for line in lines)
    rows = [f"{sums},4", f"{sums},FOUR", f"{sums},5", f"{capitals},Oslo"]
    (tmp_path / "rows.csv").write_text("\n".join(["question,ground_truth,answer", *rows]))
    ok("judge", tmp_path / "rows.csv", "-o", tmp_path / "judged.csv")
    assert pl.read_csv(tmp_path / "judged.csv")["correct"].to_list() == [1, 1, 0, 1]
