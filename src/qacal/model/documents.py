"""The share of correct rows in each document of a file, from labelled documents that were not in the fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.metrics.documents import DocumentShares, document_shares
from qacal.model.base import BaseModel
from qacal.model.choosing import require_unseen
from qacal.model.evaluating import collect
from qacal.model.model import QACalibrator
from qacal.model.model_set import rows_by
from qacal.model.pipeline import Progress
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Gathered, Reading
from qacal.tally.arrays import Floats, Hashes

if TYPE_CHECKING:
    import polars as pl


def describe_documents(
    model: BaseModel,
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

    labelled : other documents, with `correct`, that were not in the fit; at least 9 for an alpha of 0.1, for each
        model of a set.
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
    options: dict[str, Any] = {"columns": columns, "percent": percent, "expressions": expressions}
    readings = [model._reading(one, **options) for one in (labelled, records)]
    return documents_frame(
        model, labelled, records, *readings, alpha=alpha, allow_other_source=allow_other_source, progress=None
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
    frames, count = [], 0
    for value, own in rows_by(rows["owners"]).items():
        where = "" if model._by is None else f"{model._by} {value}: "
        try:
            found = _shares(model._models[value], known.columns(value), calibrated[own], ids[own], alpha)
        except InputError as error:
            raise type(error)(f"{where}{error}") from None
        count += found.labelled
        first = np.array(own)[found.first]
        columns = {name: getattr(found, name) for name in ("rows", "expected", "low", "high")}
        if model._by is not None:
            columns = {model._by: [value] * len(first), **columns}
        frames.append(pl.DataFrame({"first": first, "id": [names[at] for at in first], **columns}, strict=False))
    return pl.concat(frames, how="vertical_relaxed").sort("first").drop("first"), count


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
