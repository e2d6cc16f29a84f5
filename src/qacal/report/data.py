"""The rows of a report: labelled records read through a model once, and the tallies for the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from qacal.calibrators.base import expit
from qacal.calibrators.maps import BinMaps
from qacal.calibrators.margins import MarginMaps
from qacal.errors import InputError
from qacal.experiment.sample import parts_by
from qacal.metrics.evaluation import is_uneven, require_labels
from qacal.metrics.scores import SHOWN_CUT, log_loss
from qacal.model.base import BaseModel
from qacal.model.evaluating import collect
from qacal.model.groups import Sampler
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.partitions import Column
from qacal.records.provenance import AllowOtherSource, require_known_origin
from qacal.records.reading import Batch, Reading, read
from qacal.records.reading import Gathered as Columns
from qacal.tally.arrays import Floats, Hashes, Ints, is_missing
from qacal.tally.ids import mix
from qacal.tally.tally import BLOCKS, Tally

SCORES = ("stated", "pooled", "calibrated")
"""The confidence that the LLM stated, the one after one correction for all groups, and the calibrated one."""

# Points are shown on a grid, so that a million rows are a few hundred marks. The coarse grid is used if the fine one
# has more marks than this.
_MANY = 300


@dataclass(frozen=True, eq=False)
class Scored:
    """Labelled rows with their scores.

    scores : confidences by name; see :data:`SCORES`.
    ids : hashes of the questions' ids.
    """

    correct: Floats
    scores: Mapping[str, Floats]
    ids: Hashes | None = None

    def tallies(self) -> dict[str, Tally]:
        """Return the tally of each score, with blocks of questions."""
        return {
            name: Tally.of(score, self.correct, ids=self.ids, n_blocks=BLOCKS) for name, score in self.scores.items()
        }

    def pairs(self) -> dict[str, Pairs]:
        """Return the pairs of stated and recalibrated confidence, for each recalibrated score."""
        stated = self.scores["stated"]
        return {name: Pairs.of(stated, score) for name, score in self.scores.items() if name != "stated"}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Stated and recalibrated confidences, counted on a grid.

    stated, recalibrated, rows : of each cell of the grid that has rows, their means and their number.
    slope, intercept : of the regression line through all rows; NaN if all stated confidences are equal.
    common : the most frequent stated confidence, and the middle 90% of what it became.
    is_rough : no confidence is frequent, so `common` is about the most frequent tenth.
    """

    stated: Floats
    recalibrated: Floats
    rows: Ints
    slope: float
    intercept: float
    common: tuple[float, float, float]
    is_rough: bool

    @staticmethod
    def of(stated: Floats, recalibrated: Floats) -> Pairs:
        ones = np.ones(len(stated), dtype=np.int64)
        x, y, rows = merged(stated, recalibrated, ones, fine=0.02, coarse=0.04)
        slope, intercept = np.polyfit(stated, recalibrated, 1) if np.ptp(stated) > 1e-6 else (np.nan, np.nan)
        is_rough = bool(np.unique(stated, return_counts=True)[1].max() < len(stated) / 50)
        rounded = np.rint(stated * 10) / 10 if is_rough else stated
        values, counts = np.unique(rounded, return_counts=True)
        value = float(values[counts.argmax()])
        low, high = np.quantile(recalibrated[rounded == value], [0.05, 0.95])
        return Pairs(x, y, rows, float(slope), float(intercept), (value, float(low), float(high)), is_rough)

    @property
    def claim(self) -> str:
        """The most frequent stated confidence as text."""
        return f"{'confidence around ' if self.is_rough else ''}{self.common[0]:g}"


