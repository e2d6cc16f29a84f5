"""Rows of a fit, gathered from batches: an overview, and samples that train groups, score and calibrator.

Each takes batches with `add` and is used at the end. The order of the rows does not matter.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from qacal.calibrators.margins import Judged
from qacal.calibrators.score import LearnedScore
from qacal.errors import InputError, QacalWarning
from qacal.metrics.scores import doubt_of_tally
from qacal.model.features import Embed, Feature, Features, FoundKind, find_kind, parameters_of
from qacal.model.groups import Sampler, Summaries
from qacal.model.pipeline import Pipeline
from qacal.partitions import EMBEDDING, Partition
from qacal.partitions.column import LabelCounts
from qacal.records.provenance import Sources, warn_of_copies
from qacal.records.reading import Batch
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.groups import Paths, as_grouping
from qacal.tally.ids import HashSample, Repeats, mix, surplus
from qacal.tally.tally import DOCUMENTS, Tally, TallySum
from qacal.thresholds.fit_record import sampled

# Scores are trained on at most this many rows: the gain from more rows is smaller than the noise of a fit.
_MOST_SCORE_ROWS = 50_000
# The first score only makes bands: candidates for it are compared on fewer rows.
_ENOUGH_FOR_BANDS = 300
# A tally of more cells has confidences to three decimals, which hardly matters and fits into memory.
MOST_CELLS = 2**21
PARTS = 4
"""Parts of the questions that widths are measured on."""
_LARGER_SHARE = "give more rows, or a larger --train-share (in Python: train_share)."


def ids_of(batch: Batch) -> Hashes:
    """Return the hashes of the ids of rows; zeros where there are none."""
    return np.zeros(len(batch), dtype=np.uint64) if batch.ids is None else batch.ids


class Overview:
    """What a fit notes about all its rows before training: their number, their sources, and what looks wrong.

    sources : the LLMs, prompts, confidence sources and judges.
    has_ids : whether the rows of one question can be recognised.
    has_texts : whether all rows have a question and an answer.
    columns : the names of all columns.
    only_label : the label of all rows, if it is the same for all: then nothing can be learned.
    texts : hashes of the texts of some questions that have ids.
    is_one_row_each : whether rows have ids, and no two have the same; known after :meth:`warn`.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.sources = Sources()
        self.has_ids = False
        self.has_texts = True
        self.columns: dict[str, None] = {}
        self.texts: Hashes = np.empty(0, dtype=np.uint64)
        self._counted = TallySum(MOST_CELLS)
        self._labels = math.inf, -math.inf
        self._ids, self._copies = Repeats(), Repeats()
        self.is_one_row_each = False

    def add(self, batch: Batch) -> None:
        """Take more labelled rows."""
        if not self.rows:
            self.has_ids = batch.reading.name("id") in batch.table.names
        self.columns |= dict.fromkeys(batch.table.names)
        self.rows += len(batch)
        self.has_texts &= batch.question is not None and batch.answer is not None
        self.sources.add(batch)
        if self.has_ids and batch.question is not None:
            self.texts = sampled(np.concatenate([self.texts, batch.question_hashes()]))
        correct = np.asarray(batch.correct)
        self._counted.add(Tally.of(batch.confidence, correct))
        low, high = self._labels
        self._labels = min(low, float(correct.min())), max(high, float(correct.max()))
        if batch.ids is not None:
            self._ids.add(batch.ids)
        if (hashes := batch.row_hashes()) is not None:
            self._copies.add(hashes)

    @property
    def only_label(self) -> float | None:
        low, high = self._labels
        return low if low == high else None

    def warn(self, prefix: str) -> None:
        """Warn of copies, and of confidences that look swapped, random or constant; release the rows.

        prefix : opens each warning, such as "model gpt-4: ".
        """
        warn_of_copies(self._copies, prefix)
        questions = self._ids.rows - self._ids.surplus() if self._ids.rows else None
        self.is_one_row_each = questions == self.rows
        doubt = doubt_of_tally(self._counted.total(), questions=questions)
        self._counted, self._ids, self._copies = TallySum(), Repeats(), Repeats()
        if doubt is not None:
            warnings.warn(f"{prefix}{doubt.text}", QacalWarning, stacklevel=2)


