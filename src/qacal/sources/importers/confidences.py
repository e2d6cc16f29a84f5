"""The confidence of a row: in the log's metadata, stated in a reply, of its tokens, or by agreement of repeats.

A source must be on a scale from 0 to 1. On another scale a 1 is one percent, or the worst of five grades. One number
outside 0 to 1 reveals another scale. Dropping only its row would keep the rows that are misread, so :class:`Scales`
refuses the whole source after all rows are read.

A number at the end of a reply that was cut off may lack digits: "0" may be the beginning of "0.9".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qacal.errors import InputError
from qacal.sources.elicitation.matching import normalise_answer
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.elicitation.reading.parsing import parse_stated
from qacal.sources.elicitation.reply import Refused, Reply, Stated
from qacal.sources.elicitation.tokens import answer_probability, joint_probability
from qacal.sources.importers.base import Confidence, OffScale, Scored, Unscored
from qacal.sources.importers.values import inside, unpacked
from qacal.tally.arrays import is_missing

METADATA, STATED, TOKENS = "metadata", "stated", "tokens"
AGREEMENT, LIKELIHOOD = "agreement", "choice likelihood"


def parse_confidence(
    value: Any, *, percent: bool = False, source: str = METADATA, place: str | None = None
) -> Confidence:
    """Return a confidence that a log has as a number, or as text with one.

    Text follows the rules for replies, so "0.95%" is not read. A number without a percent sign is a fraction, so "95"
    is outside 0 to 1.

    percent : numbers without a sign are percents.
    place : the name of the number's place in messages.

    >>> parse_confidence("95%"), parse_confidence(95), parse_confidence(95, percent=True).value
    (Scored(value=0.95, source='metadata'), Unscored(why='outside 0 to 1'), 0.95)
    """
    where = place or f"the {source}"
    if is_missing(value):
        return Unscored(f"none in {where}")
    number = bare_number(value)
    scaled = number / 100 if percent else number
    if isinstance(value, str) and (math.isnan(number) or (is_unit(number) and not percent)):
        reading = read_probability(value)
        return Scored(reading, source) if isinstance(reading, float) else Unscored(f"{where}: {reading.why}")
    if not math.isfinite(scaled):
        return Unscored(f"what is in {where} is not a number")
    if not is_unit(scaled):
        of_scale = "They are not percents either." if percent else "If these are percents, pass --percent."
        # If a place is given, it is the only source of its format.
        of_source = "Another source is chosen with --confidence-from." if place is None else ""
        remedy = " ".join(filter(None, (of_scale, of_source)))
        off_scale = OffScale(f"the confidence in {where}", number, remedy)
        return Unscored(f"outside 0 to {100 if percent else 1}", off_scale)
    return Scored(unit(scaled), source, percent)


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


def unit(number: float) -> float:
    """Return the nearest number in 0 to 1."""
    return min(max(number + 0.0, 0.0), 1.0)


@dataclass(frozen=True)
class Scales:
    """Collects numbers that show that their source is on another scale.

    >>> scales = Scales()
    >>> for number in (95, 80):
    ...     scales.note(OffScale("the confidence in the metadata", number, "If these are percents, pass --percent."))
    >>> scales.require()
    Traceback (most recent call last):
    qacal.errors.InputError: the confidence in the metadata is not on a scale from 0 to 1: 2 numbers lie outside ...
    """

    _numbers: dict[OffScale, list[float]] = field(default_factory=dict)

    def note(self, off_scale: OffScale) -> None:
        self._numbers.setdefault(replace(off_scale, number=0.0), []).append(off_scale.number)

    def require(self) -> None:
        """Refuse a log in which a source that is used is on another scale."""
        faults = [_fault(source, numbers) for source, numbers in self._numbers.items() if source.column is None]
        if faults:
            raise InputError("\n".join(faults))

    @property
    def unused_columns(self) -> Iterator[str]:
        """Columns of sources that were not asked for and are on another scale."""
        return (source.column for source in self._numbers if source.column is not None)


def _fault(source: OffScale, numbers: Sequence[float]) -> str:
    lowest, highest, remedy = min(numbers), max(numbers), source.remedy
    outside = (
        f"1 number lies outside ({lowest:g})"
        if len(numbers) == 1
        else f"{len(numbers):,} numbers lie outside (from {lowest:g} to {highest:g})"
    )
    if 1 < highest <= 10 and "percents" in remedy:
        remedy = (
            "None is above 10, so these may be grades from 0 to 10 or 1 to 5, not percents: rescale them to 0 to 1."
        )
    sentences = (
        f"{source.source} is not on a scale from 0 to 1: {outside}. So a 1 may mean anything, and nothing is imported.",
        remedy,
        "If -1 or the like means no value, leave it empty." if lowest < 0 else "",
    )
    return " ".join(filter(None, sentences))
