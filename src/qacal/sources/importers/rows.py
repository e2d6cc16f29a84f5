"""One builder of rows for all formats: it chooses the confidence, and makes columns of what else a log has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qacal.sources.importers.base import Confidence, LogRow, Selection, plain_columns
from qacal.sources.importers.confidences import choose_confidence
from qacal.sources.importers.texts import Question, digest


def log_row(
    selection: Selection,
    question: Question,
    answer: str,
    correct: float | None,
    offers: Mapping[str, Confidence],
    *,
    identity: str | None = None,
    model: str | None = None,
    columns: Mapping[str, Any] | None = None,
    objects: Sequence[tuple[str, Any]] = (),
    used: Iterable[str] = (),
    **others: Any,
) -> LogRow:
    """Return a row of a log.

    offers : the confidences by source, the preferred source first.
    identity : the id of the question; by default a digest of its text.
    model : the name in the log, used if the selection has none.
    columns : further columns.
    objects : names and objects whose plain values become columns too, without those that were `used`.
    others : further fields of :class:`LogRow`, such as `key`.

    >>> from qacal.sources.importers.base import Scored
    >>> row = log_row(Selection(), Question("2 + 2?"), "4", 1.0, {"stated": Scored(0.9, "stated")}, key=(1,),
    ...               objects=[("metadata", {"topic": "sums"})])
    >>> row.confidence.value, row.columns
    (0.9, {'topic': 'sums'})
    """
    choice = choose_confidence(offers, selection.confidence_from)
    return LogRow(
        id=identity or digest(question.text),
        question=question.text,
        answer=answer,
        confidence=choice.confidence,
        correct=correct,
        model=selection.model or model,
        columns={**(columns or {}), **choice.columns, **plain_columns(*objects, used=used)},
        off_scale=choice.off_scale,
        turns=question.turns,
        **others,
    )