class PartitionSample:
    """Rows that train a partition: a sample of vectors, and the columns of all rows.

    Groups that are columns are not learned, so they come from all rows and need no split.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.reads_vectors = EMBEDDING in partition._needs
        self._columns = {name: LabelCounts(name) for name in partition._needs if name != EMBEDDING}
        self._vectors = HashSample(partition._rows_wanted)
        self.count = 0

    def add_columns(self, batch: Batch) -> None:
        for name, counts in self._columns.items():
            counts.add(batch.column(name))

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
    """Rows that train a score.

    features : the columns that it may read. Those that the user did not name must help clearly to be used.
    embed : embeds single texts; None if that would take long.
    used, not_tried : after a fit, the columns that the scores read, and those that they could not, with the reason.
    first : after a fit, the score that makes the bands of a certificate, if that is another one.
    sample_scores, sample_vectors : after a fit, scores and vectors of rows that make bands.
    sample_cut : by how much their answers are lower because form adds no more than it may.
    """

    def __init__(self, score: LearnedScore, features: Features, embed: Embed | None) -> None:
        self._score = score
        self._embed = embed
        self.first: LearnedScore | None = None
        self.sample_scores: Floats = np.empty(0)
        self.sample_cut: Floats = np.empty(0)
        self.sample_vectors: Any = None
        self._features = (*features.named, *features.found)
        self._is_named = [True] * len(features.named) + [False] * len(features.found)
        self._parts = features.parts
        self.reads_vectors = score.text
        # All samples are of the same rows: the same ids are added to each in the same order.
        self._ids, self._numbers, self._vectors, self._texts = (HashSample(_MOST_SCORE_ROWS) for _ in range(4))
        self._columns = HashSample(_MOST_SCORE_ROWS)
        self.count = 0
        self.used: tuple[Feature, ...] = ()
        self.not_tried: dict[str, str] = {}

    def add(self, batch: Batch, vectors: Any) -> None:
        """Take more labelled rows."""
        ids = ids_of(batch)
        self._ids.add(ids, ids)
        self._numbers.add(ids, np.column_stack([batch.confidence, np.asarray(batch.correct)]))
        if self.reads_vectors:
            self._vectors.add(ids, vectors)
        self._texts.add(ids, _objects(batch.question or [""] * len(batch), batch.answer or [""] * len(batch)))
        if self._features:
            columns = [
                batch.listed(feature.name)
                if is_named or batch.reading.has(feature.name, batch.table.names)
                else [None] * len(batch)
                for feature, is_named in zip(self._features, self._is_named, strict=True)
            ]
            self._columns.add(ids, _objects(*columns))
        self.count += len(batch)

    def fit(self, makes_bands: Callable[[Hashes], Bools] | None = None) -> None:
        """Train the score, and a first score on the questions that make bands."""
        if not self.count:
            raise InputError(f"no row is left to train a score on; {_LARGER_SHARE}")
        confidence, correct = self._numbers.rows().T
        inputs: dict[str, Any] = {"confidence": confidence}
        questions, answers = self._texts.rows().T.tolist()
        columns = self._columns.rows().T.tolist() if self._features else []
        tried: list[Feature] = []
        for feature, is_named, values in zip(self._features, self._is_named, columns, strict=True):
            found = find_kind(feature.name, values) if feature.kind is None else FoundKind(feature.kind)
            if found.kind is None and is_named:
                raise InputError(
                    f"the column {feature.name} cannot be a feature: {found.reason}. Leave it out, or say what it is: "
                    f"{feature.name}:numeric, :category, :confidence, :logprobs or :context."
                )
            if found.kind is None:
                self.not_tried[feature.name] = found.reason
                continue
            tried.append(Feature(feature.name, found.kind))
            inputs |= tried[-1].read(values, questions, answers, self._embed)
        self._score.set_params(**parameters_of(tried))
        if self.reads_vectors:
            inputs[EMBEDDING] = self._vectors.rows()
        if self._score.text and self._score.words:
            inputs |= {"question": questions, "answer": answers}
        ids = self._ids.rows()
        named = {feature.name for feature, is_named in zip(self._features, self._is_named, strict=True) if is_named}
        partly = {Feature.named(part).name for part in self._parts}
        unnamed = [
            name
            for feature in tried
            for name in feature.inputs
            if feature.name not in named or (feature.name in partly and name not in self._parts)
        ]
        # Records without ids have zeros: each row is a question of its own.
        self._score._fit_hashed(inputs, correct, ids if ids.any() else None, unnamed)
        used = {*self._score.columns_used}
        if makes_bands is not None:
            mine = makes_bands(ids)
            if not mine.any():
                raise InputError(f"no row is left to make bands from; {_LARGER_SHARE}")
            some = {name: _only(column, mine) for name, column in inputs.items()}
            self.first = LearnedScore(**self._score.get_params())
            self.first._fit_hashed(some, correct[mine], ids[mine], unnamed, enough=_ENOUGH_FOR_BANDS)
            self.first.likeness_ = None  # that of the score is the one to ask
            used |= {*self.first.columns_used}
            inputs = some
        self.sample_scores = (self.first or self._score).predict(inputs)
        self.sample_cut = self._score._read(inputs, is_cut=False).score - self._score.predict(inputs)
        self.sample_vectors = inputs.get(EMBEDDING)
        self.used = tuple(feature for feature in tried if used & {*feature.inputs})


def _only(column: Any, mine: Bools) -> Any:
    """Return some values of a column, which may be a list."""
    return column[mine] if isinstance(column, np.ndarray) else [column[at] for at in np.flatnonzero(mine).tolist()]


def _objects(*columns: list[Any]) -> Any:
    table = np.empty((len(columns[0]), len(columns)), dtype=object)
    for at, column in enumerate(columns):
        for row, value in enumerate(column):
            table[row, at] = value
    return table


_AS_LABEL = {"0": 0.0, "0.0": 0.0, "false": 0.0, "1": 1.0, "1.0": 1.0, "true": 1.0}


def judge_labels(batch: Batch, column: str) -> Floats:
    """Return a judge's labels of rows: 0 or 1."""
    if not batch.reading.has(column, batch.table.names):
        raise InputError(f"{batch.table.origin}: there is no column {column}, which should have the judge's labels.")
    values = np.asarray(batch.correct).tolist() if column == "correct" else batch.listed(column)
    found = []
    for value in values:
        label = _AS_LABEL.get(str(value).strip().lower())
        if label is None:
            raise InputError(
                f"{batch.table.origin}: {column} has the value {value!r:.40}; with a judge, labels are 0 or 1. Leave "
                "rows without a verdict out; the guarantee is then about answers that have one."
            )
        found.append(label)
    return np.array(found)