def merged(x: Floats, y: Floats, rows: Ints, *, fine: float, coarse: float) -> tuple[Floats, Floats, Ints]:
    """Merge points that would overlap, at the mean of their rows: those in one cell of a grid.

    Points on different sides of the diagonal stay apart: figures show the side.

    fine, coarse : the size of a cell, and the size if that leaves too many points.

    >>> x, y, rows = np.array([0.95, 0.95, 0.5]), np.array([0.60, 0.61, 0.51]), np.array([1, 3, 2])
    >>> x, y, rows = merged(x, y, rows, fine=0.04, coarse=0.1)
    >>> x.round(4), y.round(4), rows
    (array([0.5 , 0.95]), array([0.51  , 0.6075]), array([2, 4]))
    """
    for step in (fine, coarse):
        cells = np.rint(np.stack([x, y, np.where(y > x, step, 0.0)]) / step).astype(np.int64)
        kept, where = np.unique(cells, axis=1, return_inverse=True)
        if kept.shape[1] <= _MANY:
            break
    total, sum_x, sum_y = (np.bincount(where.ravel(), column) for column in (rows, rows * x, rows * y))
    return sum_x / total, sum_y / total, total.astype(np.int64)


def as_scored(records: Any) -> Scored:
    """Return records as scored rows: the stated `confidence`, and `calibrated` if they have it."""
    if isinstance(records, Scored):
        return records
    columns = collect(records, Reading(), None, None, None).columns()
    scores = {"stated": columns["confidence"], "calibrated": columns["calibrated"]}
    return Scored(
        columns["correct"], {name: score for name, score in scores.items() if score is not None}, columns["ids"]
    )


def as_tallies(scores: Any) -> dict[str, Tally]:
    """Return the argument of a figure as tallies by name, in the order of drawing.

    >>> rows = [{"confidence": 0.9, "correct": n % 2, "calibrated": 0.7} for n in range(4)]
    >>> list(as_tallies(rows))
    ['stated', 'calibrated']
    """
    if isinstance(scores, Tally):
        return {"stated": scores}
    if isinstance(scores, Mapping) and scores and all(isinstance(value, Tally) for value in scores.values()):
        return {name: scores[name] for name in sorted(scores, key=_place)}
    return as_scored(scores).tallies()


def as_pairs(scores: Any) -> dict[str, Pairs]:
    """Return the argument of a figure as pairs of stated and recalibrated confidence, by name."""
    are_pairs = isinstance(scores, Mapping) and scores and all(isinstance(value, Pairs) for value in scores.values())
    pairs = scores if are_pairs else as_scored(scores).pairs()
    if not pairs:
        raise InputError("there is only the stated confidence; give records with a column `calibrated`.")
    return {name: pairs[name] for name in sorted(pairs, key=_place)}


def _place(name: str) -> tuple[int, str]:
    """Sort scores in the order of `SCORES`, and others after them."""
    return (SCORES.index(name) if name in SCORES else len(SCORES), name)


