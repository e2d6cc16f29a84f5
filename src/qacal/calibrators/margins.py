r"""Margin binning: a continuous score with two guarantees, by probability and by group.

Cells are fixed before any label of the certifying rows is seen: *bands*, which are ranges of a score over all answers,
and groups, over all probabilities. Bands and groups have half of alpha each, and share it among their cells. No cell is
a band within a group, so cells are few and intervals narrow (:class:`~qacal.StepBinning` has such cells).

*Accuracy.* :math:`\mathrm{E}[Y \mid c] \in [l_c, u_c]` for all cells :math:`c` at once, with probability
:math:`1 - \alpha`. This is exact: given which rows are in a band, their labels are independent draws of one
probability, and the intervals are those of Clopper and Pearson; the same holds for groups.

*Answers.* The guarantee is about cells, so the answers may come from another score :math:`p` than the score :math:`f`
that made the bands, and :math:`p` may be trained on certifying rows, too. With a mean answer of :math:`m_b` in band
:math:`b`, answers are off by :math:`\mathrm{E}[Y - p \mid b] \in [l_b - m_b, u_b - m_b]` on average. The printed
interval says this about an answer :math:`p`:

.. math:: [\,p - (m_b - l_b),\; p + (u_b - m_b)\,].

:math:`m_b` is the mean over all answers, future ones too. It is estimated without labels, as
:math:`\beta \overline{f} + \overline{p - \beta f}`: the first mean over the certifying rows of the band, the second
over those that did not train :math:`p`, and :math:`\beta`, in [0, 1], the slope of :math:`p` on :math:`f` within bands
(a control variate). Its error, at the same level, is added to both ends in quadrature; it is a quantile of Student's
distribution times a standard error that has one more row at a distance of 0.5, because a few rows may all look alike.
Only this step is approximate; the intervals of cells are exact.

Answers of a band are moved so that their mean is the accuracy of its certifying rows (with few rows, close to it; where
form may not add all it would, below it by that much: `Cells.cut`). So :math:`m_b` is near the middle of
:math:`[l_b, u_b]`, and answers are about equally far from both ends.

*With a judge*, who labelled the certifying rows and others that trained nothing, :math:`[l_c, u_c]` is the interval of
:func:`~qacal.metrics.estimate_judged_accuracy` for the rows of cell :math:`c`.

*Without a score*, all rows train and all rows certify. Bands are ranges of the stated confidence with enough rows, and
answers are the curves of :class:`~qacal.calibrators.TreeScaling`, functions of confidence and group that were fitted on
the same labels. Bands and groups depend on no label. Given the confidences and groups of all rows, labels are
independent, and :math:`[l_c, u_c]` holds for the mean of their probabilities in cell :math:`c` (the interval of
:func:`~qacal.guarantee.mixed_binomial_interval`, since probabilities in a cell differ). :math:`m_b`, the mean of the
curves over the same rows, is known. So the interval of the mean error, :math:`[l_b - m_b, u_b - m_b]`, is exact, no
matter how the labels were used to fit the curves. It is about the calibration rows: new rows need confidences and
groups in the same proportions.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from qacal.calibrators.base import FROM_BAND, Calibrator, Evidence, Properties, Rows, group_names
from qacal.calibrators.cells import Cells, plan_cells, share_of_documents
from qacal.calibrators.maps import BinMaps, Lineage, groups_with_rows, level_of, sources
from qacal.calibrators.step_binning import by_document
from qacal.calibrators.tree_scaling import TreeMaps, fit_tree_curves
from qacal.errors import InputError, QacalWarning, counted
from qacal.guarantee import Certificate, check_alpha, counted_shares, document_intervals
from qacal.parameters import Axes, Between, is_number, is_whole, require, shown
from qacal.planning import MOST_BANDS, rounded_up, rows_for_margins
from qacal.tally.arrays import Floats, Ints
from qacal.tally.groups import NO_GROUP, GroupColumn, GroupIndex
from qacal.tally.ids import drawn_labels
from qacal.tally.tally import Tally

# A group that is a value of a column needs this many rows to have an interval.
ROWS_OF_A_GROUP = 30

# A fit warns of intervals that are wider than planned by this factor.
_MISSED = 1.05
# The mean answer of a band counts like this many rows, and held-out rows, if it is moved to the accuracy.
_ROWS_OF_ANSWER, _HELD_OF_ANSWER = 20, 2
_TINY = 1e-12
# How far one more row of each band is from the mean answer: a band may have hardly any rows, and these may look alike.
_FARTHEST = 0.5


@dataclass(frozen=True, eq=False)
class MarginMaps:
    """The intervals of bands and groups.

    cells : the root's map has the bands, on the scale of the first score, and the map of a group has one bin. `value`
        is the mean answer of a band, and the accuracy of a group's rows; `low`, `high` and `rows` are of accuracies.
    shift : how far the mean answer of each band is moved, to the accuracy of its rows less `Cells.cut`.
    below, above : how far an interval reaches from an answer of the band.
    cut : `Cells.cut`, for new intervals of the same bands; zeros for none.
    curves : the answers; None if they are scores, which come with the rows.
    moves : for each band, the line that moves its mean answer by `shift`: towards 1 or 0, and not beyond.
    """

    cells: BinMaps
    shift: Annotated[Floats, Axes("bands"), Between(-1, 1)]
    below: Annotated[Floats, Axes("bands"), Between(0, 1)]
    above: Annotated[Floats, Axes("bands"), Between(0, 1)]
    cut: Annotated[Floats, Axes("bands"), Between(-1, 1)]
    curves: TreeMaps | None
    moves: tuple[Floats, Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bands = int(self.cells.offset[1])
        require(len(self.shift) == bands, f"there are {bands} bands and {len(self.shift)} shifts.")
        mean = np.clip(self.cells.value[:bands] - self.shift, 0.0, 1.0)
        up = np.maximum(self.shift, 0.0) / np.where(mean < 1, 1 - mean, 1.0)
        down = np.maximum(-self.shift, 0.0) / np.where(mean > 0, mean, 1.0)
        object.__setattr__(self, "moves", (up, 1 - up - down))

    @property
    def grouping(self) -> GroupColumn | None:
        return self.cells.grouping

    @property
    def max_depth(self) -> int | None:
        return self.cells.max_depth

    @property
    def certificate(self) -> Certificate:
        return self.cells.certificate

    def apply(self, rows: Rows) -> Floats:
        return self._answers(rows, self.cells.bins_by_level(rows)[:, 0])

    def explain(self, rows: Rows) -> Evidence:
        band, *group = self.cells.bins_by_level(rows).T
        answer = self._answers(rows, band)
        codes = rows.leaves(self.grouping, self.cells.max_depth)
        has_group = group[0] >= 0 if group else np.zeros(len(answer), dtype=bool)
        place = group[0] if group else band
        return Evidence.of(
            rows.exact,
            answer,
            group=group_names(codes, self.grouping, self.cells.max_depth),
            source=FROM_BAND,
            rows=self.cells.rows[band],
            low=np.maximum(answer - self.below[band], 0.0),
            high=np.minimum(answer + self.above[band], 1.0),
            group_low=np.where(has_group, self.cells.low[place], np.nan),
            group_high=np.where(has_group, self.cells.high[place], np.nan),
            group_rows=np.where(has_group, self.cells.rows[place], 0),
            alpha=self.certificate.alpha,
        )

    def bins_by_level(self, rows: Rows) -> Ints:
        """Return the band and the group of each row, as cells; -1 for no group."""
        return self.cells.bins_by_level(rows)

    def _answers(self, rows: Rows, band: Ints) -> Floats:
        if self.curves is not None:
            answer = self.curves.apply(rows)
        else:
            answer = rows.confidence if rows.answer is None else rows.answer
        intercept, slope = self.moves
        return np.minimum(np.maximum(intercept[band] + slope[band] * answer, 0.0), 1.0)

    @property
    def planned(self) -> Cells:
        """The bands and groups, to certify them on other rows."""
        return Cells(self.cells.top[: len(self.shift)], self.max_depth, cut=self.cut)

    @property
    def alpha_of_bands(self) -> float:
        """The part of alpha for the bands of a fit that has as few bands and groups as possible."""
        return self.certificate.alpha / (2 if self.grouping is not None and self.max_depth is None else 1)

    @property
    def n_bands(self) -> int:
        """The number of bands with rows."""
        return int(np.count_nonzero(self.cells.rows[: len(self.below)]))

    @property
    def n_groups(self) -> int:
        """The number of groups with an interval."""
        return len(self.cells.rows) - len(self.below)

    def median_error_bound(self) -> float:
        """Return how far off the answers of a band are on average, at most; the median over the calibration rows."""
        bound = np.maximum(self.below, self.above)
        return _median(bound, self.cells.rows[: len(bound)])

    def largest_error_bound(self) -> float:
        """Return how far off the answers of any band are on average, at most."""
        has_rows = self.cells.rows[: len(self.below)] > 0
        return float(np.maximum(self.below, self.above)[has_rows].max(initial=0.0))

    def largest_group_width(self) -> float:
        """Return the half-width of the widest interval of a group."""
        return float(((self.cells.high - self.cells.low)[len(self.below) :] / 2).max(initial=0.0))

    def median_group_width(self) -> float | None:
        """Return the half-width of the interval of a group, the median over the rows of groups; None without groups."""
        bands = len(self.below)
        width, rows = (self.cells.high - self.cells.low)[bands:] / 2, self.cells.rows[bands:]
        return _median(width, rows) if rows.any() else None

    def group_intervals(self) -> dict[Any, tuple[float, float]]:
        """Return the interval of each group's accuracy, by the name of the group."""
        if self.grouping is None:
            return {}
        names = self.grouping.decode(self.cells.lineage.owner[1:])
        ends = zip(self.cells.low.tolist(), self.cells.high.tolist(), strict=True)
        return dict(zip(names, list(ends)[len(self.below) :], strict=True))

    def parameters(self) -> dict[str, Any]:
        return {"alpha": self.certificate.alpha}

    def _validate(self) -> None:
        one_each = np.array_equal(np.diff(self.cells.offset)[1:], np.ones(len(self.cells.offset) - 2))
        require(one_each, "the interval of a group must be one, for all probabilities.")
        is_conditional = self.certificate.kind == "conditional"
        require(is_conditional == (self.curves is not None), 'the certificate "conditional" goes with curves alone.')


