"""All questions of the topics, not only those in the quiz; made once, after collection."""

from __future__ import annotations

from functools import cache

from tools.quiz import TOPICS, Question


@cache
def everything() -> tuple[Question, ...]:
    return tuple(question for topic in TOPICS for question in topic.questions())
