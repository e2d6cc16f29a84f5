r"""Which intervals of a model labels break: bets against each end of each interval.

Each end of each interval is a statement about a mean, and a process of :mod:`qacal.metrics.betting` tests it. Here
:math:`Y` is a label, :math:`p` an answer, and :math:`b` a band:

- of a band: :math:`\mathrm{E}[Y - p \mid b] \le` `above`, and :math:`\ge -` `below`,
- of a group, or of a bin of other calibrators: :math:`\mathrm{E}[Y] \le` `high`, and :math:`\ge` `low`,
- of all answers: :math:`\mathrm{E}[Y - p - \text{above}_b] \le 0`, and the same below. The bands imply it, and it has
  the labels of all of them.

*Documents.* Rows with one id are a document, and may depend on each other. A document counts once for each interval,
with the mean of its rows there: documents are independent, and the expectation of this mean is what is certified. It
varies less than one drawn row. A document is counted at its last row, so its rows must come together. The line of all
answers is left out then: it weighs bands by the rows of a document in them, and the statements about bands do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from qacal.calibrators.maps import BinMaps, deepest_level
from qacal.calibrators.margins import MarginMaps
from qacal.errors import InputError, counted
from qacal.metrics.betting import Alarms, bet
from qacal.model.model import QACalibrator
from qacal.tally.arrays import Bools, Floats, Hashes, Ints

# An end of an interval this close to what always holds says nothing.
_NEAR = 1e-9
_SMALLEST_BOUND = 1e-6
# Wealths are shown up to this logarithm.
_MOST_LOG_WEALTH = 600.0


@dataclass(frozen=True, eq=False)
class Labelled:
    """Columns of labelled rows, in their order.

    correct : the labels.
    answer : the calibrated probabilities.
    cells : the numbers of the intervals that are about each row, as `bins_by_level` of the maps returns them.
    is_far : which rows are unlike the fit, and have no interval.
    ids : hashes; rows with one id are a document.
    """

    correct: Floats
    answer: Floats
    cells: Ints
    is_far: Bools
    ids: Hashes

    def only(self, kept: Bools) -> Labelled:
        """Return some of the rows."""
        return Labelled(*(getattr(self, column.name)[kept] for column in fields(self)))


@dataclass(frozen=True)
class Watched:
    """One interval, and what the labels say about it.

    name : which answers it is about.
    kind : "all", "band", "group", or "bin" for a bin of confidences or scores.
    group : the name of the group; None for all groups.
    low, high : the accuracy of the labelled answers is promised to be between these two, on average.
    labels : how many labels (of documents, if ids repeat) are about it.
    accuracy : of these; None without labels.
    wealth : of the bet against the end that looks worse, which started at 1; a false alarm needs 1/alpha or more.
    side : which end that is: "low" if answers are less accurate than promised, "high" if they are more accurate.
    broken_after : the number of labels, of all answers, after which the interval was called broken; None if it was not.
    """

    name: str
    kind: Literal["all", "band", "group", "bin"]
    group: Any
    low: float
    high: float
    labels: int
    accuracy: float | None
    wealth: float
    side: Literal["low", "high"]
    broken_after: int | None

    @property
    def is_broken(self) -> bool:
        return self.broken_after is not None

    def __str__(self) -> str:
        if self.accuracy is None:
            return f"{self.name}: no labels yet."
        promise = f"promised {self.low:.2f} to {self.high:.2f}, {self.accuracy:.2f} in {counted(self.labels, 'label')}"
        return f"{self.name}: {promise}" + (f"; broken after {self.broken_after:,}." if self.is_broken else ".")


@dataclass(frozen=True)
class Broken:
    """What labels say about all intervals.

    documents, far, broken_after, intervals : as in :class:`qacal.model.watching.Watch`.
    """

    documents: int | None
    far: int
    broken_after: int | None
    intervals: tuple[Watched, ...]


def has_intervals(model: QACalibrator) -> bool:
    """Return whether a model has intervals that labels can break."""
    return isinstance(model.calibrator_.maps_, BinMaps | MarginMaps)


def broken_intervals(model: QACalibrator, rows: Labelled, alpha: float) -> Broken:
    """Bet on labelled rows, which all had the same chance of a label, and return which intervals are broken."""
    document, last = _documents(rows.ids)
    is_repeated = len(last) < len(document)
    maps: Any = model.calibrator_.maps_
    limits = _Limits.of(maps)
    means = _means(document, np.where(rows.is_far[:, None], -1, rows.cells), rows.answer, rows.correct, limits)
    has_all = limits.roots > 1 and not (is_repeated or maps.certificate.is_by_document)
    bets = _bets(means, limits, len(last), alpha, has_all=has_all)
    found = _intervals(model, means, limits, bets, last)
    return Broken(
        documents=len(last) if is_repeated else None,
        far=int(np.count_nonzero(rows.is_far)),
        broken_after=None if bets.any_at < 0 else int(last[bets.any_at]) + 1,
        intervals=tuple(sorted(found, key=lambda one: (one.broken_after or np.inf, -one.wealth))),
    )


def _cells(maps: Any) -> BinMaps:
    return maps.cells if isinstance(maps, MarginMaps) else maps


def _documents(ids: Hashes) -> tuple[Ints, Ints]:
    """Return the document of each row, numbered by their last rows, and the place of the last row of each."""
    _, document = np.unique(ids, return_inverse=True)
    last = np.zeros(document.max(initial=-1) + 1, dtype=np.int64)
    np.maximum.at(last, document, np.arange(len(ids)))
    order = np.argsort(last)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[document], last[order]


class _Limits(NamedTuple):
    """What the certificate says about each cell: the mean of label minus base is between `low` and `high`.

    bands : in so many cells, the first ones, the base is the answer; in others it is 0.
    roots : so many cells, the first ones, are about all groups.
    """

    low: Floats
    high: Floats
    bands: int
    roots: int

    @staticmethod
    def of(maps: Any) -> _Limits:
        cells = _cells(maps)
        low, high, roots = cells.low, cells.high, int(cells.offset[1])
        if not isinstance(maps, MarginMaps):
            return _Limits(low, high, 0, roots)
        low, high = np.concatenate([-maps.below, low[roots:]]), np.concatenate([maps.above, high[roots:]])
        return _Limits(low, high, roots, roots)

    @property
    def most_base(self) -> Floats:
        return np.where(np.arange(len(self.low)) < self.bands, 1.0, 0.0)


class _Means(NamedTuple):
    """The means of documents in cells: of label minus base, and of the base."""

    document: Ints
    cell: Ints
    value: Floats
    base: Floats


def _means(document: Ints, bins: Ints, answer: Floats, correct: Floats, limits: _Limits) -> _Means:
    """Return the mean of each document in each of its cells; `bins` are the cells of each row, -1 for none."""
    row, level = np.nonzero(bins >= 0)
    cell = bins[row, level]
    base = np.where(cell < limits.bands, answer[row], 0.0)
    cells = len(limits.low)
    pairs, place, count = np.unique(document[row] * cells + cell, return_inverse=True, return_counts=True)
    value, base = (np.bincount(place, column, len(pairs)) / count for column in (correct[row] - base, base))
    return _Means(pairs // cells, pairs % cells, value, base)


def _bets(means: _Means, limits: _Limits, documents: int, alpha: float, *, has_all: bool) -> Alarms:
    """Bet against the upper ends of all cells and of all answers, and then against the lower ends, in this order.

    A statement that cannot fail is not tested: its log wealth is NaN. `has_all` : also test all answers.
    """
    cells = len(limits.low)
    tested = np.stack([limits.high < 1 - _NEAR, limits.low > _NEAR - limits.most_base])
    lowest = np.stack([-limits.most_base - limits.high, limits.low - 1])
    document, cell = means.document, means.cell
    x = np.zeros((documents, 2, cells + 1))
    x[document, 0, cell] = means.value - limits.high[cell]
    x[document, 1, cell] = limits.low[cell] - means.value
    roots = slice(limits.roots)
    for side in range(2):
        is_counted = (cell < limits.roots) & tested[side, cell]
        x[document[is_counted], side, cells] = x[document[is_counted], side, cell[is_counted]]
    all_tested = tested[:, roots].any(axis=1) & has_all
    all_lowest = np.where(tested[:, roots], lowest[:, roots], 0.0).min(axis=1, initial=0.0)
    is_tested = np.column_stack([tested, all_tested]).ravel()
    if not is_tested.any():
        raise InputError("all intervals of this model go from 0 to 1, and cannot be broken. Fit on more labelled rows.")
    bound = np.minimum(np.column_stack([lowest, all_lowest]).ravel(), -_SMALLEST_BOUND)
    # Bands, groups and all answers have the same weight together, so that a change of all answers is seen early.
    family = np.tile(np.append(np.where(np.arange(cells) < limits.roots, 0, 1), 2), 2)[is_tested]
    weights = 1 / np.bincount(family)[family]
    found = bet(x.reshape(documents, len(is_tested))[:, is_tested], bound[is_tested], alpha, weights)
    log_wealth, broken_at = np.full(len(is_tested), np.nan), np.full(len(is_tested), -1)
    log_wealth[is_tested], broken_at[is_tested] = found.log_wealth, found.broken_at
    return Alarms(log_wealth, broken_at, found.any_at)


def _intervals(model: QACalibrator, means: _Means, limits: _Limits, bets: Alarms, last: Ints) -> Iterator[Watched]:
    """Yield all intervals of which at least one end can fail."""
    cells = len(limits.low)
    log_wealth, broken_at = (column.reshape(2, -1) for column in (bets.log_wealth, bets.broken_at))
    names = _names(model)
    is_root = means.cell < limits.roots
    for at in range(cells + 1):
        if np.isnan(log_wealth[:, at]).all():
            continue
        mine = is_root if at == cells else means.cell == at
        low, high = (ends[means.cell[mine]] if at == cells else ends[[at]] for ends in (limits.low, limits.high))
        base = means.base[mine].mean() if mine.any() else names[at].base
        ends = broken_at[:, at]
        is_broken = bool((ends >= 0).any())
        # Of two broken ends the first one; of none, the one with more evidence against it.
        side = int(np.where(ends < 0, np.inf, ends).argmin() if is_broken else np.nanargmax(log_wealth[:, at]))
        yield Watched(
            name=names[at].name,
            kind=names[at].kind,
            group=names[at].group,
            low=float(np.clip(base + (low.mean() if len(low) else -1.0), 0, 1)),
            high=float(np.clip(base + (high.mean() if len(high) else 1.0), 0, 1)),
            labels=int(np.count_nonzero(mine)),
            accuracy=float(np.clip(base + means.value[mine].mean(), 0, 1)) if mine.any() else None,
            wealth=float(np.exp(min(log_wealth[side, at], _MOST_LOG_WEALTH))),
            side="high" if side == 0 else "low",
            broken_after=int(last[ends[side]]) + 1 if is_broken else None,
        )


class _Name(NamedTuple):
    """Which answers an interval is about; `base` is their usual mean answer, for bands."""

    name: str
    kind: Literal["all", "band", "group", "bin"]
    group: Any = None
    base: float = 0.0


def _names(model: QACalibrator) -> list[_Name]:
    """Return the names of all cells, and of all answers."""
    maps: Any = model.calibrator_.maps_
    cells, words = _cells(maps), {group.group: group.words for group in model.describe_groups()}
    column, deepest = cells.grouping, deepest_level(cells.grouping, cells.max_depth)
    out: list[_Name] = []
    what = "confidence" if model.learned_score_ is None else "score"
    for node, (first, end) in enumerate(pairwise(cells.offset.tolist())):
        depth, code = int(cells.lineage.depth[node]), int(cells.lineage.owner[node])
        group, about = None, ""
        if column is not None and depth == deepest and depth:
            group = column.label(code)
            about = f"group {group}" + (f" ({', '.join(words[group][:3])})" if words.get(group) else "")
        elif depth:
            about = f"groups {code << (deepest - depth)} to {((code + 1) << (deepest - depth)) - 1}"
        for at in range(first, end):
            if isinstance(maps, MarginMaps):
                base = float(cells.value[at])
                is_band = node == 0
                out.append(
                    _Name(f"answers around {base:.2f}", "band", None, base) if is_band else _Name(about, "group", group)
                )
            else:
                start, top = cells.top[at - 1] if at > first else 0.0, min(cells.top[at], 1.0)
                out.append(_Name(f"{what} {start:.2f} to {top:.2f}" + (f" in {about}" if about else ""), "bin", group))
    return [*out, _Name("all answers", "all")]
