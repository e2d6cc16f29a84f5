"""Damaged and malicious files of runs: each is an error that names the problem, or damaged parts are skipped."""

import json
import os
import random
import sqlite3

import pytest

from qacal.errors import InputError
from qacal.sources.elicitation import Prompt, Refused, Stage, patterns
from qacal.sources.elicitation import store as stores
from qacal.sources.elicitation.question import read_questions
from qacal.sources.elicitation.run import Plan, Setup, stored_run
from qacal.sources.elicitation.store import open_store
from tests.cli.test_cli import run
from tests.sources.elicitation.serving import questions

ROWS = questions(40)
REPLY = json.dumps({"choices": [{"message": {"content": "Guess: Paris\nProbability: 0.9"}}]})
SETUP = Plan("m", "verb1s-top1").setup()
PLAIN = SETUP.to_dict()


@pytest.fixture
def path(tmp_path):
    with open_store(tmp_path / "run.db", to_write=True) as store:
        number = store.run(PLAIN, "http://x")
        store.add_questions(number, read_questions(ROWS))
        for question in store.questions(number):
            store.keep(next(SETUP.conversation(question)).request, REPLY, None, 0.1)
    return tmp_path / "run.db"


def changed(path, script):
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def test_a_good_file(path):
    code, out, _ = run("answers", path)
    assert (code, len(out.splitlines())) == (0, 40)


RECURSIVE = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
ENDLESS = f"{RECURSIVE} 1 AS run, x AS place, 'q' || x AS id, '{{}}' AS content FROM n;"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("DROP TABLE request;", "has other tables"),
        ("DROP TABLE run; CREATE TABLE run (id, setup);", "has other tables"),
        (
            f"DROP TABLE question; CREATE VIEW question AS {ENDLESS}",
            "has other tables",
        ),
        (
            f"DROP TABLE run; CREATE VIEW run AS {RECURSIVE} x AS id, '{{}}' AS setup FROM n;",
            "has other tables",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON request BEGIN DELETE FROM question; END;",
            "has other tables",
        ),
        ("CREATE INDEX i ON request (length(hex(asked)));", "has other tables"),
        ("UPDATE run SET setup = 'x';", "run 1 is 'x'; expected a JSON object"),
        ("UPDATE run SET setup = x'ff00';", "expected a JSON object"),
        ("UPDATE run SET setup = '[1]';", "run 1 is '[1]'; expected a JSON object"),
        ("UPDATE run SET setup = printf('%.*c', 100000, '[');", "expected a JSON object"),
        ("UPDATE run SET setup = '{}';", "the run says model: None"),
        ("UPDATE run SET setup = json_set(setup, '$.fields', 3);", "the run says fields: 3"),
        ("UPDATE run SET setup = json_set(setup, '$.samples', 1000000000);", "the run says samples: 1000000000"),
        ("UPDATE run SET setup = json_set(setup, '$.samples', 'x');", "the run says samples: 'x'"),
        ("UPDATE run SET setup = json_set(setup, '$.origin', json('{}'));", "the run says origin: {}"),
        (
            "UPDATE run SET setup = json_set(setup, '$.expressions', json('{\"a\": \"b\"}'));",
            "the run says expressions",
        ),
        ("UPDATE question SET content = '{}' WHERE place = 3;", "question 'q2' is '{}'; expected a question"),
        ("UPDATE question SET content = 7 WHERE place = 3;", "question 'q2' is '7'; expected a JSON object"),
        ("UPDATE question SET content = json_set(content, '$.choices', 3);", "expected a question"),
        ("UPDATE question SET content = json_set(content, '$.ground_truth', json('[{}]'));", "expected a question"),
        ("UPDATE question SET content = json_set(content, '$.others', 'x');", "expected a question"),
        ("UPDATE question SET place = 'zz' WHERE place = 3;", "is at the place 'zz'"),
        ("UPDATE question SET id = x'ff' WHERE place = 3;", "question b'\\xff' is at the place 3"),
        ("PRAGMA application_id = 5;", "is a database, but not a run"),
        ("PRAGMA user_version = 5;", "was written by a later qacal"),
    ],
)
def test_content_that_qacal_did_not_write_is_refused(path, script, problem):
    changed(path, script)
    for command in (("answers", path), ("judge", path, "-o", path.with_name("out.jsonl"))):
        code, _, err = run(*command)
        assert code == 1
        assert err.startswith("qacal: ")
        assert problem in err
        assert len(err) < 800