def _median(values: Floats, rows: Ints) -> float:
    """Return the median over rows."""
    order = np.argsort(values)
    through = np.cumsum(rows[order])
    return float(values[order][np.searchsorted(through, through[-1] / 2)])


def fit_margins(
    tally: Tally,
    cells: Cells,
    *,
    alpha: float = 0.1,
    answers: Tally | None = None,
    curves: TreeMaps | None = None,
    judged: Judged | None = None,
) -> MarginMaps:
    """Return the intervals of cells.

    tally : first scores, groups and labels of the certifying rows.
    answers : rows that trained neither score, with the answer of each as its target; None if answers are the first
        scores.
    curves : answers that are functions of confidence and group. Cells may then depend on confidences and groups of the
        certifying rows, too; without curves they must not depend on these rows at all.
    judged : narrows the intervals, if the judge is good. Labels are then 0 or 1, and rows independent.
    """
    check_alpha(alpha)
    column, bands = tally.grouping, len(cells.tops)
    root, codes, part = tally.pooled(), np.empty(0, dtype=np.int64), alpha
    if column is not None and cells.depth != 0:
        grouped = level_of(tally, cells.depth or 1)
        codes = _certifiable(grouped, is_tree=column.is_tree)
        # Also if no group has an interval: which groups have rows must not decide about the bands.
        part = alpha / 2
        # All groups, with rows or without.
        possible = 2**cells.depth if cells.depth else len(np.unique(column.code))
    kind: Literal["margins", "conditional"] = "margins" if curves is None else "conditional"
    found = _certified(root, cells.tops, None, part, kind, possible=bands)
    if judged is not None:
        pooled = Judged(*(one.pooled() for one in judged))
        found = _with_judge(found, root, pooled, cells.tops, None, part)
        root = root + pooled.others
    if len(codes):
        groups = _certified(grouped, np.array([np.inf]), codes, part, kind, possible=possible)
        # Codes of groups that are no tree depend on which labels a file has.
        if judged is not None and column is not None and column.is_tree:
            by_group = Judged(*(level_of(one, cells.depth or 1) for one in judged))
            groups = _with_judge(groups, grouped, by_group, np.array([np.inf]), codes, part)
        found = Certified(*(np.concatenate(pair) for pair in zip(found, groups, strict=True)))
    accuracy, low, high = (column[:bands] for column in (found.accuracy, found.low, found.high))
    rows = found.rows[:bands]
    if curves is None:
        tail = part / (2 * (bands if tally.block is not None else _occupied(rows)))
        held, answer, error = _mean_answers(root, cells.tops, answers, tail)
    else:
        held, answer, error = rows, _mean_of_curves(tally, cells.tops, curves), np.zeros(bands)
    is_known = (rows > 0) & (held > 0)
    answer = np.where(is_known, answer, accuracy)
    # Few rows say little about the accuracy, and few held-out ones about the mean answer.
    trust = rows / (rows + _ROWS_OF_ANSWER) * (1.0 if curves is not None else held / (held + _HELD_OF_ANSWER))
    cut = np.zeros(bands) if cells.cut is None else cells.cut
    wanted = np.clip(answer + trust * (accuracy - cut - answer), 0.0, 1.0)
    # A line moves the answers, and with them the error of their mean.
    error = error * np.where(wanted > answer, (1 - wanted) / (1 - answer + _TINY), wanted / (answer + _TINY))
    lower, upper = accuracy - np.hypot(accuracy - low, error), accuracy + np.hypot(high - accuracy, error)
    wanted = np.clip(wanted, np.maximum(lower - np.maximum(cut, 0.0), 0.0), np.minimum(upper, 1.0))
    below, above = (
        np.where(is_known, np.clip(distance, 0.0, 1.0), 1.0) for distance in (wanted - lower, upper - wanted)
    )
    cells_of_fit = BinMaps(
        top=np.concatenate([cells.tops, np.full(len(codes), np.inf)]),
        tie=np.zeros(len(found.rows), dtype=np.uint64),
        value=np.concatenate([wanted, found.accuracy[bands:]]),
        low=found.low,
        high=found.high,
        rows=found.rows.astype(np.int64),
        offset=np.concatenate([[0], np.arange(bands, bands + len(codes) + 1)]),
        lineage=_lineage(codes, column, cells.depth),
        grouping=None if column is None else column.distinct(),
        max_depth=cells.depth if column is not None and column.is_tree else None,
        certificate=Certificate(kind, alpha, _occupied(found.rows), is_by_document=tally.block is not None),
        is_jittered=False,
        resolution=tally.resolution,
    )
    return MarginMaps(cells_of_fit, wanted - answer, below, above, cut, curves)


