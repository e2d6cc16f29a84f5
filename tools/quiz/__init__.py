"""Questions with known answers, on topics that a small LLM knows well, partly, or not at all.

Facts are in tables (`facts/`), everything else is computed. See :func:`tools.quiz.questions`.
"""

from tools.quiz.question import Question, Topic
from tools.quiz.topics import TOPICS, all_questions, questions

__all__ = ["TOPICS", "Question", "Topic", "all_questions", "questions"]
