"""The confidence of a row: in the log's metadata, stated in a reply, of its tokens, or by agreement of repeats.

A source must be on a scale from 0 to 1. On another scale a 1 is one percent, or the worst of five grades. One number
outside 0 to 1 reveals another scale. Dropping only its row would keep the rows that are misread, so the whole log is
refused.

A number at the end of a reply that was cut off may lack digits: "0" may be the beginning of "0.9".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qacal.errors import InputError
from qacal.sources.elicitation.matching import normalise_answer
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.elicitation.reading.parsing import parse_stated
from qacal.sources.elicitation.reply import Refused, Reply, Stated
from qacal.sources.elicitation.tokens import answer_probability, joint_probability
from qacal.sources.importers.base import Confidence, Scored, Selection, Unscored
from qacal.sources.importers.values import inside, unpacked
from qacal.tally.arrays import is_missing

METADATA, STATED, TOKENS = "metadata", "stated", "tokens"
AGREEMENT, LIKELIHOOD = "agreement", "choice likelihood"


def parse_confidence(
    value: Any, selection: Selection, source: str = METADATA, place: str = "the metadata"
) -> Confidence:
    """Return a confidence that a log has as a number, or as text with one; none if another source was chosen.

    Text follows the rules for replies, so "0.95%" is not read. A number without a percent sign is a fraction, so "95"
    is outside 0 to 1.

    place : the name of the number's place in messages.

    >>> parse_confidence("95%", Selection()), parse_confidence(95, Selection(percent=True)).value
    (Scored(value=0.95, source='metadata'), 0.95)
    >>> parse_confidence(95, Selection())
    Traceback (most recent call last):
    qacal.errors.InputError: the confidence in the metadata is 95; expected 0 to 1. ...
    """
    if selection.confidence_from not in (None, source):
        return Unscored(f"{source} was not chosen")
    if is_missing(value):
        return Unscored(f"none in {place}")
    number = bare_number(value)
    if isinstance(value, str) and (math.isnan(number) or (is_unit(number) and not selection.percent)):
        reading = read_probability(value)
        return Scored(reading, source) if isinstance(reading, float) else Unscored(f"{place}: {reading.why}")
    if not math.isfinite(number):
        return Unscored(f"what is in {place} is not a number")
    scaled = number / 100 if selection.percent else number
    remedy = "It is not a percent either." if selection.percent else "If these are percents, pass --percent."
    if 1 < number <= 10:
        remedy = "If these are grades, as from 0 to 10 or 1 to 5, convert them to 0 to 1 first. " + remedy
    if source == METADATA:
        remedy += " Another source is chosen with --confidence-from."
    require_unit(scaled, f"the confidence in {place}", number, remedy)
    return Scored(unit(scaled), source, selection.percent)


def bare_number(value: Any) -> float:
    """Return a number, or text that is one without a percent sign or a word; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value) if "_" not in str(value) else math.nan
    except (ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True, slots=True)
class ParsedReply:
    r"""The answer that the parser reads in a reply, or the whole text; and the confidence that the reply states.

    >>> ParsedReply.of("Guess: Paris\nProbability: 0.9")
    ParsedReply(answer='Paris', stated=Scored(value=0.9, source='stated'))
    """

    answer: str
    stated: Confidence

    @staticmethod
    def of(text: str, *, is_cut: bool = False) -> ParsedReply:
        outcome = parse_stated(text, is_cut=is_cut)
        if isinstance(outcome, Stated):
            return ParsedReply(outcome.answer, Scored(outcome.confidence, STATED))
        why = "the LLM refused" if isinstance(outcome, Refused) else str(outcome.why)
        return ParsedReply(text.strip(), Unscored(why))


def by_tokens(reply: Reply, answer: str) -> Confidence:
    """Return the probability of the tokens that spell the answer, if the log has them."""
    if not reply.tokens:
        return Unscored("there are no token probabilities")
    probability = answer_probability(reply, answer)
    if probability is None:
        # Logs may hold tokens of the answer alone. A letter among choices is one token, and clear if it occurs once.
        alone = [token.logprob for token in reply.tokens if token.text.strip() == answer]
        probability = joint_probability(alone) if len(alone) == 1 else None
    if probability is None:
        return Unscored("it is unclear which tokens spell the answer")
    return Scored(probability, TOKENS)


