"""Labels of served answers, and draws of answers to label. An audit labels answers that were drawn at random.

All functions work in a transaction of the store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from qacal.errors import InputError, counted
from qacal.service.database import answers, bet_of, bets, lock

Source: TypeAlias = Literal["volunteered", "audit"]
"""How a label came about: somebody chose to give it, or the answer was drawn at random for labelling."""

PORTION = 5000
"""Ids in one statement: databases limit its size."""

_ID = re.compile("[0-9a-f]{32}")
_UNKNOWN = "there is no served answer with this id; it may be too old, or was not stored."


class UnknownAnswerError(InputError):
    """No served answer has this id."""


def require_id(id_: str) -> None:
    """Raise unless a text can be the id of a served answer; databases refuse some other texts."""
    if not _ID.fullmatch(id_):
        raise UnknownAnswerError(_UNKNOWN)


@dataclass(frozen=True)
class Label:
    """The label of a served answer.

    correct : 1 or 0, or a number in between.
    probability : with which an audit drew the answer; None if the label was volunteered, or if the store drew it.
    """

    id: str
    correct: float
    source: Source = "volunteered"
    probability: float | None = None

    def __post_init__(self) -> None:
        require_id(self.id)
        if self.source == "volunteered" and self.probability is not None:
            raise InputError("a volunteered label has no probability; only an audit draws answers at random.")


def write_labels(connection: Any, labels: Sequence[Label]) -> list[InputError | None]:
    """Write labels; return None for each, or why it was refused."""
    # Services that share a database write labels in turn, so that those of a later number are always seen later: the
    # bets on them are one sequence. It comes first, so that none waits for the rows of another that waits for this.
    lock(connection, bets)
    return [_write_label(connection, label) for label in labels]


def _write_label(connection: Any, label: Label) -> InputError | None:
    row = connection.execute(sa.select(answers).where(answers.c.id == label.id)).mappings().first()
    if row is None:
        return UnknownAnswerError(_UNKNOWN)
    if label.source == "volunteered" and row["label_source"] == "audit":
        return InputError("this answer has a label of an audit, which a volunteered one does not replace.")
    probability, now = label.probability, time.time()
    if label.source == "audit" and probability is None:
        if row["drawn_time"] is None:
            return InputError(
                "this answer was not drawn for labelling; a label of an audit needs the probability with which "
                "the answer was drawn."
            )
        probability = row["drawn_probability"]
    values = {
        "label": label.correct,
        "label_source": label.source,
        "label_probability": probability,
        "label_time": now,
    }
    connection.execute(answers.update().where(answers.c.id == label.id).values(values))
    if label.source == "audit":
        corrected = bets.update().where(bets.c.answer == label.id).values(label=label.correct, label_time=now)
        if not connection.execute(corrected).rowcount:
            connection.execute(bets.insert().values(bet_of(row, label.correct, now, probability)))
    return None


def draw(
    connection: Any, model: str, n: int, choose: Callable[[list[dict[str, Any]]], list[str]], since: float | None
) -> list[Any]:
    """Draw answers of a model for labelling, and return their rows.

    Answers that were drawn before are not drawn again. The probability that an answer is in one of the draws so far is
    stored with each answer, drawn or not: after a chance of p and now one of n in m, p + (1 - p) n/m.

    choose : returns the ids of `n` of the answers that it gets, each with the same chance.
    since : draw from answers that were served since then.
    """
    names = ("id", "calibrated", "group", "drawn_time", "own_id")
    has_text = answers.c.record.is_not(None).label("has_text")
    query = sa.select(*(answers.c[name] for name in names), has_text).where(answers.c.model == model)
    if since is not None:
        query = query.where(answers.c.time >= since)
    # Without it a draw and a service could each wait for rows that the other one has changed.
    lock(connection, answers)
    found = [dict(row) for row in connection.execute(query.order_by(answers.c.id)).mappings()]
    pool = [row for row in found if row["drawn_time"] is None]
    if not pool:
        when = "" if since is None else " since then"
        if found:
            raise InputError(f"every answer of {model!r}{when} was drawn before, so there is none to draw from.")
        raise InputError(f"there is no answer of {model!r}{when} to draw from.")
    if not any(row["has_text"] or row["own_id"] is not None for row in pool):
        raise InputError(
            f"the store has neither texts of the answers of {model!r} nor ids of their records, so nobody could label "
            "them. Start qacal serve with --store-text, or send an id with each record."
        )
    if n > len(pool):
        raise InputError(
            f"there are only {counted(len(pool), 'answer')} of {model!r} to draw from; to draw all: -n {len(pool)}."
        )
    ids = choose(pool)
    before = sa.func.coalesce(answers.c.drawn_probability, 0.0)
    raised = before + (1 - before) * (n / len(pool))
    for some in _portions([row["id"] for row in found]):
        connection.execute(answers.update().where(answers.c.id.in_(some)).values(drawn_probability=raised))
    now = time.time()
    for some in _portions(ids):
        connection.execute(answers.update().where(answers.c.id.in_(some)).values(drawn_time=now))
    # In the order of their ids, which are random: who labels in this order labels at random.
    return [
        row
        for some in _portions(sorted(ids))
        for row in connection.execute(
            sa.select(answers).where(answers.c.id.in_(some)).order_by(answers.c.id)
        ).mappings()
    ]


def unlabelled_draws(
    connection: Any, model: str, since: float | None, columns: Sequence[Any] = (answers,)
) -> list[Any]:
    """Return the answers that were drawn for labelling and have no label of an audit; `columns` of them, or all."""
    query = sa.select(*columns).where(
        answers.c.model == model,
        answers.c.drawn_time.is_not(None),
        answers.c.label_source.is_distinct_from("audit"),
    )
    if since is not None:
        query = query.where(answers.c.time >= since)
    return [*connection.execute(query.order_by(answers.c.id)).mappings()]


def _portions(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), PORTION):
        yield ids[first : first + PORTION]
