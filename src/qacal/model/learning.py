"""Learning groups and score from the rows that are not to calibrate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.score import LearnedScore
from qacal.errors import InputError
from qacal.model.answering import Progress
from qacal.model.beta_rows import PartitionSample, ScoreSample, require_labels
from qacal.partitions import EMBEDDING, Partition
from qacal.tally.arrays import Hashes

if TYPE_CHECKING:
    from qacal.records.reading import Batch


@dataclass
class Learning:
    """Goes through rows once, and fits what is to be learned from them.

    partition, score : what to fit; None for nothing.
    vectors : embeds the rows of a batch.
    progress : told what is being done.
    """

    partition: Partition | None
    score: LearnedScore | None
    vectors: Callable[[Batch], Any]
    progress: Progress
    _seen: list[Hashes] = field(default_factory=lambda: [np.empty(0, dtype=np.uint64)])

    def from_rows(self, batches: Iterable[Batch], chosen: Callable[[Batch], Batch]) -> None:
        """Learn from those rows that `chosen` tells; columns of groups from all, since they are given, not learned."""
        groups = None if self.partition is None else PartitionSample(self.partition)
        score = None if self.score is None else ScoreSample(self.score)
        for batch in batches:
            self._seen.append(ids_of(batch))
            if groups is not None:
                groups.add_columns(batch)
            mine = chosen(batch)
            if len(mine):
                self._add(mine, groups, score)
        if groups is not None and self.partition is not None:
            if self._groups_need_vectors and not groups.count:
                raise InputError("no row is left to make groups from; give more rows, or a larger train_share.")
            self.partition.fit_rows(groups.inputs())
        if score is not None:
            self.progress("learning a score", score.count)
            score.fit()

    def _add(self, batch: Batch, groups: PartitionSample | None, score: ScoreSample | None) -> None:
        if self.partition is not None and self.partition.uses_labels:
            require_labels(batch, self.partition)
        reads_text = self._groups_need_vectors or (self.score is not None and self.score.text)
        vectors = self.vectors(batch) if reads_text else None
        if groups is not None and self._groups_need_vectors:
            groups.add_vectors(batch, ids_of(batch), vectors)
            self.progress("making groups", groups.count)
        if score is not None:
            score.add(batch, ids_of(batch), vectors)

    @property
    def _groups_need_vectors(self) -> bool:
        return self.partition is not None and EMBEDDING in self.partition.needs

    @property
    def seen(self) -> Hashes:
        """Who the rows were, those that were not chosen too."""
        return np.unique(np.concatenate(self._seen))


def ids_of(batch: Batch) -> Hashes:
    """Return the hashes of the ids of rows; zeros where there are none."""
    return np.zeros(len(batch), dtype=np.uint64) if batch.ids is None else batch.ids