class Judged(NamedTuple):
    """What a judge says of the certifying rows and of others, by first score and group.

    above, below : the certifying rows; targets are 1 where people say more than the judge, or less.
    others : rows that trained nothing; targets are the judge's labels.
    """

    above: Tally
    below: Tally
    others: Tally


class Certified(NamedTuple):
    """The rows of cells, their accuracy, and its intervals."""

    rows: Floats
    accuracy: Floats
    low: Floats
    high: Floats


def _certified(
    level: Tally, tops: Floats, codes: Ints | None, alpha: float, kind: Literal["margins", "conditional"], possible: int
) -> Certified:
    """Return the intervals of all bins of a level; `codes` are its groups with intervals, None for no groups.

    possible : the number of cells, with rows or without. A cell without rows has its middle as accuracy.
    """
    if level.block is not None:
        level = by_document(level, tops)
    level, place = _placed(level, tops, codes)
    count = len(tops) if codes is None else len(codes)
    sums = {name: _summed(place, getattr(level, name), count) for name in ("rows", "w", "wt", "wtt", "ww")}
    if level.block is None:
        certificate = Certificate(kind, alpha, _occupied(sums["rows"]))
        low, high = certificate.intervals(*sums.values())
    else:
        # All cells count, with rows or without: see `document_certificates`.
        labels = drawn_labels(level.wt, np.asarray(level.block).view(np.uint64))
        drawn = _summed(place, labels, count)
        tail = np.full(count, alpha / (2 * possible))
        is_mixed = kind == "conditional"
        low, high = document_intervals(*counted_shares(level.wt, place), drawn, tail, is_mixed=is_mixed)
    has_rows = sums["w"] > 0
    accuracy = np.where(has_rows, sums["wt"] / np.where(has_rows, sums["w"], 1.0), 0.5)
    return Certified(sums["rows"], np.clip(accuracy, low, high), low, high)


