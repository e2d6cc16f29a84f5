"""The contract of all formats: the same three answers come out, and the counts add up."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from qacal.errors import InputError
from qacal.sources.importers import FORMATS, Selection, import_log
from tests.sources.importers import logs
from tests.sources.importers.logs import CASES

LOGS = {
    "lm-eval": ("lm-eval", logs.lm_eval, "choice likelihood"),
    "lm-eval repeats": ("lm-eval", logs.lm_eval_repeats, "agreement"),
    "inspect .eval": ("inspect", logs.inspect_eval, "stated"),
    "inspect .json": ("inspect", logs.inspect_json, "stated"),
    "openai-batch": ("openai-batch", logs.openai_batch, "stated"),
    "promptfoo .json": ("promptfoo", logs.promptfoo_json, "stated"),
    "promptfoo .jsonl": ("promptfoo", logs.promptfoo_lines, "stated"),
    "langfuse": ("langfuse", logs.langfuse, "stated"),
    "mlflow .json": ("mlflow", logs.mlflow_json, "stated"),
    "mlflow .jsonl": ("mlflow", logs.mlflow_lines, "stated"),
    "mlflow .parquet": ("mlflow", logs.mlflow_parquet, "stated"),
    "deepeval": ("deepeval", logs.deepeval, "metadata"),
    "deepeval conversations": ("deepeval", logs.deepeval_conversations, "metadata"),
}
KINDS = list(LOGS)


def selection_of(kind, folder):
    if kind == "openai-batch":
        return Selection(labels=folder / "labels" / "labels.jsonl")
    return Selection()


def imported(kind, folder, **options):
    format_, write, _ = LOGS[kind]
    return import_log(format_, write(folder), selection_of(kind, folder), **options)


def test_every_format_is_here():
    assert {format_ for format_, _, _ in LOGS.values()} == set(FORMATS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_answers_come_out(kind, tmp_path):
    found = imported(kind, tmp_path)
    rows = {row["question"]: row for row in found.frame.to_dicts()}
    assert set(rows) == {case.question for case in CASES}
    for case in CASES:
        row = rows[case.question]
        assert row["answer"] == case.answer
        assert row["confidence"] == pytest.approx(case.confidence, abs=1e-12)
        assert row["confidence_source"] == LOGS[kind][2]
        assert row["correct"] == case.correct
        assert row["ground_truth"] == case.truth
        assert row["subject"] == case.subject


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_of_the_same_types_everywhere(kind, tmp_path):
    schema = imported(kind, tmp_path).frame.schema
    assert list(schema)[:6] == ["id", "question", "answer", "confidence", "confidence_source", "correct"]
    assert list(schema.values())[:6] == [pl.String, pl.String, pl.String, pl.Float64, pl.String, pl.Float64]


def test_columns_without_any_value_have_their_type(tmp_path):
    path = logs.write_lines(tmp_path / "rows.jsonl", [logs.deepeval_case(0, CASES[0], metricsData=[], metadata={})])
    schema = import_log("deepeval", [path], keep_unscored=True).frame.schema
    assert (schema["confidence"], schema["confidence_source"], schema["correct"]) == (pl.Float64, pl.String, pl.Float64)


@pytest.mark.parametrize("kind", KINDS)
def test_the_counts_add_up(kind, tmp_path):
    found = imported(kind, tmp_path)
    assert (found.account.read, found.account.kept, found.account.dropped) == (3, 3, {})
    assert found.account.sources == {LOGS[kind][2]: 3}
    assert found.account.labelled == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_has_one_id_in_every_run(kind, tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    ids = [imported(kind, folder).frame["id"].to_list() for folder in folders]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_named_twice_is_refused(kind, tmp_path):
    format_, write, _ = LOGS[kind]
    paths = write(tmp_path)
    # The last file has the rows; requests of a batch come first.
    with pytest.raises(InputError, match="two rows of"):
        import_log(format_, [*paths, paths[-1]], selection_of(kind, tmp_path))


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind not in ("inspect .eval", "mlflow .parquet")],
)
def test_files_packed_with_gzip_are_read(kind, tmp_path):
    format_, write, _ = LOGS[kind]
    packed = []
    for path in map(Path, write(tmp_path)):
        packed.append(path.with_name(path.name + ".gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert import_log(format_, packed, selection_of(kind, tmp_path)).account.kept == 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith((".jsonl", "batch")) or "lm-eval" in kind])
def test_a_broken_line_is_named_or_counted(kind, tmp_path):
    format_, write, _ = LOGS[kind]
    paths = write(tmp_path)
    with Path(paths[-1]).open("a") as file:
        file.write('{"doc_id": 3, "resps\n{"something": "else"}\n')
    with pytest.raises(InputError, match=r"\.jsonl line 4: the line is not JSON"):
        import_log(format_, paths, selection_of(kind, tmp_path))
    faults = []
    found = import_log(format_, paths, selection_of(kind, tmp_path), on_fault=faults.append, max_bad=0.5)
    assert [fault.place for fault in faults] == ["line 4", "line 5"]
    assert (found.account.read, found.account.kept, found.account.dropped) == (5, 3, {"the row is faulty": 2})


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who wrote it?"},
    {"role": "assistant", "content": "Who wrote what?"},
    {"role": "user", "content": "«Faust»."},
]


def chat_lm_eval(folder):
    row = logs.reply_row(0, [logs.reply(CASES[0])], "Paris", doc={"label": 0})
    row["arguments"]["gen_args_0"]["arg_0"] = [json.dumps(CHAT)]
    return [logs.write_lines(folder / "llm" / "samples_quiz.jsonl", [row])]


def chat_batch(folder):
    request = logs.batch_request("q", "?")
    request["body"]["messages"] = CHAT
    response = logs.batch_response("q", logs.reply(CASES[0]))
    return [logs.write_lines(folder / "in.jsonl", [request]), logs.write_lines(folder / "out.jsonl", [response])]


CHATS = {
    "lm-eval": chat_lm_eval,
    "inspect": lambda folder: [logs.write_eval(folder / "quiz.eval", [logs.sample(0, CASES[0], input=CHAT)])],
    "openai-batch": chat_batch,
    "promptfoo": lambda folder: [
        logs.write_lines(
            folder / "out.jsonl",
            [logs.promptfoo_result(0, CASES[0], vars={"topic": "letters"}, prompt={"raw": json.dumps(CHAT)})],
        )
    ],
    "langfuse": lambda folder: [
        logs.write_lines(folder / "observations.jsonl", [logs.observation(0, CASES[0], input=json.dumps(CHAT))])
    ],
    "mlflow": lambda folder: [
        logs.write_lines(folder / "traces.jsonl", [logs.trace(0, CASES[0], request=json.dumps({"messages": CHAT}))])
    ],
    "deepeval": lambda folder: [
        logs.write_json(
            folder / "test_run_1.json",
            {"conversationalTestCases": [{"turns": [*CHAT, {"role": "assistant", "content": logs.reply(CASES[0])}]}]},
        )
    ],
}


@pytest.mark.parametrize("format_", CHATS)
def test_a_chat_of_several_turns_is_the_question_and_is_reported(format_, tmp_path):
    """The last turn alone is not the question: two chats with the same last turn are two questions."""
    paths = CHATS[format_](tmp_path)
    whole = import_log(format_, paths)
    assert whole.frame["question"].to_list() == ["user: Who wrote it?\nassistant: Who wrote what?\nuser: «Faust»."]
    assert "Questions that are a whole chat of several turns: 1. --last-turn" in str(whole.account)
    last = import_log(format_, paths, Selection(last_turn=True))
    assert last.frame["question"].to_list() == ["«Faust»."]
    assert "several turns" not in str(last.account)


def test_an_option_that_a_format_does_not_use_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"deepeval has no filter to choose \(--filter\); it takes confidence-from"):
        import_log("deepeval", logs.deepeval(tmp_path), Selection(filter="strict"))
    with pytest.raises(InputError, match="mlflow has no confidence from 'tokens'; it has metadata, stated"):
        import_log("mlflow", logs.mlflow_lines(tmp_path), Selection(confidence_from="tokens"))


def test_unknown_formats_and_files_list_the_known_ones(tmp_path):
    with pytest.raises(InputError, match="there is no format 'excel'; there are lm-eval"):
        import_log("excel", [tmp_path])
    with pytest.raises(InputError, match="does not exist"):
        import_log("lm-eval", [tmp_path / "nowhere.jsonl"])
