"""The store of a run: what it accepts, what it refuses, and that changes are atomic."""

import fcntl
import sqlite3

import pytest

from qacal.errors import InputError
from qacal.sources.elicitation import prompt_named
from qacal.sources.elicitation.question import read_questions
from qacal.sources.elicitation.run import Plan, Setup
from qacal.sources.elicitation.store import open_store

TOML = """
name = "mine"
version = 2
parser = "guess"
template = "$question Two lines: Guess and Probability."
"""


def test_questions_come_back_as_they_went_in(tmp_path):
    rows = [
        {"id": 7, "question": "Größe?", "choices": ["a", "b"], "ground_truth": ["a", "A"], "topic": "x", "level": 2},
        {"question": "No id?"},
    ]
    with open_store(tmp_path / "run.db", to_write=True) as store:
        run = store.run({"model": "m"}, "http://x")
        assert store.add_questions(run, read_questions(rows)) == 2
        assert len(list(store.questions(run))) == 2
        first, second = store.questions(run)
    assert (first.id, first.text) == ("7", "Größe?")
    assert first.choices == ("a", "b")
    assert first.ground_truth == ("a", "A")
    assert first.others == {"topic": "x", "level": 2}
    assert second.choices is None
    assert len(second.id) == 16


def test_a_bad_row_adds_no_question_at_all(tmp_path):
    rows = [{"id": 1, "question": "Fine?"}, {"id": 2, "question": None}]
    with open_store(tmp_path / "run.db", to_write=True) as store:
        run = store.run({"model": "m"}, "http://x")
        with pytest.raises(InputError, match="row 2: question is None; expected text"):
            store.add_questions(run, read_questions(rows))
        assert not list(store.questions(run))


def test_an_id_is_one_question(tmp_path):
    with open_store(tmp_path / "run.db", to_write=True) as store:
        run = store.run({"model": "m"}, "http://x")
        store.add_questions(run, read_questions([{"id": 1, "question": "Fine?", "ground_truth": "yes"}]))
        store.add_questions(run, read_questions([{"id": 1, "question": "Fine?", "ground_truth": "no"}]))
        (only,) = store.questions(run)
        assert only.ground_truth == ("no",)
        with pytest.raises(InputError, match="the id '1' belongs to two questions"):
            store.add_questions(run, read_questions([{"id": 1, "question": "Other?"}]))


def test_many_questions_are_read_in_their_order(tmp_path):
    with open_store(tmp_path / "run.db", to_write=True) as store:
        run = store.run({"model": "m"}, "http://x")
        store.add_questions(run, read_questions([{"id": n, "question": f"{n}?"} for n in range(1203)]))
        assert [question.id for question in store.questions(run)] == [str(n) for n in range(1203)]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": 3}, "question is 3; expected text"),
        ({"question": "x", "id": 1.5}, "id is 1.5"),
        ({"question": "x", "choices": [1, {}]}, "choices is"),
        ({"question": "half \ud800"}, "half of a character"),
        ({"text": "x"}, "no column 'question'"),
    ],
)
def test_rows_that_are_not_questions(row, problem):
    with pytest.raises(InputError, match=problem):
        list(read_questions([row]))


def test_lists_may_be_json_text_as_in_csv(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text('question,choices,ground_truth\nOne?,"[""a"", ""b""]",a\nTwo?,,"[sic]"\n')
    first, second = read_questions(str(path))
    assert first.choices == ("a", "b")
    assert first.ground_truth == ("a",)
    assert second.choices is None
    assert second.ground_truth == ("[sic]",)


def test_a_reply_replaces_a_failure(tmp_path):
    request = {"model": "m", "messages": []}
    with open_store(tmp_path / "run.db", to_write=True) as store:
        store.keep(request, None, "status 500: away", 0.1)
        assert store.reply(request) is None
        store.keep(request, '{"choices": [{"message": {"content": "Guess: 4"}}]}', None, 0.1)
        assert store.reply(request).text == "Guess: 4"


def test_the_order_of_fields_does_not_matter(tmp_path):
    with open_store(tmp_path / "run.db", to_write=True) as store:
        store.keep({"model": "m", "seed": 1}, '{"choices": [{"message": {"content": "Guess: 4"}}]}', None, 0.1)
        assert store.reply({"seed": 1, "model": "m"}).text == "Guess: 4"
        assert store.reply({"seed": 2, "model": "m"}) is None


def test_files_that_are_not_runs(tmp_path):
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(InputError, match="not a run of qacal elicit"), open_store(other, to_write=True):
        pass
    text = tmp_path / "text.db"
    text.write_text("hello " * 200)
    with pytest.raises(InputError, match="expected an SQLite file"), open_store(text, to_write=True):
        pass
    with pytest.raises(InputError, match="does not exist"), open_store(tmp_path / "none.db", to_write=False):
        pass
    with pytest.raises(InputError, match="folder"), open_store(tmp_path / "none" / "run.db", to_write=True):
        pass
    later = tmp_path / "later.db"
    with open_store(later, to_write=True):
        pass
    connection = sqlite3.connect(later)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(InputError, match="later qacal"), open_store(later, to_write=False):
        pass


def test_setups_come_back_from_the_store(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    for name in ("verb1s-top3", "verb1s-guided", str(path)):
        setup = Plan("m", name, False, {"seed": 1}).setup()
        path.unlink(missing_ok=True)
        again = Setup.from_dict(setup.to_dict())
        assert again.prompt.identity == setup.prompt.identity
        assert (again.model, again.logprobs, again.fields) == ("m", False, {"seed": 1})
        path.write_text(TOML)


def test_expressions_that_an_earlier_version_stored_are_the_default():
    prompt = prompt_named("ling1s-top1")
    stored = Setup("m", prompt).to_dict() | {"expressions": {"Dead Certain": 0.99}}
    assert Setup.from_dict(stored).prompt == prompt.with_expressions({"Dead Certain": 0.99})
    assert Setup.from_dict(stored, {"Sort Of": 0.4}).prompt == prompt.with_expressions({"Sort Of": 0.4})
    assert Setup.from_dict(stored | {"expressions": {}}).prompt == prompt


def test_a_prompt_whose_text_has_changed_is_not_taken_for_the_one_of_the_run():
    plain = Setup("m", prompt_named("verb1s-top1")).to_dict()
    with pytest.raises(InputError, match="the text of this prompt has changed since"):
        Setup.from_dict(plain | {"digest": "0" * 64})


def test_a_lock_whose_file_was_removed_does_not_block(tmp_path, monkeypatch):
    """Another process finishes between our opening and locking of the file: the file we hold has been removed."""
    path, lock = tmp_path / "run.db", tmp_path / "run.db-lock"
    flock, tries = fcntl.flock, []

    def late(file, how):
        tries.append(file)
        if len(tries) == 1:
            lock.unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with open_store(path, to_write=True):
        assert len(tries) == 2
        with pytest.raises(InputError, match="is being written by another run"), open_store(path, to_write=True):
            pass
    assert not lock.exists()
