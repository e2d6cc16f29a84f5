"""Questions with known answers: of topics that a small LLM knows, half knows, and only believes to know.

Facts are typed into tables (`facts/`), all else is computed. See :func:`tools.quiz.questions`.
"""

from tools.quiz.question import Question, Topic
from tools.quiz.topics import TOPICS, all_questions, questions

__all__ = ["TOPICS", "Question", "Topic", "all_questions", "questions"]
