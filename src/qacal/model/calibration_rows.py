"""The rows that calibrate, gathered from batches: a tally for the calibrator, and a few texts of every group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.model.groups import Sampler, Summaries
from qacal.model.learning import ids_of
from qacal.model.pipeline import Pipeline
from qacal.records.reading import Batch
from qacal.tally.arrays import Floats, Hashes
from qacal.tally.groups import Paths, as_grouping
from qacal.tally.ids import mix
from qacal.tally.tally import Tally


class CalibrationSample:
    """Gathers what a calibrator learns from, and what is to be said of its groups.

    road : what the calibrator sees of a row.
    n_blocks : into how many blocks to deal the questions; by default as many as the calibrator needs.

    Examples
    --------
    >>> from qacal import Column, QABinning
    >>> from qacal.records.reading import read
    >>> from qacal.model.pipeline import RowVectors
    >>> records = [{"subject": "law", "confidence": 0.9, "correct": right} for right in (0, 1, 1)]
    >>> road = Road(Column("subject").fit(["art", "law"]), None, QABinning(), RowVectors("static"))
    >>> rows = CalibrationSample(road)
    >>> for batch in read(records, needs_labels=True, **road.needs):
    ...     rows.add(batch)
    >>> rows.tally()
    Tally(3 rows in 1 cells, 1 groups)
    """

    def __init__(self, pipeline: Pipeline, n_blocks: int | None = None) -> None:
        self._road = pipeline
        self._options = pipeline.calibrator.tally_options() | ({} if n_blocks is None else {"n_blocks": n_blocks})
        self._total: Tally | None = None
        self._stated: Tally | None = None
        self._ids: list[Hashes] = []
        self._sampler = Sampler()
        self.count = 0

    def add(self, batch: Batch) -> None:
        """Take more labelled rows."""
        seen, groups = self._road.inputs(batch)
        self._total = _added(self._total, self._tally(batch, seen, groups))
        if self._road.score is not None:
            self._stated = _added(self._stated, Tally.of(batch.confidence, batch.correct, groups=groups))
        self._ids.append(ids_of(batch))
        self._sample(batch, groups)
        self.count += len(batch)

    def _tally(self, batch: Batch, seen: Floats, groups: Any) -> Tally:
        if batch.ids is None and (self._options.get("n_blocks", 1) > 1 or self._options.get("ties")):
            name = type(self._road.calibrator).__name__
            raise InputError(f"{name} splits rows by question; the records need a column id or question.")
        return Tally.of(seen, batch.correct, groups=groups, ids=batch.ids, **self._options)

    def _sample(self, batch: Batch, groups: Any) -> None:
        if groups is None or batch.question is None or batch.answer is None or batch.correct is None:
            return
        keys = mix(ids_of(batch), 1)
        names = _names(groups, len(batch))
        self._sampler.add(names, keys, batch.question, batch.answer, batch.confidence, batch.correct)

    def tally(self) -> Tally:
        """Return what the calibrator learns from."""
        if self._total is None:
            raise InputError(
                "no row is left to calibrate on; give more rows, or a smaller share to learn from (--train-share)."
            )
        # Who is in several batches is known here, and not to tallies that are added.
        return replace(self._total, is_clustered=_repeats(self.ids()), is_sum=False)

    def ids(self) -> Hashes:
        """Return who the rows were."""
        return np.concatenate(self._ids)

    def summaries(self, tally: Tally, examples: int) -> Summaries:
        """Return what is in each group of their tally: with a score, of the confidences that were stated."""
        return Summaries(tally if self._stated is None else self._stated, self._road.depth, self._sampler, examples)


def _added(before: Tally | None, more: Tally) -> Tally:
    return more if before is None else before + more


def _names(groups: Any, length: int) -> list[Any]:
    """Return the name of every row's group; in a tree, that of its leaf."""
    column = as_grouping(groups.groups(groups.depth) if isinstance(groups, Paths) else groups, length)
    return column.decode(column.leaves())


def _repeats(hashes: Hashes) -> bool:
    return bool(hashes.any()) and len(np.unique(hashes)) < len(hashes)
