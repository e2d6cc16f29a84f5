"""inspect_ai: two kinds of files, crashed runs, epochs, scorers, and where the confidence comes from."""

import json
import subprocess
import sys
import zipfile
from shlex import quote

import polars as pl
import pytest

from qacal.errors import InputError
from qacal.records.text_files import file_options
from qacal.sources.importers import Selection, import_log
from tests.sources.importers.logs import (
    CASES,
    HEADER,
    ZSTANDARD,
    inspect_epochs,
    sample,
    write_eval,
    write_json,
    write_member,
)

PARIS = CASES[0]
before_3_14 = pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python reads zstd by itself")
NO_TOKENS = "there are no token probabilities"


def imported(folder, *samples, keep_unscored=False, on_fault=None, **selection):
    path = write_eval(folder / "quiz.eval", samples)
    options = {} if on_fault is None else {"on_fault": on_fault}
    return import_log("inspect", [path], Selection(**selection), keep_unscored=keep_unscored, **options)


def only(folder, one, **options):
    found = imported(folder, one, **options)
    assert found.account.kept == 1
    return found.frame.to_dicts()[0]


def scored(value, **more):
    return {"match": {"value": value, "answer": "Paris", **more}}


def test_columns_of_a_record(tmp_path):
    assert only(tmp_path, sample(7, PARIS)) == {
        "id": "quiz:7",
        "question": "Capital of France?",
        "answer": "Paris",
        "confidence": 0.95,
        "confidence_source": "stated",
        "correct": 1.0,
        "ground_truth": "Paris",
        "model": "org/llm",
        "prompt": "Say how sure you are. {prompt}",
        "task": "quiz",
        "epoch": 1,
        "subject": "geography",
    }


def test_zstd_is_read(tmp_path):
    path = write_eval(tmp_path / "quiz.eval", [sample(7, PARIS)], method=ZSTANDARD)
    assert import_log("inspect", [path]).frame["answer"].to_list() == ["Paris"]


@before_3_14
def test_reading_zstd_does_not_change_zipfile(tmp_path):
    path = write_eval(tmp_path / "quiz.eval", [sample(7, PARIS)], method=ZSTANDARD)
    assert import_log("inspect", [path]).account.kept == 1
    with zipfile.ZipFile(path) as archive, pytest.raises(NotImplementedError, match="compression method"):
        archive.read("header.json")


WITHOUT_ZSTD = """
import sys

sys.modules["zstandard"] = None
from qacal.sources.importers import import_log
import_log("inspect", [sys.argv[1]])
"""


