"""qacal elicit, answers and judge as a person uses them, against a real server process."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from qacal.cli import elicit as cli_elicit
from qacal.sources.elicitation.asking import Progress
from tests.cli.test_cli import ok, run
from tests.sources.elicitation.serving import questions, serving


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "server") as found:
        yield found


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row | {"topic": "numbers"}) + "\n" for row in questions(8)))
    return path


def elicit(rows, server, tmp_path, *more):
    return run("elicit", rows, "--base-url", server.base_url, "--model", "tiny", "-o", tmp_path / "run.db", *more)


def test_from_questions_to_labelled_answers(rows, server, tmp_path):
    code, out, err = elicit(rows, server, tmp_path)
    assert (code, out) == (0, "")
    assert "8 requests made, 0 already had a reply, 0 failed." in err
    assert "8 questions: 8 of 8 guesses have a confidence." in err
    assert f"Next: qacal judge {tmp_path / 'run.db'}" in err
    ok("answers", tmp_path / "run.db", "-o", tmp_path / "answers.parquet")
    found = pl.read_parquet(tmp_path / "answers.parquet")
    assert found["topic"].to_list() == ["numbers"] * 8
    assert found.schema["ground_truth"] == pl.List(pl.String)
    code, _, err = run("judge", tmp_path / "run.db", "-o", tmp_path / "labelled.csv")
    assert code == 0
    assert "8 answers: 8 labelled, 8 of them correct." in err
    labelled = pl.read_csv(tmp_path / "labelled.csv")
    assert labelled["correct"].to_list() == [1.0] * 8
    assert labelled["judge"].to_list() == ["alias"] * 8


def test_a_dry_run_asks_nothing_and_writes_nothing(rows, server, tmp_path):
    code, out, err = elicit(rows, server, tmp_path, "--dry-run")
    assert code == 0
    assert out.startswith("[user] Provide your best guess")
    assert "What is number 0?" in out
    assert "What is number 1?" not in out
    assert "8 questions, 8 requests: about " in err
    assert "at most 800 to receive. Nothing was asked." in err
    assert server.asked == []
    assert not (tmp_path / "run.db").exists()


def test_only_the_first_questions_without_token_probabilities(rows, server, tmp_path):
    elicit(rows, server, tmp_path, "--limit", 3, "--no-logprobs")
    lines = [json.loads(line) for line in ok("answers", tmp_path / "run.db").splitlines()]
    assert [line["id"] for line in lines] == ["q0", "q1", "q2"]
    assert lines[0]["confidence_tokens"] is None


def test_the_key_is_read_from_the_environment(rows, server, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    elicit(rows, server, tmp_path, "--key-env", "MY_KEY")
    assert {request["key"] for request in server.requests} == {"Bearer secret"}


def test_a_key_that_is_not_there_is_not_left_out_silently(rows, server, tmp_path, monkeypatch):
    monkeypatch.setenv("EMPTY_KEY", "")
    for name in ("NOSUCH", "EMPTY_KEY"):
        judged = ("judge", rows, "-o", tmp_path / "x.jsonl", "--base-url", server.base_url, "--model", "m")
        for code, _, err in (elicit(rows, server, tmp_path, "--key-env", name), run(*judged, "--key-env", name)):
            assert code == 2
            assert f"--key-env {name}: there is no such environment variable" in " ".join(err.replace("│", " ").split())
    assert server.asked == []
    assert {path.name for path in tmp_path.iterdir()} == {"server", "questions.jsonl"}


def test_a_preset_for_reasoning_llms(rows, server, tmp_path):
    url = f"{server.root}/reasoning/v1"
    common = ("elicit", rows, "--base-url", url, "--model", "tiny", "-o", tmp_path / "run.db")
    _, _, err = run(*common, "--preset", "reasoning", "--dry-run")
    assert f"at most {8 * 8192:,} to receive" in err
    ok(*common, "--preset", "reasoning", "--field", "reasoning_effort=low")
    assert set(server.requests[0]["request"]) == {"model", "messages", "max_completion_tokens", "reasoning_effort"}
    assert len(ok("answers", tmp_path / "run.db").splitlines()) == 8
    code, _, err = run(*common, "--preset", "fast")
    assert code == 2
    assert "expected one of reasoning" in " ".join(err.replace("│", " ").split())


def test_unfinished_thoughts_come_with_the_remedy(server, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "[long] think"}\n{"question": "[long] Why?"}\n')
    code, _, err = elicit(path, server, tmp_path)
    assert code == 1
    assert "1 malformed: the reply ends within the LLM's thoughts, such as '<think>Is it Paris?'" in err
    assert "--preset reasoning, or --field max_tokens=8000" in err
    assert "Replies that are cut off need more tokens: --field max_tokens=1000." in err
    ok(
        "elicit",
        path,
        "--base-url",
        server.base_url,
        "--model",
        "tiny",
        "-o",
        tmp_path / "b.db",
        "--preset",
        "reasoning",
    )


def test_repeated_requests_are_reported_with_a_remedy(server, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*questions(1, "[busy]"), *questions(2, "[hang]")[1:]]))
    code, _, err = elicit(path, server, tmp_path, "--timeout", 1)
    assert code == 0
    assert "4 requests made (" in err
    assert "1 repeated, told to wait; --rpm, or fewer --workers helps" in err
    assert "1 repeated, no reply in time; --timeout SECONDS, or fewer --workers helps" in err


def test_a_header_replaces_the_key(rows, server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-this-server")
    elicit(rows, server, tmp_path, "--header", "api-key=mine=", "--header", "X-Team=a", "--limit", 1)
    assert server.requests[0]["key"] is None
    assert (server.requests[0]["headers"]["api-key"], server.requests[0]["headers"]["x-team"]) == ("mine=", "a")
    code, _, err = elicit(rows, server, tmp_path, "--header", "my-secret-value")
    assert code == 2
    assert "is not of the form NAME=VALUE" in " ".join(err.replace("│", " ").split())
    assert "my-secret" not in err


@pytest.mark.parametrize("name", ["x-api-key", "X-Auth"])
def test_a_key_in_the_environment_is_not_sent_beside_one_in_a_header(server, tmp_path, monkeypatch, name):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-this-server")
    monkeypatch.setenv("MINE", "sk-for-this-server")
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Why?", "answer": "So.", "ground_truth": "Thus.", "confidence": 0.5}\n')
    server_and_key = ("--base-url", server.base_url, "--model", "tiny", "--header", f"{name}=mine")
    run("elicit", path, "-o", tmp_path / "a.db", *server_and_key)
    run("judge", path, "-o", tmp_path / "judged.jsonl", *server_and_key)
    run("elicit", path, "-o", tmp_path / "b.db", *server_and_key, "--key-env", "MINE")
    assert [request["headers"][name.lower()] for request in server.requests] == ["mine"] * 3
    assert [request["key"] for request in server.requests] == [None, None, "Bearer sk-for-this-server"]


def test_a_key_in_the_environment_is_not_sent_beside_one_in_the_base_url(rows, server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-this-server")
    for query in ("?key=mine", "?api-version=1"):
        url, output = f"{server.base_url}{query}", tmp_path / f"{query[1:4]}.db"
        ok("elicit", rows, "--base-url", url, "--model", "tiny", "-o", output, "--limit", 1)
    assert [request["key"] for request in server.requests] == [None, "Bearer sk-not-for-this-server"]


def test_a_server_without_token_probabilities_is_reported_once(rows, server, tmp_path):
    url = f"{server.root}/no-logprobs/v1"
    code, _, err = run("elicit", rows, "--base-url", url, "--model", "tiny", "-o", tmp_path / "run.db")
    assert code == 0
    assert err.count("The server does not support token probabilities") == 1
    assert err.count("--no-logprobs") == 1
    assert "Its message: " in err
    assert "'logprobs' is not supported with this model." in " ".join(err.split())


def test_failed_requests_are_reported_and_exit_with_1(server, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Fine?"}\n{"question": "[bad] Why?"}\n')
    code, _, err = elicit(path, server, tmp_path)
    assert code == 1
    assert "2 requests made, 0 already had a reply, 1 failed." in err
    assert "1 not answered yet" in err
    assert "Run the same command again to repeat the failed requests." in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--field", "seed"], "is not of the form NAME=JSON"),
        (
            ["--field", "n=5"],
            "the field n is 5: several replies to one request are samples of an answer; qacal elicit --samples",
        ),
        (["--field", "best_of=3"], "the field best_of is 3"),
        (["--field", "stream=true"], "the field stream is True: replies are read whole"),
        (["--field", "model=other"], "the field model is 'other': name the LLM with --model"),
        (["--field", "messages=[]"], "the field messages is []: the prompt says it"),
        (["--field", "logprobs=false"], "the field logprobs is False: token probabilities are"),
        (["--no-logprobs", "--field", "top_logprobs=5"], "the field top_logprobs is 5: token probabilities are"),
        (["--column", "answer=x"], "there is no column answer to map; expected one of id, question, choices"),
        (["--column", "text=question"], "Did you mean question=text?"),
        (["--prompt", "verb9"], "there is no prompt 'verb9'"),
        (["--prompt", "none.toml"], "cannot be read as a prompt"),
    ],
)
def test_wrong_use_is_reported_before_any_request(rows, server, tmp_path, arguments, problem):
    code, _, err = elicit(rows, server, tmp_path, *arguments)
    assert code in (1, 2)
    assert problem in " ".join(err.replace("│", " ").split())
    assert server.asked == []


def test_invalid_base_urls(rows, tmp_path):
    code, _, err = run("elicit", rows, "--base-url", "localhost:80", "--model", "m", "-o", tmp_path / "run.db")
    assert code == 1
    assert "the base URL is 'localhost:80'; expected one such as http" in err


def test_several_runs_in_one_file(rows, server, tmp_path):
    elicit(rows, server, tmp_path)
    elicit(rows, server, tmp_path, "--prompt", "verb1s-top3")
    code, _, err = run("answers", tmp_path / "run.db")
    assert code == 1
    assert "several runs; choose one with --run (1: tiny, verb1s-top1/1; 2: tiny, verb1s-top3/1)" in err
    assert len(ok("answers", tmp_path / "run.db", "--run", 2).splitlines()) == 24


def test_a_custom_prompt(rows, server, tmp_path):
    prompt = tmp_path / "short.toml"
    prompt.write_text('name = "short"\nversion = 3\nparser = "guess"\ntemplate = "$question Two lines."\n')
    elicit(rows, server, tmp_path, "--prompt", prompt)
    prompt.unlink()
    first = json.loads(ok("answers", tmp_path / "run.db").splitlines()[0])
    assert first["prompt"].startswith("short/3+")
    assert server.asked[0].endswith("Two lines.")


def test_a_judge_labels_what_comparison_leaves_open(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    answers = ["Paris", "Lutetia [same]", "Lyon", "Nice [unsure]"]
    people = [1, 1, 0, None]
    given = [
        {"id": answer, "question": "Capital of France?", "answer": answer, "confidence": 0.9}
        | {"ground_truth": "Paris", "human": human}
        for answer, human in zip(answers, people, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    common = ("--base-url", server.base_url, "--model", "wise", "--human-labels", "human")
    for asked in (3, 3):
        code, out, err = run("judge", path, "-o", tmp_path / "labelled.jsonl", *common, "--unsure", "drop")
        assert code == 0
        assert len(server.asked) == asked
    assert "4 answers: 3 labelled, 2 of them correct." in err
    assert "1 left out: the judge says neither Yes nor No" in err
    assert "agreement: 1.000 [0.292, 1.000] of 3 rows" in out
    labelled = [json.loads(line) for line in (tmp_path / "labelled.jsonl").read_text().splitlines()]
    assert [row["correct"] for row in labelled] == [1.0, 1.0, 0.0]
    assert [row["judge"] for row in labelled] == ["wise (judge/1)"] * 3


def test_unreadable_verdicts_are_reported(server, tmp_path):
    path, out = tmp_path / "answers.jsonl", tmp_path / "labelled.jsonl"
    answers = ["Paris", "paris", "Lyon", "Nice [unsure]", "Nancy [stubborn]"]
    rows = [{"question": "Capital of France?", "answer": answer, "ground_truth": "Paris"} for answer in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ("judge", path, "-o", out, "--base-url", server.base_url, "--model", "wise")

    def labels():
        return [json.loads(line)["correct"] for line in out.read_text().splitlines()]

    code, _, err = run(*command)
    assert code == 1
    assert "5 answers: 3 labelled, 2 of them correct." in err
    assert "2 of 5 answers have no verdict." in err
    assert "look better than it is" in err
    assert "--unsure" in err
    assert "Next:" not in err
    assert not out.exists()

    code, _, err = run(*command, "--unsure", "wrong")
    assert (code, labels()) == (0, [1.0, 1.0, 0.0, 0.0, 0.0])
    assert "2 by no verdict, counted as wrong" in err
    assert "may look worse than it is" in err

    code, _, err = run(*command, "--unsure", "drop")
    assert (code, labels()) == (0, [1.0, 1.0, 0.0])
    assert "look better than it is" in err
    assert len(server.asked) == 3

    out.unlink()
    code, _, err = run(*command, "--unsure", "ask-again")
    assert (code, out.exists(), len(server.asked)) == (1, False, 5)
    assert "1 of 5 answers have no verdict." in err
    assert "Choose --unsure wrong or --unsure drop" in err
    ok(*command, "--unsure", "wrong")
    assert labels() == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert len(server.asked) == 5

    code, _, err = run(*command, "--unsure", "keep")
    assert code == 2
    assert "expected one of wrong, ask-again, drop" in " ".join(err.replace("│", " ").split())


def test_a_judge_is_asked_for_one_reply(rows, server, tmp_path):
    common = ("--base-url", server.base_url, "--model", "wise", "--field", "n=3")
    code, _, err = run("judge", rows, "-o", tmp_path / "x.jsonl", *common)
    assert code == 1
    assert "the field n is 3" in err
    assert server.asked == []


def test_a_judge_needs_a_server_and_a_name(rows, tmp_path):
    code, _, err = run("judge", rows, "-o", tmp_path / "x.jsonl", "--model", "wise")
    assert code == 2
    assert "needs both" in err


def test_invalid_human_labels(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question": "q", "answer": "a", "ground_truth": "a", "human": "maybe"}\n')
    code, _, err = run("judge", path, "-o", tmp_path / "x.jsonl", "--human-labels", "human")
    assert code == 1
    assert "human is 'maybe'; expected 1 or 0" in err
    assert not (tmp_path / "x.jsonl").exists()
    code, _, err = run("judge", path, "-o", tmp_path / "x.jsonl", "--human-labels", "people")
    assert "there is no column 'people'" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_says_how_to_go_on(number, code, server, tmp_path):
    path = tmp_path / "slow.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in questions(200, "[slow]")))
    qacal = Path(sys.executable).with_name("qacal")
    command = [qacal, "elicit", path, "--base-url", server.base_url, "--model", "tiny", "-o", tmp_path / "run.db"]
    process = subprocess.Popen([str(part) for part in [*command, "--workers", 2]], stderr=subprocess.PIPE, text=True)
    while len(server.asked) < 5:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err == "All replies so far are stored; run the same command again to continue.\nStopped.\n"
    kept = len(ok("answers", tmp_path / "run.db").splitlines())
    assert 3 <= kept < 200


def test_labels_by_people_are_not_overwritten(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question": "q", "answer": "a", "ground_truth": "a", "correct": 0}\n')
    code, _, err = run("judge", path, "-o", tmp_path / "x.jsonl")
    assert code == 1
    assert "the rows already have labels" in err
    code, _, err = run("judge", path, "-o", tmp_path / "x.jsonl", "--human-labels", "correct")
    assert code == 2
    assert not (tmp_path / "x.jsonl").exists()
    # A judge's own labels may be replaced.
    path.write_text('{"question": "q", "answer": "a", "ground_truth": "a", "correct": 0, "judge": "alias"}\n')
    ok("judge", path, "-o", tmp_path / "x.jsonl")
    assert json.loads((tmp_path / "x.jsonl").read_text())["correct"] == 1.0


def test_a_missing_answer_is_not_the_text_none(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question": "q", "answer": null, "ground_truth": "None"}\n')
    code, _, err = run("judge", path, "-o", tmp_path / "x.jsonl")
    assert code == 0
    assert "1 without a label: no answer" in err
    assert "skip rows without one with its --skip-bad-rows FILE" in err


@pytest.mark.parametrize("content", [None, "", "text\nhello\n", "question\n"])
def test_questions_that_cannot_be_read_leave_no_run(tmp_path, content):
    path = tmp_path / "q.csv"
    if content is not None:
        path.write_text(content)
    code, _, err = run("elicit", path, "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "-o", tmp_path / "run.db")
    assert code == 1
    assert err.startswith("qacal: ")
    assert list(tmp_path.glob("run.db*")) == []


def test_words_that_the_prompt_does_not_list_are_shown_and_can_get_a_value(rows, server, tmp_path):
    code, _, err = elicit(rows, server, tmp_path, "--prompt", "ling1s-top1")
    assert code == 0
    assert "8 questions: 1 of 8 guesses have a confidence." in err
    assert "7 malformed: the expression is not one of the list, such as 'Guess: Paris Confidence: High'" in err
    assert "--expression WORDS=NUMBER" in err
    told = ["--expression", "high=.85", "--expression", "LIKELY=0.75"]
    ok("answers", tmp_path / "run.db", "-o", tmp_path / "told.jsonl", *told)
    found = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert [row["confidence"] for row in found] == [0.85, 0.85, 0.85, 0.75, 0.85, 0.85, 0.85, 0.85]
    plain = ok("answers", tmp_path / "run.db")
    assert json.loads(plain)["prompt"] == "ling1s-top1/1"
    assert found[0]["prompt"].startswith("ling1s-top1/1~")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("High", "is not of the form WORDS=NUMBER"),
        ("=0.3", "expected words and a number from 0 to 1"),
        ("High=85", "expected words and a number from 0 to 1"),
        ("High=nan", "expected words and a number from 0 to 1"),
        ("Highly-likely=0.3", "is worth 0.8 and 0.3; expected one number"),
    ],
)
def test_invalid_expressions(rows, server, tmp_path, given, problem):
    told = ("--expression", "highly likely=0.8", "--expression", given)
    elicit(rows, server, tmp_path, "--prompt", "ling1s-top1")
    code, _, err = run("answers", tmp_path / "run.db", *told)
    assert code in (1, 2)
    assert problem in " ".join(err.replace("│", " ").split())


def test_expressions_are_for_prompts_that_ask_for_them(rows, server, tmp_path):
    elicit(rows, server, tmp_path)
    code, _, err = run("answers", tmp_path / "run.db", "--expression", "High=.9")
    assert code == 1
    assert "the prompt verb1s-top1 does not ask for expressions" in err


def test_replies_without_a_row_can_be_listed(server, tmp_path):
    path = tmp_path / "q.jsonl"
    marks = ["", "[refused]", "[chatty]", "[bad]"]
    path.write_text("".join(json.dumps({"id": mark, "question": f"{mark} Why?"}) + "\n" for mark in marks))
    elicit(path, server, tmp_path)
    _, _, err = run("answers", tmp_path / "run.db", "-o", tmp_path / "a.jsonl")
    assert "1 refused, such as \"I'm sorry, but I can't help with that.\"" in err
    assert "--unread FILE writes" in err
    ok("answers", tmp_path / "run.db", "-o", tmp_path / "a.jsonl", "--unread", tmp_path / "unread.parquet")
    found = pl.read_parquet(tmp_path / "unread.parquet").rows()
    assert [(row[0], row[2], row[4]) for row in found] == [
        ("[refused]", "refused", ["I'm sorry, but I can't help with that."]),
        ("[chatty]", "malformed: there is no guess", ["Well, it is hard to say."]),
        ("[bad]", "not answered yet", []),
    ]


def labelled_by_hand(tmp_path, label):
    path = tmp_path / "rows.jsonl"
    rows = [
        {"id": f"q{n // 2}", "question": f"Q{n % 3}?", "answer": "Rome" if n % 3 else "Paris", "confidence": 0.5}
        | {"ground_truth": "Paris", "by_hand": label(n)}
        for n in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_human_labels_are_written_apart_for_certification(tmp_path):
    path = labelled_by_hand(tmp_path, lambda n: ["yes", "no", None, None, None][n % 5])
    arguments = ["--human-labels", "by_hand", "--human-output", tmp_path / "people.parquet"]
    code, out, err = run("judge", path, "-o", tmp_path / "judged.parquet", *arguments)
    assert code == 0
    people, judged = pl.read_parquet(tmp_path / "people.parquet"), pl.read_parquet(tmp_path / "judged.parquet")
    assert people["correct"].to_list() == [1.0, 0.0] * 4
    assert people["by_judge"].to_list() == [float(answer == "Paris") for answer in people["answer"]]
    assert set(people["judge"]) == {"people"}
    assert set(judged["judge"]) == {"alias"}
    # All answers of a question are in one file, though people labelled only one of them.
    assert not set(people["id"]) & set(judged["id"])
    assert set(people["id"]) | set(judged["id"]) == {f"q{n}" for n in range(10)}
    assert f"{len(judged)} training rows written to {tmp_path / 'judged.parquet'}, 8 certifying rows to" in err
    assert f"--certify {tmp_path / 'people.parquet'}" in err
    assert "of 8 rows" in out


def test_a_file_without_human_labels_certifies_nothing(tmp_path):
    path = labelled_by_hand(tmp_path, lambda n: None)
    files = ["-o", tmp_path / "judged.jsonl", "--human-output", tmp_path / "people.jsonl"]
    code, _, err = run("judge", path, *files, "--human-labels", "by_hand")
    assert code == 1
    assert "no row has a label in by_hand" in err
    code, _, err = run("judge", path, *files)
    assert code == 2
    assert "--human-output needs --human-labels" in " ".join(err.replace("│", " ").split())
    assert {found.name for found in tmp_path.iterdir()} == {"rows.jsonl"}


def test_a_label_that_cannot_be_read_leaves_neither_file(tmp_path):
    path = labelled_by_hand(tmp_path, lambda n: "maybe" if n == 19 else n % 2)
    files = ["-o", tmp_path / "judged.jsonl", "--human-output", tmp_path / "people.jsonl"]
    code, _, err = run("judge", path, *files, "--human-labels", "by_hand")
    assert code == 1
    assert "by_hand is 'maybe'; expected 1 or 0" in err
    assert {found.name for found in tmp_path.iterdir()} == {"rows.jsonl"}


def test_reasons_of_failed_requests_are_printed(server, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Fine?"}\n{"question": "[bad] Why?"}\n{"question": "[bad] Where?"}\n')
    _, _, err = elicit(path, server, tmp_path)
    assert "2 failed: status 400: the question is bad" in err


def test_a_run_without_readable_replies_fails(server, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "[chatty] Why?"}\n')
    code, _, err = elicit(path, server, tmp_path)
    assert code == 1
    assert "No reply could be read." in err
    assert "verb1s-guided" in err
    assert "Next:" not in err


def test_judging_says_which_questions_of_a_run_have_no_answer(server, tmp_path):
    path, store = tmp_path / "q.jsonl", tmp_path / "run.db"
    judge = ("judge", store, "-o", tmp_path / "answers.jsonl")
    path.write_text(json.dumps(questions(1, "[chatty]")[0]))
    elicit(path, server, tmp_path)
    code, _, err = run(*judge)
    assert code == 1
    assert "the run has no readable answers" in err
    assert "1 malformed: there is no guess" in err
    assert f"qacal answers {store} -o answers.jsonl --unread unread.jsonl" in err
    path.write_text("".join(json.dumps(row) + "\n" for row in [*questions(3)[1:], *questions(4, "[down]")[3:]]))
    elicit(path, server, tmp_path, "--tries", 1)
    code, _, err = run(*judge)
    assert code == 0
    assert "4 questions: 2 of 4 guesses have a confidence." in err
    assert "1 not answered yet" in err
    assert "repeat the qacal elicit command" in err
    assert "2 answers: 2 labelled, 2 of them correct." in err


def test_judging_a_run_that_no_server_answered(rows, server, tmp_path):
    rows.write_text(json.dumps(questions(1, "[down]")[0]))
    elicit(rows, server, tmp_path, "--tries", 1)
    code, _, err = run("judge", tmp_path / "run.db", "-o", tmp_path / "answers.jsonl")
    assert code == 1
    assert "the run has no readable answers" in err
    assert "1 not answered yet" in err
    assert "--unread" not in err


def test_the_next_step_is_judge_if_the_right_answers_are_known(server, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Why?"}\n')
    _, _, err = elicit(path, server, tmp_path)
    assert "Next: qacal answers" in err
    path.write_text('{"question": "Why?", "ground_truth": "Paris"}\n')
    _, _, err = elicit(path, server, tmp_path)
    assert "Next: qacal judge" in err
    _, _, err = run("judge", tmp_path / "run.db", "-o", tmp_path / "answers.parquet")
    assert f"Next: qacal fit {tmp_path / 'answers.parquet'} -o model" in err


def test_a_model_name_that_the_server_does_not_list_is_reported(server, rows, tmp_path):
    _, _, err = elicit(rows, server, tmp_path)
    assert "lists" not in err
    path = [rows, "--base-url", server.base_url, "-o", tmp_path / "run.db"]
    _, _, err = run("elicit", *path, "--model", "gpt-nosuch")
    assert "The server lists tiny, other-7b, but not gpt-nosuch." in err


@pytest.mark.parametrize("command", ["elicit", "answers"])
def test_a_run_that_is_a_folder_or_another_file(rows, server, tmp_path, command):
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    before = sorted(found.name for found in tmp_path.iterdir())
    for name, problem in (("folder.db", "is a folder"), ("mine.csv", "is not a run of qacal elicit")):
        path = tmp_path / name
        asked = [rows, "--base-url", server.base_url, "--model", "tiny", "-o", path]
        code, _, err = run(command, *(asked if command == "elicit" else [path, "-o", tmp_path / "out.jsonl"]))
        assert code == 1
        assert f"{path} {problem}" in err
    assert sorted(found.name for found in tmp_path.iterdir()) == before
    assert (tmp_path / "mine.csv").read_text() == "a,b\n1,2\n"


def test_a_finished_run_leaves_nothing_but_its_file(rows, server, tmp_path):
    before = {found.name for found in tmp_path.iterdir()}
    elicit(rows, server, tmp_path)
    assert {found.name for found in tmp_path.iterdir()} - before == {"run.db"}


def test_judging_needs_right_answers(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Q?", "answer": "a", "confidence": 0.5, "ground_truth": null}\n')
    code, _, err = run("judge", path, "-o", tmp_path / "out.jsonl")
    assert code == 1
    assert "no row has a ground_truth" in err
    assert not (tmp_path / "out.jsonl").exists()


def test_rows_that_nobody_judged_have_no_judge(tmp_path):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    row = {"question": "Q?", "answer": "a", "confidence": 0.5}
    path.write_text(json.dumps(row | {"ground_truth": "a"}) + "\n" + json.dumps(row | {"ground_truth": None}) + "\n")
    ok("judge", path, "-o", out)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["correct"], row["judge"]) for row in found] == [(1.0, "alias"), (None, None)]


def test_columns_of_other_names_can_be_judged(tmp_path):
    path, out = tmp_path / "rows.csv", tmp_path / "out.jsonl"
    path.write_text('prompt_text,reply,target,p\nQ?,four,"[""4"", ""four""]",0.5\n')
    code, _, err = run("judge", path, "-o", out)
    assert code == 1
    assert "pass --column question=NAME" in err
    named = ["question=prompt_text", "answer=reply", "ground_truth=target", "confidence=p"]
    ok("judge", path, "-o", out, *(part for name in named for part in ("--column", name)))
    found = json.loads(out.read_text())
    assert (found["question"], found["answer"], found["correct"]) == ("Q?", "four", 1.0)
    assert "reply" not in found
    code, _, err = run("judge", path, "-o", out, "--column", "subject=topic")
    assert code == 2


def test_the_right_run_is_named_where_there_are_several(rows, server, tmp_path):
    elicit(rows, server, tmp_path)
    _, _, err = elicit(rows, server, tmp_path, "--prompt", "verb1s-top3")
    assert "-o answers.parquet --run 2" in err


def test_human_labels_for_all_questions_leave_no_training_rows(tmp_path):
    path = labelled_by_hand(tmp_path, lambda n: n % 2)
    files = ["-o", tmp_path / "judged.parquet", "--human-output", tmp_path / "people.parquet"]
    code, _, err = run("judge", path, *files, "--human-labels", "by_hand")
    assert code == 1
    assert "no row is left to train on" in err
    assert {found.name for found in tmp_path.iterdir()} == {"rows.jsonl"}


def test_labels_by_people_may_be_in_some_rows_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"question": "Q?", "answer": "a", "confidence": 0.5, "ground_truth": "a"}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"by_hand": "yes"}) + "\n")
    out = ok("judge", path, "-o", tmp_path / "out.jsonl", "--human-labels", "by_hand")
    assert "agreement: 1.000 [0.025, 1.000] of 1 rows" in out


@pytest.mark.parametrize("by", ["", "people"])
def test_labels_from_elsewhere_are_not_overwritten(tmp_path, by):
    path = tmp_path / "rows.csv"
    path.write_text(f"question,answer,ground_truth,correct,judge\nQ?,a,b,1,{by}\n")
    code, _, err = run("judge", path, "-o", tmp_path / "out.jsonl")
    assert code == 1
    assert "the rows already have labels" in err


def test_no_column_is_lost_to_another_of_its_name(tmp_path):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    row = {"question": "short", "prompt_text": "What is 2 + 2?", "answer": "4", "confidence": 0.5, "ground_truth": "4"}
    path.write_text(json.dumps(row) + "\n")
    ok("judge", path, "-o", out, "--column", "question=prompt_text", "--column", "id=answer")
    found = json.loads(out.read_text())
    assert (found["question"], found["table_question"], found["id"]) == ("What is 2 + 2?", "short", "4")
    assert found["answer"] == "4"


def test_two_outputs_cannot_both_be_standard_output(tmp_path, server, rows):
    path = labelled_by_hand(tmp_path, lambda n: n % 2 if n < 3 else None)
    code, _, err = run(
        "judge", path, "-o", "-", "--human-labels", "by_hand", "--human-output", tmp_path / "people.jsonl"
    )
    assert code == 2
    elicit(rows, server, tmp_path)
    code, _, err = run("answers", tmp_path / "run.db", "--unread", "-")
    assert code == 2
    assert "Next" not in err


def test_nothing_unread_is_an_empty_table(tmp_path, server, rows):
    elicit(rows, server, tmp_path)
    ok("answers", tmp_path / "run.db", "-o", tmp_path / "a.parquet", "--unread", tmp_path / "unread.parquet")
    assert len(pl.read_parquet(tmp_path / "unread.parquet")) == 0


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999/v1", "http://", "ftp://x/v1"])
def test_invalid_addresses(rows, tmp_path, url):
    code, _, err = run("elicit", rows, "--base-url", url, "--model", "m", "-o", tmp_path / "run.db")
    assert code == 1
    assert f"the base URL is '{url}'; expected one such as http" in err


def test_a_key_that_cannot_be_sent(rows, server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    code, _, err = elicit(rows, server, tmp_path)
    assert code == 1
    assert "the key has letters that cannot be sent" in err
    assert "schl" not in err


def test_an_empty_file_is_not_a_run(tmp_path):
    (tmp_path / "run.db").touch()
    code, _, err = run("answers", tmp_path / "run.db")
    assert code == 1
    assert "is not a run of qacal elicit" in err
    assert (tmp_path / "run.db").stat().st_size == 0


def test_train_on_a_judges_labels_and_certify_on_human_labels(tmp_path):
    """From one CSV file, with a percent sign in it, to a model certified on human labels."""
    path = tmp_path / "rows.csv"
    lines = ["question,answer,confidence,ground_truth,by_hand"]
    for n in range(900):
        answer, sure = n if n % 4 else n + 1, "70%" if n % 7 == 0 else "0.9"
        lines.append(f"What is {n} plus 0?,{answer},{sure},{n},{'' if n % 3 else 'yes' if n % 4 else 'no'}")
    path.write_text("\n".join(lines))
    judged, people = tmp_path / "judged.parquet", tmp_path / "people.parquet"
    ok("judge", path, "-o", judged, "--human-labels", "by_hand", "--human-output", people)
    assert pl.read_parquet(judged)["confidence"].unique().sort().to_list() == [0.7, 0.9]
    ok("fit", judged, "-o", tmp_path / "model", "--certify", people)
    ok("apply", tmp_path / "model", people, "-o", tmp_path / "out.parquet")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert abs(out["calibrated"].mean() - 0.75) < 0.1
    assert (out["low"] <= out["calibrated"]).all()


@pytest.mark.parametrize(
    ("seconds", "said"), [(10, "20 of 50, 2.0 a second, 15 s left"), (400, "20 of 50, 20 s each, 10 min left")]
)
def test_progress_has_the_rate_and_the_time_left(seconds, said):
    assert cli_elicit._line(Progress(done=20, fresh=20), 50, seconds) == said


def test_samples_from_the_cost_to_the_rows(tmp_path, server):
    rows = tmp_path / "questions.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in questions(8, "[vary]")))
    code, _, err = elicit(rows, server, tmp_path, "--samples", 5)
    assert code == 1
    assert "samples at temperature 0 are equal; pass a temperature above 0: --temperature 0.7." in err
    code, _, err = elicit(rows, server, tmp_path, "--field", "n=5")
    assert code == 1
    assert "the field n is 5: several replies to one request are samples of an answer; qacal elicit --samples" in err
    sampled = ("--samples", 5, "--temperature", 0.7)
    code, _, err = elicit(rows, server, tmp_path, *sampled, "--dry-run")
    assert code == 0
    assert "8 questions with 5 samples each, 8 requests (if the server does not take n=5: 40): about " in err
    assert "at most 4,000 to receive. Nothing was asked." in err
    assert server.asked == []
    code, _, err = elicit(rows, server, tmp_path, *sampled)
    assert code == 0
    # The cost comes before the first request.
    assert err.startswith("8 questions with 5 samples each, 8 requests (if the server does not take n=5: 40): about ")
    assert "8 questions: 40 of 40 guesses have a confidence." in err
    ok("judge", tmp_path / "run.db", "-o", tmp_path / "answers.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [(line["answer"], line["agreement"], line["samples"], line["correct"]) for line in lines] == [
        ("Paris", 0.6, 5, 1.0)
    ] * 8
    assert {line["temperature"] for line in lines} == {0.7}


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_agree(ending, tmp_path):
    answers = ["Paris", "paris.", "Lyon", "Rome", "rome", "Rome"]
    frame = pl.DataFrame(
        {"id": [1, 1, 1, 2, 2, 2], "answer": answers, "confidence": 0.9, "correct": [1, 1, 0, 0, 0, 0]}
    )
    path, out = tmp_path / f"samples.{ending}", tmp_path / f"answers.{ending}"
    {"jsonl": frame.write_ndjson, "csv": frame.write_csv, "parquet": frame.write_parquet}[ending](path)
    code, _, err = run("agree", path, "--by", "id", "-o", out)
    assert code == 0
    assert "6 rows of 2 questions (by id), 3 samples each." in err
    assert "Agreement: 0.83 on average; all samples agree for 1 question." in err
    assert f"2 rows written to {out}." in err
    read = {"jsonl": pl.read_ndjson, "csv": pl.read_csv, "parquet": pl.read_parquet}[ending]
    assert read(out).select("id", "confidence", "correct", "agreement", "samples").rows() == [
        (1, 0.9, 1, 2 / 3, 3),
        (2, 0.9, 0, 1.0, 3),
    ]
    code, _, err = run("agree", out, "-o", tmp_path / "again.csv")
    assert code == 1
    assert "each of the 2 values of id has one row, so there are no samples to compare" in err
