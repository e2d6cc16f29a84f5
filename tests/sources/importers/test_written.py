"""Files that the tools themselves wrote (see `written/README.md`): toy questions, scripted LLMs, current versions."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

import qacal
from qacal.errors import InputError
from qacal.sources.importers import Selection, import_log
from tests.sources.importers.logs import write_json

WRITTEN = Path(__file__).parent / "written"


def imported(format_, *names, **selection):
    return import_log(format_, [WRITTEN / name for name in names], Selection(**selection))


def rows_of(found, *columns):
    return found.frame.select(columns).rows()


@pytest.mark.parametrize(
    ("filter_", "rows"),
    [
        ("score-first", [("7", 2 / 3, 1.0), ("25", 1 / 3, 1.0), ("30", 2 / 3, 1.0)]),
        ("maj@3", [("7", 2 / 3, 1.0), ("35", 2 / 3, 0.0), ("30", 2 / 3, 1.0)]),
        ("maj@2", [("7.", 1.0, 0.0), ("25.", 0.5, 0.0), ("30.", 0.5, 0.0)]),
    ],
)
def test_lm_eval_repeats_with_a_pattern(filter_, rows):
    """As in gsm8k_cot_self_consistency: the share of repeats in which the filter finds the judged answer."""
    found = imported("lm-eval", "lm_eval", filter=filter_)
    assert rows_of(found, "answer", "confidence", "correct") == rows
    assert set(found.frame["confidence_source"]) == {"agreement"}
    assert set(found.frame["model"]) == {"toy"}
    others = {f"it is of the filter {name}": 4 for name in {"score-first", "maj@3", "maj@2"} - {filter_}}
    assert found.account.dropped == others | {"no confidence: the filter found no answer in what was judged": 1}


def test_inspect_epochs_agree():
    """Two questions in three epochs, compressed with zstd: each epoch is a row, with the share of epochs that agree."""
    found = imported("inspect", "inspect/quiz_epochs.eval")
    rows = sorted(rows_of(found, "id", "epoch", "answer", "confidence", "correct"))
    assert rows == [
        ("quiz:1", 1, "7", 2 / 3, 1.0),
        ("quiz:1", 2, "7", 2 / 3, 1.0),
        ("quiz:1", 3, "8", 1 / 3, 0.0),
        ("quiz:2", 1, "25", 1 / 3, 1.0),
        ("quiz:2", 2, "35", 2 / 3, 0.0),
        ("quiz:2", 3, "35", 2 / 3, 0.0),
    ]
    assert set(found.frame["confidence_source"]) == {"agreement"}
    # qacal agree keeps one row per question, and counts the same.
    agreed = qacal.agree(found.frame).sort("id")
    columns = ["id", "answer", "confidence", "agreement", "answers_entropy", "samples", "correct"]
    entropy = pytest.approx(math.log(3) - 2 / 3 * math.log(2))
    assert agreed.select(columns).rows() == [
        ("quiz:1", "7", 2 / 3, 2 / 3, entropy, 3, 1.0),
        ("quiz:2", "35", 2 / 3, 2 / 3, entropy, 3, 0.0),
    ]
    assert all(row in found.frame.to_dicts() for row in agreed.to_dicts())


def test_promptfoo_log_probabilities():
    """The log has numbers without tokens: they are the answer's if the reply is only the answer."""
    found = imported("promptfoo", "promptfoo/out.jsonl")
    tokens = pytest.approx(math.exp(-0.2))
    assert rows_of(found, "answer", "confidence", "confidence_source", "correct") == [
        ("Paris", tokens, "tokens", 1.0),
        ("Madrid", tokens, "tokens", 1.0),
        ("Milan", tokens, "tokens", 0.0),
        ("Paris", 0.8, "stated", 0.0),
    ]
    by_tokens = imported("promptfoo", "promptfoo/out.jsonl", confidence_from="tokens")
    assert by_tokens.account.dropped == {"no confidence: it is unclear which tokens spell the answer": 1}


def test_langfuse_from_its_sdk():
    """Names like traceId, rows under `data`; `subject` of a score is an observation or a trace."""
    found = imported("langfuse", "langfuse/observations.json", "langfuse/scores.json")
    assert rows_of(found, "answer", "confidence", "correct", "judge", "model", "subject", "trace_id") == [
        ("Paris", 0.95, 1.0, "human", "llm", "geography", "trace-0"),
        ("5", 0.8, 0.0, "human", "llm", "arithmetic", "trace-1"),
        ("Goethe", 0.6, 1.0, "human", "llm", "letters", "trace-2"),
    ]


def test_langfuse_scores_without_a_subject_are_refused(tmp_path):
    page = json.loads((WRITTEN / "langfuse/scores.json").read_text(encoding="utf-8"))
    for score in page["data"]:
        del score["subject"]
    path = write_json(tmp_path / "scores.json", page)
    with pytest.raises(InputError, match=r"do not say which observation or trace they judge.*fields=\"subject\""):
        import_log("langfuse", [WRITTEN / "langfuse/observations.json", path])


def test_deepeval_conversations():
    found = imported("deepeval", "deepeval/test_run_conversations.json")
    assert rows_of(found, "question", "answer", "confidence", "correct", "subject", "expected_outcome") == [
        (
            "user: I have a question about capitals.\nassistant: Ask.\nuser: Capital of France?",
            *("Paris", 0.95, 1.0, "geography", "Paris"),
        ),
        ("2+2?", "5", 0.8, 0.0, "arithmetic", "4"),
        ("user: Who wrote it?\nassistant: Who wrote what?\nuser: «Faust».", "Goethe", 0.6, 1.0, "letters", "Goethe"),
    ]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_mlflow_frames(tmp_path, ending):
    """As pandas writes them: to_json(orient="records", lines=True), and to_csv, with nested values as Python."""
    path = WRITTEN / "mlflow/traces.jsonl"
    if ending == "csv":
        path = tmp_path / "traces.csv"
        pd.read_json(WRITTEN / "mlflow/traces.jsonl", lines=True).to_csv(path, index=False)
    found = import_log("mlflow", [path])
    assert sorted(rows_of(found, "answer", "confidence", "correct", "ground_truth", "model", "subject", "judge")) == [
        ("5", 0.8, 0.0, "4", "llm", "arithmetic", "human"),
        ("Goethe", 0.6, 1.0, "Goethe", "llm", "letters", "human"),
        ("Paris", 0.95, 1.0, "Paris", "llm", "geography", "human"),
    ]
