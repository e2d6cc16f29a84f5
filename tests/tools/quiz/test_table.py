"""The whole table: its size, its columns, and reproducibility."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from functools import cache

import polars as pl
import pytest
from tools.quiz.question import Draws, Item, drawn, shuffled

from qacal.errors import InputError
from qacal.sources.questions import quiz
from tools.quiz import TOPICS, Question, all_questions, questions

DIGEST = "172e52a5cd2e60846863257f3b123c6f87ad0199a6e84f39fae40314438250cf"
RENEW = (
    "the questions of the quiz have changed, and answers to the old ones may be kept with the project. If it is meant, "
    "look at which ids are new or gone, answer those, and put {} into DIGEST."
)


@cache
def asked() -> tuple[Question, ...]:
    return tuple(all_questions())


def digest() -> str:
    rows = [[row.id, row.question, row.ground_truth, row.subject, row.choices, row.dataset] for row in asked()]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def test_there_are_enough_questions_of_enough_topics():
    sizes = Counter(row.subject for row in asked())
    assert len(asked()) >= 3_400
    assert len(sizes) >= 20
    assert min(sizes.values()) >= 60
    assert set(sizes) == {topic.name for topic in TOPICS}
    assert max(sizes.values()) <= 220


@pytest.mark.parametrize("column", ["id", "question"])
def test_no_two_rows_are_the_same(column):
    counts = Counter(getattr(row, column) for row in asked())
    assert [value for value, times in counts.items() if times > 1] == []


def test_the_questions_are_those_that_were_answered():
    assert digest() == DIGEST, RENEW.format(digest())


def test_the_table_does_not_depend_on_the_hash_seed():
    program = "from tools.quiz import questions; print(questions().write_ndjson())"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_the_package_ships_these_questions():
    """If the change is intended: python -m tools.quiz src/qacal/sources/questions/data/quiz_questions.parquet."""
    assert quiz.questions().equals(questions())


def test_the_frame_holds_what_the_questions_hold():
    frame = questions()
    assert frame.schema == {
        "id": pl.String,
        "question": pl.String,
        "ground_truth": pl.List(pl.String),
        "subject": pl.String,
        "choices": pl.List(pl.String),
        "dataset": pl.String,
    }
    assert frame.height == len(asked())
    first, choice = asked()[0], next(row for row in asked() if row.choices)
    rows = {row["id"]: row for row in frame.iter_rows(named=True)}
    assert rows[first.id]["ground_truth"] == list(first.ground_truth)
    assert rows[first.id]["choices"] is None
    assert rows[choice.id]["choices"] == list(choice.choices)
    assert frame["dataset"].unique().to_list() == ["quiz"]


def test_ids_are_plain_and_begin_with_their_topic():
    for row in asked():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.id)
        assert row.id.startswith(f"{row.subject}-")


def test_no_text_is_empty_or_padded():
    for row in asked():
        for text in (row.question, *row.ground_truth, *(row.choices or ())):
            assert text
            assert text == text.strip()
            assert unicodedata.normalize("NFC", text) == text


def test_forms_of_an_answer_are_distinct():
    assert [row.id for row in asked() if len(set(row.ground_truth)) < len(row.ground_truth)] == []


def test_no_answer_is_only_an_article():
    """Comparison removes articles."""
    assert [row.id for row in asked() if {"a", "an", "the"} & {form.casefold() for form in row.ground_truth}] == []


def test_questions_are_questions():
    for row in asked():
        is_program = row.subject.startswith("python-") and row.question.startswith("What does this Python ")
        assert row.question.endswith("?") or is_program, row


def words(text: str) -> str:
    return " ".join(["", *re.findall(r"[^\W_]+", text.casefold()), ""])


def test_no_question_answers_itself():
    """Compared word for word without punctuation; questions with choices name the right one."""
    for row in asked():
        if row.choices is None:
            assert [form for form in row.ground_truth if words(form) in words(row.question)] == [], row


def test_choices_hold_the_truth_and_stand_in_the_question():
    offered = [row for row in asked() if row.choices is not None]
    assert len({row.subject for row in offered}) >= 2
    for row in offered:
        assert len(set(row.choices)) == len(row.choices) >= 2
        assert row.ground_truth[0] in row.choices
        assert all(words(choice) in words(row.question) for choice in row.choices)


@pytest.mark.parametrize("subject", ["larger-country", "larger-decimal", "alphabetical"])
def test_the_place_of_the_right_choice_tells_nothing(subject):
    rows = [row for row in asked() if row.subject == subject]
    places = Counter(row.choices.index(row.ground_truth[0]) for row in rows)
    share = 1 / len(rows[0].choices)
    spread = (share * (1 - share) / len(rows)) ** 0.5
    assert all(abs(places[place] / len(rows) - share) < 3.5 * spread for place in range(len(rows[0].choices)))


def test_a_larger_topic_keeps_its_questions():
    def make(draws: Draws) -> Item | None:
        number = draws.number(1, 60)
        return Item(str(number), f"What comes after {number}?", (str(number + 1),)) if number % 3 else None

    few, many = (list(drawn("successor", size, make).questions()) for size in (10, 30))
    assert many[:10] == few
    assert len({row.id for row in many}) == 30


def successor_of_digit(draws: Draws) -> Item:
    """Return a question that names the answer if the digit is odd."""
    digit = draws.number(1, 9)
    return Item(str(digit), f"What comes after {digit}, {digit + digit % 2}?", (str(digit + 1),))


def test_a_question_that_gives_itself_away_is_not_drawn():
    topic = drawn("digits", 4, successor_of_digit)
    assert {row.ground_truth for row in topic.questions()} == {("3",), ("5",), ("7",), ("9",)}
    assert Item("a", "Who wrote Kim?", ("Kim",)).gives_itself_away
    assert not Item("a", "Who wrote Kimono?", ("Kim",)).gives_itself_away
    assert not Item("a", "Is it Kim or Tim?", ("Kim",), ("Kim", "Tim")).gives_itself_away


def test_a_topic_that_has_no_more_questions_says_so():
    with pytest.raises(InputError, match=r"500 draws made 4 questions of topic 'digits', not 5; ask for fewer"):
        list(drawn("digits", 5, successor_of_digit).questions())


def test_draws_reach_both_ends_and_nothing_else():
    seen = {Draws(f"dice-{number}").number(1, 6) for number in range(200)}
    assert seen == {1, 2, 3, 4, 5, 6}
    assert sorted(Draws("deck").some(range(52), 52)) == list(range(52))
    assert len({shuffled((str(number), "x")).index("x") for number in range(20)}) == 2


def test_a_question_is_a_value():
    row = Question("a-b", "What?", ("b",), "a")
    with pytest.raises(AttributeError):
        row.id = "c"  # type: ignore[misc]
