"""Confidences from LLMs: prompts that ask for them, and replies read as typed outcomes."""

from qacal.elicitation.expressions import EXPRESSIONS, read_expression
from qacal.elicitation.normalising import matches, normalise_answer
from qacal.elicitation.numbers import read_probability
from qacal.elicitation.outcomes import Malformed, Outcome, Reason, Refused, Stated
from qacal.elicitation.parsing import parse_expression_guess, parse_guess, parse_guesses, parse_stated
from qacal.elicitation.prompt_files import load_prompt
from qacal.elicitation.prompts import PROMPTS, Prompt, Stage, prompt_named
from qacal.elicitation.questions import Question
from qacal.elicitation.replies import Reply, Token
from qacal.elicitation.token_confidence import answer_probability, length_normalised
from qacal.elicitation.verdicts import judge_messages, read_verdict

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