@pytest.mark.parametrize(
    "reply", ["'x'", "7", "x'ff'", "''", "'{}'", "printf('%.*c', 100000, '[')", '\'{"choices": [{"message": 3}]}\'']
)
def test_a_damaged_reply_is_skipped(path, reply):
    changed(path, f"UPDATE request SET reply = {reply} WHERE key = (SELECT min(key) FROM request);")
    code, out, err = run("answers", path)
    assert (code, len(out.splitlines())) == (0, 39)
    assert "1 not answered yet" in err


# The first backtracks 2^50 times; the second would take an hour to compile.
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("((a|a)+b)?", "takes more than 0.1 s"),
        ("(?i:" + "[\\x00-\\U0010ffff\\U0001e900]" * 10_000 + ")?", "characters; expected 2,000 at most"),
    ],
)
def test_a_pattern_that_takes_forever(tmp_path, monkeypatch, harm, said):
    """The pattern is stored in the run and applied to its replies."""
    monkeypatch.setattr(patterns, "_SECONDS", 0.1)

    def kept(name, parser):
        text = f"name = 'mine'\nversion = 1\ntemplate = '$question'\nparser = '{parser}'\n"
        prompt = Prompt("mine", 1, (Stage("$question"),), lambda replies: (Refused(replies[0].text),))
        setup = Setup("m", prompt, origin=text)
        with open_store(tmp_path / name, to_write=True) as store:
            number = store.run(setup.to_dict(), "http://x")
            store.add_questions(number, read_questions(questions(2)))
            for question in store.questions(number):
                store.keep(next(setup.conversation(question)).request, reply, None, 0.1)
        return tmp_path / name

    reply = json.dumps({"choices": [{"message": {"content": "a" * 50 + " Paris, 0.9"}}]})
    honest = r"(?P<answer>\w+), (?P<confidence>\S+)"
    code, out, _ = run("answers", kept("honest.db", honest))
    assert (code, [json.loads(line)["answer"] for line in out.splitlines()]) == (0, ["Paris"] * 2)
    code, _, err = run("answers", kept("hostile.db", harm + honest))
    assert code == 1
    assert said in err
    assert len(err) < 800


def test_a_huge_value_is_not_read(path, monkeypatch):
    monkeypatch.setattr(stores, "_LARGEST_VALUE", 100_000)
    changed(path, "UPDATE request SET reply = printf('%.*c', 1000000, 'x');")
    code, _, err = run("answers", path)
    assert code == 1
    assert "string or blob too big" in err


def test_a_file_that_another_program_locks(path, monkeypatch):
    monkeypatch.setattr(stores, "_SECONDS_TO_WAIT", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    code, _, err = run("answers", path)
    holder.close()
    assert code == 1
    assert "database is locked. Another program holds it" in err


def test_a_file_error_during_a_run_is_reported(path):
    def too_much():
        with open_store(path, to_write=True) as store:
            store._db.execute("PRAGMA max_page_count = 1")
            store.keep({"model": "m"}, "x" * 100_000, None, 0.1)

    with pytest.raises(InputError, match=r"cannot be used as a run: .*full"):
        too_much()


def test_pipes_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "run.db")
    for to_write in (True, False):
        with (
            pytest.raises(InputError, match="is not a regular file"),
            open_store(tmp_path / "run.db", to_write=to_write),
        ):
            pass


def test_a_lock_that_points_elsewhere_empties_nothing(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run.db-lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"), open_store(tmp_path / "run.db", to_write=True):
        pass
    assert victim.read_text() == "precious"


def test_flipped_and_missing_bytes(path):
    """80 damaged copies, read and written, each give answers or an error of qacal."""
    whole, rng = path.read_bytes(), random.Random(0)
    broken = path.with_name("broken.db")
    errors = 0
    for trial in range(80):
        data = bytearray(whole[: rng.randrange(len(whole))] if trial % 4 == 0 else whole)
        for _ in range(rng.choice([1, 20, 400])):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        broken.write_bytes(data)
        for beside in ("-wal", "-shm", "-journal"):
            broken.with_name(broken.name + beside).unlink(missing_ok=True)
        try:
            with open_store(broken, to_write=False) as store:
                assert len(list(stored_run(store).answers())) <= 40
            with open_store(broken, to_write=True) as store:
                store.add_questions(store.run(PLAIN, "http://x"), read_questions(ROWS))
        except InputError:
            errors += 1
    assert errors > 20


def test_invalid_setups():
    for wrong in ({"model": 3}, {"origin": {"file": 3, "name": "verb1s-top1"}}, {"expressions": 3}):
        with pytest.raises(InputError, match="which qacal elicit does not write"):
            Setup.from_dict(PLAIN | wrong)
