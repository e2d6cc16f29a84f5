"""Where the confidence of a row may come from, in the order in which a log is asked for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qacal.importers.base import Confidence, Scored, Unscored

if TYPE_CHECKING:
    from qacal.elicitation.outcomes import Outcome
    from qacal.elicitation.replies import Reply

METADATA, STATED, TOKENS = "metadata", "stated", "tokens"
AGREEMENT, LIKELIHOOD, MAX_PROB = "agreement", "choice likelihood", "max_prob"

_COLUMNS = {
    METADATA: "confidence_metadata",
    STATED: "confidence_stated",
    TOKENS: "confidence_tokens",
    MAX_PROB: "confidence_max_prob",
}
# What servers write for the log-probability of a token that they do not know.
_UNKNOWN = -9999.0


@dataclass(frozen=True, slots=True)
class Weighed:
    """A confidence; if a row has several, all of them as columns, for a score may read them together."""

    confidence: Confidence
    columns: dict[str, float]


def weighed(offers: Mapping[str, Confidence], wanted: str | None = None) -> Weighed:
    """Return the first confidence that there is, or that of the one source wanted.

    >>> weighed({"metadata": written(None), "stated": Scored(0.9, "stated")})
    Weighed(confidence=Scored(value=0.9, source='stated'), columns={})
    >>> weighed({"metadata": written(0.8), "stated": Scored(0.9, "stated")}, wanted="stated").columns
    {'confidence_metadata': 0.8, 'confidence_stated': 0.9}
    """
    found = {name: offer for name, offer in offers.items() if isinstance(offer, Scored)}
    columns = {_COLUMNS[name]: offer.value for name, offer in found.items()} if len(found) > 1 else {}
    asked = [name for name in offers if wanted in (None, name)]
    for name in asked:
        if name in found:
            return Weighed(found[name], columns)
    reasons = dict.fromkeys(offer.why for offer in map(offers.get, asked) if isinstance(offer, Unscored))
    return Weighed(Unscored("no confidence: " + ("; ".join(reasons) or "the log has no such source")), columns)


def written(value: Any, *, percent: bool = False, source: str = METADATA) -> Confidence:
    """Return a confidence that stands in a log as a number, or as text that is one.

    >>> written("0.95"), written("95%"), written(95, percent=True).value
    (Scored(value=0.95, source='metadata'), Scored(value=0.95, source='metadata'), 0.95)
    >>> written(95)
    Unscored(why='the number in the metadata is outside 0 to 1 (--percent reads percents)')
    """
    if value is None or value == "":
        return Unscored(f"none in the {source}")
    number, is_percent = _number(value)
    scaled = number / 100 if percent or is_percent else number
    if math.isnan(scaled):
        return Unscored(f"what is in the {source} is not a number")
    if not 0 <= scaled <= 1:
        remedy = "" if percent or is_percent else " (--percent reads percents)"
        return Unscored(f"the number in the {source} is outside 0 to {'100' if percent else '1'}{remedy}")
    return Scored(scaled + 0.0, source)


def parsed(text: str, *, is_cut: bool = False) -> Outcome:
    """Return a reply's answer with the confidence that it states, or why there is none."""
    from qacal.elicitation.parsing import parse_stated

    return parse_stated(text, is_cut=is_cut)


def answer_in(outcome: Outcome, text: str) -> str:
    """Return the answer of a reply: what the parser read, or all of it."""
    from qacal.elicitation.outcomes import Stated

    return outcome.answer if isinstance(outcome, Stated) else text.strip()


def stated(outcome: Outcome) -> Confidence:
    """Return the confidence that a reply states."""
    from qacal.elicitation.outcomes import Refused, Stated

    if isinstance(outcome, Stated):
        return Scored(outcome.confidence, STATED)
    return Unscored("the LLM refused" if isinstance(outcome, Refused) else str(outcome.why))


def by_tokens(reply: Reply, answer: str) -> Confidence:
    """Return the probability of the tokens that spell the answer, where the log has them."""
    from qacal.elicitation.token_confidence import answer_probability

    if not reply.tokens:
        return Unscored("there are no token probabilities")
    found = answer_probability(reply, answer)
    if found is None:
        # Logs may hold tokens of the answer alone. A letter among choices is one token, and clear if it occurs once.
        alone = [token.logprob for token in reply.tokens if token.text.strip() == answer and token.logprob > _UNKNOWN]
        found = math.exp(min(alone[0], 0.0)) if len(alone) == 1 else None
    return Unscored("the tokens of the answer cannot be told") if found is None else Scored(found, TOKENS)


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
    from qacal.elicitation.normalising import normalise_answer

    alike = [normalise_answer(text) for text in answers]
    counts = Counter(alike)
    # A counter keeps the order of first use, and the first of equals is the most common.
    most = counts.most_common(1)[0][0] if answer is None else normalise_answer(answer)
    if most not in counts:
        return answer or "", Unscored("no confidence: the answer that was judged is none of the repeats")
    given = answers[alike.index(most)] if answer is None else answer
    return given, Scored(counts[most] / len(answers), AGREEMENT)


def _number(value: Any) -> tuple[float, bool]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan, False
    text = str(value).strip()
    try:
        return (float(text.removesuffix("%")) if "_" not in text else math.nan), text.endswith("%")
    except ValueError:
        return math.nan, False
