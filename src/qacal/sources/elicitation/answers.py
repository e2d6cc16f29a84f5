"""The answers of a run as records: every question is asked again, but replies come from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qacal.sources.elicitation.outcomes import Malformed, Outcome, Refused, Stated
from qacal.sources.elicitation.question import Asked
from qacal.sources.elicitation.store import Store
from qacal.sources.elicitation.tokens import answer_probability

if TYPE_CHECKING:
    from qacal.sources.elicitation.run import Answered, Setup

_NOT_YET = "not answered yet"


@dataclass
class Outcomes:
    """The outcomes of a run: the number of stated guesses, and of others by reason.

    examples : the beginning of the first reply for each reason.
    truths : how many of the questions have a known correct answer.
    models : the server's names of the LLMs that replied, and how often.
    """

    questions: int = 0
    truths: int = 0
    stated: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        if isinstance(outcome, Stated):
            self.stated += 1
            return
        reason = _reason(outcome)
        self.lost[reason] += 1
        self.examples.setdefault(reason, outcome.said)


def answers(store: Store, run: int, setup: Setup, outcomes: Outcomes | None = None) -> Iterator[dict[str, Any]]:
    """Yield a record for every stated guess; `outcomes` counts these and all others.

    Records have the question's columns, and answer, confidence, confidence_tokens (the probability of the answer's
    tokens, if the server gave it), model, prompt and confidence_source; `guess` numbers several guesses.
    """
    outcomes = Outcomes() if outcomes is None else outcomes
    for asked in store.questions(run):
        outcomes.questions += 1
        outcomes.truths += bool(asked.question.ground_truth)
        answered = answered_before(store, setup, asked)
        if answered is None:
            outcomes.lost[_NOT_YET] += 1
            continue
        outcomes.models.update(reply.model for reply in answered.replies if reply.model is not None)
        for place, outcome in enumerate(answered.outcomes, 1):
            outcomes.add(outcome)
            if isinstance(outcome, Stated):
                yield _record(setup, asked, answered, outcome, place)


def unread(store: Store, run: int, setup: Setup) -> Iterator[dict[str, Any]]:
    """Yield replies that became no record: id and question, why, and the texts, for a person to look at."""
    for asked in store.questions(run):
        row = {"id": asked.question.id, "question": asked.question.text}
        answered = answered_before(store, setup, asked)
        if answered is None:
            yield row | {"why": _NOT_YET, "guess": None, "replies": []}
            continue
        for place, outcome in enumerate(answered.outcomes, 1):
            if not isinstance(outcome, Stated):
                replies = [reply.refusal or reply.text for reply in answered.replies]
                yield row | {"why": _reason(outcome), "guess": place, "replies": replies}


def answered_before(store: Store, setup: Setup, asked: Asked) -> Answered | None:
    """Return the replies of the store to a question; None if not all are there."""
    conversation = setup.conversation(asked.question)
    request = next(conversation)
    while (reply := store.reply(request)) is not None:
        try:
            request = conversation.send(reply)
        except StopIteration as end:
            answered: Answered = end.value
            return answered
    return None


def _record(setup: Setup, asked: Asked, answered: Answered, stated: Stated, place: int) -> dict[str, Any]:
    question = asked.question
    record = {
        "id": question.id,
        "question": question.text,
        "answer": stated.answer,
        "confidence": stated.confidence,
        "confidence_tokens": answer_probability(answered.replies[0], stated.answer),
        "ground_truth": list(question.ground_truth) or None,
        "choices": None if question.choices is None else list(question.choices),
        "model": setup.model,
        "prompt": setup.prompt.identity,
        "confidence_source": setup.prompt.source,
    }
    if setup.prompt.guesses > 1:
        record["guess"] = place
    # The columns of qacal win over those of the question.
    return dict(asked.others) | record


def _reason(outcome: Refused | Malformed) -> str:
    return "refused" if isinstance(outcome, Refused) else f"malformed: {outcome.why}"
