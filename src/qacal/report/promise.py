r"""What the intervals of a fit guarantee, and a test of that guarantee on rows that the fit has not seen.

*Bins.* The fit guarantees, with probability :math:`1 - \alpha` over the calibration rows, that for every bin :math:`k`
at once :math:`\theta_k = \mathrm{E}[Y \mid \text{bin}, \text{group}]` lies in :math:`[l_k, u_k]`. For one fit the
guarantee holds or fails; one failure does not disprove the :math:`1 - \alpha`. Bins and groups are fixed before any
test row is seen. Given only the bin and the group of each test row at a level, the labels of a bin are independent
draws of :math:`\theta_k`; the :math:`D` levels of maps get :math:`\gamma / D` each. So if the guarantee holds, some
interval is contradicted with probability at most :math:`\gamma = 0.05`, and for a default fit with at most
:math:`\alpha + \gamma`. In simulations it was 1.3% with every truth at an end of its interval, the worst case that the
guarantee allows, none of 8,000 ordinary fits of steps or bins,
and one of 2,000 of bands and groups (``tests/theory/test_kept_promises.py``).

*Bands and groups.* The default fit has an interval for the accuracy of each band, which is a range of the score, and of
each group. The same test serves: bands are one level, and groups another. The fit also guarantees that the mean
answer of a band is near its accuracy. That statement is wider and follows from the interval of the band, up to the
error of the mean answer, so it has no test of its own; the error that is measured is shown.

*Which rows count.* The interval of a map covers all rows below its node, so all of these are its evidence, including
rows of groups with a map of their own. One row of each question is kept, since rows must be independent; so every
question must have the same number of rows, or accuracy over questions is not the accuracy over rows that the guarantee
covers (:func:`why_not_judged`). A guarantee about documents is tested on one row of each document in each bin.

A guarantee about the calibration rows alone (:attr:`qacal.guarantee.Certificate.is_about_all` is False) needs one more
assumption: within a bin, new confidences are distributed like those of the calibration rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.maps import BinMaps, deepest_level
from qacal.calibrators.margins import MarginMaps
from qacal.metrics.claims import GAMMA, Judged, judged
from qacal.report.data import Gathered
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.ids import combined, one_of_each


@dataclass(frozen=True, eq=False)
class Realised:
    """The bins of a fit that have test rows, with a test of their intervals.

    A bin here is a bin of a map, or (`has_bands`) a band or a whole group.

    group : the group of the bin; None for bands, for all rows, and for an ancestor of several groups.
    answer, bound : the answer of the bin, and the largest error that the guarantee allows. For bands, the mean answer
        of the test rows; NaN for a whole group, which has no answer of its own.
    low, high : the certified interval of the accuracy.
    rows, accuracy : of the test rows that the interval covers.
    answered : number of these rows that the bin answered; deeper maps may answer the others.
    noise_low, noise_high : an interval for the true accuracy from the test rows alone. For bins that can be judged, all
        hold at once with probability 1 - gamma.
    can_be_judged, is_broken : whether there are enough rows to contradict the certified interval, and whether they do.
    alpha : probability that any certified interval is wrong.
    is_about_all : whether the guarantee is about all future answers, not only about the calibration rows.
    left_out : test rows left out because their question has another row.
    intervals : number of intervals of the fit, with or without test rows; bins without any row do not count.
    is_by_document : whether the guarantee is about documents; then one row of each document counts in each bin.
    has_bands : whether the intervals are about bands and whole groups.
    """

    group: tuple[Any, ...]
    answer: Floats
    low: Floats
    high: Floats
    bound: Floats
    rows: Ints
    accuracy: Floats
    answered: Ints
    noise_low: Floats
    noise_high: Floats
    can_be_judged: Bools
    is_broken: Bools
    alpha: float
    is_about_all: bool
    left_out: int
    intervals: int
    is_by_document: bool
    has_bands: bool = False

    @property
    def is_group(self) -> Bools:
        """Which intervals are about a whole group."""
        return np.array([self.has_bands and group is not None for group in self.group])

    @property
    def error(self) -> Floats:
        """The distance of each bin's answer to the accuracy of its test rows."""
        return np.abs(self.answer - self.accuracy)

    @property
    def typical(self) -> float:
        """The mean error of the bins, over test rows."""
        used = self.answered > 0
        return float(self.answered[used] @ self.error[used] / self.answered.sum())

    @property
    def is_within(self) -> Bools:
        """Which bins have an error within their bound, without regard to noise."""
        return np.asarray(self.error <= self.bound + 1e-12)

    @property
    def is_inside(self) -> Bools:
        """Which bins have an accuracy inside their interval, without regard to noise."""
        return np.asarray((self.low - 1e-12 <= self.accuracy) & (self.accuracy <= self.high + 1e-12))

    @property
    def excess(self) -> Floats:
        """The least distance of a contradicted interval to the true accuracy; 0 for others."""
        return np.asarray(np.maximum(np.maximum(self.noise_low - self.high, self.low - self.noise_high), 0.0))


