"""Rows of a fit, gathered from batches: an overview, and samples that train groups, score and calibrator.

Each takes batches with `add` and is used at the end. The order of the rows does not matter.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from qacal.calibrators.score import LearnedScore
from qacal.errors import InputError, QacalWarning
from qacal.model.groups import Sampler, Summaries
from qacal.model.pipeline import Pipeline
from qacal.partitions import EMBEDDING, Partition
from qacal.records.provenance import Sources
from qacal.records.reading import Batch, Gathered, warn_of_copies
from qacal.tally.arrays import Floats, Hashes
from qacal.tally.groups import Paths, as_grouping, as_labels
from qacal.tally.ids import HashSample, mix
from qacal.tally.tally import DOCUMENTS, Tally
from qacal.thresholds.fit_record import sampled

# Scores are trained on at most this many rows: the gain from more rows is smaller than the noise of a fit.
_MOST_SCORE_ROWS = 50_000
# A category with more values than this, and fewer than two rows a value, is none.
_MANY_VALUES = 20
# Columns with names like this hold further confidences, as the importers and `elicit` write them.
_CONFIDENCE = "confidence_"
_LARGER_SHARE = "give more rows, or a larger --train-share (in Python: train_share)."


def ids_of(batch: Batch) -> Hashes:
    """Return the hashes of the ids of rows; zeros where there are none."""
    return np.zeros(len(batch), dtype=np.uint64) if batch.ids is None else batch.ids


class Overview:
    """What a fit notes about all its rows before training: their number, their sources, and what looks wrong.

    sources : the LLMs, prompts, confidence sources and judges.
    has_ids : whether the rows of one question can be recognised.
    has_texts : whether all rows have a question and an answer.
    further_confidences : columns that hold other confidences.
    only_label : the label of all rows, if it is the same for all: then nothing can be learned.
    texts : hashes of the texts of some questions that have ids.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.sources = Sources()
        self.has_ids = False
        self.has_texts = True
        self.further_confidences: tuple[str, ...] = ()
        self.only_label: float | None = None
        self.texts: Hashes = np.empty(0, dtype=np.uint64)
        self._columns = Gathered()

    def add(self, batch: Batch) -> None:
        """Take more labelled rows."""
        if not self.rows:
            self.has_ids = batch.reading.name("id") in batch.table.names
            names = [name for name in batch.table.names if name.startswith(_CONFIDENCE) and name != "confidence_source"]
            self.further_confidences = tuple(name for name in names if _is_confidence(batch, name))
        self.rows += len(batch)
        self.has_texts &= batch.question is not None and batch.answer is not None
        self.sources.add(batch)
        if self.has_ids and batch.question is not None:
            self.texts = sampled(np.concatenate([self.texts, batch.question_hashes()]))
        self._columns.add(
            confidence=batch.confidence, correct=batch.correct, ids=ids_of(batch), hashes=batch.row_hashes()
        )

    def warn(self, prefix: str) -> None:
        """Warn of copies, and of confidences that look swapped, random or constant; release the rows.

        prefix : opens each warning, such as "model gpt-4: ".
        """
        from qacal.metrics.ranking import doubt_of

        confidence, correct, ids = (self._columns[name] for name in ("confidence", "correct", "ids"))
        warn_of_copies([self._columns.get("hashes")], prefix)
        self._columns = Gathered()
        labels = np.unique(correct)
        self.only_label = float(labels[0]) if len(labels) == 1 else None
        doubt = doubt_of(correct, confidence, questions=len(np.unique(ids)) if ids.any() else None)
        if doubt is not None:
            warnings.warn(f"{prefix}{doubt.text}", QacalWarning, stacklevel=2)


def _is_confidence(batch: Batch, name: str) -> bool:
    """Return whether a column has numbers, all of them in [0, 1]; some rows may have none."""
    try:
        return bool((batch.numbers(name, 1.0) >= 0).any())
    except InputError:
        return False


