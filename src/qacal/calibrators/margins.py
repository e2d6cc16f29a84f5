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

:math:`m_b` is the mean over all answers, future ones too. It is estimated without labels, from rows that trained
neither score: :math:`m_b = \overline{f} + \overline{p - f}`, the first over the certifying rows of the band, the second
over those that did not train :math:`p`. Its standard error is added to both ends, in quadrature, at the same level.
Only this step is approximate; the intervals of cells are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from qacal.calibrators.base import FROM_BAND, Calibrator, Evidence, Properties, Rows, group_names
from qacal.calibrators.maps import BinMaps, Lineage, deepest_level, groups_with_rows, level_of, sources
from qacal.calibrators.step_binning import by_document, corrected
from qacal.errors import InputError
from qacal.guarantee import Certificate, binomial_interval, check_alpha, counted_shares, document_intervals
from qacal.parameters import Axes, Between, is_number, require, shown
from qacal.tally.arrays import Floats, Ints, seven_decimals
from qacal.tally.groups import NO_GROUP, GroupColumn, GroupIndex
from qacal.tally.ids import drawn_labels
from qacal.tally.tally import Tally

# The default half-widths of bands and groups. They fall with the number of rows, so that more labels give narrower
# intervals, and not only more cells.
_BAND_WIDTH, _BAND_ROWS, _BAND_POWER = 0.05, 2_800, 1 / 4
_GROUP_WIDTH, _GROUP_ROWS, _GROUP_POWER = 0.17, 700, 1 / 3
_MOST_BANDS = 40
# Intervals come out wider than expected: scores of the rows that trained them are too sure, and the mean answer is
# estimated.
_SAFETY = 1.1

# A group that is a value of a column needs this many rows to have an interval.
_ROWS_OF_A_GROUP = 30

# The spread of the difference of two scores in a band, as one more row: a band may have hardly any.
_SPREAD = 0.1


@dataclass(frozen=True, eq=False)
class Cells:
    """What is certified.

    tops : where bands end; the last has no end.
    depth : of the groups of a tree; 0 for no groups, None for groups that are no tree.
    """

    tops: Floats
    depth: int | None


def plan_cells(
    scores: Floats,
    column: GroupColumn | None,
    *,
    rows: float,
    alpha: float,
    within: float | None = None,
    max_depth: int | None = None,
    repeats: Ints | int = 1,
) -> Cells:
    """Return the finest cells that will have the wanted width for half of the answers.

    scores, column : first scores and groups of rows like those that certify.
    rows : the number of rows that will certify.
    repeats : how often each score and group occurs.

    >>> cells = plan_cells(np.linspace(0.3, 0.9, 1000), None, rows=3500, alpha=0.1, within=0.05)
    >>> cells.tops.round(2), cells.depth
    (array([0.4, 0.5, 0.6, 0.7, 0.8, inf]), 0)
    """
    for_bands, for_groups = widths(rows, within)
    scores = np.repeat(seven_decimals(scores), repeats)
    has_groups = column is not None and max_depth != 0
    part = alpha / 2 if has_groups else alpha
    tops = [
        np.append(np.unique(np.quantile(scores, np.arange(1, k) / k, method="lower")), np.inf)
        for k in range(1, _MOST_BANDS + 1)
    ]
    reached = [top for top in tops if _expected(np.searchsorted(top, scores), scores, rows, part) <= for_bands]
    depth: int | None = 0
    if column is not None and has_groups and column.depth is None:
        depth = None
    elif column is not None and has_groups:
        for trial in range(1, deepest_level(column, max_depth) + 1):
            if _expected(np.repeat(column.leaves(trial), repeats), scores, rows, part) <= for_groups:
                depth = trial
    return Cells(max(reached, key=len, default=tops[0]), depth)