def realised_errors(
    fitted: BinMaps | MarginMaps,
    bins: Ints,
    levels: Ints,
    correct: Floats,
    ids: Hashes | None = None,
    answers: Floats | None = None,
) -> Realised:
    """Return the errors of the bins of a fit on test rows.

    bins : the bin that answers each row (:meth:`BinMaps.bins_of`), or its band.
    levels : the bin of each row in every map (:meth:`BinMaps.bins_by_level`), or its band and its group.
    ids : hashes of the questions' ids; one row of each question is kept.
    answers : the calibrated confidence of each row; needed for bands, which answer with many values.

    Examples
    --------
    At a score of 0.9 the accuracy was 0.9 in the fit, and is 0.6 now:

    >>> from qacal import StepBinning
    >>> from qacal.calibrators.base import Rows
    >>> fit = StepBinning().fit(np.full(1000, 0.9), np.repeat([1.0, 0.0], [900, 100]))
    >>> maps, new = fit.maps_, Rows(np.full(200, 0.9), None, None)
    >>> right = np.repeat([1.0, 0.0], [120, 80])
    >>> realised = realised_errors(maps, maps.bins_of(new), maps.bins_by_level(new), right)
    >>> realised.low.round(2), realised.high.round(2), realised.noise_high.round(2), realised.is_broken
    (array([0.88]), array([0.92]), array([0.67]), array([ True]))
    """
    maps = fitted.cells if isinstance(fitted, MarginMaps) else fitted
    kept = np.ones(len(correct), dtype=bool)
    if ids is not None and maps.certificate.is_by_document:
        # One row of each document in each bin: the others are in no bin of that level.
        drawn = [np.where(one_of_each(combined(ids, level), correct), level, -1) for level in levels.T]
        levels = np.stack(drawn, axis=1)
    elif ids is not None:
        kept = one_of_each(ids, correct, bins, *levels.T)
    t = correct[kept]
    rows, right, squares = (_per_bin(maps, levels[kept], column) for column in (np.ones(len(t)), t, t * t))
    tested = _tested(maps, rows, right, squares)
    used = np.flatnonzero(rows)
    answer, bound = maps.value, maps.error_bounds()
    if isinstance(fitted, MarginMaps) and answers is not None:
        of_groups = np.full(len(rows) - len(fitted.below), np.nan)
        bound = np.concatenate([np.maximum(fitted.below, fitted.above), of_groups])
        total = _per_bin(maps, levels[kept], answers[kept])
        answer = np.where(np.isnan(bound), np.nan, total / np.maximum(rows, 1))
    return Realised(
        group=_owners(maps, used),
        answer=answer[used],
        low=maps.low[used],
        high=maps.high[used],
        bound=bound[used],
        rows=rows[used].astype(np.int64),
        accuracy=right[used] / rows[used],
        answered=np.bincount(bins[kept], minlength=len(rows))[used],
        noise_low=tested.low[used],
        noise_high=tested.high[used],
        can_be_judged=tested.can_be_judged[used],
        is_broken=tested.is_contradicted[used],
        alpha=float(maps.certificate.alpha),
        is_about_all=maps.certificate.is_about_all,
        left_out=int(len(correct) - (levels[kept, 0] >= 0).sum()),
        intervals=int(((rows > 0) | (maps.rows > 0)).sum()),
        is_by_document=maps.certificate.is_by_document,
        has_bands=isinstance(fitted, MarginMaps),
    )


def _tested(maps: BinMaps, rows: Floats, right: Floats, squares: Floats) -> Judged:
    """Test the interval of every bin, level by level."""
    levels = np.unique(maps.lineage.depth).tolist()
    of_level = [np.flatnonzero(np.repeat(maps.lineage.depth, np.diff(maps.offset)) == depth) for depth in levels]
    options: dict[str, Any] = {"gamma": GAMMA / len(levels), "is_mixed": not maps.certificate.is_about_all}
    parts = [
        judged(rows[bins], right[bins], squares[bins], (maps.low[bins], maps.high[bins]), **options)
        for bins in of_level
    ]
    order = np.argsort(np.concatenate(of_level))
    names = ("low", "high", "can_be_judged", "is_contradicted")
    return Judged(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in names))


