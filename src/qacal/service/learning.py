"""Labels of served answers, read from the store: for a refit, for the watch, and to draw what to label next."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from qacal.errors import InputError, some_of
from qacal.model.base import BaseModel
from qacal.model.labelling import draw, strata_of
from qacal.model.model import QACalibrator
from qacal.model.refitting import LabelledAnswer
from qacal.model.signals import Signal, signals
from qacal.records.reading import as_source
from qacal.service.store import Store
from qacal.tally.ids import id_hashes

# Signals are about so many answers, the last ones.
_LATEST = 5000


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
        raise InputError(f"the store has no answers of {wanted!r}. It has {have}.")
    return wanted


def labelled_answers(
    store: Store,
    name: str,
    model: BaseModel,
    *,
    version: str | None = None,
    since: float | None = None,
    texts: str | None = None,
) -> tuple[list[LabelledAnswer], int]:
    """Return the labelled answers of a model in the order of labels, and how many were left out without their texts.

    A missing text of an audit is an error: without its row the others are no random sample.

    version : only answers of one version. What was asked and answered does not depend on the version, so by default all
        of them count.
    texts : a file with the records by their id, for answers that the store has no texts of.
    """
    rows = list(store.rows(labelled=True, model=name, version=version, since=since))
    lacking = {row["own_id"] for row in rows if row["record"] is None and row["own_id"] is not None}
    found = {} if texts is None else _records_in(texts, model, {str(id_) for id_ in lacking})
    llms = {llm for one in model._models.values() for llm in one.origins_.get("model", ())}
    out, audits, others = [], 0, 0
    for row in rows:
        is_audit = row["label_source"] == "audit"
        record = found.get(str(row["own_id"])) if row["record"] is None else json.loads(row["record"])
        if record is None:
            audits, others = audits + is_audit, others + (not is_audit)
            continue
        record = {**record, "confidence": row["confidence"], "correct": row["label"]}
        if record.get("model") == name and name not in llms:
            del record["model"]  # it chose the served model, and is no LLM
        chance = row["label_probability"] if row["drawn_time"] is None else row["drawn_probability"]
        is_drawn = row["drawn_time"] is not None
        out.append(LabelledAnswer(row["id"], record, chance if is_audit else None, is_drawn))
    if audits:
        raise InputError(
            f"the store has no texts of {audits:,} answers with a label of an audit. Pass the records, with the ids "
            "under which they were served: --texts FILE. To store texts from now on: qacal serve --store-text. To use "
            "later answers only: --since."
        )
    return out, others


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


def watched_records(answers: list[LabelledAnswer]) -> list[dict[str, Any]]:
    """Return the answers with labels of audits as records for :func:`qacal.model.watching.watches`, in their order.

    Volunteered labels raise no alarm. A bet needs that a label is a fair draw, given all labels before it. Within a
    draw of the store all answers have the same chance, so its rows need no thinning, and draws of different sizes go
    together: each of them is a sample of the answers that it was drawn from, and intervals should hold for each. Other
    audits say their chances, and are thinned by these.
    """
    audits = [one for one in answers if one.probability is not None]
    has_ids = all(one.record.get("id") is not None for one in audits)
    needs_chance = not all(one.is_drawn for one in audits)
    return [
        {name: value for name, value in one.record.items() if has_ids or name != "id"}
        | ({"label_probability": one.probability} if needs_chance else {})
        for one in audits
    ]


def served_signals(
    store: Store, name: str, version: str, model: QACalibrator
) -> tuple[tuple[Signal, ...], dict[str, int]]:
    """Return how the last answers of a version differ from the fit, and by which LLMs an upstream says they are."""
    columns = ("group", "confidence", "unlike", "upstream_model")
    rows = list(store.rows(model=name, version=version, columns=columns, latest=_LATEST))
    read = [row for row in rows if row["confidence"] is not None]
    confidence, unlike = (np.array([row[column] for row in read], dtype=np.float64) for column in columns[1:3])
    llms = Counter(row["upstream_model"] for row in rows if row["upstream_model"] is not None)
    return signals(model, [row["group"] for row in read], confidence, unlike), dict(llms.most_common())


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