def _with_judge(
    found: Certified, level: Tally, judged: Judged, tops: Floats, codes: Ints | None, alpha: float
) -> Certified:
    """Return the intervals of cells with the help of a judge; half of alpha is for people's labels alone."""
    # Here, not at the top: saved maps apply without scipy, and only fitting needs it.
    from qacal.metrics.accuracy import JudgedCounts, judged_accuracy

    count = len(found.rows)
    placed = [_placed(one, tops, codes) for one in (level, *judged)]
    right, above, below, ones = (_summed(place, one.wt, count) for one, place in placed)
    others = _summed(placed[-1][1], placed[-1][0].rows, count)
    accuracy, low, high = (column.copy() for column in found[1:])
    for cell in np.flatnonzero((found.rows > 0) & (others > 0)).tolist():
        counts = JudgedCounts(*(int(column[cell]) for column in (found.rows, above, below, others, ones)))
        its = judged_accuracy(counts, int(right[cell]), alpha / _occupied(found.rows))
        accuracy[cell], low[cell], high[cell] = its.value, its.low, its.high
    return Certified(found.rows, accuracy, low, high)


def _placed(level: Tally, tops: Floats, codes: Ints | None) -> tuple[Tally, Ints]:
    """Return the rows that are in a cell, and which one: a band, or one of some groups."""
    if codes is None:
        return level, np.searchsorted(tops, level.confidence)
    code = np.asarray(level.grouping.code) if level.grouping is not None else codes[:0]
    at = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
    is_known = codes[at] == code
    return level._select(is_known), at[is_known]


