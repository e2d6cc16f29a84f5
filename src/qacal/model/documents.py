"""The share of correct rows in each document of a file, from labelled documents that were not in the fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError, QacalWarning
from qacal.metrics.documents import DocumentShares, document_shares
from qacal.model.base import BaseModel
from qacal.model.choosing import require_unseen
from qacal.model.evaluating import collect
from qacal.model.model import QACalibrator
from qacal.model.model_set import rows_by
from qacal.model.pipeline import Progress
from qacal.model.saved import as_model
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Gathered, Reading, read
from qacal.tally.arrays import Floats, Hashes, is_missing
from qacal.tally.ids import distinct

if TYPE_CHECKING:
    import polars as pl


_SHARES = ("rows", "expected", "low", "high")


def describe_documents(
    model: BaseModel | str | Path,
    labelled: Any,
    records: Any,
    *,
    alpha: float = 0.1,
    columns: Mapping[str, str] | None = None,
    percent: bool | None = None,
    expressions: Mapping[str, float] | None = None,
    allow_other_source: AllowOtherSource = False,
) -> pl.DataFrame:
    """Return, for each document of the records, the expected share of correct rows and an interval for the true share.

    Rows with one `id` are a document. The result has a row for each: `id`, `rows`, `expected` (the mean of the
    calibrated confidences), `low` and `high`. For a document that is like the labelled ones, the interval contains the
    share of its rows that are correct with probability 1 - alpha; :mod:`qacal.metrics.documents` says why.

    With a set of models (`qacal fit --by`), rows with one `id` and one model are a document. The result has the column
    that chooses the model, too, and the intervals of a model come from its own labelled documents.

    model : a fitted model, or the path of a saved one.
    labelled : other documents, with `correct`, that were not in the fit; at least 9 for an alpha of 0.1, for each
        model of a set. Documents with a label in only some rows are left out, with a warning.
    columns, percent, expressions, allow_other_source : as in :meth:`QACalibrator.calibrate`, for both files.

    Examples
    --------
    Extractions of four fields each; a stated 0.9 is correct in seven cases of ten:

    >>> from qacal import QACalibrator
    >>> from qacal.calibrators import PlattScaling
    >>> rng = np.random.default_rng(0)
    >>> def extractions(first, n):
    ...     return [{"id": first + i // 4, "confidence": h, "correct": rng.random() < h - 0.2}
    ...             for i, h in enumerate(rng.choice([0.5, 0.9], 4 * n).tolist())]
    >>> model = QACalibrator(calibrator=PlattScaling()).fit(extractions(0, 500))
    >>> shares = describe_documents(model, extractions(500, 100), [{"id": "new", "confidence": 0.9}] * 4)
    >>> shares["expected"].round(2).to_list(), shares["low"].to_list(), shares["high"].to_list()
    ([0.71], [0.5], [1.0])
    """
    loaded = as_model(model)
    options: dict[str, Any] = {"columns": columns, "percent": percent, "expressions": expressions}
    readings = [loaded._reading(one, **options) for one in (labelled, records)]
    return documents_frame(
        loaded, labelled, records, *readings, alpha=alpha, allow_other_source=allow_other_source, progress=None
    )[0]


def documents_frame(
    model: BaseModel,
    labelled: Any,
    records: Any,
    labelled_reading: Reading,
    reading: Reading,
    *,
    alpha: float,
    allow_other_source: AllowOtherSource,
    progress: Progress | None,
) -> tuple[pl.DataFrame, int]:
    """Return the documents as a table, and the number of labelled documents."""
    import polars as pl

    if model._by in ("id", *_SHARES):
        raise InputError(
            f"the models of this set are chosen by the column {model._by!r}, and the result has a column of that name. "
            "Rename the column, and fit the set again."
        )
    options: dict[str, Any] = {"allow_other_source": allow_other_source, "progress": progress}
    known = collect(labelled, labelled_reading, model, None, model._by, **options)
    rows = Gathered()
    for batch, evidence in model._explained_batches(records, reading, **options):
        rows.add(
            ids=batch.ids,
            names=batch.listed("id") if reading.name("id") in batch.table.names else batch.asked,
            calibrated=evidence["calibrated"].to_numpy(),
            owners=[None] * len(batch) if model._by is None else batch.listed(model._by),
        )
    if known.columns()["ids"] is None or "ids" not in rows:
        raise InputError("both files need a column id (or question) that tells which rows belong to one document.")
    names, ids, calibrated = rows["names"], rows["ids"], rows["calibrated"]
    partly = _partly_labelled(labelled, labelled_reading, model._by)
    frames, places, count = [], [], 0
    for value, own in rows_by(rows["owners"]).items():
        where = "" if model._by is None else f"{model._by} {value}: "
        try:
            whole = _whole(known.columns(value), partly.get(value, []), labelled_reading.prefix or where)
            found = _shares(model._models[value], whole, calibrated[own], ids[own], alpha)
        except InputError as error:
            raise type(error)(f"{where}{error}") from None
        count += found.labelled
        first = np.array(own)[found.first]
        columns = {name: getattr(found, name) for name in _SHARES}
        if model._by is not None:
            columns = {model._by: [value] * len(first), **columns}
        frames.append(pl.DataFrame({"id": [names[at] for at in first], **columns}, strict=False))
        places.append(first)
    return pl.concat(frames, how="vertical_relaxed")[np.argsort(np.concatenate(places))], count


def _partly_labelled(records: Any, reading: Reading, by: str | None) -> dict[Any, list[int]]:
    """Return the ids of rows without a label, for each model."""
    out: dict[Any, list[int]] = {}
    reading = replace(reading, on_fault=lambda fault: None, max_bad=1.0)  # bad rows were reported with the labels
    for batch in read(records, reading, needs_labels=False, needs_text=False, needs_confidence=False):
        owners = [None] * len(batch) if by is None else batch.listed(by)
        if batch.ids is not None:
            for value, id_, label in zip(owners, batch.ids.tolist(), batch.listed("correct"), strict=True):
                if is_missing(label):
                    out.setdefault(value, []).append(id_)
    return out


def _whole(known: dict[str, Any], unlabelled: list[int], prefix: str) -> dict[str, Any]:
    """Return the labelled rows without the documents that have unlabelled rows too, whose shares are not known."""
    is_part = np.isin(known["ids"], np.array(unlabelled, dtype=np.uint64))
    if not is_part.any():
        return known
    count = len(distinct(known["ids"][is_part]))
    warnings.warn(
        f"{prefix}labelled documents of which some rows have no label: {count:,}. They are not used, since their share "
        "of correct rows is not known. Label all of their rows.",
        QacalWarning,
        stacklevel=3,
    )
    return known | {name: known[name][~is_part] for name in ("correct", "calibrated", "ids", "questions")}


def _shares(
    model: QACalibrator, known: dict[str, Any], calibrated: Floats, ids: Hashes, alpha: float
) -> DocumentShares:
    """Return the shares of the documents of one model, from its labelled documents."""
    if not len(known["correct"]):
        raise InputError("there is no labelled document, and intervals come from these. Label some.")
    require_unseen(model, known["ids"], known["questions"], "intervals need other documents")
    shared = len(np.intersect1d(known["ids"], ids))
    if shared:
        raise InputError(
            f"{shared:,} documents are labelled, and also among those to describe. Intervals are about other "
            "documents: remove them from one of the two files."
        )
    return document_shares(known["correct"], known["calibrated"], known["ids"], calibrated, ids, alpha)
