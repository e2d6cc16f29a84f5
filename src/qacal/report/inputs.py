"""What figures are drawn from: tallies of up to three scores, or records that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.metrics.evaluation import require_labels
from qacal.records.reading import read
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.tally import BLOCKS, Tally

SCORES = ("stated", "pooled", "calibrated")
"""The confidence as the LLM stated it, what one map for all groups makes of it, and the calibrated one."""

# A pair of confidences is shown on a grid, so that a million rows are a few hundred marks: a fine one for stated
# confidences, which are few, and a coarse one where they would cover each other.
_FINE, _COARSE, _MANY = 0.02, 0.04, 300


@dataclass(frozen=True, eq=False)
class Scored:
    """Labelled rows with their scores: a few numbers each, whatever else the records hold.

    scores : confidences by name; see :data:`SCORES`.
    groups : a number for each row, -1 for none; None without groups.
    ids : hashes of the questions' ids.
    """

    correct: Floats
    scores: Mapping[str, Floats]
    groups: Ints | None = None
    ids: Hashes | None = None

    def tallies(self) -> dict[str, Tally]:
        """Return the tally of each score, over the groups, with blocks of questions."""
        options: dict[str, Any] = {"groups": self.groups, "ids": self.ids, "n_blocks": BLOCKS}
        return {name: Tally.of(score, self.correct, **options) for name, score in self.scores.items()}

    def pairs(self) -> dict[str, Pairs]:
        """Return, for each score but the stated one, what it makes of the stated one."""
        stated = self.scores["stated"]
        return {name: Pairs.of(stated, score) for name, score in self.scores.items() if name != "stated"}


@dataclass(frozen=True, eq=False)
class Pairs:
    """How often a stated confidence became which recalibrated one, counted on a grid.

    stated, recalibrated, rows : the cells of the grid that have rows: the means of these rows, and how many they are.
    slope, intercept : of the regression line through all rows; NaN where one confidence is all there is.
    common : the most frequent stated confidence, and the middle nine tenths of what became of it.
    is_rough : that is a range of a tenth around it, since no confidence is frequent.
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
        """Count rows."""
        ones = np.ones(len(stated), dtype=np.int64)
        x, y, rows = merged(stated, recalibrated, ones, _FINE)
        if len(rows) > _MANY:
            x, y, rows = merged(stated, recalibrated, ones, _COARSE)
        slope, intercept = _line(stated, recalibrated)
        is_rough = bool(np.unique(stated, return_counts=True)[1].max() < len(stated) / 50)
        claimed = np.rint(stated * 10) / 10 if is_rough else stated
        return Pairs(x, y, rows, slope, intercept, _common(claimed, recalibrated), is_rough)

    @property
    def claim(self) -> str:
        """The most frequent stated confidence in words."""
        return f"{'confidence around ' if self.is_rough else ''}{self.common[0]:g}"


def merged(x: Floats, y: Floats, rows: Ints, step: float) -> tuple[Floats, Floats, Ints]:
    """Make one point of those that would be drawn over each other: at the mean of their rows.

    Points on different sides of the diagonal stay apart, since the side is what a figure shows.

    >>> x, y, rows = merged(np.array([0.95, 0.95, 0.5]), np.array([0.60, 0.61, 0.51]), np.array([1, 3, 2]), 0.04)
    >>> x.round(4), y.round(4), rows
    (array([0.5 , 0.95]), array([0.51  , 0.6075]), array([2, 4]))
    """
    cells = np.rint(np.stack([x, y, np.where(y > x, step, 0.0)]) / step).astype(np.int64)
    found, where = np.unique(cells, axis=1, return_inverse=True)
    total, sum_x, sum_y = (np.bincount(where.ravel(), column, found.shape[1]) for column in (rows, rows * x, rows * y))
    return sum_x / total, sum_y / total, total.astype(np.int64)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    spread = float(np.var(x))
    if spread < 1e-12:
        return float("nan"), float("nan")
    slope = float(np.mean((x - x.mean()) * (y - y.mean())) / spread)
    return slope, float(y.mean() - slope * x.mean())


def _common(stated: Floats, recalibrated: Floats) -> tuple[float, float, float]:
    values, counts = np.unique(stated, return_counts=True)
    value = float(values[counts.argmax()])
    low, high = np.quantile(recalibrated[stated == value], [0.05, 0.95])
    return value, float(low), float(high)


def as_scored(records: Any) -> Scored:
    """Return records as scored rows: `confidence` as stated, and `calibrated` where they carry it."""
    if isinstance(records, Scored):
        return records
    stated: list[Floats] = []
    calibrated: list[Floats | None] = []
    correct, ids = [], []
    for batch in read(records, needs_labels=True, needs_text=False):
        stated.append(batch.confidence)
        calibrated.append(batch.calibrated())
        correct.append(require_labels(batch.correct, batch.table.origin))
        ids.append(batch.ids)
    scores = {"stated": np.concatenate(stated)}
    known = [part for part in calibrated if part is not None]
    if len(known) == len(stated):
        scores["calibrated"] = np.concatenate(known)
    hashes = [part for part in ids if part is not None]
    return Scored(np.concatenate(correct), scores, ids=np.concatenate(hashes) if len(hashes) == len(stated) else None)


def as_tallies(scores: Any) -> dict[str, Tally]:
    """Return what a figure was given as tallies by name, in the order in which they are drawn.

    >>> list(as_tallies(Tally.of([0.8, 0.9], [0, 1])))
    ['stated']
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
    """Return what a figure was given as pairs of stated and recalibrated confidence, by name."""
    given = scores if isinstance(scores, Mapping) else {}
    pairs = dict(given) if given and all(isinstance(value, Pairs) for value in given.values()) else None
    found = as_scored(scores).pairs() if pairs is None else pairs
    if not found:
        raise InputError("there is nothing beside the stated confidence; give records with a column `calibrated`.")
    return {name: found[name] for name in sorted(found, key=_place)}


def _place(name: str) -> tuple[int, str]:
    return (SCORES.index(name) if name in SCORES else len(SCORES), name)
