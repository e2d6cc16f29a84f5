r"""The path of a row through the parts of a model, up to the calibrator.

.. math:: (q, a, h) \;\to\; g = \beta(q, a), \; s = s(q, a, h) \;\to\; p = C_g(s)

:math:`\beta` embeds question and answer and finds their group :math:`g`, the score :math:`s` is trained on confidence
and text, and the calibrator :math:`C` maps the score to a probability. By default :math:`p` is the score itself, moved
towards the accuracy of its band, which a first score finds; group and band have intervals. Without a score,
:math:`s = h`, the confidence. Rows that fit the calibrator and rows to calibrate take this path; training embeds
rows by itself (`fitting.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from qacal.calibrators.base import Calibrator, Rows
from qacal.calibrators.score import LearnedScore, ScoreReader, ScoreReading
from qacal.embedders import ColumnEmbedder, Embedder, StaticEmbedder, embedder
from qacal.errors import InputError
from qacal.model.features import Embed, Feature
from qacal.partitions import EMBEDDING, Column, Partition, Product
from qacal.records.reading import Batch
from qacal.tally.arrays import ArrayLike, Floats
from qacal.tally.groups import Paths, as_grouping
from qacal.tally.ids import id_hashes

BUILT_IN = ("static", "minilm")
# The built-in embedders that models in this process use. The key has the process: a fork does not copy their threads.
_in_use: WeakValueDictionary[tuple[str, int], Embedder] = WeakValueDictionary()


Progress: TypeAlias = Callable[[str, int], None]
"""Called with the name of the current step and the number of rows that are done."""


class ForeignName(str):
    """The name of an embedder that comes from a saved model, not from the user.

    The author of the model may have chosen any repository or path, so nothing is loaded by such a name.
    """

    __slots__ = ()


@dataclass(frozen=True)
class EmbedderId:
    """What a saved model knows of its embedder."""

    name: str
    dim: int | None
    digest: str


class RowVectors:
    """The vectors of rows, by an embedder that is loaded when it is first needed.

    embedder : the embedder, or its name.
    expected : the embedder of a saved model; any other one is refused.
    """

    def __init__(self, embedder: str | Embedder, expected: EmbedderId | None = None) -> None:
        self._embedder = embedder
        self._expected = expected
        self._loaded: Embedder | None = None
        self._progress: Progress | None = None
        self.before = 0

    @contextmanager
    def telling(self, progress: Progress | None, before: int = 0) -> Iterator[None]:
        """Report progress while embedding; `before` is the number of rows before the first batch.

        A caller that embeds several batches sets the attribute `before` for each.
        """
        self._progress, self.before = progress, before
        try:
            yield
        finally:
            self._progress = None

    @property
    def read_text(self) -> bool:
        """Whether vectors are made from question and answer; else a column of the records has them."""
        return not str(getattr(self._embedder, "name", self._embedder)).startswith("column:")

    def of(self, batch: Batch) -> Any:
        """Return the vectors of validated rows."""
        loaded = self.load()
        if isinstance(loaded, ColumnEmbedder):
            return loaded.vectors(batch.column(loaded.column))
        texts = batch.question or [], batch.answer or []
        tell = within_batch("embedding", self.before, self._progress)
        return loaded.embed(*texts) if tell is None else loaded.embed(*texts, progress=tell)

    def load(self) -> Embedder:
        """Return the embedder; refuse one that the model was not fitted with."""
        if self._loaded is None:
            if isinstance(self._embedder, ForeignName):
                name = str(self._embedder)
                raise InputError(
                    f"the model was fitted with the embedder {name!r}, which is loaded only if you name it, since "
                    f"the author of the model may have chosen anything. If you trust it, pass --embedder {name} "
                    "(in Python: qacal.load(path, embedder=...))."
                )
            loaded = _shared(self._embedder)
            if self._expected is not None and loaded.digest != self._expected.digest:
                raise InputError(
                    f"the embedder {loaded.name!r} is not the one that the model was fitted with (its weights, "
                    "tokenizer or settings differ), and would put rows into other groups. Install that one, or fit the "
                    "model again."
                )
            self._loaded = loaded
        return self._loaded

    def described(self) -> EmbedderId:
        """Return what is saved of the embedder; that of a saved model without loading it."""
        if self._loaded is None and self._expected is not None:
            return self._expected
        loaded = self.load()
        return EmbedderId(loaded.name, loaded.dim, loaded.digest)


def _shared(name: str | Embedder) -> Embedder:
    """Return an embedder; models share the built-in ones, so that a set of models loads the weights once."""
    if name not in BUILT_IN:
        return embedder(name)
    key = str(name), os.getpid()
    loaded = _in_use.get(key)
    if loaded is None:
        loaded = _in_use[key] = embedder(name)
    return loaded


def no_progress(what: str, rows: int) -> None:
    """Report nothing: the default."""


def within_batch(what: str, before: int, progress: Progress | None) -> Callable[[int, int], None] | None:
    """Return the function that an embedder calls with the number of rows of a batch that are done, and of all of them.

    before : the number of rows before the batch.
    """
    return None if progress is None else lambda done, of: progress(what, before + done)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The parts of a model, and the inputs of the calibrator that they compute from rows.

    partition : assigns each row to a group, if the calibrator uses groups.
    score : the input of the calibrator; None to use the confidence itself.
    calibrator : maps score and group to a probability.
    vectors : embed the text for partition and score.
    features : columns that the scores read.
    first : the score that finds the bands of the certificate, if that is another one than `score`.

    Examples
    --------
    Groups that are a column, and no score:

    >>> from qacal import Column, QABinning
    >>> from qacal.records.reading import read
    >>> rows = [{"subject": "law", "confidence": 0.9}, {"subject": "art", "confidence": 0.5}]
    >>> pipeline = Pipeline(Column("subject").fit(["art", "law"]), None, QABinning(), RowVectors("static"))
    >>> pipeline.needs_text
    False
    >>> (batch,) = read(rows, needs_labels=False, **pipeline.needs)
    >>> read, groups = pipeline.inputs(batch)
    >>> read.score, groups.decode(groups.code)
    (array([0.9, 0.5]), ['law', 'art'])
    """

    partition: Partition
    score: LearnedScore | None
    calibrator: Calibrator
    vectors: RowVectors
    features: tuple[Feature, ...] = ()
    first: LearnedScore | None = None

    # What rows must have

    @property
    def scores(self) -> list[LearnedScore]:
        """The scores that are computed for a row."""
        return [score for score in (self.score, self.first) if score is not None]

    @property
    def uses_groups(self) -> bool:
        """Whether the calibrator tells groups apart."""
        return self.calibrator.properties.uses_groups

    @property
    def needs_vectors(self) -> bool:
        """Whether groups or score read vectors."""
        is_grouped_by_them = self.uses_groups and EMBEDDING in self.partition._needs
        return is_grouped_by_them or any(score.text for score in self.scores)

    @property
    def needs_text(self) -> bool:
        """Whether rows must have a question and an answer."""
        if any(feature.kind == "context" for feature in self.features):
            return True
        return (self.needs_vectors and self.vectors.read_text) or any(score.reads_words for score in self.scores)

    @property
    def needs(self) -> dict[str, Any]:
        """The columns that rows must have beside a confidence, as arguments of :func:`qacal.records.reading.read`."""
        numbers = {feature.name: feature.most for feature in self.features if feature.most is not None}
        return {"needs_text": self.needs_text, "numbers": numbers}

    @property
    def embed(self) -> Embed | None:
        """A function that embeds single texts, such as passages; None unless a fast embedder is loaded anyway."""
        if not self.needs_vectors or not isinstance(loaded := self.vectors.load(), StaticEmbedder):
            return None
        return lambda texts: loaded.embed(texts, [""] * len(texts))

    @property
    def group_columns(self) -> list[str]:
        """The columns that groups are made from."""
        return [name for name in self.partition._needs if name != EMBEDDING] if self.uses_groups else []

    @property
    def columns(self) -> list[str]:
        """The columns that groups and score read, beside question, answer, confidence and vectors."""
        return list(dict.fromkeys([*self.group_columns, *(feature.name for feature in self.features)]))

    def values_seen(self) -> dict[str, Any]:
        """Return a value for each column that is read, of a kind that the fit has seen; None where any will do."""
        found: dict[str, Any] = dict.fromkeys(self.columns)
        levels = None if self.score is None else self.score.maps_.signals.levels
        if levels is not None:
            found |= {levels.names[at]: label for at, label in zip(levels.column, levels.labels, strict=True)}
        parts = self.partition.fitted_ if isinstance(self.partition, Product) else (self.partition,)
        columns = [part for part in parts if isinstance(part, Column) and part.fitted_.labels]
        found |= {part.name: part.fitted_.labels[0] for part in columns}
        if self.needs_vectors and isinstance(loaded := self.vectors.load(), ColumnEmbedder):
            found[loaded.column] = [1.0] * (loaded.dim or 1)
        return found

    @property
    def depth(self) -> int:
        """The depth of the tree's groups that the calibrator uses."""
        fitted = getattr(self.calibrator, "maps_", self.calibrator)
        chosen = getattr(fitted, "max_depth", getattr(self.calibrator, "max_depth", None))
        return int(getattr(self.partition, "max_depth", 0) if chosen is None else chosen)

    # From rows to the inputs of the calibrator

    def inputs(self, batch: Batch, *, vectors: Any = None, explains: bool = False) -> tuple[ScoreReading, Any]:
        """Return the scores (or confidences) and groups of validated rows; groups are None if they are not used.

        vectors : of the rows, if the caller has them already.
        explains : also return what each signal adds to the score.
        """
        inputs: dict[str, Any] = {}
        if self.needs_vectors:
            inputs[EMBEDDING] = self.vectors.of(batch) if vectors is None else vectors
        groups = None
        if self.uses_groups:
            columns = {name: batch.column(name) for name in self.group_columns}
            groups = self.partition._groups_of(inputs | columns)
        if self.score is None:
            return ScoreReading(batch.confidence, np.full(len(batch), np.nan), {}), groups
        inputs |= {"confidence": batch.confidence}
        texts = batch.question or [], batch.answer or []
        for feature in self.features:
            if batch.reading.has(feature.name, batch.table.names):
                values = batch.listed(feature.name)
                inputs |= feature.read(values, *texts, self.embed)
        read, *first = self._reader.read(inputs, texts, explains=explains)
        return replace(read, first=first[0].score) if first else read, groups

    @cached_property
    def _reader(self) -> ScoreReader:
        return ScoreReader(self.scores)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle and copy without the reader, which is made again when it is needed."""
        return {name: value for name, value in vars(self).items() if name != "_reader"}

    def rows_of(self, read: ScoreReading, groups: Any, ids: ArrayLike | None) -> Rows:
        """Return rows in the form that the calibrator's maps take."""
        if read.first is None:
            return self.calibrator._rows(read.score, groups, ids)
        return self.calibrator._rows(read.first, groups, ids, read.score)

    def rows_from_arrays(self, confidence: Floats, groups: Any, vectors: Any, ids: ArrayLike | None) -> Rows:
        """Return what :meth:`rows` returns, for arrays; groups come by name or from vectors."""
        if groups is not None:
            groups = self._as_fitted(groups)
        elif vectors is not None and self.uses_groups:
            groups = self.partition._groups(vectors)
        # Hashes of ids, as in rows that come from records.
        ids = None if ids is None else id_hashes(ids, len(confidence))
        scored = [self._scored(score, confidence, vectors) for score in (self.first or self.score, self.score)]
        return replace(self.calibrator._checked_rows(scored[0], groups, ids), answer=scored[1])

    def pooled(self, batch: Batch) -> Floats:
        """Return the probabilities of one map for all rows, which ignores text and group."""
        if self.score is not None:
            return self.score.pooled(batch.confidence)
        return self.calibrator.predict(batch.confidence, ids=batch.ids)

    def _scored(self, score: LearnedScore | None, confidence: Floats, vectors: Any) -> Floats:
        """Return the scores of arrays; the confidences themselves without a score."""
        if score is None:
            return confidence
        others = score.columns_used
        if (score.reads_text and vectors is None) or score.reads_words or others:
            what = f"columns ({', '.join(others)})" if others else "the text"
            remedy = "" if others or score.reads_words else "give vectors=..., or "
            raise InputError(
                f"the score of this model reads {what}: {remedy}pass records with all their columns in place of an "
                "array of confidences."
            )
        return score.predict({"confidence": confidence, EMBEDDING: vectors})

    def _as_fitted(self, groups: Any) -> Any:
        """Return groups in the form of the fit: a group of a tree as the number of one of its leaves."""
        deepest = getattr(self.partition, "max_depth", None)
        if deepest is None or isinstance(groups, Paths):
            return groups
        codes = as_grouping(groups, len(groups)).code
        return np.where(codes >= 0, codes << (deepest - self.depth), codes)
