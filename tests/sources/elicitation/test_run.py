"""Runs against a real server process: which requests are sent, how often, and what is stored."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter

import polars as pl
import pytest

from qacal.errors import InputError, ServerError
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit, stored_run
from qacal.sources.elicitation.store import open_store
from tests.sources.elicitation.llm_server import confidence
from tests.sources.elicitation.serving import questions, serving

WORKERS = 4


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "server") as found:
        yield found


@pytest.fixture
def ran(server, tmp_path):
    """Run a plan against the server."""

    def run(rows, plan=None, key=None, **how):
        client = Client(server.base_url, key=key, timeout=how.pop("timeout", 30.0), tries=how.pop("tries", 4))
        return elicit(rows, client, plan or Plan("tiny"), tmp_path / "run.db", workers=WORKERS, **how)

    return run


def records(path, run=None):
    with open_store(path, to_write=False) as store:
        return list(stored_run(store, run).answers())


def test_every_question_is_asked_once_and_answered(ran, server, tmp_path):
    rows = questions(30)
    first = ran(rows)
    assert (first.progress.sent, first.progress.known, first.progress.failed) == (30, 0, 0)
    assert (first.outcomes.questions, first.outcomes.stated) == (30, 30)
    found = records(tmp_path / "run.db")
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    by_id = {row["id"]: row for row in found}
    for request in server.requests:
        number = re.search(r"number (\d+)", request["said"])[1]
        assert by_id[f"q{number}"]["confidence"] == confidence(request["said"])
    assert found[0]["answer"] == "Paris"
    assert found[0]["ground_truth"] == ["Paris"]
    assert (found[0]["model"], found[0]["prompt"], found[0]["confidence_source"]) == ("tiny", "verb1s-top1/1", "stated")
    # "Guess: Paris": two or three tokens of four letters are the answer, each with a log-probability of -0.1.
    assert 0.7 < found[0]["confidence_tokens"] < 0.85

    again = ran(rows)
    assert (again.progress.sent, again.progress.known) == (0, 30)
    assert len(server.asked) == 30


def test_questions_can_be_added_to_a_run_and_nothing_is_asked_again(ran, server, tmp_path):
    ran(questions(10), Plan("tiny", limit=4))
    assert len(server.asked) == 4
    ran(questions(10))
    assert len(server.asked) == len(set(server.asked)) == 10
    assert len(records(tmp_path / "run.db")) == 10


def test_requests_carry_what_the_prompt_and_the_plan_ask_for(ran, server):
    ran(questions(1), Plan("tiny", fields={"seed": 3, "temperature": None}), key="secret")
    request = server.requests[0]
    assert request["key"] == "Bearer secret"
    assert request["request"]["logprobs"] is True
    assert request["request"]["seed"] == 3
    assert "temperature" not in request["request"]
    ran(questions(1), Plan("tiny", logprobs=False))
    assert "logprobs" not in server.requests[1]["request"]
    assert server.requests[1]["request"]["temperature"] == 0.0
    ran(questions(1), Plan("tiny", fields={"top_logprobs": 5}))
    assert server.requests[2]["request"]["top_logprobs"] == 5


def test_the_key_is_not_in_the_store(ran, tmp_path):
    ran(questions(3), key="secret")
    for path in tmp_path.glob("run.db*"):
        assert b"secret" not in path.read_bytes()


def stored(folder):
    return b"".join(path.read_bytes() for path in folder.glob("run.db*"))


KEY = "sk-test/4f+9a8b7c6d5e4f3a2b1"


def test_a_key_that_the_server_repeats_is_masked_everywhere(ran, server, tmp_path):
    rows = [*questions(1), *({"id": mark, "question": f"{mark} Why?"} for mark in ("[echo]", "[echo part]", "[key]"))]
    done = ran(rows, key=KEY)
    told = " ".join(done.progress.failures)
    assert "status 400: Incorrect API key provided: Bearer ***. You sent" in told
    assert "status 400: Incorrect API key: ***, see /v1/chat/completions" in told
    assert len(records(tmp_path / "run.db")) == 2
    for part in (KEY, KEY.replace("/", "\\/"), KEY[:8], KEY[-4:]):
        assert part not in told
        assert part.encode() not in stored(tmp_path)
    with pytest.raises(InputError) as caught:
        ran(questions(20, "[echo]"), Plan("other"), key=KEY)
    assert KEY not in str(caught.value)


def test_an_ordinary_word_as_key_is_not_masked_in_answers(ran, tmp_path):
    ran(questions(1), key="Paris")
    assert records(tmp_path / "run.db")[0]["answer"] == "Paris"


def test_the_same_text_twice_is_one_request(ran, server, tmp_path):
    rows = [{"id": f"q{n}", "question": "[slow] What is it?"} for n in range(12)]
    done = ran(rows)
    assert len(server.asked) == 1
    assert done.outcomes.stated == 12
    assert len(records(tmp_path / "run.db")) == 12


def test_several_guesses_are_rows_of_one_question(ran, tmp_path):
    done = ran(questions(2), Plan("tiny", "verb1s-top3"))
    assert done.outcomes.stated == 6
    found = records(tmp_path / "run.db")
    assert [(row["id"], row["guess"], row["answer"]) for row in found[:3]] == [
        ("q0", 1, "Paris"),
        ("q0", 2, "Lyon"),
        ("q0", 3, "Nice"),
    ]


def test_a_second_stage_is_asked_with_the_first_reply(ran, server):
    ran(questions(2), Plan("tiny", "verb2s-top1"))
    asked = [request["request"]["messages"] for request in server.requests]
    assert sorted(len(messages) for messages in asked) == [1, 1, 3, 3]
    later = next(messages for messages in asked if len(messages) == 3)
    assert [message["role"] for message in later] == ["user", "assistant", "user"]
    assert later[1]["content"].startswith("Guess: Paris")


def test_refused_and_unreadable_replies_are_counted_by_reason(ran, tmp_path):
    done = ran(questions(5) + questions(9, "[refused]")[5:] + questions(12, "[chatty]")[9:])
    assert done.outcomes.stated == 5
    assert done.outcomes.lost["refused"] == 4
    assert sum(number for why, number in done.outcomes.lost.items() if why.startswith("malformed: ")) == 3
    assert len(records(tmp_path / "run.db")) == 5


def test_all_workers_wait_if_one_is_told_to(ran, server):
    done = ran([*questions(1, "[busy]"), *questions(60, "[slow]")[1:]])
    assert done.progress.failed == 0
    asked = server.requests
    busy = next(request["at"] for request in asked if "[busy]" in request["said"])
    # Requests already sent still arrive; then all workers wait for the requested second.
    silent = [request for request in asked if busy + 0.3 < request["at"] < busy + 0.9]
    assert silent == []
    assert len(asked) == 61


@pytest.mark.parametrize(("mark", "requests"), [("[broken]", 3), ("[garbage]", 2)])
def test_temporary_failures_are_retried(ran, server, mark, requests):
    done = ran(questions(1, mark))
    assert done.outcomes.stated == 1
    assert len(server.asked) == requests


def test_a_reply_that_takes_too_long_is_retried(ran, server):
    ran(questions(1))  # so that the server is known to work
    done = ran([*questions(1), {"id": "h", "question": "[hang] Where?"}], timeout=1.0)
    assert (done.progress.sent, done.progress.failed) == (1, 0)
    assert sum("[hang]" in said for said in server.asked) == 2


def test_a_duplicate_row_is_refused_before_any_request(ran, server):
    with pytest.raises(InputError, match=r"is there twice\. Give each row its own id"):
        ran([{"question": "Same?", "ground_truth": "a"}, {"question": "Same?", "ground_truth": "b"}])
    assert server.asked == []


def test_permanent_failures_are_reported_and_asked_again_by_the_next_run(ran, server, tmp_path):
    rows = [*questions(5), {"id": "bad", "question": "[bad] Why?"}]
    done = ran(rows)
    assert (done.progress.sent, done.progress.failed) == (5, 1)
    assert done.outcomes.lost == {"not answered yet": 1}
    connection = sqlite3.connect(tmp_path / "run.db")
    ((why,),) = connection.execute("SELECT failure FROM request WHERE failure IS NOT NULL").fetchall()
    connection.close()
    assert why == "status 400: the question is bad"
    ran(rows)
    assert sum("[bad]" in said for said in server.asked) == 2
    assert len(server.asked) == 7


def test_a_wrong_key_stops_the_run_early(ran, server):
    with pytest.raises(InputError, match=r"status 401: no such key\. Is the key the right one"):
        ran(questions(200), key="wrong")
    assert len(server.asked) <= WORKERS


def test_a_server_that_refuses_everything_stops_the_run(ran, server):
    with pytest.raises(InputError, match="the question is bad"):
        ran(questions(200, "[bad]"))
    assert len(server.asked) <= 10 + WORKERS


def test_questions_that_are_always_refused_do_not_keep_others_from_being_asked(ran, server):
    rows = [*questions(10), *questions(40, "[bad]")[10:], *questions(60)[40:]]
    for sent in (30, 0):
        done = ran(rows)
        assert (done.progress.sent, done.progress.failed) == (sent, 30)
        assert done.outcomes.stated == 30


def test_a_server_that_falls_silent_ends_the_run(ran, server):
    with pytest.raises(ServerError, match=r"status 500: out of order\. Is the server running\?"):
        ran([*questions(3), *questions(300, "[down]")[3:]], tries=1)
    assert len(server.asked) <= 3 + 10 + WORKERS


def test_a_limit_counts_the_given_questions(ran, server, tmp_path):
    ran(questions(5))
    ran([{"id": f"new{n}", "question": f"Is it {n}?"} for n in range(4)], Plan("tiny", limit=2))
    assert len(server.asked) == 7
    assert sum("Is it" in said for said in server.asked) == 2


def test_half_a_character_in_a_reply_does_not_stop_the_run(ran, tmp_path):
    for _ in range(2):
        assert ran(questions(1, "[half]"), Plan("tiny", "verb2s-top1")).progress.failed == 0
    ran(questions(1, "[half]"))
    assert records(tmp_path / "run.db", run=2)[0]["answer"] == "caf?"


def test_passwords_in_the_base_url_are_not_stored(server, tmp_path):
    url = server.base_url.replace("http://", "http://me:secret@")
    done = elicit([*questions(2), *questions(4, "[echo]")[2:]], Client(url), Plan("tiny"), tmp_path / "run.db")
    assert done.progress.failed == 2
    for secret in (b"secret", b"bWU6c2VjcmV0"):
        assert secret not in stored(tmp_path)
        assert secret.decode() not in str(done.progress)
    with pytest.raises(ServerError) as caught:
        elicit(questions(3), Client("http://me:secret@127.0.0.1:9/v1", tries=1), Plan("big"), tmp_path / "run.db")
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        Client("ftp://me:secret@127.0.0.1/v1?key=secret")
    assert str(caught.value).startswith("the base URL is 'ftp://***@127.0.0.1/v1'; expected one such as")


def test_a_prompt_that_needs_token_probabilities_asks_for_them(ran, server):
    with pytest.raises(InputError, match="p-true needs token probabilities"):
        ran(questions(2), Plan("tiny", "p-true", logprobs=False))
    assert server.asked == []


def test_the_llms_and_the_server_are_recorded(ran, tmp_path):
    done = ran([*questions(3), *questions(5, "[other]")[3:]])
    assert done.outcomes.models == {"tiny": 3, "other-7b": 2}
    assert done.begun_at is None
    with serving(tmp_path / "second") as second:
        again = elicit(questions(3), Client(second.base_url), Plan("tiny"), tmp_path / "run.db")
        assert again.begun_at != second.base_url
        assert second.asked == []


def test_a_missing_server_is_reported(tmp_path):
    """It takes a few seconds to find that nothing listens at an address, with any number of workers."""
    start = time.monotonic()
    with pytest.raises(ServerError, match=r"cannot be reached.*Is the server running, and is the base URL right\?"):
        elicit(questions(30), Client("http://127.0.0.1:9/v1"), Plan("tiny"), tmp_path / "run.db")
    assert time.monotonic() - start < 15


def test_a_server_that_goes_away_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("qacal.sources.elicitation.client._FIRST_WAIT", 0.01)
    monkeypatch.setattr("qacal.sources.elicitation.client._LONGEST_AWAY", 0.0)
    with serving(tmp_path / "server") as server:
        client = Client(server.base_url)
        elicit(questions(1), client, Plan("tiny"), tmp_path / "run.db")
    done = elicit(questions(2), client, Plan("tiny"), tmp_path / "run.db")
    # The client counts the request of the first run, too.
    assert (done.progress.failed, done.progress.traffic.requests) == (1, 1 + 6)


_PROGRAM = """
import sys
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit
url, rows, store, workers = sys.argv[1:]
elicit(rows, Client(url), Plan("tiny"), store, workers=int(workers))
"""


def started(server, rows, store):
    command = [sys.executable, "-c", _PROGRAM, server.base_url, rows, store, str(WORKERS)]
    return subprocess.Popen([str(part) for part in command])


def test_a_run_that_is_killed_loses_nothing_and_asks_nothing_again(server, ran, tmp_path):
    """kill -9 at three moments: questions with a stored reply are never asked again, and in the end all have one."""
    rows = tmp_path / "rows.parquet"
    pl.DataFrame(questions(140, "[slow]")).write_parquet(rows)
    store = tmp_path / "run.db"
    for least in (15, 35, 60):
        process = started(server, rows, store)
        while len(server.asked) < least:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        connection = sqlite3.connect(store)
        kept = [json.loads(asked) for (asked,) in connection.execute("SELECT asked FROM request")]
        connection.close()
        # All replies are stored, except those in flight.
        assert len(set(server.asked)) - len(kept) <= WORKERS
    finished = ran(str(rows))
    assert finished.outcomes.stated == 140
    counts = Counter(server.asked)
    assert len(counts) == 140
    # Only requests in flight at one of the three kills were sent again.
    assert sum(counts.values()) - 140 <= 3 * WORKERS
    before = {request["messages"][-1]["content"] for request in kept}
    assert len(before) >= 45
    position = {said: number for number, said in enumerate(server.asked)}
    assert sum(position[said] >= 60 + WORKERS for said in before) <= WORKERS


def test_only_one_process_writes_to_a_run(server, tmp_path):
    rows = tmp_path / "rows.parquet"
    pl.DataFrame(questions(200, "[slow]")).write_parquet(rows)
    process = started(server, rows, tmp_path / "run.db")
    try:
        while len(server.asked) < 5:
            time.sleep(0.01)
        with pytest.raises(InputError, match=r"is being written by another run"):
            elicit(str(rows), Client(server.base_url), Plan("tiny"), tmp_path / "run.db")
        # Reading the replies so far is possible.
        assert 0 < len(records(tmp_path / "run.db")) < 200
    finally:
        process.kill()
        process.wait()


_MEMORY = """
import resource, sys
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit
url, rows, store = sys.argv[1:]
done = elicit(rows, Client(url), Plan("tiny", logprobs=False), store, workers=16)
assert done.progress.failed == 0
print(done.progress.sent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.heavy
def test_ten_thousand_questions_take_no_more_memory_than_a_thousand(server, tmp_path):
    peaks = []
    for count in (1_000, 10_000):
        rows = tmp_path / f"{count}.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in questions(count, "x" * 300)))
        command = [sys.executable, "-c", _MEMORY, server.base_url, rows, tmp_path / f"{count}.db"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
        sent, peak = map(int, done.stdout.split())
        assert sent == count
        peaks.append(peak)
    # In kilobytes. 9,000 questions, requests and replies are some 25 megabytes.
    assert peaks[1] - peaks[0] < 12_000