@before_3_14
def test_zstd_that_cannot_be_read_says_what_to_install(tmp_path):
    path = write_eval(tmp_path / "quiz.eval", [sample(7, PARIS)], method=ZSTANDARD)
    done = subprocess.run([sys.executable, "-c", WITHOUT_ZSTD, str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is compressed with zstd" in done.stderr
    assert f"{quote(sys.executable)} -m pip install -e '.[import]'" in done.stderr


@pytest.mark.parametrize("change", [{"CRC": 1}, {"file_size": 10}, {"file_size": 10_000}, {"header_offset": 3}])
def test_a_member_that_contradicts_the_index(tmp_path, change):
    path = tmp_path / "quiz.eval"
    with zipfile.ZipFile(path, "w") as archive:
        write_member(archive, "header.json", json.dumps(HEADER).encode(), ZSTANDARD)
        write_member(archive, "samples/7_epoch_1.json", json.dumps(sample(7, PARIS)).encode(), ZSTANDARD)
        for name, value in change.items():
            setattr(archive.infolist()[-1], name, value)
    with pytest.raises(InputError, match=r"samples/7_epoch_1\.json: it cannot be unpacked \("):
        import_log("inspect", [path])


def test_a_crashed_run_has_no_header(tmp_path):
    path = write_eval(tmp_path / "quiz.eval", [sample(7, PARIS)], header=None)
    assert import_log("inspect", [path]).frame["model"].to_list() == ["org/llm"]


def test_epochs_are_rows_of_one_question(tmp_path):
    found = imported(tmp_path, sample(7, PARIS), sample(7, PARIS, epoch=2)).frame
    assert found["id"].to_list() == ["quiz:7", "quiz:7"]
    assert found["epoch"].to_list() == [1, 2]


def test_epochs_that_failed_do_not_count_as_agreeing(tmp_path):
    (path,) = inspect_epochs(tmp_path)
    log = json.loads(path.read_text(encoding="utf-8"))
    log["samples"] += [
        sample(0, PARIS, epoch=3, output={"completion": "Lyon"}, scores=scored("I") | {"match": {"value": "I"}}),
        sample(0, PARIS, epoch=4, error={"message": "lost"}),
    ]
    found = import_log("inspect", [write_json(path, log)])
    of_first = found.frame.filter(pl.col("id") == "quiz:0").sort("epoch")
    assert of_first["answer"].to_list() == ["Paris", "Paris", "Lyon"]
    assert of_first["confidence"].to_list() == [2 / 3, 2 / 3, 1 / 3]
    assert found.account.dropped == {"the sample ended with an error": 1}
    # A stated confidence comes first; agreement is a further column.
    log["samples"] = [sample(at, PARIS, epoch=epoch) for at in (0, 1) for epoch in (1, 2)]
    stated = import_log("inspect", [write_json(path, log)]).frame
    assert stated.select("confidence", "agreement", "answers_entropy", "samples").rows() == [(0.95, 1.0, 0.0, 2)] * 4


def test_a_repeated_sample_counts_once(tmp_path):
    path = write_eval(tmp_path / "quiz.eval", [sample(7, PARIS, scores=scored("I"))])
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("samples/7_epoch_1.json", json.dumps(sample(7, PARIS)))
    assert import_log("inspect", [path]).frame["correct"].to_list() == [1.0]


@pytest.mark.parametrize(
    ("value", "correct"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        ("N", 0.0),
        (True, 1.0),
        (0.25, 0.25),
        ("yes", 1.0),
        ("0.5", 0.5),
        (None, None),
    ],
)
def test_scores_become_correct(tmp_path, value, correct):
    assert only(tmp_path, sample(7, PARIS, scores=scored(value)))["correct"] == correct


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"accuracy": 1}, "the score is an object, not one value"),
        (["C"], "the score is a list, not one value"),
        ("maybe", "the score is neither a number nor a word for correct or wrong"),
    ],
)
def test_scores_without_a_verdict_are_counted(tmp_path, value, why):
    found = imported(tmp_path, sample(7, PARIS), sample(8, PARIS, scores=scored(value)))
    assert found.account.dropped == {why: 1}


def test_one_scorer_is_the_label(tmp_path):
    scores = {
        "match": {"value": "I", "answer": "Paris"},
        "rubric": {"value": {"facts": 1, "tone": 0}, "answer": "Paris"},
    }
    one = sample(7, PARIS, scores=scores)
    with pytest.raises(InputError, match=r"there are several scorers: match, rubric\. Choose one with --metric\."):
        imported(tmp_path, one)
    with pytest.raises(InputError, match="there is no scorer 'includes'; the log has match, rubric"):
        imported(tmp_path, one, metric="includes")
    assert only(tmp_path, one, metric="match")["correct"] == 0.0
    assert only(tmp_path, one, metric="rubric:facts")["correct"] == 1.0


def test_a_scorer_on_another_scale_is_refused(tmp_path):
    """On a scale from 1 to 5, a 1 would count as correct, and the others would be dropped."""
    samples = [sample(at, PARIS, scores=scored(grade)) for at, grade in enumerate((1, 2, 5, 4, 1))]
    with pytest.raises(InputError, match=r"samples/1_epoch_1\.json: the scorer match is 2; expected 0 to 1"):
        imported(tmp_path, *samples)
    assert imported(tmp_path, *samples, correct_at=4).frame["correct"].to_list() == [0.0, 0.0, 1.0, 1.0, 0.0]