def widths(rows: float, within: float | None = None) -> tuple[float, float]:
    """Return the wanted half-widths of bands and of groups, if `rows` rows certify.

    >>> [round(width, 3) for width in widths(700)], [round(width, 3) for width in widths(14_000)]
    ([0.05, 0.17], [0.033, 0.063])
    """
    if within is not None:
        return within, within
    return (
        _BAND_WIDTH * min(1.0, (_BAND_ROWS / max(rows, 1.0)) ** _BAND_POWER),
        _GROUP_WIDTH * min(1.0, (_GROUP_ROWS / max(rows, 1.0)) ** _GROUP_POWER),
    )


def _expected(cell: Ints, scores: Floats, rows: float, alpha: float) -> float:
    """Return the half-width that half of the answers will have, if accuracies are the scores."""
    _, place, count = np.unique(cell, return_inverse=True, return_counts=True)
    n = np.maximum(rows * count / len(cell), 1.0)
    mean = np.bincount(place, scores) / count
    low, high = binomial_interval(n * mean, n, alpha / (2 * len(count)))
    return _SAFETY * float(np.median(((high - low) / 2)[place]))


@dataclass(frozen=True, eq=False)
class MarginMaps:
    """The intervals of bands and groups.

    cells : the root's map has the bands, on the scale of the first score, and the map of a group has one bin. `value`
        is the mean answer of a band, and the accuracy of a group's rows; `low`, `high` and `rows` are of accuracies.
    shift : what is added to the answers of each band to bring their mean into its interval.
    below, above : how far an interval reaches from an answer of the band.
    """

    cells: BinMaps
    shift: Annotated[Floats, Axes("bands"), Between(-1, 1)]
    below: Annotated[Floats, Axes("bands"), Between(0, 1)]
    above: Annotated[Floats, Axes("bands"), Between(0, 1)]

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
            answer,
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

    def _answers(self, rows: Rows, band: Ints) -> Floats:
        answer = rows.exact if rows.answer is None else rows.answer
        return np.clip(answer + self.shift[band], 0.0, 1.0)

    def median_error_bound(self) -> float:
        """Return how far off the answers of a band are on average, at most; the median over the calibration rows."""
        bound = np.maximum(self.below, self.above)
        return _median(bound, self.cells.rows[: len(bound)])

    def median_group_width(self) -> float | None:
        """Return the half-width of the interval of a group, the median over the rows of groups; None without groups."""
        bands = len(self.below)
        width, rows = (self.cells.high - self.cells.low)[bands:] / 2, self.cells.rows[bands:]
        return _median(width, rows) if rows.any() else None

    def parameters(self) -> dict[str, Any]:
        return {"alpha": self.certificate.alpha}

    def _validate(self) -> None:
        bands = int(self.cells.offset[1])
        require(len(self.shift) == bands, f"there are {bands} bands and {len(self.shift)} shifts.")
        one_each = np.array_equal(np.diff(self.cells.offset)[1:], np.ones(len(self.cells.offset) - 2))
        require(one_each, "the interval of a group must be one, for all probabilities.")


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
    recalibrate: bool = False,
    is_fixed: bool = True,
) -> MarginMaps:
    """Return the intervals of cells.

    tally : first scores, groups and labels of the certifying rows.
    answers : rows that trained neither score, with the answer of each as its target; None if answers are the first
        scores.
    recalibrate : move the mean answer of a band towards the accuracy of its rows, not only into the interval.
    is_fixed : cells do not depend on the certifying rows at all; else they may depend on scores and groups.
    """
    from scipy import special

    check_alpha(alpha)
    column, bands = tally.grouping, len(cells.tops)
    root, codes = tally.pooled(), np.empty(0, dtype=np.int64)
    if column is not None and cells.depth != 0:
        grouped = level_of(tally, cells.depth or 1)
        codes = _certifiable(grouped, is_tree=column.is_tree)
    part = alpha / 2 if len(codes) else alpha
    kind: Literal["margins", "conditional"] = "margins" if is_fixed else "conditional"
    found = _certified(root, cells.tops, None, part, kind)
    if len(codes):
        groups = _certified(grouped, np.array([np.inf]), codes, part, kind)
        found = Certified(*(np.concatenate(pair) for pair in zip(found, groups, strict=True)))
    accuracy, low, high = (column[:bands] for column in (found.accuracy, found.low, found.high))
    rows = found.rows[:bands]
    answer, error = _mean_answers(root, cells.tops, answers)
    # The error of the mean answer, at the level of one end of a band's interval.
    error *= special.ndtri(1 - part / (2 * _occupied(rows)))
    lower = np.maximum(accuracy - np.hypot(accuracy - low, error), 0.0)
    upper = np.minimum(accuracy + np.hypot(high - accuracy, error), 1.0)
    wanted = corrected(answer, accuracy * rows, rows) if recalibrate else answer
    wanted = np.clip(wanted, lower, upper)
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
    return MarginMaps(cells_of_fit, wanted - answer, wanted - lower, upper - wanted)


