"""Readers: what the replies to a question come to, one reply a stage, for each form that the prompts ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from qacal.records.written_numbers import expression_key, require_expressions
from qacal.sources.elicitation.outcomes import Malformed, Outcome, Refused, Stated
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS
from qacal.sources.elicitation.reading.parsing import (
    parse_answer,
    parse_confidence,
    parse_expression_guess,
    parse_guess,
    parse_guesses,
)
from qacal.sources.elicitation.reply import Reply
from qacal.sources.elicitation.tokens import true_probability
from qacal.storage.plain import digest

Outcomes: TypeAlias = tuple[Outcome, ...]


def one_guess(replies: Sequence[Reply]) -> Outcomes:
    """Read a guess and its probability."""
    return (parse_guess(replies[0].text, is_cut=replies[0].is_cut),)


@dataclass(frozen=True)
class SeveralGuesses:
    """Reads so many guesses with a probability each."""

    count: int

    def __call__(self, replies: Sequence[Reply]) -> Outcomes:
        """Return an outcome for each guess."""
        return parse_guesses(replies[0].text, self.count, is_cut=replies[0].is_cut)


@dataclass(frozen=True)
class ExpressionReader:
    r"""Reads a guess and an expression, such as "Highly Likely", for the number that it stands for.

    LLMs use words that the prompt does not list. They are not read unless somebody says what they are worth:

    >>> replies = [Reply("Guess: Paris\nConfidence: High")]
    >>> ExpressionReader()(replies)[0].why
    <Reason.UNKNOWN_EXPRESSION: 'the expression is not one of the list'>
    >>> ExpressionReader().and_also({"High": 0.85})(replies)
    (Stated(answer='Paris', confidence=0.85),)
    """

    expressions: Mapping[str, float] = field(default_factory=lambda: EXPRESSIONS)

    def __post_init__(self) -> None:
        require_expressions(self.expressions)

    def __call__(self, replies: Sequence[Reply]) -> Outcomes:
        """Return the guess with what its expression is worth."""
        return (parse_expression_guess(replies[0].text, self.expressions, is_cut=replies[0].is_cut),)

    def and_also(self, further: Mapping[str, float]) -> ExpressionReader:
        """Return a reader that knows further expressions, or other numbers for the same ones in any spelling."""
        require_expressions(further)
        renamed = {expression_key(name) for name in further}
        kept = {name: worth for name, worth in self.expressions.items() if expression_key(name) not in renamed}
        return ExpressionReader({**kept, **further})

    @property
    def mark(self) -> str:
        """What tells apart confidences that were read with other numbers; empty for the paper's."""
        worths, usual = (
            {expression_key(name): float(worth) for name, worth in given.items()}
            for given in (self.expressions, EXPRESSIONS)
        )
        return "" if worths == usual else f"~{digest(worths)[:8]}"


def answer_then_probability(replies: Sequence[Reply]) -> Outcomes:
    """Read an answer from the first reply and its probability from the second."""
    return _answer_then(replies, parse_confidence(replies[1].text, is_cut=replies[1].is_cut))


def answer_then_true(replies: Sequence[Reply]) -> Outcomes:
    """Read an answer from the first reply, and from the second the probability of the token True."""
    return _answer_then(replies, true_probability(replies[1]))


def _answer_then(replies: Sequence[Reply], confidence: float | Refused | Malformed) -> Outcomes:
    answer = parse_answer(replies[0].text, is_cut=replies[0].is_cut)
    if not isinstance(answer, str):
        return (answer,)
    return (Stated(answer, confidence) if isinstance(confidence, float) else confidence,)