def test_errors_are_dropped(tmp_path):
    failed = sample(8, PARIS, error={"message": "timeout"})
    silent = sample(9, PARIS, output={"choices": []})
    found = imported(tmp_path, sample(7, PARIS), failed, silent)
    assert found.account.dropped == {"the sample ended with an error": 1, "there is no reply": 1}


LOGPROBS = {
    "content": [{"token": token, "logprob": -0.5} for token in ("Guess:", " Par", "is", "\n", "Probability: 0.95")]
}


def with_tokens(**changes):
    one = sample(7, PARIS, **changes)
    one["output"]["choices"][0]["logprobs"] = LOGPROBS
    return one


def test_confidences_are_looked_for_in_order(tmp_path):
    metadata = {"subject": "geography", "confidence": 0.3}
    in_score = scored("C", metadata={"confidence": 0.2})
    rows = [
        only(tmp_path, with_tokens(metadata=metadata, scores=in_score)),
        only(tmp_path, with_tokens(metadata=metadata)),
        only(tmp_path, with_tokens()),
        only(tmp_path, with_tokens(), confidence_from="tokens"),
    ]
    tokens = pytest.approx(0.36787944)  # two tokens of exp(-.5) each
    assert [row["confidence"] for row in rows] == [0.2, 0.3, 0.95, tokens]
    assert [row["confidence_source"] for row in rows] == ["metadata", "metadata", "stated", "tokens"]
    all_of_them = [rows[0][f"confidence_{name}"] for name in ("metadata", "stated", "tokens")]
    assert all_of_them == [0.2, 0.95, tokens]


def test_the_confidence_of_another_scorer_is_not_used(tmp_path):
    """A judge's confidence in its verdict is not a confidence in the answer."""
    judge = {"value": "C", "answer": "Paris", "metadata": {"confidence": 0.2}}
    one = sample(7, PARIS, scores={**scored("C"), "judge": judge})
    assert only(tmp_path, one, metric="match")["confidence"] == 0.95
    assert only(tmp_path, one, metric="judge")["confidence"] == 0.2
    row = only(tmp_path, one, metric="judge", confidence_from="stated")
    assert (row["confidence"], row["confidence_source"]) == (0.95, "stated")


@pytest.mark.parametrize("reason", ["max_tokens", "model_length"])
def test_a_cut_reply_is_not_read(tmp_path, reason):
    said = "Guess: Paris\nProbability: 0"
    choice = {"message": {"content": said}, "stop_reason": reason}
    cut = sample(7, PARIS, output={"completion": said, "choices": [choice]})
    whole = sample(8, PARIS, output={"completion": said, "choices": [{**choice, "stop_reason": "stop"}]})
    found = imported(tmp_path, cut, whole)
    assert (found.frame["id"].to_list(), found.frame["confidence"].to_list()) == (["quiz:8"], [0.0])
    assert found.account.dropped == {"no confidence: none in the metadata; the reply is cut off; " + NO_TOKENS: 1}


def test_a_source_that_is_not_there_is_not_replaced(tmp_path):
    found = imported(tmp_path, with_tokens(), sample(8, PARIS), confidence_from="tokens")
    assert found.account.dropped == {"no confidence: there are no token probabilities": 1}


def test_percents_are_read_if_declared(tmp_path):
    one = sample(7, PARIS, metadata={"confidence": 95})
    assert only(tmp_path, one, confidence_from="metadata", percent=True)["confidence"] == 0.95
    with pytest.raises(InputError, match=r"the metadata is 95; .*If these are percents, pass --percent\."):
        imported(tmp_path, one, confidence_from="metadata")


def test_a_source_on_another_scale_is_refused_unless_another_is_chosen(tmp_path):
    """A 1 that means one percent must reach neither the confidence nor a column."""
    samples = [sample(at, PARIS, metadata={"confidence": number}) for at, number in enumerate((95, 80, 1, 0, 60, 1))]
    for kept in (False, True):
        with pytest.raises(InputError, match=r"in the metadata is 95; .* chosen with --confidence-from"):
            imported(tmp_path, *samples, keep_unscored=kept)
    found = imported(tmp_path, *samples, confidence_from="stated")
    assert found.frame["confidence"].to_list() == [0.95] * 6
    assert "confidence_metadata" not in found.frame.columns
    assert imported(tmp_path, *samples, percent=True).frame["confidence"].to_list() == [0.95, 0.8, 0.01, 0, 0.6, 0.01]


