"""The answers shipped with the quiz: real answers to the current questions, labelled by the current ground truth."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from tools.local_llm import MODELS

from qacal import load
from qacal.planning import shown_bound
from qacal.sources.elicitation import matches
from qacal.sources.questions.quiz import answers, provenance, questions
from tests.cli.test_cli import ok

ROWS = answers()


def test_they_answer_the_questions_of_the_quiz():
    joined = ROWS.join(questions(), on="id", how="left")
    assert joined["question_right"].null_count() == 0
    assert (joined["question"] == joined["question_right"]).all()
    assert (joined["subject"] == joined["subject_right"]).all()
    assert ROWS["id"].is_unique().all()
    assert len(ROWS) >= 0.99 * len(questions())


def test_labels_match_the_current_ground_truth():
    """If facts have been corrected since: python -m benchmarks.quiz_answers labels the answers again."""
    joined = ROWS.join(questions().select("id", "ground_truth"), on="id")
    wrong = [
        (row["question"], row["answer"], row["correct"])
        for row in joined.iter_rows(named=True)
        if matches(row["answer"], row["ground_truth"], row["question"]) != bool(row["correct"])
    ]
    assert wrong == []


def test_they_look_like_those_of_an_llm():
    """Topics differ, confidences have ties, and token probabilities are more informative than stated confidences."""
    by_topic = ROWS.group_by("subject").agg(pl.mean("correct"))["correct"]
    assert len(by_topic) >= 40
    assert by_topic.min() < 0.2
    assert by_topic.max() > 0.9
    assert 4 <= ROWS["confidence"].n_unique() <= 60
    assert ROWS["confidence"].is_between(0, 1).all()
    assert ROWS["confidence_tokens"].drop_nulls().is_between(0, 1).all()
    mean = {name: ROWS.group_by("correct").agg(pl.mean(name)).sort("correct")[name] for name in ROWS.columns[4:6]}
    assert mean["confidence_tokens"][1] - mean["confidence_tokens"][0] > mean["confidence"][1] - mean["confidence"][0]


def test_their_source_is_documented():
    said = provenance()
    assert said["model"] == ROWS["model"].unique().item()
    assert said["prompt"] == ROWS["prompt"].unique().item()
    assert said["weights_sha256"] == MODELS["qwen2.5-1.5b"].digest
    assert said["stated"] == len(ROWS)
    assert said["questions"] == len(questions())


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the demo prints, line by line, and where it writes."""
    folder = tmp_path_factory.mktemp("quiz") / "demo"
    script = ROOT / "examples" / "demo.py"
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines(), folder


def measured(lines, name):
    """The three numbers of a line of the demo's second table."""
    (line,) = [line for line in lines if line.startswith(name)]
    return [float(number) for number in line.removeprefix(name).split()[-3:]]


def test_the_demo_runs_and_says_what_next(demo):
    lines, folder = demo
    assert f"The report: {folder / 'report.html'}" in lines
    assert (folder / "report.html").stat().st_size > 100_000
    said, plain, tokens = measured(lines, "Brier score")
    assert tokens < plain < said
    assert any("train.csv -o model --no-columns" in line for line in lines)
    assert "needs a server that gives log-probabilities" in " ".join(lines)


def test_the_demo_fits_a_terminal_of_80_columns(demo):
    lines, folder = demo
    usual = [re.sub(r"\S*/qacal ", ".venv/bin/qacal ", line.replace(str(folder), "demo")) for line in lines]
    assert max(map(len, usual)) < 80


def test_the_demos_topics_are_sorted_by_overconfidence(demo):
    lines, _ = demo
    first = next(at for at, line in enumerate(lines) if line.startswith("topic  "))
    assert lines[first - 2].endswith("most overconfident topics first:")
    rows = [line.split() for line in lines[first + 1 : first + 42]]
    assert len({row[0] for row in rows}) == 41
    overclaims = [float(row[3]) - float(row[2]) for row in rows]
    assert all(one >= other - 0.011 for one, other in pairwise(overclaims))
    assert overclaims[-1] < 0


def test_the_demos_columns_are_what_the_commands_give(demo, tmp_path):
    """One is `qacal fit --no-columns`, the other `qacal fit`, which finds the token probability."""
    lines, folder = demo
    kept = folder / "test.parquet"
    for place, options in ((1, ("--no-columns",)), (2, ())):
        ok("fit", folder / "train.parquet", "-o", tmp_path / "model", *options)
        found = json.loads(ok("evaluate", kept, "--model", tmp_path / "model", "--groups", "subject", "--json"))
        assert round(found["after"]["brier"], 3) == measured(lines, "Brier score")[place]
        error = max(0.0, found["after"]["error_by_group"]["debiased"])
        assert round(error, 3) == measured(lines, "error within topics")[place]


def test_the_demo_says_what_is_certified(demo):
    lines, folder = demo
    found = load(folder / "model").calibrate(pl.read_parquet(folder / "test.parquet"))
    assert {*found["source"]} == {"band", "far"}
    bound = pl.max_horizontal(pl.col("high") - pl.col("calibrated"), pl.col("calibrated") - pl.col("low"))
    text, readme = " ".join(lines), " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"similar answers are off by at most {shown_bound(found.select(bound.median()).item())} on average" in text
    assert f"similar ones are off by at most {shown_bound(found.select(bound.median()).item())} on average" in readme
    width = found.select((pl.col("group_high") - pl.col("group_low")).median() / 2).item()
    assert f"qacal made {found['group'].n_unique()} groups of similar texts" in text
    assert f"the accuracy of their group is known to ±{shown_bound(width)}." in text


def test_the_readme_shows_what_the_demo_measures(demo):
    lines, folder = demo
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    stated, plain, tokens = measured(lines, "Brier score")
    assert f"the Brier score from {stated:.3f} to {plain:.3f}, and to {tokens:.3f} if" in readme
    kept = pl.read_parquet(folder / "test.parquet")
    assert f"measures on the other {len(kept):,}," in readme
    train = len(pl.read_parquet(folder / "train.parquet"))
    assert f"fits on two thirds of the questions ({train:,} answers)" in readme
    assert f"had {train:,} of them with labels," in " ".join(lines)
    assert f"0.9 or more for {(kept['confidence'] > 0.89).mean():.0%} of these answers" in readme
    binary = kept.filter(subject="binary-to-number")["correct"].mean()
    assert f"{binary:.0%} of the binary numbers right" in readme


def test_the_report_shows_what_the_demo_measures(demo):
    lines, folder = demo
    report = (folder / "report.html").read_text(encoding="utf-8")
    shown = re.search(r"typical error within groups.*?</tr>", report, flags=re.DOTALL).group()
    numbers = [float(number) for number in re.findall(r"<td[^>]*>(?:<strong>)?(\d\.\d{3})", shown)]
    assert numbers[::2] == measured(lines, "error within topics")[:2]
