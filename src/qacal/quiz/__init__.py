"""Questions with known answers: of topics that a small LLM knows, half knows, and only believes to know.

Facts are typed into tables (`facts/`), all else is computed. See :func:`qacal.quiz.questions`.
"""

from qacal.quiz.kept import answers, provenance
from qacal.quiz.question import Question, Topic
from qacal.quiz.topics import TOPICS, all_questions, questions

__all__ = ["TOPICS", "Question", "Topic", "all_questions", "answers", "provenance", "questions"]