def test_letters_of_choices_become_texts(tmp_path):
    output = {
        "completion": "ANSWER: B",
        "choices": [
            {
                "message": {"content": "ANSWER: B"},
                "logprobs": {"content": [{"token": "ANSWER:", "logprob": -0.1}, {"token": " B", "logprob": -0.5}]},
            }
        ],
    }
    one = sample(
        7, PARIS, choices=["Rome", "Paris"], target="B", output=output, scores={"choice": {"value": "C", "answer": "B"}}
    )
    row = only(tmp_path, one)
    assert (row["answer"], row["ground_truth"]) == ("Paris", "Paris")
    assert row["confidence"] == pytest.approx(0.60653066)


def test_an_answer_that_is_the_whole_reply_is_parsed(tmp_path):
    whole = {"includes": {"value": "C", "answer": "guess: paris\nprobability: 0.95"}}
    assert only(tmp_path, sample(7, PARIS, scores=whole))["answer"] == "Paris"


def test_long_questions_are_stored_as_attachments(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "attachment://abc"}]
    one = sample(7, PARIS, input=chat, attachments={"abc": "A long question?"})
    assert only(tmp_path, one)["question"] == "A long question?"


def test_files_that_are_not_logs_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not mention an eval"):
        import_log("inspect", [write_json(tmp_path / "other.json", {"samples": [sample(7, PARIS)]})])
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps({**HEADER, "samples": [sample(7, PARIS)]})[:-40])
    with pytest.raises(InputError, match=r"cut\.json cannot be read as JSON.*Is the file whole\?"):
        import_log("inspect", [cut])
    with zipfile.ZipFile(tmp_path / "empty.eval", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match=r"neither header\.json nor _journal/start\.json"):
        import_log("inspect", [tmp_path / "empty.eval"])


@pytest.mark.parametrize("packing", ["stored", "deflated", "zstd"])
def test_a_damaged_sample_is_one_bad_row(tmp_path, packing):
    methods = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}
    method = methods.get(packing, ZSTANDARD)
    path = write_eval(tmp_path / "quiz.eval", [sample(7, PARIS), sample(8, PARIS)], method=method)
    raw = path.read_bytes()
    where = raw.index(b"samples/8_epoch_1.json") + 100
    path.write_bytes(raw[:where] + b"XXXXXXX" + raw[where + 7 :])
    with pytest.raises(InputError, match=r"quiz\.eval samples/8_epoch_1\.json: it cannot be unpacked"):
        import_log("inspect", [path])
    assert import_log("inspect", [path], on_fault=lambda fault: None, max_bad=0.5).account.dropped == {
        "the row is faulty": 1
    }


def test_names_of_members_lead_nowhere(tmp_path):
    """A member called ../../x is not a sample, and nothing is written to disk."""
    path = write_eval(tmp_path / "in" / "quiz.eval", [sample(7, PARIS)])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samples/../../../escaped_epoch_1.json", json.dumps(sample(9, PARIS)))
    before = sorted(tmp_path.rglob("*"))
    assert import_log("inspect", [path]).account.kept == 2
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, ZSTANDARD])
def test_a_member_that_decompresses_to_too_much_is_a_bad_row(tmp_path, method):
    samples = [sample(7, PARIS), sample(8, PARIS, note="0" * 200_000)]
    path = write_eval(tmp_path / "quiz.eval", samples, method=method)
    assert path.stat().st_size < 5_000
    faults = []
    with file_options(max_row_mb=0.1):
        found = import_log("inspect", [path], on_fault=faults.append, max_bad=0.5)
    assert found.account.kept == 1
    assert "is larger than 0.1 MB; if you trust the file, allow more: qacal --max-row-mb" in str(faults[0])
    assert import_log("inspect", [path]).account.kept == 2
