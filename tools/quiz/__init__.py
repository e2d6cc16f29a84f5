"""Questions with known answers, on topics that a small LLM knows well, partly, or not at all.

Facts are in tables (`facts/`), everything else is computed. Open `question.py` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING

from tools.quiz import arithmetic, dates, geography, language, nature, numerals, programs, words, works
from tools.quiz.question import Question, Topic

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TOPICS", "Question", "Topic", "all_questions", "questions"]

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

# The largest number of questions of a topic. A small LLM takes a second for each.
MOST = 84


def all_questions() -> Iterator[Question]:
    """Yield the questions of all topics; of larger topics, the questions whose ids have the lowest hashes."""
    for topic in TOPICS:
        generated = list(topic.questions())
        ids = sorted((question.id for question in generated), key=lambda id_: sha256(id_.encode()).digest())
        kept = set(ids[:MOST])
        yield from (question for question in generated if question.id in kept)


def questions() -> pl.DataFrame:
    """Return the quiz: `id`, `question`, `ground_truth`, `subject`, `choices` and `dataset`, one row per question.

    The quiz is the same on every machine. A question keeps its id when other questions are added or removed.

    >>> quiz = questions()
    >>> quiz.row(0)[:4]
    ('capitals-afghanistan', 'What is the capital of Afghanistan?', ['Kabul', 'Kabul, Afghanistan'], 'capitals')
    """
    import polars as pl

    return pl.DataFrame([asdict(question) for question in all_questions()], infer_schema_length=None)