def _summed(place: Ints, column: Floats | Ints, count: int) -> Floats:
    return np.asarray(np.bincount(place, column, count), dtype=np.float64)


def _occupied(rows: Floats) -> int:
    return max(1, int(np.count_nonzero(rows)))


def _certifiable(level: Tally, *, is_tree: bool) -> Ints:
    """Return the groups that have an interval: all of a tree, and those of a column with enough rows."""
    codes = groups_with_rows(level, 1 if is_tree else ROWS_OF_A_GROUP)
    return np.unique(codes)


def _mean_answers(root: Tally, tops: Floats, answers: Tally | None, tail: float) -> tuple[Floats, Floats, Floats]:
    """Return the number of held-out rows of each band, the mean answer, and its error at the level `tail`."""
    from scipy import special

    count = len(tops)
    if root.block is not None:
        root = by_document(root, tops)
    n, first, error = _means(np.searchsorted(tops, root.confidence), root.confidence, root.rows, count)
    if answers is not None:
        if answers.block is not None:
            answers = by_document(answers, tops)
        place, answer = np.searchsorted(tops, answers.confidence), answers.wt / answers.w
        # How much of the first score is in an answer, within bands.
        x, y = (one - _means(place, one, answers.rows, count)[1][place] for one in (answers.confidence, answer))
        share = float(np.clip((answers.rows * x) @ y / np.maximum((answers.rows * x) @ x, 1e-12), 0.0, 1.0))
        # Rows with the same first score are one cell of the tally, and their answers may differ.
        within = np.maximum(answers.wtt - answers.wt**2 / answers.w, 0.0)
        n, more, its_error = _means(place, answer - share * answers.confidence, answers.rows, count, within)
        first, error = np.clip(share * first + more, 0.0, 1.0), np.hypot(share * error, its_error)
    return n, first, -special.stdtrit(np.maximum(n, 1), tail) * error


def _mean_of_curves(tally: Tally, tops: Floats, curves: TreeMaps) -> Floats:
    """Return the mean answer of each band over the certifying rows."""
    answers = tally.with_targets(curves.apply(Rows(tally.confidence, tally.grouping, None))).pooled()
    if answers.block is not None:
        answers = by_document(answers, tops)
    place = np.searchsorted(tops, answers.confidence)
    total, weight = (_summed(place, column, len(tops)) for column in (answers.wt, answers.w))
    return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), 0.5)