class Certified(NamedTuple):
    """The rows of cells, their accuracy, and its intervals."""

    rows: Floats
    accuracy: Floats
    low: Floats
    high: Floats


def _certified(
    level: Tally, tops: Floats, codes: Ints | None, alpha: float, kind: Literal["margins", "conditional"]
) -> Certified:
    """Return the intervals of all bins of a level; `codes` are its groups, None for no groups.

    A cell without rows has its middle as accuracy.
    """
    if level.block is not None:
        level = by_document(level, tops)
    place = np.searchsorted(tops, level.confidence)
    if codes is not None:
        code = np.asarray(level.grouping.code) if level.grouping is not None else codes[:0]
        at = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        is_known = codes[at] == code
        level, place = level._select(is_known), at[is_known]
    count = len(tops) if codes is None else len(codes)
    sums = {name: _summed(place, getattr(level, name), count) for name in ("rows", "w", "wt", "wtt", "ww")}
    if level.block is None:
        certificate = Certificate(kind, alpha, _occupied(sums["rows"]))
        low, high = certificate.intervals(*sums.values())
    else:
        # All cells count, with rows or without: see `document_certificates`.
        labels = drawn_labels(level.wt, np.asarray(level.block).view(np.uint64))
        drawn = _summed(place, labels, count)
        low, high = document_intervals(*counted_shares(level.wt, place), drawn, np.full(count, alpha / (2 * count)))
    has_rows = sums["w"] > 0
    accuracy = np.where(has_rows, sums["wt"] / np.where(has_rows, sums["w"], 1.0), 0.5)
    return Certified(sums["rows"], np.clip(accuracy, low, high), low, high)


def _summed(place: Ints, column: Floats | Ints, count: int) -> Floats:
    return np.asarray(np.bincount(place, column, count), dtype=np.float64)


def _occupied(rows: Floats) -> int:
    return max(1, int(np.count_nonzero(rows)))


def _certifiable(level: Tally, *, is_tree: bool) -> Ints:
    """Return the groups that have an interval: all of a tree, and those of a column with enough rows."""
    codes = groups_with_rows(level, 1 if is_tree else _ROWS_OF_A_GROUP)
    return np.unique(codes)


def _mean_answers(root: Tally, tops: Floats, answers: Tally | None) -> tuple[Floats, Floats]:
    """Return the mean answer of each band, and its standard error."""
    count = len(tops)
    first, error = _means(np.searchsorted(tops, root.confidence), root.confidence, root.rows, count)
    if answers is None:
        return first, error
    if answers.block is not None:
        answers = by_document(answers, tops)
    difference = answers.wt / answers.w - answers.confidence
    more, its_error = _means(np.searchsorted(tops, answers.confidence), difference, answers.rows, count)
    return np.clip(first + more, 0.0, 1.0), np.hypot(error, its_error)