def by_logprobs(logprobs: Any, *, is_answer: bool) -> Confidence:
    """Return the probability of a reply from the log-probabilities of its tokens, for logs without the tokens.

    is_answer : whether the reply is only the answer; otherwise it is unknown which tokens spell the answer.

    >>> by_logprobs([-0.5, -0.25], is_answer=True).value == math.exp(-0.75)
    True
    """
    if not isinstance(logprobs, list) or not logprobs:
        return Unscored("there are no token probabilities")
    probability = joint_probability([bare_number(logprob) for logprob in logprobs]) if is_answer else None
    if probability is None:
        return Unscored("it is unclear which tokens spell the answer")
    return Scored(probability, TOKENS)


def agreement(answers: Sequence[str], answer: str | None = None) -> tuple[str, Confidence]:
    r"""Return an answer, and the share of repeats that give it, capitals, articles and punctuation aside.

    answer : the answer that was judged; by default the most frequent one, and among several of these the first.

    >>> agreement(["Paris", "Lyon", "paris."])
    ('Paris', Scored(value=0.6666666666666666, source='agreement'))
    """
    normalised = [normalise_answer(text) for text in answers]
    # A counter keeps the order of first use, so the first of equally frequent answers is the most common.
    counts = Counter(normalised)
    wanted = counts.most_common(1)[0][0] if answer is None else normalise_answer(answer)
    if wanted not in counts:
        return answer or "", Unscored("the judged answer is not among the repeats")
    confidence = Scored(counts[wanted] / len(answers), AGREEMENT)
    return answers[normalised.index(wanted)] if answer is None else answer, confidence


# Words of OpenAI (two APIs), Anthropic, Gemini, inspect_ai and Hugging Face.
_CUT = {
    *("length", "max_tokens", "max_output_tokens", "max_new_tokens"),
    *("model_length", "model_context_window_exceeded"),
}
_NAMES = ("finish_reason", "stop_reason", "finishReason", "stopReason", "done_reason")


def is_cut_reason(reason: Any) -> bool:
    """Return whether a finish reason means that the reply reached its limit; the Responses API puts it into an object.

    >>> [is_cut_reason(reason) for reason in ("length", "MAX_TOKENS", {"reason": "length"}, "stop", None)]
    [True, True, True, False, False]
    """
    word = reason.get("reason") if isinstance(reason, dict) else reason
    return isinstance(word, str) and word.lower() in _CUT


def is_cut_off(replied: Any) -> bool:
    """Return whether a completion or a message, possibly JSON as text, says that it was cut off.

    >>> is_cut_off('{"choices": [{"message": {"content": "Guess: Par"}, "finish_reason": "length"}]}')
    True
    """
    body = unpacked(replied)
    last = inside(body, -1)
    holders = (body, inside(body, "choices", 0), last, inside(last, "response_metadata"))
    reasons = [inside(holder, name) for holder in holders for name in _NAMES]
    return any(is_cut_reason(reason) for reason in (*reasons, inside(body, "incomplete_details")))


def is_unit(number: float) -> bool:
    """Return whether a number lies in 0 to 1, apart from rounding."""
    # A softmax in single precision may give 1.0000001; no other scale ends there.
    return -1e-6 <= number <= 1 + 1e-6


def require_unit(number: float, source: str, written: float, remedy: str) -> None:
    """Refuse a log with a number outside 0 to 1: its source is on another scale."""
    if not is_unit(number):
        missing = " If -1 or the like means no value, leave it empty." if number < 0 else ""
        raise InputError(
            f"{source} is {written:g}; expected 0 to 1. On another scale a 1 may mean anything, so nothing is "
            f"imported. {remedy}{missing}"
        )


def unit(number: float) -> float:
    """Return the nearest number in 0 to 1."""
    return min(max(number + 0.0, 0.0), 1.0)
