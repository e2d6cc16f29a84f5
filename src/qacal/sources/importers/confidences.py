"""Where the confidence of a row may come from, in the order in which a log is asked for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from qacal.sources.importers.base import Confidence, OffScale, Scored, Unscored
from qacal.sources.importers.scales import is_unit, unit
from qacal.tally.arrays import is_missing

if TYPE_CHECKING:
    from qacal.sources.elicitation.outcomes import Outcome
    from qacal.sources.elicitation.reply import Reply

METADATA, STATED, TOKENS = "metadata", "stated", "tokens"
AGREEMENT, LIKELIHOOD, MAX_PROB = "agreement", "choice likelihood", "max_prob"

_COLUMNS = {
    METADATA: "confidence_metadata",
    STATED: "confidence_stated",
    TOKENS: "confidence_tokens",
    AGREEMENT: "confidence_agreement",
    MAX_PROB: "confidence_max_prob",
}
# What servers write for the log-probability of a token that they do not know.
_UNKNOWN = -9999.0


@dataclass(frozen=True, slots=True)
class ConfidenceChoice:
    """A confidence; if a row has several, all of them as columns, for a score may read them together."""

    confidence: Confidence
    columns: dict[str, float]
    off_scale: OffScale | None = field(default=None, repr=False)


def choose_confidence(offers: Mapping[str, Confidence], wanted: str | None = None) -> ConfidenceChoice:
    """Return the first confidence that there is, or that of the one source wanted.

    >>> choose_confidence({"metadata": written(None), "stated": Scored(0.9, "stated")})
    ConfidenceChoice(confidence=Scored(value=0.9, source='stated'), columns={})
    >>> choose_confidence({"metadata": written(0.8), "stated": Scored(0.9, "stated")}, wanted="stated").columns
    {'confidence_metadata': 0.8, 'confidence_stated': 0.9}
    """
    found = {name: offer for name, offer in offers.items() if isinstance(offer, Scored)}
    columns = {_COLUMNS[name]: offer.value for name, offer in found.items()} if len(found) > 1 else {}
    asked = [name for name in offers if wanted in (None, name)]
    off_scale = _off_scale(offers, asked)
    for name in asked:
        if name in found:
            return ConfidenceChoice(found[name], columns, off_scale)
    reasons = dict.fromkeys(offer.why for offer in map(offers.get, asked) if isinstance(offer, Unscored))
    why = "no confidence: " + ("; ".join(reasons) or "the log has no such source")
    return ConfidenceChoice(Unscored(why), columns, off_scale)


def _off_scale(offers: Mapping[str, Confidence], asked: Sequence[str]) -> OffScale | None:
    for name, offer in offers.items():
        if isinstance(offer, Unscored) and offer.off_scale is not None:
            return offer.off_scale if name in asked else replace(offer.off_scale, column=_COLUMNS[name])
    return None


def written(
    value: Any, *, percent: bool = False, source: str = METADATA, place: str | None = None, can_be_percent: bool = True
) -> Confidence:
    """Return a confidence that stands in a log as a number, or as text with one.

    Text is read as that of an LLM would be, so "0.95%" is not read; but a bare number is one in any dress, and "95"
    without a sign is outside 0 to 1.

    percent : bare numbers are percents.
    place : where it stands, in words.
    can_be_percent : whether ``--percent`` can help.

    >>> written("0.95"), written("95%"), written(95, percent=True).value
    (Scored(value=0.95, source='metadata'), Scored(value=0.95, source='metadata'), 0.95)
    >>> written(95), written("0.95%")
    (Unscored(why='outside 0 to 1'), Unscored(why='the metadata: the number can be read in several ways'))
    """
    where = place or f"the {source}"
    if is_missing(value):
        return Unscored(f"none in {where}")
    number = _bare(value)
    scaled = number / 100 if percent else number
    if isinstance(value, str) and (math.isnan(number) or (is_unit(number) and not percent)):
        return _read(value, source, where)
    if not math.isfinite(scaled):
        return Unscored(f"what is in {where} is not a number")
    if not is_unit(scaled):
        off_scale = OffScale(f"the confidence in {where}", number, _remedy(percent, place, can_be_percent))
        return Unscored(f"outside 0 to {100 if percent else 1}", off_scale)
    return Scored(unit(scaled), source, percent)


def _bare(value: Any) -> float:
    """Return a number, or text that is one without any sign or word; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value) if "_" not in str(value) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _remedy(percent: bool, place: str | None, can_be_percent: bool) -> str:
    of_scale = "They are no percents either." if percent else "If these are percents, say --percent."
    # What has a place of its own is the only source of its format.
    of_source = "Another source is chosen with --confidence-from." if place is None else ""
    return " ".join(filter(None, (of_scale if can_be_percent else "", of_source)))


