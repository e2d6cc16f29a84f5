"""Several samples of each answer: one request or several, what is stored, and what a killed run asks again."""

import math
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from qacal.errors import InputError
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit, stored_run
from qacal.sources.elicitation.store import open_store
from tests.sources.elicitation.serving import questions, serving

FIVE = Plan("tiny", samples=5, temperature=0.7)


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "server") as found:
        yield found


def ran(server, rows, tmp_path, plan=FIVE, path="v1", workers=4):
    return elicit(rows, Client(f"{server.root}/{path}"), plan, tmp_path / "run.db", workers=workers)


def stored(tmp_path, run=None, what="answers"):
    with open_store(tmp_path / "run.db", to_write=False) as store:
        return list(getattr(stored_run(store, run), what)())


def test_one_request_asks_for_all_samples(server, tmp_path):
    done = ran(server, questions(6, "[vary]"), tmp_path)
    assert [request["request"]["n"] for request in server.requests] == [5] * 6
    assert {request["request"]["temperature"] for request in server.requests} == {0.7}
    assert (done.progress.sent, done.outcomes.stated, done.outcomes.questions) == (30, 30, 6)
    rows = stored(tmp_path)
    assert [row["id"] for row in rows] == [f"q{n}" for n in range(6)]
    entropy = -0.6 * math.log(0.6) - 0.4 * math.log(0.2)
    for row in rows:  # Paris, Lyon, paris., Nice, the Paris
        # Spelling, stated confidence and tokens are those of the first sample with the majority answer.
        assert (row["answer"], row["confidence"], row["samples"]) == ("Paris", 0.0, 5)
        assert row["agreement"] == 0.6
        assert row["answers_entropy"] == pytest.approx(entropy)
        assert 0.7 < row["confidence_tokens"] < 0.85


@pytest.mark.parametrize("path", ["no-n/v1", "ignores-n/v1"])
def test_a_server_without_n_gets_one_request_per_sample(path, server, tmp_path):
    done = ran(server, questions(6, "[vary]"), tmp_path, path=path, workers=1)
    sent = [request["request"].get("n") for request in server.requests]
    # One attempt is enough.
    assert sent[0] == 5
    assert sent[1:] == [None] * len(sent[1:])
    assert len(sent) == (31 if path == "no-n/v1" else 30)
    assert (done.progress.sent, done.progress.failed) == (30, 0)
    assert [row["agreement"] for row in stored(tmp_path)] == [0.6] * 6


def test_more_samples_use_the_earlier_ones(server, tmp_path):
    ran(server, questions(4, "[vary]"), tmp_path, Plan("tiny", samples=2, temperature=0.7))
    done = ran(server, questions(4, "[vary]"), tmp_path)
    assert (done.progress.known, done.progress.sent) == (8, 12)
    assert [request["request"]["n"] for request in server.requests] == [2] * 4 + [3] * 4
    assert [row["agreement"] for row in stored(tmp_path, run=2)] == [0.6] * 4
    assert [row["samples"] for row in stored(tmp_path, run=1)] == [2] * 4
    again = ran(server, questions(4, "[vary]"), tmp_path)
    assert (again.progress.known, again.progress.sent, len(server.requests)) == (20, 0, 8)


def test_prompts_of_two_stages_ask_the_second_for_each_sample(server, tmp_path):
    plan = Plan("tiny", "verb2s-top1", samples=3, temperature=1.0)
    estimate = plan.estimate(questions(2))
    assert (estimate.requests, estimate.requests_at_most) == (2 * (1 + 3), 2 * (3 + 3))
    done = ran(server, questions(2), tmp_path, plan)
    assert len(server.requests) == estimate.requests
    assert done.progress.failed == 0
    assert [(row["samples"], row["agreement"], row["answers_entropy"]) for row in stored(tmp_path)] == [(3, 1, 0)] * 2


def test_samples_that_cannot_be_read_do_not_count(server, tmp_path):
    done = ran(server, [*questions(1), {"id": "r", "question": "[refused] Why?"}], tmp_path)
    assert done.outcomes.lost == {"refused": 5}
    assert [(row["id"], row["samples"]) for row in stored(tmp_path)] == [("q0", 5)]
    assert [row["sample"] for row in stored(tmp_path, what="unread")] == [1, 2, 3, 4, 5]


def test_a_question_that_fails_is_asked_again_by_the_next_run(server, tmp_path):
    done = ran(server, [*questions(3, "[vary]"), {"id": "bad", "question": "[bad] Why?"}], tmp_path, workers=1)
    assert (done.progress.sent, done.progress.failed) == (15, 1)
    assert done.outcomes.lost == {"not answered yet": 1}
    # The refusal of a single question does not mean that the server does not support n.
    ran(server, [*questions(5, "[vary]")], tmp_path)
    assert [request["request"].get("n") for request in server.requests[-2:]] == [5, 5]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan("tiny", samples=5), r"samples at temperature 0 are equal; .* --temperature 0\.7"),
        (Plan("tiny", samples=5, temperature=0.0), "samples at temperature 0 are equal"),
        (Plan("tiny", samples=5, temperature=1.0, fields={"seed": 1}), "leave out the field seed"),
        (Plan("tiny", "verb1s-top2", samples=5, temperature=1.0), "asks for several guesses in one reply"),
        (Plan("tiny", samples=0), "samples is 0; expected a whole number from 1"),
        (Plan("tiny", fields={"n": 5}), "the field n is 5: .* qacal elicit --samples asks for them"),
    ],
)
def test_invalid_numbers_of_samples_are_refused(plan, message):
    with pytest.raises(InputError, match=message):
        plan.setup()


_PROGRAM = """
import sys
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit
url, rows, store = sys.argv[1:]
elicit(rows, Client(url), Plan("tiny", samples=5, temperature=0.7), store, workers=4)
"""


@pytest.mark.parametrize("path", ["v1", "no-n/v1"])
def test_a_run_that_is_killed_between_samples_asks_only_for_the_missing_ones(path, server, tmp_path):
    rows, store = tmp_path / "rows.parquet", tmp_path / "run.db"
    pl.DataFrame(questions(40, "[slow] [vary]")).write_parquet(rows)
    command = [sys.executable, "-c", _PROGRAM, f"{server.root}/{path}", str(rows), str(store)]
    process = subprocess.Popen(command)
    while len(server.requests) < 17:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with open_store(store, to_write=False) as opened:
        (kept,) = opened._db.execute("SELECT count(*) FROM request WHERE reply IS NOT NULL").fetchone()
    assert kept >= 5
    done = ran(server, str(rows), tmp_path, path=path)
    assert (done.progress.known, done.progress.sent) == (kept, 200 - kept)
    assert done.outcomes.stated == 200
    assert [row["samples"] for row in stored(tmp_path)] == [5] * 40
    # Only requests in flight were sent again: one per worker, and one per worker to find out about n.
    samples = sum(request["request"].get("n", 1) for request in server.requests if path == "v1")
    singles = sum("n" not in request["request"] for request in server.requests if path != "v1")
    assert samples <= 200 + 4 * 5
    assert singles <= 200 + 4
