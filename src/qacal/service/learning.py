"""Labels of served answers, read from the store: for a refit, and to draw what to label next."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from qacal.errors import InputError, counted, some_of
from qacal.model.base import BaseModel
from qacal.model.labelling import draw, strata_of
from qacal.model.refitting import LabelledAnswer, thinned
from qacal.records.reading import as_source
from qacal.service.store import Store
from qacal.tally.ids import id_hashes

_GIVE_TEXTS = "Pass the records, with the ids under which they were served: --texts FILE. "


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Yield the store of a service, which must exist."""
    store = Store(url, must_exist=True)
    try:
        yield store
    finally:
        store.close()


def name_in(store: Store, model: str, name: str | None) -> str:
    """Return the name under which a model is served: `name`, or that of its folder; raise if it has no answers."""
    wanted = Path(model).resolve().name if name is None else name
    names = store.models()
    if wanted not in names:
        have = f"answers of {some_of(names)}; name one of them: --name" if names else "no answers yet"
        raise InputError(
            f"the store has no answers of {wanted!r}. It has {have}. Answers whose confidence could not be read are "
            "not stored; the reason is in their replies, and qacal_unparsed_confidence_total in /metrics counts them."
        )
    return wanted


def labelled_answers(
    store: Store,
    name: str,
    model: BaseModel | None,
    *,
    since: float | None = None,
    texts: str | None = None,
) -> tuple[list[LabelledAnswer], int]:
    """Return the labelled answers of a model in the order of labels, and how many were left out without their texts.

    A missing text of an audit is an error: without its row the others are no random sample.

    Answers of all versions count: what was asked and answered does not depend on the version.

    model : None before the first fit.
    texts : a file with the records by their id, for answers that the store has no texts of.
    """
    rows = list(store.rows(labelled=True, model=name, since=since))
    lacking = {row["own_id"] for row in rows if row["record"] is None and row["own_id"] is not None}
    found = {} if texts is None or model is None else _records_in(texts, model, {str(id_) for id_ in lacking})
    llms = set() if model is None else model._fitted_on("model")
    out, audits, others = [], 0, 0
    for row in rows:
        is_audit = row["label_source"] == "audit"
        record = found.get(str(row["own_id"])) if row["record"] is None else json.loads(row["record"])
        if record is None:
            audits, others = audits + is_audit, others + (not is_audit)
            continue
        record = {**record, "confidence": row["confidence"], "correct": row["label"]}
        record.pop("response_id", None)  # no two answers have the same
        if model is not None and record.get("model") == name and name not in llms:
            del record["model"]  # it chose the served model, and is no LLM
        chance = row["label_probability"] if row["drawn_time"] is None else row["drawn_probability"]
        is_drawn = row["drawn_time"] is not None
        out.append(LabelledAnswer(row["id"], record, chance if is_audit else None, is_drawn))
    if audits:
        raise InputError(
            f"the store has no texts of {counted(audits, 'answer')} with a label of an audit. "
            f"{'' if model is None else _GIVE_TEXTS}To store texts from now on: qacal serve --store-text. To use later "
            "answers only: --since."
        )
    return out, others


def first_sample(store: Store, name: str, since: float | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the labelled records for the first fit of a model, and what to know about them.

    They are a random sample: volunteered labels are left out, and of answers that were drawn with different chances
    some are left out at random, so that all had the same one.
    """
    labelled, _ = labelled_answers(store, name, None, since=since)
    audited = [one for one in labelled if one.probability is not None]
    if not audited:
        raise InputError(
            f"no answer of {name!r} has a label of an audit. Draw answers at random (qacal label-next --store), label "
            "all of them, and send the labels to /v1/feedback."
        )
    chance = np.array([one.probability for one in audited], dtype=np.float64)
    keep = thinned([one.key for one in audited], chance).tolist()
    sample = [dict(one.record) for one, stays in zip(audited, keep, strict=True) if stays]
    for column, what in (("confidence_source", "the kind of their confidence"), ("model", "their LLM")):
        lacking = sum(record.get(column) is None for record in sample)
        if 0 < lacking < len(sample):
            raise InputError(
                f"{lacking:,} of {len(sample):,} labelled answers do not say {what} ({column}); the others do. They "
                "may mean different things: send it with every record, or use later answers only (--since)."
            )
    if any(record.get("id") is None for record in sample):  # as those of a proxy: questions tell them apart
        for record in sample:
            record.pop("id", None)
    notes = []
    if len(audited) < len(labelled):
        notes.append(
            f"Volunteered labels are not used: {len(labelled) - len(audited):,}. Nobody knows how they were chosen."
        )
    if len(sample) < len(audited):
        notes.append(f"Labels left out, so that all answers had the same chance: {len(audited) - len(sample):,}.")
    if unlabelled := store.count_unlabelled_draws(name, since):
        notes.append(f"Answers drawn for labelling without a label: {unlabelled:,}. Label all that was drawn.")
    return sample, notes


def _records_in(path: str, model: BaseModel, ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return the records of a file that have one of these ids, by the id, with standard names."""
    reading = model._reading(path)
    standard = {its: name for name, its in reading.columns.items()}
    out = {}
    for table in as_source(path).batches():
        table.require(reading.name("id"), "Records are found by the id under which they were served.")
        for row in table.rows(typed=True):
            if str(row[reading.name("id")]) in ids:
                out[str(row[reading.name("id")])] = {standard.get(name, name): value for name, value in row.items()}
    return out


def draw_answers(
    store: Store, name: str, n: int, *, seed: int | None = None, since: float | None = None
) -> list[dict[str, Any]]:
    """Draw served answers to label, and return their rows: each answer that was not drawn before has the same chance.

    The draw is that of :func:`qacal.label_next`: every range of the calibrated probability and every group has its
    share. Answers with a volunteered label are drawn from, too: without them the sample would look too good.

    seed : by default a new one for each draw, since two draws of one seed depend on each other.
    """
    number = secrets.randbelow(2**32) if seed is None else seed

    def choose(pool: list[dict[str, Any]]) -> list[str]:
        ids = [row["id"] for row in pool]
        calibrated = np.array([0.0 if row["calibrated"] is None else row["calibrated"] for row in pool])
        order = strata_of(calibrated, [str(row["group"]) for row in pool], [None] * len(pool))
        return [ids[at] for at in draw(id_hashes(ids, len(ids)), order, n, number).tolist()]

    return store.draw(name, n, choose, since)


def feedback_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return what to send to /v1/feedback about a drawn answer, with an empty label, and what helps to find the label.

    Neither the stated nor the calibrated confidence is in it, unless the record has it: who labels should not see it.
    """
    record = None if row["record"] is None else json.loads(row["record"])
    return {
        "id": row["id"],
        "correct": None,
        "source": "audit",
        "probability": row["drawn_probability"],
        "own_id": row["own_id"],
        **({} if record is None else {"question": record.get("question"), "answer": record.get("answer")}),
    }
