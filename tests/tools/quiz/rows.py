"""All that the topics can ask, not only what the quiz has room for; made once, and not while tests are collected."""

from __future__ import annotations

from functools import cache

from tools.quiz import TOPICS, Question


@cache
def everything() -> tuple[Question, ...]:
    return tuple(question for topic in TOPICS for question in topic.questions())