def _means(
    place: Ints, values: Floats, rows: Ints, count: int, within: Floats | float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Return the number of rows in each cell, their mean, and its standard error with one more row, far away.

    within : the sum of squares around each value, of the rows that it is the mean of.
    """
    n = _summed(place, rows, count)
    mean = _summed(place, rows * values, count) / np.maximum(n, 1)
    squares = _summed(place, rows * (values - mean[place]) ** 2 + within, count)
    return n, mean, np.sqrt(squares + _FARTHEST**2) / np.maximum(n, 1)


def _lineage(codes: Ints, column: GroupColumn | None, depth: int | None) -> Lineage:
    """Return the nodes: the root, and every group with an interval."""
    level = depth or 1
    depths = np.append(0, np.full(len(codes), level))
    owner = np.append(NO_GROUP, codes)
    known, entries = codes, np.arange(1, len(codes) + 1)
    if column is not None and column.is_tree and depth:
        known = np.arange(2**depth)
        entries = np.where(np.isin(known, codes), np.searchsorted(codes, known) + 1, 0)
    return Lineage(depths, owner, sources(depths, level if len(codes) else 0), GroupIndex(known, entries))


@dataclass(kw_only=True, eq=False, repr=False)
class MarginBinning(Calibrator):
    r"""Keep a good score, and guarantee it by probability and by group.

    Each answer has two intervals. `low` and `high`: answers of its band, those with a similar score, are on average too
    high by at most `calibrated - low`, and too low by at most `high - calibrated`. `group_low` and `group_high`: the
    accuracy of all answers of its group. All intervals hold at once with probability :math:`1 - \alpha`; the text of
    this module has the formulas.

    How to choose: the default. With a learned score, answers are its probabilities. Without one, answers are the curves
    of :class:`TreeScaling`, which correct the confidence within groups, and a band has answers with a similar stated
    confidence. For intervals of a probability *within* a group, which are wider, use :class:`StepBinning` with a
    learned score, and :class:`TreeBinning` without one.

    Parameters
    ----------
    within : how wide intervals may be for half of the answers; there are as many bands and groups as allow it. For
        bands it is the distance from an answer to the farther end of its interval, for groups half the width of the
        interval. By default it depends on the number of rows: 0.055 (bands) and 0.155 (groups) for 700 certifying rows,
        0.033 and 0.057 for 14,000. Groups that are no tree stay as they are. If it is out of reach, a warning
        says how many rows it would take.
    bands : their number; by default as many as the width allows. More rows then make more bands, and a further band
        makes intervals wider at first. With a fixed number, more rows make them narrower.
    max_depth : the depth of the groups of a tree; by default the deepest one that allows the width.
    alpha : the probability that at least one interval is wrong.

    Notes
    -----
    With a learned score, a model fixes bands and depth on rows that do not certify. Without one, and if you fit this
    class on arrays, it makes them from the confidences and groups of the same rows, without their labels; intervals are
    then about these rows' expected accuracy, given their confidences and groups (`conditional` in docs/guarantees.md).

    If ids repeat, rows with one id are a document; documents are independent, and an interval is about a random row of
    a random document.

    Examples
    --------
    The LLM states 0.5 to 0.9. That is right on average, but not in every subject:

    >>> rng = np.random.default_rng(0)
    >>> stated, subject = rng.uniform(0.5, 0.9, 4000), np.repeat(["art", "law"], 2000)
    >>> correct = rng.random(4000) < stated + np.where(subject == "law", 0.1, -0.1)
    >>> model = MarginBinning().fit(stated, correct, groups=subject)
    >>> evidence = model.explain([0.6, 0.8, 0.8], groups=["art", "law", "chess"])
    >>> evidence.calibrated.round(2), evidence.low.round(2), evidence.high.round(2)
    (array([0.48, 0.89, 0.81]), array([0.44, 0.86, 0.78]), array([0.52, 0.92, 0.84]))
    >>> evidence.group_low.round(2), evidence.group_high.round(2)
    (array([0.57, 0.78,  nan]), array([0.62, 0.82,  nan]))
    """

    within: float | None = None
    bands: int | None = None
    max_depth: int | None = None
    alpha: float = 0.1
    maps_: MarginMaps = field(init=False)
    properties = Properties(is_certified=True, uses_groups=True, counts_documents=True)

    def _require_parameters(self) -> None:
        super()._require_parameters()
        check_alpha(self.alpha)
        if self.within is not None and not (is_number(self.within, 0, 1) and 0 < self.within < 1):
            raise InputError(f"within is {shown(self.within)}; expected a distance between 0 and 1, such as 0.1.")
        if self.bands is not None and not is_whole(self.bands, 1, MOST_BANDS):
            raise InputError(f"bands is {shown(self.bands)}; expected a whole number from 1 to {MOST_BANDS}.")

    def _fit_tally(self, tally: Tally) -> MarginMaps:
        cells = self._cells_of(tally, 1.0, tally.n)
        maps = self._fitted_to(cells, tally, None, has_curves=True)
        self._warn_of_width(maps, cells, tally.mean, share_of_documents(tally))
        return maps

    def _fit_cells(
        self, tally: Tally, cells: Cells, answers: Tally | None, share: float = 1.0, judged: Judged | None = None
    ) -> None:
        """Fit intervals to cells that were planned on other rows; `share` of the labelled rows certify."""
        self._require_parameters()
        self.maps_ = self._fitted_to(cells, tally, answers, judged=judged)
        self._warn_of_width(self.maps_, cells, tally.mean, share * share_of_documents(tally))

    def _cells_of(self, tally: Tally, share: float, labels: float) -> Cells:
        """Return cells for rows like these, planned without their labels; `share` of `labels` rows certify."""
        return plan_cells(
            tally.confidence,
            tally.grouping,
            rows=share * labels * share_of_documents(tally),
            alpha=self.alpha,
            within=self.within,
            bands=self.bands,
            max_depth=self.max_depth,
            repeats=tally.rows,
            are_probabilities=False,
        )

    def _fitted_to(
        self,
        cells: Cells,
        tally: Tally,
        answers: Tally | None,
        *,
        has_curves: bool = False,
        judged: Judged | None = None,
    ) -> MarginMaps:
        """Return the intervals of cells, and curves if these rows give the answers, too."""
        tally = self._relevant(tally)
        judged = None if judged is None else Judged(*(one.to_seven_decimals() for one in judged))
        curves = fit_tree_curves(tally.without_blocks(), max_depth=cells.depth) if has_curves else None
        # Ends of bands, and scores that are compared with them, have seven decimals.
        held = None if answers is None else answers.to_seven_decimals()
        return fit_margins(tally, cells, alpha=self.alpha, answers=held, curves=curves, judged=judged)

    def _warn_of_width(self, maps: MarginMaps, cells: Cells, accuracy: float, share: float) -> None:
        """Warn if the wanted width is out of reach: which width the rows give, and how many it would take."""
        within = self.within
        if within is None:
            return

        def labels(groups: int = 0) -> str:
            alpha, is_fitted = self.alpha if groups else maps.alpha_of_bands, maps.curves is not None
            settings: dict[str, Any] = {"accuracy": accuracy, "alpha": alpha, "is_fitted": is_fitted}
            rows = rows_for_margins(within, bands=self.bands or 1, groups=groups, **settings)
            return f"about {rounded_up(rows / share):,} labelled rows"

        bound, width = maps.median_error_bound(), maps.median_group_width()
        missing = []
        if cells.band_width > within and bound > within:
            in_bands = "one band" if maps.n_bands == 1 else f"{maps.n_bands} bands"
            missing.append(f"by probability, these rows give {bound:.2g} in {in_bands}, and it takes {labels()}")
        elif bound > _MISSED * within:
            # Bands are fixed before their rows are seen, and a fit may be unlucky.
            missing.append(f"by probability, these rows give {bound:.2g} in {counted(maps.n_bands, 'band')}")
        if width is None and maps.grouping is not None and self.max_depth != 0:
            missing.append(f"by group, these rows give nothing, and two groups take {labels(groups=2)}")
        elif width is not None and width > within * (1 if maps.max_depth is None else _MISSED):
            missing.append(f"by group, these rows give {width:.2g}, and it takes {labels(groups=maps.n_groups)}")
        if missing:
            message = f"intervals within {within:g} are out of reach: {'; '.join(missing)}."
            warnings.warn(message, QacalWarning, stacklevel=2)