def _read(text: str, source: str, where: str) -> Confidence:
    from qacal.sources.elicitation.reading.numbers import read_probability

    found = read_probability(text)
    return Scored(found, source) if isinstance(found, float) else Unscored(f"{where}: {found.why}")


def parsed(text: str, *, is_cut: bool = False) -> Outcome:
    """Return a reply's answer with the confidence that it states, or why there is none."""
    from qacal.sources.elicitation.reading.parsing import parse_stated

    return parse_stated(text, is_cut=is_cut)


def answer_in(outcome: Outcome, text: str) -> str:
    """Return the answer of a reply: what the parser read, or all of it."""
    from qacal.sources.elicitation.outcomes import Stated

    return outcome.answer if isinstance(outcome, Stated) else text.strip()


def stated(outcome: Outcome) -> Confidence:
    """Return the confidence that a reply states."""
    from qacal.sources.elicitation.outcomes import Refused, Stated

    if isinstance(outcome, Stated):
        return Scored(outcome.confidence, STATED)
    return Unscored("the LLM refused" if isinstance(outcome, Refused) else str(outcome.why))


def by_tokens(reply: Reply, answer: str) -> Confidence:
    """Return the probability of the tokens that spell the answer, where the log has them."""
    from qacal.sources.elicitation.tokens import answer_probability

    if not reply.tokens:
        return Unscored("there are no token probabilities")
    found = answer_probability(reply, answer)
    if found is None:
        # Logs may hold tokens of the answer alone. A letter among choices is one token, and clear if it occurs once.
        alone = [token.logprob for token in reply.tokens if token.text.strip() == answer and token.logprob > _UNKNOWN]
        found = math.exp(min(alone[0], 0.0)) if len(alone) == 1 else None
    return Unscored("the tokens of the answer cannot be told") if found is None else Scored(found, TOKENS)


def by_logprobs(logprobs: Any, *, is_answer: bool) -> Confidence:
    """Return the probability of a reply from its tokens' log-probabilities, where a log has these without the tokens.

    is_answer : whether the reply is nothing but the answer. Of others it cannot be told which tokens spell the answer.

    >>> by_logprobs([-0.5, -0.25], is_answer=True).value == math.exp(-0.75)
    True
    >>> by_logprobs([-0.5, -9999.0], is_answer=True)
    Unscored(why='the tokens of the answer cannot be told')
    """
    if not isinstance(logprobs, list) or not logprobs:
        return Unscored("there are no token probabilities")
    numbers = [_bare(logprob) for logprob in logprobs]
    if not is_answer or not all(math.isfinite(number) and number > _UNKNOWN for number in numbers):
        return Unscored("the tokens of the answer cannot be told")
    return Scored(math.exp(math.fsum(min(number, 0.0) for number in numbers)), TOKENS)


def agreement(answers: Sequence[str], answer: str | None = None) -> tuple[str, Confidence]:
    r"""Return an answer, and the share of repeats that give it, capitals, articles and punctuation aside.

    answer : the one whose share is asked for, because it was the one that was judged. Without it the most frequent
        answer is taken; of several, the one that was given first.

    With :math:`k` repeats there are :math:`k` different values at most, however many rows there are.

    >>> agreement(["Paris", "Lyon", "paris."])
    ('Paris', Scored(value=0.6666666666666666, source='agreement'))
    >>> agreement(["Paris", "Lyon", "paris."], answer="lyon")[1].value
    0.3333333333333333
    >>> agreement(["Paris", "Lyon"])
    ('Paris', Scored(value=0.5, source='agreement'))
    """
    from qacal.sources.elicitation.matching import normalise_answer

    alike = [normalise_answer(text) for text in answers]
    counts = Counter(alike)
    # A counter keeps the order of first use, and the first of equals is the most common.
    most = counts.most_common(1)[0][0] if answer is None else normalise_answer(answer)
    if most not in counts:
        return answer or "", Unscored("no confidence: the answer that was judged is none of the repeats")
    given = answers[alike.index(most)] if answer is None else answer
    return given, Scored(counts[most] / len(answers), AGREEMENT)