def _means(place: Ints, values: Floats, rows: Ints, count: int) -> tuple[Floats, Floats]:
    """Return the mean of values in each cell, and its standard error; cells have one more row with a usual spread."""
    n = _summed(place, rows, count)
    mean = _summed(place, rows * values, count) / np.maximum(n, 1)
    squares = _summed(place, rows * (values - mean[place]) ** 2, count)
    return mean, np.sqrt((squares + _SPREAD**2) / np.maximum(n, 1) / np.maximum(n, 1))


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

    Each answer has two intervals. `low` and `high`: among answers of its band, those with a similar score, the
    accuracy is on average between the two. `group_low` and `group_high`: the accuracy of all answers of its group. All
    intervals hold at once with probability :math:`1 - \alpha`; the text of this module has the formulas.

    How to choose: the default for a learned score. Without one, answers are the confidences, moved until their mean is
    inside the interval of the band; to correct a confidence within groups, use :class:`TreeBinning`. For intervals of a
    probability *within* a group, which are wider, use :class:`StepBinning`.

    Parameters
    ----------
    within : the half-width that intervals should have for half of the answers; there are as many bands and groups as
        allow it. By default it depends on the number of rows: 0.05 (bands) and 0.17 (groups) for 700 certifying rows,
        0.033 and 0.063 for 14,000.
    max_depth : the depth of the groups of a tree; by default the deepest one that allows the width.
    alpha : the probability that at least one interval is wrong.
    recalibrate : move the mean answer of a band towards the accuracy of its rows, for a score that was trained on
        labels of another kind, such as a judge's.

    Notes
    -----
    A model fixes bands and depth on rows that do not certify. If you fit this class on arrays, it makes them from the
    scores and groups of the same rows, without their labels; intervals are then about these rows' expected accuracy,
    given their scores and groups (`conditional` in docs/guarantees.md).

    If ids repeat, rows with one id are a document; documents are independent, and an interval is about a random row of
    a random document.

    Examples
    --------
    Scores from 0.5 to 0.9 that are right on average, but not in every subject:

    >>> rng = np.random.default_rng(0)
    >>> score, subject = rng.uniform(0.5, 0.9, 4000), np.repeat(["art", "law"], 2000)
    >>> correct = rng.random(4000) < score + np.where(subject == "law", 0.1, -0.1)
    >>> evidence = MarginBinning().fit(score, correct, groups=subject).explain([0.6, 0.8], groups=["art", "law"])
    >>> evidence.calibrated.round(2), evidence.low.round(2), evidence.high.round(2)
    (array([0.6, 0.8]), array([0.55, 0.76]), array([0.64, 0.84]))
    >>> evidence.group_low.round(2), evidence.group_high.round(2)
    (array([0.57, 0.77]), array([0.62, 0.82]))
    """

    within: float | None = None
    max_depth: int | None = None
    alpha: float = 0.1
    recalibrate: bool = False
    maps_: MarginMaps = field(init=False)
    properties = Properties(is_certified=True, uses_groups=True, counts_documents=True)

    def _require_parameters(self) -> None:
        super()._require_parameters()
        check_alpha(self.alpha)
        if self.within is not None and not (is_number(self.within, 0, 1) and 0 < self.within < 1):
            raise InputError(f"within is {shown(self.within)}; expected a distance between 0 and 1, such as 0.1.")

    def _fit_tally(self, tally: Tally) -> MarginMaps:
        cells = plan_cells(
            tally.confidence,
            tally.grouping,
            rows=tally.n,
            alpha=self.alpha,
            within=self.within,
            max_depth=self.max_depth,
            repeats=tally.rows,
        )
        return fit_margins(tally, cells, alpha=self.alpha, recalibrate=self.recalibrate, is_fixed=False)

    def _fit_cells(self, tally: Tally, cells: Cells, answers: Tally | None) -> None:
        """Fit intervals to cells that were planned on other rows."""
        self._require_parameters()
        self.maps_ = fit_margins(
            self._relevant(tally), cells, alpha=self.alpha, answers=answers, recalibrate=self.recalibrate
        )
