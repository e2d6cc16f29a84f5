r"""Which answers to label next: a stratified draw in which all answers have the same chance.

Rows are sorted by the model's probability (ten ranges) and within these by group, and cut into :math:`n` strata of
equally many neighbours. One row of each stratum is drawn, by a hash of its id. So every range and group has its share
of the labels, and labels are independent with an average probability that is the accuracy of all answers. By Hoeffding
(1956), the number of correct ones has lighter tails than in a simple random sample, so Clopper-Pearson intervals hold.
Fewer than :math:`n` rows are left out, at random, if strata do not divide the rows.

Why not draw more where the model is unsure (Neyman's allocation)? Such labels need weights. An interval for a
weighted mean that holds for every number of rows is wider than that allocation makes it narrower
(docs/guarantees.md), and rows drawn with the same chance need no weights anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.model.base import BaseModel
from qacal.model.choosing import require_unseen
from qacal.model.model_set import mask, rows_by
from qacal.model.pipeline import Progress
from qacal.model.saved import as_model
from qacal.parameters import is_whole, shown
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Gathered, Reading, as_source
from qacal.records.table import Table, require_polars
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.ids import check_seed, combined, id_hashes, mix, one_of_each

_BANDS = 10
NEW_COLUMNS = ("stratum", "label_probability")


def label_next(
    model: BaseModel | str | Path,
    records: Any,
    n: int = 200,
    *,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    percent: bool | None = None,
    expressions: Mapping[str, float] | None = None,
    allow_other_source: AllowOtherSource = False,
) -> Any:
    """Return `n` of the records to label: a random sample, stratified by the model's probability and group.

    Two columns are added: `stratum`, a number from 1 to n, and `label_probability`, the chance that the row had. Label
    all of these rows. Then use them like a random sample: :func:`qacal.metrics.estimate_accuracy`,
    :func:`qacal.evaluate`, :meth:`QACalibrator.choose_threshold`, or `certify_records` of a new fit.

    If ids repeat, one row of each id can be drawn; a set of models has answers of its own for each model. Questions of
    the fit are refused.

    model : a fitted model, or the path of a saved one.
    seed : another seed draws other rows.
    columns, percent, expressions, allow_other_source : as in :meth:`QACalibrator.calibrate`.

    Examples
    --------
    >>> from qacal import QACalibrator
    >>> from qacal.calibrators import PlattScaling
    >>> rng = np.random.default_rng(0)
    >>> rows = [{"id": i, "confidence": h} for i, h in enumerate(rng.choice([0.5, 0.9], 3000).tolist())]
    >>> model = QACalibrator(calibrator=PlattScaling())
    >>> model = model.fit([{**row, "correct": rng.random() < row["confidence"] - 0.1} for row in rows[:1000]])
    >>> to_label = label_next(model, rows[1000:], 100)
    >>> to_label[0]
    {'id': 1039, 'confidence': 0.5, 'stratum': 9, 'label_probability': 0.05}
    """
    loaded = as_model(model)
    reading = loaded._reading(records, columns, percent, expressions)
    tables = list(tables_to_label(loaded, records, n, reading, seed=seed, allow_other_source=allow_other_source))
    if len(tables) == 1 and not isinstance(records, str | Path):
        return tables[0].native
    import polars as pl

    require_polars()
    return pl.concat([table.frame() for table in tables], how="diagonal_relaxed")


def tables_to_label(
    model: BaseModel,
    records: Any,
    n: int,
    reading: Reading,
    *,
    seed: int = 0,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> Iterator[Table]:
    """Yield the rows to label, in the order of the records, which are read twice."""
    import polars as pl

    check_seed(seed)
    if not is_whole(n, 1):
        raise InputError(f"n is {shown(n)}; expected the number of rows to label, such as 200.")
    source = as_source(records)
    rows, read = Gathered(), 0
    for batch, evidence in model._explained_batches(
        source, reading, keeps_bad=True, allow_other_source=allow_other_source, progress=progress
    ):
        if len(batch) and batch.ids is None:
            raise InputError(
                f"{batch.table.origin}: rows are drawn by their id, and there is no column id or question. Add one."
            )
        taken = [name for name in NEW_COLUMNS if name in batch.whole.names]
        if taken:
            raise InputError(f"{batch.table.origin} already has a column {taken[0]!r}; rename it, or leave it out.")
        rows.add(
            place=read + batch.kept,
            ids=batch.ids,
            questions=batch.question_hashes(),
            confidence=batch.confidence,
            calibrated=evidence["calibrated"].to_numpy(),
            group=[str(name) for name in evidence["group"].to_list()],
            owner=[None] * len(batch) if model._by is None else batch.listed(model._by),
        )
        read += len(batch.whole)
    ids, owners = rows["ids"], rows_by(rows["owner"])
    for value, own in owners.items():
        where = "" if model._by is None else f"{model._by} {value}: "
        remedy = "draw from other answers"
        require_unseen(model._models[value], ids[own], rows["questions"][own], remedy, where)
    if model._by is not None:
        ids = combined(ids, id_hashes([str(value) for value in rows["owner"]], len(ids)))
    _, question, repeats = np.unique(ids, return_inverse=True, return_counts=True)
    if n > len(repeats):
        raise InputError(
            f"n is {n:,} and there are answers to {len(repeats):,} questions. Label all of them, or fewer."
        )
    one = np.flatnonzero(one_of_each(ids, rows["confidence"]))
    strata = strata_of(rows["calibrated"], rows["group"], rows["owner"])[one]
    chosen = one[draw(ids[one], strata, n, seed)]
    chance = n / len(repeats) / repeats[question[chosen]]
    order = np.argsort(rows["place"][chosen])
    place, stratum, chance = rows["place"][chosen][order], order + 1, chance[order]
    numbers = {reading.name("confidence"): 100.0 if reading.percent else 1.0}
    done = 0
    for table in source.batches(lambda fault: None):
        here = (place >= done) & (place < done + len(table))
        if here.any():
            new = pl.DataFrame(dict(zip(NEW_COLUMNS, (stratum[here], chance[here]), strict=True)))
            yield table.only(mask((place[here] - done).tolist(), len(table))).extended(new, numbers)
        done += len(table)


def draw(hashes: Hashes, order: Ints, n: int, seed: int) -> Ints:
    """Return one row of each of `n` strata: equally many rows that are neighbours in the order.

    >>> draw(id_hashes(range(8), 8), np.array([0, 0, 1, 1, 0, 0, 1, 1]), 2, seed=0)
    array([4, 2])
    """
    size = len(hashes) // n
    # No split uses these seeds, so the draw is independent of all splits by the same ids.
    kept = np.argsort(mix(hashes, seed + 2**44), kind="stable")[: n * size]
    strata = kept[np.argsort(order[kept], kind="stable")].reshape(n, size)
    return np.asarray(strata[np.arange(n), mix(hashes, seed + 2**45)[strata].argmin(axis=1)])


def strata_of(calibrated: Floats, group: list[str], owner: list[Any]) -> Ints:
    """Return the order of rows: by model, then by the range of the probability, then by group."""
    band = np.searchsorted(np.quantile(calibrated, np.arange(1, _BANDS) / _BANDS), calibrated)
    (_, of_group), (_, of_owner) = (
        np.unique([str(value) for value in values], return_inverse=True) for values in (group, owner)
    )
    return np.asarray((of_owner * _BANDS + band) * (of_group.max() + 1) + of_group)
