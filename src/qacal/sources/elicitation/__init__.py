"""Confidences from LLMs: prompts that ask for them, and replies read as typed outcomes."""

from qacal.sources.elicitation.matching import matches, normalise_answer
from qacal.sources.elicitation.outcomes import Malformed, Outcome, Reason, Refused, Stated
from qacal.sources.elicitation.prompt_files import load_prompt
from qacal.sources.elicitation.prompts import PROMPTS, Prompt, Stage, prompt_named
from qacal.sources.elicitation.questions import Question
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS, read_expression
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.elicitation.reading.parsing import (
    parse_expression_guess,
    parse_guess,
    parse_guesses,
    parse_stated,
)
from qacal.sources.elicitation.reply import Reply, Token
from qacal.sources.elicitation.tokens import answer_probability, length_normalised
from qacal.sources.elicitation.verdicts import judge_messages, read_verdict

__all__ = [
    "EXPRESSIONS",
    "PROMPTS",
    "Malformed",
    "Outcome",
    "Prompt",
    "Question",
    "Reason",
    "Refused",
    "Reply",
    "Stage",
    "Stated",
    "Token",
    "answer_probability",
    "judge_messages",
    "length_normalised",
    "load_prompt",
    "matches",
    "normalise_answer",
    "parse_expression_guess",
    "parse_guess",
    "parse_guesses",
    "parse_stated",
    "prompt_named",
    "read_expression",
    "read_probability",
    "read_verdict",
]