def _per_bin(maps: BinMaps, levels: Ints, column: Floats) -> Floats:
    """Return the sum of a column over the rows of each bin; every row is in one bin of each level that has its map."""
    total = np.zeros(len(maps.value))
    for level in levels.T:
        total += np.bincount(level[level >= 0], column[level >= 0], minlength=len(total))
    return total


def _owners(maps: BinMaps, bins: Ints) -> tuple[Any, ...]:
    """Return the group of each bin; None for bins of several groups."""
    number = np.searchsorted(maps.offset, bins, side="right") - 1
    depth, owner = maps.lineage.depth[number], maps.lineage.owner[number]
    deepest = deepest_level(maps.grouping, maps.max_depth)
    if maps.grouping is None or deepest == 0:
        return (None,) * len(bins)
    return tuple(maps.grouping.decode(np.where(depth == deepest, owner, -1)))


@dataclass(frozen=True)
class Promise:
    """What the bins of a fit guarantee.

    alpha : probability that any interval is wrong.
    rows : number of certifying rows; of a document, one in each bin.
    is_by_document : whether the guarantee is about documents.
    certified : half of the test rows are in bins (or bands) with a certified error of at most this.
    largest : the largest certified error of any bin.
    bands, groups : number of bands, and of groups with an interval; 0 if intervals are about bins.
    group_width, widest_group : half of the test rows that are in a group with an interval have one with at most this
        half-width; the largest half-width. NaN without such rows.
    """

    alpha: float
    rows: int
    certified: float
    largest: float
    is_by_document: bool
    bands: int = 0
    groups: int = 0
    group_width: float = np.nan
    widest_group: float = np.nan


def promise_of(gathered: Gathered, maps: BinMaps | MarginMaps) -> Promise:
    """Return what the bins of a model guarantee for these rows."""
    if isinstance(maps, MarginMaps):
        cells, bounds = maps.cells, np.maximum(maps.below, maps.above)
        is_used, widths = cells.rows > 0, (cells.high - cells.low) / 2
        bands, groups = is_used[: len(bounds)], is_used[len(bounds) :]
        of_rows = gathered.column("levels")[:, 1:]
        of_rows = of_rows[of_rows >= 0]
        return Promise(
            alpha=float(maps.certificate.alpha),
            rows=int(cells.rows[: len(bounds)].sum()),
            certified=float(np.median(bounds[gathered.column("bins")])),
            largest=float(bounds[bands].max(initial=0.0)),
            is_by_document=maps.certificate.is_by_document,
            bands=int(bands.sum()),
            groups=int(groups.sum()),
            group_width=float(np.median(widths[of_rows])) if len(of_rows) else np.nan,
            widest_group=float(widths[len(bounds) :][groups].max()) if groups.any() else np.nan,
        )
    root = int(maps.offset[1])
    # The bins of groups, if there are groups: the root's bins have the same rows again.
    first = root if len(maps.offset) > 2 else 0
    bounds = maps.error_bounds()
    # Bins without rows have no information, and nobody reads them.
    is_used = maps.rows[first:] > 0
    return Promise(
        alpha=float(maps.certificate.alpha),
        # The edge rows between the root's bins are in no bin of Algorithm UMD.
        rows=int(maps.rows[:root].sum()) + (root - 1 if maps.is_jittered else 0),
        certified=float(np.median(bounds[gathered.column("bins")])),
        largest=float(bounds[first:][is_used].max(initial=0.0)),
        is_by_document=maps.certificate.is_by_document,
    )


def why_not_judged(gathered: Gathered, maps: BinMaps | MarginMaps) -> str:
    """Return why these rows cannot test the guarantee; empty if they can."""
    if gathered.is_familiar:
        return "The model was fitted on some of these questions, and the guarantee is about others. Use held-out rows."
    if not gathered.has_ids:
        return (
            "The guarantee is about rows that were not used for the fit, and these may have been used. To tell, rows "
            "of the fit and these rows need an id or a question."
        )
    if gathered.is_part:
        return (
            "These are only part of the rows, and the guarantee is about all of them together. Use one report for all."
        )
    if gathered.is_uneven and not maps.certificate.is_by_document:
        return (
            "Some questions have more rows here than others. The guarantee is about the average over rows, but only "
            "questions can be tested, since rows of one question are dependent; the two averages differ. Use the same "
            "number of rows for every question."
        )
    return ""
