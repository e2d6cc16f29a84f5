"""The confidence of a row: stated in a reply, of its tokens, or by agreement of repeats.

A number at the end of a reply that was cut off may lack digits: "0" may be the beginning of "0.9".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from qacal.sources.elicitation.agreement import Votes
from qacal.sources.elicitation.reading.parsing import parse_stated
from qacal.sources.elicitation.reply import Refused, Reply, Stated
from qacal.sources.elicitation.tokens import answer_probability, joint_probability
from qacal.sources.importers.texts import inside, unpacked

METADATA, STATED, TOKENS = "metadata", "stated", "tokens"
AGREEMENT, LIKELIHOOD = "agreement", "choice likelihood"


@dataclass(frozen=True, slots=True)
class Scored:
    """A confidence in [0, 1], and where it came from; `is_percent` if it was a percent."""

    value: float
    source: str
    is_percent: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unscored:
    """The reason why there is no confidence, which is not the same as a confidence of 0."""

    why: str


Confidence: TypeAlias = Scored | Unscored


def choose_confidence(
    offers: Mapping[str, Confidence], wanted: str | None = None
) -> tuple[Confidence, dict[str, float]]:
    """Return the first confidence that exists, or that of the `wanted` source.

    If there are several, all of them are columns, for a learned score. Agreement has its own columns (`Votes`).

    >>> choose_confidence({"metadata": Unscored("none in the metadata"), "stated": Scored(0.9, "stated")})
    (Scored(value=0.9, source='stated'), {})
    >>> choose_confidence({"stated": Scored(0.8, "stated"), "tokens": Scored(0.9, "tokens")}, "tokens")[1]
    {'confidence_stated': 0.8, 'confidence_tokens': 0.9}
    """
    scored = {source: offer for source, offer in offers.items() if isinstance(offer, Scored)}
    named = {source: offer.value for source, offer in scored.items() if source != AGREEMENT and len(scored) > 1}
    columns = {f"confidence_{source}": value for source, value in named.items()}
    allowed = {source: offer for source, offer in offers.items() if wanted in (None, source)}
    for source in allowed:
        if source in scored:
            return scored[source], columns
    reasons = dict.fromkeys(offer.why for offer in allowed.values() if isinstance(offer, Unscored))
    return Unscored("no confidence: " + ("; ".join(reasons) or "the log has no such source")), columns


def bare_number(value: Any) -> float:
    """Return a number, or text that is one without a percent sign or a word; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value) if "_" not in str(value) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def stated_reply(text: str, *, is_cut: bool = False) -> tuple[str, Confidence]:
    r"""Return the answer that the parser reads in a reply, or the whole text; and the confidence that the reply states.

    >>> stated_reply("Guess: Paris\nProbability: 0.9")
    ('Paris', Scored(value=0.9, source='stated'))
    """
    outcome = parse_stated(text, is_cut=is_cut)
    if isinstance(outcome, Stated):
        return outcome.answer, Scored(outcome.confidence, STATED)
    return text.strip(), Unscored("the LLM refused" if isinstance(outcome, Refused) else str(outcome.why))


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


def agreement(answers: Sequence[str], answer: str | None = None) -> tuple[str, Confidence, dict[str, Any]]:
    r"""Return an answer, the share of repeats that give it, and the columns of :class:`Votes`.

    answer : the answer that was judged; by default the most frequent one.

    >>> agreement(["Paris", "Lyon", "paris."])[:2]
    ('Paris', Scored(value=0.6666666666666666, source='agreement'))
    """
    votes = Votes(answers)
    wanted = votes.majority if answer is None else votes.key(answer)
    if wanted not in votes.counts:
        return answer or "", Unscored("the judged answer is not among the repeats"), {}
    columns = votes.columns_of(wanted)
    text = next(text for text in answers if votes.key(text) == wanted) if answer is None else answer
    return text, Scored(columns["agreement"], AGREEMENT), columns


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