class PartitionSample:
    """Rows that train a partition: a sample of vectors, and the columns of all rows.

    Groups that are columns are not learned, so they come from all rows and need no split.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.reads_vectors = EMBEDDING in partition._needs
        self._columns: dict[str, list[Any]] = {name: [] for name in partition._needs if name != EMBEDDING}
        self._vectors = HashSample(partition._rows_wanted)
        self.count = 0

    def add_columns(self, batch: Batch) -> None:
        for name, values in self._columns.items():
            values.extend(batch.listed(name))

    def add_vectors(self, batch: Batch, vectors: Any) -> None:
        self._vectors.add(ids_of(batch), vectors)
        self.count += len(batch)

    def fit(self) -> None:
        """Train the partition."""
        inputs: dict[str, Any] = dict(self._columns)
        if self.reads_vectors:
            if not self.count:
                raise InputError(f"no row is left to make groups from; {_LARGER_SHARE}")
            inputs[EMBEDDING] = self._vectors.rows()
        self._partition._fit_rows(inputs)


class ScoreSample:
    """Rows that train a score."""

    def __init__(self, score: LearnedScore) -> None:
        self._score = score
        self.reads_vectors = score.text
        # All samples are of the same rows: the same ids are added to each in the same order.
        self._ids, self._numbers, self._vectors, self._texts = (HashSample(_MOST_SCORE_ROWS) for _ in range(4))
        self._known: dict[str, dict[Any, int]] = {name: {} for name in score.columns}
        self.count = 0

    def add(self, batch: Batch, vectors: Any) -> None:
        """Take more labelled rows."""
        numbers = [batch.confidence, np.asarray(batch.correct)]
        numbers += [batch.numbers(name, 1.0) for name in self._score.confidences]
        numbers += [batch.numbers(name) for name in self._score.numbers]
        numbers += [_codes(as_labels(batch.listed(name), name).tolist(), known) for name, known in self._known.items()]
        ids = ids_of(batch)
        self._ids.add(ids, ids)
        self._numbers.add(ids, np.column_stack(numbers))
        if self.reads_vectors:
            self._vectors.add(ids, vectors)
        if self._score.text and self._score.words:
            self._texts.add(
                ids, np.column_stack([np.array(texts, dtype=object) for texts in (batch.question, batch.answer)])
            )
        self.count += len(batch)

    def fit(self) -> None:
        """Train the score."""
        for name, codes in self._known.items():
            if len(codes) > _MANY_VALUES and len(codes) > self.count / 2:
                warnings.warn(
                    f"the column {name} has {len(codes):,} values in {self.count:,} training rows; as categories these "
                    f"say nothing about other rows. If they are numbers, pass --feature {name}:numeric (in Python: "
                    f"LearnedScore(numbers=[{name!r}])).",
                    QacalWarning,
                    stacklevel=2,
                )
        if not self.count:
            raise InputError(f"no row is left to learn a score from; {_LARGER_SHARE}")
        confidence, correct, *others = self._numbers.rows().T
        inputs: dict[str, Any] = {"confidence": confidence}
        names = (*self._score.confidences, *self._score.numbers)
        split = len(names)
        inputs |= dict(zip(names, others[:split], strict=True))
        for (name, known), codes in zip(self._known.items(), others[split:], strict=True):
            labels = list(known)
            inputs[name] = [labels[code] for code in codes.astype(np.int64).tolist()]
        if self.reads_vectors:
            inputs[EMBEDDING] = self._vectors.rows()
        if self._score.text and self._score.words:
            inputs |= dict(zip(("question", "answer"), self._texts.rows().T.tolist(), strict=True))
        ids = self._ids.rows()
        # Records without ids have zeros: each row is a question of its own.
        self._score._fit_hashed(inputs, correct, ids if ids.any() else None)


def _codes(values: list[Any], known: dict[Any, int]) -> Floats:
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.float64)


class CalibratorSample:
    """Rows that fit the calibrator: a tally of their scores and groups, and a few texts of every group.

    n_blocks : the number of blocks to split the questions into; by default as many as the calibrator needs.

    Examples
    --------
    >>> from qacal import Column, QABinning
    >>> from qacal.model.pipeline import RowVectors
    >>> from qacal.records.reading import read
    >>> records = [{"subject": "law", "confidence": 0.9, "correct": right} for right in (0, 1, 1)]
    >>> pipeline = Pipeline(Column("subject").fit(["art", "law"]), None, QABinning(), RowVectors("static"))
    >>> rows = CalibratorSample(pipeline)
    >>> for batch in read(records, needs_labels=True, **pipeline.needs):
    ...     rows.add(batch)
    >>> rows.tally()
    Tally(3 rows in 1 cells, 1 groups)
    """

    def __init__(self, pipeline: Pipeline, n_blocks: int | None = None) -> None:
        self._pipeline = pipeline
        self._options = pipeline.calibrator._tally_options() | ({} if n_blocks is None else {"n_blocks": n_blocks})
        self._total: Tally | None = None
        self._stated: Tally | None = None
        self._ids: list[Hashes] = []
        self._sampler = Sampler()
        self.count = 0

    def add(self, batch: Batch) -> None:
        """Take more labelled rows."""
        if batch.ids is None and (self._options.get("n_blocks", 1) > 1 or self._options.get("ties")):
            name = type(self._pipeline.calibrator).__name__
            raise InputError(f"{name} splits rows by question; the records need a column id or question.")
        scores, groups = self._pipeline.inputs(batch)
        options = self._options
        if batch.ids is not None and self._pipeline.calibrator.properties.counts_documents:
            options = {"n_blocks": DOCUMENTS} | options
        more = Tally.of(scores, batch.correct, groups=groups, ids=batch.ids, **options)
        self._total = more if self._total is None else self._total + more
        if self._pipeline.score is not None:
            stated = Tally.of(batch.confidence, batch.correct, groups=groups)
            self._stated = stated if self._stated is None else self._stated + stated
        self._ids.append(ids_of(batch))
        if groups is not None and batch.question is not None and batch.answer is not None:
            column = as_grouping(groups.groups(groups.depth) if isinstance(groups, Paths) else groups, len(batch))
            texts = (batch.question, batch.answer, batch.confidence, np.asarray(batch.correct))
            self._sampler.add(column.decode(column.leaves()), mix(ids_of(batch), 1), *texts)
        self.count += len(batch)

    def tally(self) -> Tally:
        """Return what the calibrator is fitted on."""
        if self._total is None:
            raise InputError(
                "no row is left to calibrate on; give more rows, or a smaller --train-share (in Python: train_share)."
            )
        # Only here it is known which questions are in several batches; added tallies do not know it.
        ids = self.ids()
        is_clustered = bool(ids.any()) and len(np.unique(ids)) < len(ids)
        total = replace(self._total, is_clustered=is_clustered, is_sum=False)
        return total.without_blocks() if total.n_blocks == DOCUMENTS and not is_clustered else total

    def ids(self) -> Hashes:
        return np.concatenate(self._ids)

    def summaries(self, tally: Tally, examples: int) -> Summaries:
        """Return what is in each group; `confidence` there is the stated one, also with a score."""
        return Summaries(tally if self._stated is None else self._stated, self._pipeline.depth, self._sampler, examples)