class CalibrationRows:
    """All rows that fit the calibrator: a tally of their scores and groups, and a few texts of every group.

    n_blocks : the number of blocks to split the questions into; by default as many as the calibrator needs.
    is_one_row_each : the rows are known to have different ids, so that there are no documents of several rows.

    Examples
    --------
    >>> from qacal import Column, QABinning
    >>> from qacal.model.pipeline import RowVectors
    >>> from qacal.records.reading import read
    >>> records = [{"subject": "law", "confidence": 0.9, "correct": right} for right in (0, 1, 1)]
    >>> pipeline = Pipeline(Column("subject").fit(["art", "law"]), None, QABinning(), RowVectors("static"))
    >>> rows = CalibrationRows(pipeline)
    >>> for batch in read(records, needs_labels=True, **pipeline.needs):
    ...     rows.add(batch)
    >>> rows.tally()
    Tally(3 rows in 1 cells, 1 groups)
    """

    def __init__(self, pipeline: Pipeline, n_blocks: int | None = None, *, is_one_row_each: bool = False) -> None:
        self._pipeline = pipeline
        self._options = pipeline.calibrator._tally_options() | ({} if n_blocks is None else {"n_blocks": n_blocks})
        # Blocks of as many questions as :meth:`parts` needs are enough where a document is a row.
        self._documents = PARTS if is_one_row_each else DOCUMENTS
        self._total, self._stated, self._answered = (TallySum(MOST_CELLS) for _ in range(3))
        self._held = TallySum()
        self._above, self._below, self._judged_others = (TallySum() for _ in range(3))
        self._judged_ids: list[Hashes] = []
        self._ids: list[Hashes] = []
        self._sampler = Sampler()
        self.count = 0

    def add_judged(self, batch: Batch) -> None:
        """Take rows that only a judge labelled, and that trained nothing."""
        read, groups = self._pipeline.inputs(batch)
        labels = judge_labels(batch, "correct")
        self._judged_others.add(Tally.of(read.score, labels, groups=groups))
        self._judged_ids.append(ids_of(batch))

    def add(self, batch: Batch, is_held: Bools | None = None, judge_column: str | None = None) -> None:
        """Take more labelled rows.

        is_held : which of them trained no score, if there are two scores.
        judge_column : the column with a judge's labels of them.
        """
        if batch.ids is None and (self._options.get("n_blocks", 1) > 1 or self._options.get("ties")):
            name = type(self._pipeline.calibrator).__name__
            raise InputError(f"{name} splits rows by question; the records need a column id or question.")
        read, groups = self._pipeline.inputs(batch)
        options = self._options
        if batch.ids is not None and self._pipeline.calibrator.properties.counts_documents:
            options = {"n_blocks": self._documents} | options
        first = read.score if read.first is None else read.first
        self._total.add(Tally.of(first, batch.correct, groups=groups, ids=batch.ids, **options))
        if self._pipeline.score is not None:
            self._stated.add(Tally.of(batch.confidence, batch.correct, groups=groups))
        if read.first is not None and is_held is not None and batch.ids is not None:
            self._answered.add(Tally.of(read.score, batch.correct, groups=groups))
            if is_held.any():
                held = Tally.of(first[is_held], read.score[is_held], ids=batch.ids[is_held], **options)
                self._held.add(held)
        if judge_column is not None:
            apart = judge_labels(batch, "correct") - judge_labels(batch, judge_column)
            above, below = (Tally.of(first, apart * sign > 0, groups=groups) for sign in (1, -1))
            self._above.add(above)
            self._below.add(below)
        if batch.ids is not None:
            self._ids.append(batch.ids)
        if groups is not None and batch.question is not None and batch.answer is not None:
            column = as_grouping(groups.groups(groups.depth) if isinstance(groups, Paths) else groups, len(batch))
            texts = (batch.question, batch.answer, batch.confidence, np.asarray(batch.correct))
            self._sampler.add(column.decode(column.leaves()), mix(ids_of(batch), 1), *texts)
        self.count += len(batch)

    def tally(self) -> Tally:
        """Return what the calibrator is fitted on."""
        if not self.count:
            raise InputError(
                "no row is left to calibrate on; give more rows, or a smaller --train-share (in Python: train_share)."
            )
        # Only here it is known which questions are in several batches; added tallies do not know it.
        ids = self.ids()
        is_clustered = self._documents == DOCUMENTS and bool(ids.any()) and surplus(ids) > 0
        total = replace(self._total.total(), is_clustered=is_clustered, is_sum=False)
        return total.without_blocks() if total.n_blocks == self._documents and not is_clustered else total

    def answers(self, tally: Tally) -> tuple[Tally | None, Tally | None]:
        """Return the answers to the rows with their labels, and those to held-out rows by first score.

        None if the answers are the first scores. `tally` is that of all rows.
        """
        if not self._answered.rows:
            return None, None
        answered = self._answered.total()
        if not self._held.rows:
            return answered, answered._select(np.zeros(len(answered), dtype=bool))  # no row
        held = self._held.total()
        return answered, held if tally.block is not None else held.without_blocks()

    @property
    def judged(self) -> Judged | None:
        """What a judge says of the rows and of others, if both were given."""
        if not (self._above.rows and self._below.rows and self._judged_others.rows):
            return None
        ids = np.concatenate(self._judged_ids)
        if ids.any() and surplus(ids):
            raise InputError("with a judge's labels, rows need ids of their own; keep one answer for each id.")
        return Judged(self._above.total(), self._below.total(), self._judged_others.total())

    def parts(self, of: int, tally: Tally) -> Iterator[tuple[Tally, Tally | None]]:
        """Yield `of` parts of the questions: their rows, and their answers to held-out rows if there are two scores.

        Parts without rows are left out; there are none if the rows have no ids. `tally` is that of all rows.
        """
        has_held = bool(self._held.rows) or not self._answered.rows
        if not self._total.rows or (total := self._total.total()).n_blocks != self._documents or not has_held:
            return
        all_held = self._held.total() if self._held.rows else None
        for k in range(of):
            rows = total.within_fold(k, of)
            held = None if all_held is None else all_held.within_fold(k, of)
            if not len(rows) or (held is not None and not len(held)):
                continue
            if tally.block is None:
                rows, held = rows.without_blocks(), None if held is None else held.without_blocks()
            yield replace(rows, is_clustered=tally.is_clustered, is_sum=False), held

    def ids(self) -> Hashes:
        """Return the hashes of all ids; none if the rows have no ids."""
        return np.concatenate([np.empty(0, dtype=np.uint64), *self._ids])

    def summaries(self, tally: Tally, examples: int) -> Summaries:
        """Return what is in each group; `confidence` there is the stated one, also with a score."""
        stated = self._stated.total() if self._stated.rows else tally
        return Summaries(stated, self._pipeline.depth, self._sampler, examples)