@dataclass
class Gathered:
    """The rows read so far for one model.

    grouped_by : the column that defines the groups; by default the model's own groups.
    is_part : these are only some of the model's rows, selected by a column.
    """

    model: QACalibrator
    grouped_by: str | None = None
    is_part: bool = False
    origins: dict[str, None] = field(default_factory=dict)
    sampler: Sampler = field(default_factory=Sampler)
    has_texts: bool = False
    sources: Counter[str] = field(default_factory=Counter)
    hashes: list[Hashes | None] = field(default_factory=list)
    _columns: Columns = field(default_factory=Columns)

    @property
    def signals(self) -> tuple[str, ...]:
        """What the score adds up: the stated confidence first."""
        score = self.model.learned_score_
        return () if score is None else score.maps_.parts

    def worth(self) -> dict[str, float]:
        """Return by how much the score's log loss on these rows is higher without each signal."""
        if len(self.signals) < 2:
            return {}
        parts = {name: self._columns[f"signal {name}"] for name in self.signals}
        correct, logits = self._columns["correct"], sum(parts.values())
        loss_of = partial(log_loss, correct, cut=SHOWN_CUT)
        losses = {name: loss_of(expit(logits - parts[name])) for name in self.signals[1:]}
        return {name: loss - loss_of(expit(logits)) for name, loss in losses.items()}

    def add(self, batch: Batch) -> None:
        maps = self.model.calibrator_._fitted_maps()
        pipeline = self.model.pipeline_
        read, groups = pipeline.inputs(batch, explains=True)
        rows = pipeline.rows_of(read, groups, batch.ids)
        evidence = self.model._undecided(rows, batch.confidence, read.unlike)
        for name in self.signals:
            self._columns.add(**{f"signal {name}": read.parts.get(name, np.zeros(len(batch)))})
        names = batch.listed(self.grouped_by) if self.grouped_by else evidence.group
        names = [str(name) if isinstance(name, list | dict) else name for name in names]
        labels = [None if is_missing(name) else name for name in names]
        correct = require_labels(batch.correct, batch.table.origin)
        self.origins[batch.table.origin] = None
        self.hashes.append(batch.row_hashes())
        self._columns.add(
            stated=batch.confidence,
            pooled=self.model.pipeline_.pooled(batch),
            calibrated=evidence.calibrated,
            correct=correct,
            labels=labels,
            ids=batch.ids,
            questions=None if batch.ids is None else batch.question_hashes(),
        )
        self.sources.update(evidence.source.tolist())
        if isinstance(maps, MarginMaps):
            levels = maps.cells.bins_by_level(rows)
            self._columns.add(bins=levels[:, 0], levels=levels)
        elif isinstance(maps, BinMaps):
            self._columns.add(bins=maps.bins_of(rows), levels=maps.bins_by_level(rows))
        if batch.question is not None and batch.answer is not None:
            self.has_texts = True
            ids = np.zeros(len(batch), dtype=np.uint64) if batch.ids is None else batch.ids
            texts = (batch.question, batch.answer)
            self.sampler.add(labels, mix(ids, 1), *texts, batch.confidence, correct, evidence.calibrated)

    def column(self, name: str) -> Any:
        """Return a column of all rows, or None."""
        return self._columns.get(name)

    def scores(self) -> dict[str, Floats]:
        """Return the confidences by name; the pooled ones only if they differ from the calibrated ones."""
        has_groups = self.model.calibrator_.properties.uses_groups or self.model.learned_score_ is not None
        return {name: self.column(name) for name in (SCORES if has_groups else ("stated", "calibrated"))}

    @property
    def has_own_groups(self) -> bool:
        """Whether rows are shown in the groups that the model itself uses."""
        partition = self.model.partition_
        return self.grouped_by is None or (isinstance(partition, Column) and partition.name == self.grouped_by)

    def labels(self) -> list[Any] | None:
        """Return the group of each row, None for no group; None without groups."""
        labels: list[Any] = self.column("labels")
        return None if all(label is None for label in labels) else labels

    @property
    def is_familiar(self) -> bool:
        """Whether the model was fitted on some of these questions, as far as its record tells."""
        return bool(self.model.fit_record_.known(self.column("ids"), self.column("questions")))

    @property
    def has_ids(self) -> bool:
        """Whether rows of the fit can be detected; if not, the model may have been fitted on any of these rows."""
        return "ids" in self._columns and len(self.model.fit_record_.questions) > 0

    @property
    def is_uneven(self) -> bool:
        """Whether some questions have more rows than others."""
        return is_uneven(self.column("ids"))

    @property
    def has_one_map(self) -> bool:
        """Whether all rows use one map, because there is at most one group."""
        return set(self.sources) == {"root"} and len(self.model.describe_groups()) <= 1


def gather(
    model: BaseModel,
    records: Any,
    reading: Reading | None = None,
    *,
    groups: str | None = None,
    by: str | None = None,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> dict[str, Gathered]:
    """Read labelled records through a model, separately for each model of a set or each value of a column `by`."""
    if model._by is not None and by not in (None, model._by):
        raise InputError(f"this set has one model for each {model._by}, so the report cannot be by {by}.")
    out: dict[str, Gathered] = {}
    done, columns = 0, [by] if by is not None and model._by is None else []
    for batch in read(records, reading or model._reading(records), needs_labels=True, **model._needs):
        for value, one, rows in model._parts(batch):
            for (name, *_), part in parts_by(rows, columns) if columns else [((value,), rows)]:
                require_known_origin(part, one.origins_, allow_other_source, uses_labels=True)
                title = "" if name is None else str(name)
                with one.pipeline_.vectors.telling(progress, done):
                    out.setdefault(title, Gathered(one, groups, is_part=bool(columns))).add(part)
        done += len(batch.whole)
        if progress is not None:
            progress("calibrating", done)
    return dict(sorted(out.items()))
