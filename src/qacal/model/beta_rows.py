"""The rows of the beta part, gathered from batches into what partitions and scores learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.score import LearnedScore
from qacal.errors import InputError
from qacal.partitions import EMBEDDING, Partition
from qacal.tally.arrays import Floats, Hashes
from qacal.tally.hash_sample import HashSample
from qacal.tally.labels import as_labels

if TYPE_CHECKING:
    from qacal.records.reading import Batch

# Scores are learned from at most this many rows: what more of them teach is less than a fit's own noise.
_MOST_SCORE_ROWS = 50_000


class PartitionSample:
    """Gathers vectors of the beta part, with their labels if groups are learned from them; and columns of all rows.

    Columns are given and not learned, so they need no part of their own. Vectors are a sample, the same in any order.
    """

    def __init__(self, partition: Partition) -> None:
        self._uses_labels = partition.uses_labels
        self._columns: dict[str, list[Any]] = {name: [] for name in partition.needs if name != EMBEDDING}
        self._vectors = HashSample(partition.rows_wanted)
        self._labels = HashSample(partition.rows_wanted)
        self.count = 0

    def add_columns(self, batch: Batch) -> None:
        """Take the columns of some rows."""
        for name, values in self._columns.items():
            values.extend(batch.listed(name))

    def add_vectors(self, batch: Batch, ids: Hashes, vectors: Any) -> None:
        """Take the vectors of some rows, known by the hashes of their ids."""
        self._vectors.add(ids, vectors)
        if self._uses_labels:
            # The same ids in the same order: the two samples are of the same rows.
            self._labels.add(ids, _labels_of(batch))
        self.count += len(batch)

    def inputs(self) -> dict[str, Any]:
        """Return what :meth:`~qacal.partitions.Partition.fit_rows` takes."""
        inputs: dict[str, Any] = dict(self._columns)
        if self.count:
            inputs[EMBEDDING] = self._vectors.rows()
        if self.count and self._uses_labels:
            inputs["confidence"], inputs["correct"] = self._labels.rows().T
        return inputs


class ScoreSample:
    """Gathers what a score learns from: a sample of the rows, the same in any order."""

    def __init__(self, score: LearnedScore) -> None:
        self._score = score
        # All samples are of the same rows: the same ids are added to each in the same order.
        self._ids, self._numbers, self._vectors = (HashSample(_MOST_SCORE_ROWS) for _ in range(3))
        self._known: dict[str, dict[Any, int]] = {name: {} for name in score.columns}
        self.count = 0

    def add(self, batch: Batch, ids: Hashes, vectors: Any) -> None:
        """Take more labelled rows."""
        numbers = [batch.confidence, np.asarray(batch.correct)]
        numbers += [batch.partial(name) for name in self._score.confidences]
        numbers += [_codes(as_labels(batch.listed(name), name).tolist(), known) for name, known in self._known.items()]
        self._ids.add(ids, ids)
        self._numbers.add(ids, np.column_stack(numbers))
        if self._score.text:
            self._vectors.add(ids, vectors)
        self.count += len(batch)

    def fit(self) -> None:
        """Fit the score."""
        if not self.count:
            raise InputError("no row is left to learn a score from; give more rows, or a larger train_share.")
        confidence, correct, *others = self._numbers.rows().T
        inputs: dict[str, Any] = {"confidence": confidence}
        split = len(self._score.confidences)
        inputs |= dict(zip(self._score.confidences, others[:split], strict=True))
        for (name, known), codes in zip(self._known.items(), others[split:], strict=True):
            labels = list(known)
            inputs[name] = [labels[code] for code in codes.astype(np.int64).tolist()]
        if self._score.text:
            inputs[EMBEDDING] = self._vectors.rows()
        ids = self._ids.rows()
        # Records without ids come with zeros. That is not one question, but as many as there are rows.
        self._score.fit_hashed(inputs, correct, ids if ids.any() else None)


def _codes(values: list[Any], known: dict[Any, int]) -> Floats:
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.float64)


def require_labels(batch: Batch, partition: Partition) -> None:
    """Refuse rows without labels to learn groups from."""
    if batch.correct is None or not (batch.correct >= 0).all():
        raise InputError(
            f"{batch.table.origin}: {partition!r} learns groups from labels, and rows that groups are made from "
            "(--group-rows, group_records=) have no `correct`. Label them, or make groups that need none: bisecting:6."
        )


def _labels_of(batch: Batch) -> Floats:
    """Return confidence and correctness, one row each."""
    return np.column_stack([batch.confidence, np.asarray(batch.correct)])
