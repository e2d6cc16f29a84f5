"""One builder of rows for all formats: it grades the score, chooses the confidence, and makes columns of the rest."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from qacal.records.columns import KNOWN, LABELS
from qacal.sources.importers.base import Confidence, Dropped, LogRow, Outcome, Scored, Selection, Unscored
from qacal.sources.importers.confidences import bare_number, require_unit, unit
from qacal.sources.importers.texts import Question, digest
from qacal.sources.importers.values import members

# Columns that `qacal apply` adds; a log's column of that name would collide with them.
_ADDED = ("low", "high", "group", "source", "rows", "alpha", "decision", "threshold")
_CONFIDENCES = tuple(f"confidence_{source}" for source in ("metadata", "stated", "tokens", "agreement"))
_RESERVED = frozenset((*KNOWN, *_ADDED, *_CONFIDENCES, "ground_truth", "task", "filter", "epoch"))
# The letters are inspect's.
_GRADES = LABELS | {"c": 1.0, "i": 0.0, "noanswer": 0.0, "p": 0.5, "partial": 0.5}


def log_row(
    selection: Selection,
    question: Question,
    answer: str,
    correct: float | Dropped | None,
    offers: Mapping[str, Confidence],
    *,
    identity: str | None = None,
    model: str | None = None,
    columns: Mapping[str, Any] | None = None,
    objects: Sequence[tuple[str, Any]] = (),
    used: Collection[str] = (),
    **others: Any,
) -> Outcome:
    """Return a row of a log, or why it is dropped, if its score cannot be graded.

    correct : as :func:`graded` returns it.
    offers : the confidences by source, the preferred source first.
    identity : the id of the question; by default a digest of its text.
    model : the name in the log, used if the selection has none.
    objects : names and objects; their plain values become columns too, except those that were `used`.
    others : further fields of :class:`LogRow`, such as `key`.

    >>> row = log_row(Selection(), Question("2 + 2?"), "4", 1.0, {"stated": Scored(0.9, "stated")}, key=(1,),
    ...               objects=[("metadata", {"topic": "sums"})])
    >>> row.confidence.value, row.columns
    (0.9, {'topic': 'sums'})
    """
    if isinstance(correct, Dropped):
        return correct
    confidence, confidences = choose_confidence(offers, selection.confidence_from)
    return LogRow(
        id=identity or digest(question.text),
        question=question.text,
        answer=answer,
        confidence=confidence,
        correct=correct,
        model=selection.model or model,
        columns={**(columns or {}), **confidences, **plain_columns(*objects, used=used)},
        turns=question.turns,
        **others,
    )


def graded(value: Any, correct_at: float | None = None, source: str = "the score") -> float | Dropped | None:
    """Return the correctness that a score means: 0, 1, or a share in between; None if there is no score.

    correct_at : the lowest score of a correct answer. By default a score outside 0 to 1 is an error, because the worst
        grade of 1 to 5 would count as correct.
    source : the name of the score in messages.

    >>> graded("C"), graded(True), graded(0.4), graded(7, correct_at=5)
    (1.0, 1.0, 0.4, 1.0)
    >>> graded({"accuracy": 1})
    Dropped(why='the score is an object, not one value')
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        value = value.strip().lower()
        if value in _GRADES:
            return _GRADES[value]
    elif not isinstance(value, int | float):
        return Dropped(f"the score is {'an object' if isinstance(value, dict) else 'a list'}, not one value")
    number = bare_number(value)
    if not math.isfinite(number):
        return Dropped("the score is neither a number nor a word for correct or wrong")
    if correct_at is not None:
        return float(number >= correct_at)
    require_unit(number, source, number, "Pass the lowest score of a correct answer: --correct-at SCORE.")
    return unit(number)


def judgement_rank(kind: str, kinds: Sequence[str], time: Any) -> tuple[int, str]:
    """Return the rank of a judgement, the highest for the first of the kinds of judges and the latest time."""
    return (-kinds.index(kind) if kind in kinds else -len(kinds), str(time))


def choose_confidence(
    offers: Mapping[str, Confidence], wanted: str | None = None
) -> tuple[Confidence, dict[str, float]]:
    """Return the first confidence that exists, or that of the `wanted` source.

    A row with several has all of them as columns, for a learned score.

    >>> choose_confidence({"metadata": Unscored("none in the metadata"), "stated": Scored(0.9, "stated")})
    (Scored(value=0.9, source='stated'), {})
    >>> choose_confidence({"stated": Scored(0.8, "stated"), "tokens": Scored(0.9, "tokens")}, "tokens")[1]
    {'confidence_stated': 0.8, 'confidence_tokens': 0.9}
    """
    scored = {source: offer for source, offer in offers.items() if isinstance(offer, Scored)}
    columns = {f"confidence_{source}": offer.value for source, offer in scored.items()} if len(scored) > 1 else {}
    allowed = {source: offer for source, offer in offers.items() if wanted in (None, source)}
    for source in allowed:
        if source in scored:
            return scored[source], columns
    reasons = dict.fromkeys(offer.why for offer in allowed.values() if isinstance(offer, Unscored))
    return Unscored("no confidence: " + ("; ".join(reasons) or "the log has no such source")), columns


def plain_columns(*parts: tuple[str, Any], used: Collection[str] = ()) -> dict[str, Any]:
    """Return the plain values of objects as columns: text, numbers, and yes or no.

    A name with a meaning in records, or with another value in an earlier object, gets the name of its object as a
    prefix. Names that were `used` are left out.

    >>> plain_columns(("doc", {"subject": "law", "answer": 2, "choices": ["a", "b"], "question": "?"}),
    ...               used=["question"])
    {'subject': 'law', 'doc_answer': 2}
    """
    columns: dict[str, Any] = {}
    for prefix, values in parts:
        for name, value in members(values).items():
            if name not in used and isinstance(value, str | int | float):
                is_clash = name in _RESERVED or columns.get(name, value) != value
                columns[f"{prefix}_{name}" if is_clash else name] = value
    return columns
