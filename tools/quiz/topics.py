"""All topics of the quiz, and its questions as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING

from tools.quiz import arithmetic, dates, geography, language, nature, numerals, programs, words, works
from tools.quiz.question import Question, Topic

if TYPE_CHECKING:
    import polars as pl

TOPICS: tuple[Topic, ...] = (
    *geography.TOPICS,
    *works.TOPICS,
    *nature.TOPICS,
    *arithmetic.TOPICS,
    *numerals.TOPICS,
    *dates.TOPICS,
    *words.TOPICS,
    *language.TOPICS,
    *programs.TOPICS,
)


MOST = 84
"""Questions of a topic. More would not tell topics apart any better, and a small LLM takes a second for each."""


def all_questions() -> Iterator[Question]:
    """Yield the questions of all topics: of larger ones those whose ids have the lowest hashes, so that few change."""
    for topic in TOPICS:
        found = list(topic.questions())
        kept = {question.id for question in sorted(found, key=lambda one: _rank(one.id))[:MOST]}
        yield from (question for question in found if question.id in kept)


def _rank(identity: str) -> bytes:
    return sha256(identity.encode()).digest()


def questions() -> pl.DataFrame:
    """Return the quiz: `id`, `question`, `ground_truth`, `subject`, `choices` and `dataset`, a row a question.

    The same on every machine. A question keeps its id when others come or go.

    >>> quiz = questions()
    >>> quiz.row(0)[:4]
    ('capitals-afghanistan', 'What is the capital of Afghanistan?', ['Kabul', 'Kabul, Afghanistan'], 'capitals')
    """
    import polars as pl

    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        "id": pl.String,
        "question": pl.String,
        "ground_truth": pl.List(pl.String),
        "subject": pl.String,
        "choices": pl.List(pl.String),
        "dataset": pl.String,
    }
    return pl.DataFrame([asdict(question) for question in all_questions()], schema=schema, orient="row")
