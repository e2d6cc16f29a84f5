r"""What the bins of a fit guarantee, and a test of that guarantee on rows that the fit has not seen.

*Cells.* Each cell of rows comes with a claim: its true accuracy lies in :math:`[l, u]` (which may be one number). The
cell's :math:`m` rows alone give an exact interval for that accuracy, each end wrong with probability :math:`\tau`. The
claim is *contradicted* if the two intervals do not meet; if all claims are true, this happens in some cell with
probability at most :math:`\gamma = 0.05`.

Rows that are all correct, or all wrong, contradict a claim only if :math:`u^m < \tau` or :math:`(1 - l)^m < \tau`.
Other cells have too few rows to be judged; they cannot raise a false alarm, so the correction for many tests leaves
them out (Tarone 1990): :math:`\tau = \gamma / (2K)` with the smallest :math:`K` for which at most :math:`K` cells can
be judged.

*Bins.* The fit guarantees, with probability :math:`1 - \alpha` over the calibration rows, that for every bin :math:`k`
at once :math:`\theta_k = \mathrm{E}[Y \mid \text{bin}, \text{group}]` lies in :math:`[l_k, u_k]`. For one fit the
guarantee holds or fails; one failure does not disprove the :math:`1 - \alpha`. Bins and groups are fixed before any
test row is seen. Given only the bin and the group of each test row at a level, the labels of a bin are independent
draws of :math:`\theta_k`; the :math:`D` levels of maps get :math:`\gamma / D` each. So if the guarantee holds, some
interval is contradicted with probability at most :math:`\gamma = 0.05`, and for a default fit with at most
:math:`\alpha + \gamma`. In simulations it was 1.3% with every truth at an end of its interval, the worst case that the
guarantee allows, and none of 8,000 default fits (``tests/theory/test_kept_promises.py``).

*Which rows count.* The interval of a map covers all rows below its node, so all of these are its evidence, including
those that a deeper map answers. One row of each question is kept, since rows must be independent; so every question
must have the same number of rows, or accuracy over questions is not the accuracy over rows that the guarantee covers
(:func:`why_not_judged`).

A guarantee about the calibration rows alone (:attr:`qacal.guarantee.Certificate.is_about_all` is False) needs one more
assumption: within a bin, new confidences are distributed like those of the calibration rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.ancestry import deepest_level
from qacal.calibrators.bin_maps import BinMaps
from qacal.guarantee import mean_intervals
from qacal.planning import epsilon
from qacal.report.data import Gathered
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.ids import one_of_each

GAMMA = 0.05
"""How often some claim may be contradicted, at most, though all of them are true."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What the rows of some cells say of claims about them.

    low, high : an interval for each cell's share of right answers; those of cells that can be judged are right all at
        once with probability 1 - gamma.
    can_be_judged : whether there are rows enough to contradict the claim.
    is_contradicted : whether they do.
    """

    low: Floats
    high: Floats
    can_be_judged: Bools
    is_contradicted: Bools


def judged(
    rows: Floats,
    right: Floats,
    squares: Floats,
    claimed: tuple[Floats, Floats],
    *,
    gamma: float = GAMMA,
    is_mixed: bool = True,
) -> Judged:
    """Hold cells against what is claimed of them.

    rows, right, squares : how many rows a cell has, and the sums of their labels and of their labels' squares.
    claimed : the ends of the intervals claimed.
    is_mixed : the rows of a cell may differ in how likely they are right; claimed is their average.

    Examples
    --------
    Claimed is 0.9 of both; the first has 100 rows of which 60 are right, and the second has one, which is wrong:

    >>> rows, right, claim = np.array([100.0, 1.0]), np.array([60.0, 0.0]), np.array([0.9, 0.9])
    >>> found = judged(rows, right, right, (claim, claim))
    >>> found.can_be_judged, found.is_contradicted, found.high.round(2)
    (array([ True, False]), array([ True, False]), array([0.7 , 0.98]))
    """
    low_claim, high_claim = claimed
    least = np.minimum(high_claim**rows, (1 - low_claim) ** rows)
    tail = _tail(least, gamma)
    low, high = mean_intervals(rows, rows, right, squares, rows, tail, is_mixed=is_mixed)
    return Judged(low, high, np.asarray(least < tail), np.asarray((low > high_claim) | (high < low_claim)))


def _tail(least: Floats, gamma: float) -> float:
    """Return the tail of each end; `least` is the smallest at which a cell can be judged.

    >>> _tail(np.array([1e-9, 1e-9, 0.3, 0.4]), 0.05)  # two of the four can be
    0.0125
    """
    counts = np.arange(1, max(len(least), 1) + 1)
    tails = gamma / (2 * counts)
    can_be_judged = np.searchsorted(np.sort(least), tails)
    return float(tails[np.argmax(can_be_judged <= counts)])


@dataclass(frozen=True, eq=False)
class Realised:
    """The bins of a fit that test rows fell into, and what these say of their intervals.

    group : whose bin it is; None for all rows, or for an ancestor of several groups.
    answer, low, high, bound : what each bin answers, its certificate, and how far off that lets the answer be.
    rows, accuracy : of the test rows that the certificate speaks of.
    answered : how many of them the bin answered; a map further down may answer the others.
    noise_low, noise_high : an interval for the bin's truth from the test rows alone; those of bins that can be judged
        are right all at once with probability 1 - gamma.
    can_be_judged, is_broken : whether there are rows enough to contradict the certificate, and whether they do: it
        misses by more than the noise of the test rows explains.
    alpha : how often the certificates may fail, all of them together.
    is_about_all : whether the promise is about all answers to come, and not about the calibration rows alone.
    left_out : test rows left out because their question has another.
    intervals : how many the fit has, with those of bins that no test row fell into, but without bins that have no row
        at all.
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

    @property
    def error(self) -> Floats:
        """How far each bin's answer is from what its test rows say."""
        return np.abs(self.answer - self.accuracy)

    @property
    def typical(self) -> float:
        """The error of a test row's bin, on average."""
        return float(self.answered @ self.error / self.answered.sum())

    @property
    def is_within(self) -> Bools:
        """Which bins are off by no more than their bound, by the test rows as they are."""
        return np.asarray(self.error <= self.bound + 1e-12)

    @property
    def is_inside(self) -> Bools:
        """Which bins have a share of right answers that lies in their interval, by the test rows as they are."""
        return np.asarray((self.low - 1e-12 <= self.accuracy) & (self.accuracy <= self.high + 1e-12))

    @property
    def excess(self) -> Floats:
        """By how much, at least, an interval that is contradicted misses the truth; 0 for others."""
        return np.asarray(np.maximum(np.maximum(self.noise_low - self.high, self.low - self.noise_high), 0.0))


def realised_errors(maps: BinMaps, bins: Ints, levels: Ints, correct: Floats, ids: Hashes | None = None) -> Realised:
    """Return how the bins of a fit did on test rows.

    bins : the bin that answers each row (:meth:`BinMaps.bins_of`).
    levels : in which bins it is, of all maps (:meth:`BinMaps.bins_by_level`).
    ids : hashes of the questions' ids; of each question one row is kept.

    Examples
    --------
    A score of 0.9 that was right of 0.9 in the fit, and is right of 0.6 now:

    >>> from qacal import StepBinning
    >>> from qacal.calibrators.base import Rows
    >>> fit = StepBinning().fit(np.full(1000, 0.9), np.repeat([1.0, 0.0], [900, 100]))
    >>> maps, new = fit.maps_, Rows(np.full(200, 0.9), None, None)
    >>> right = np.repeat([1.0, 0.0], [120, 80])
    >>> found = realised_errors(maps, maps.bins_of(new), maps.bins_by_level(new), right)
    >>> found.low.round(2), found.high.round(2), found.noise_high.round(2), found.is_broken
    (array([0.88]), array([0.92]), array([0.67]), array([ True]))
    """
    kept = np.ones(len(correct), dtype=bool) if ids is None else one_of_each(ids, correct, bins, *levels.T)
    t = correct[kept]
    rows, right, squares = (_per_bin(maps, levels[kept], column) for column in (np.ones(len(t)), t, t * t))
    found = _tested(maps, rows, right, squares)
    used = np.flatnonzero(rows)
    return Realised(
        group=_owners(maps, used),
        answer=maps.value[used],
        low=maps.low[used],
        high=maps.high[used],
        bound=maps.error_bounds()[used],
        rows=rows[used].astype(np.int64),
        accuracy=right[used] / rows[used],
        answered=np.bincount(bins[kept], minlength=len(rows))[used],
        noise_low=found.low[used],
        noise_high=found.high[used],
        can_be_judged=found.can_be_judged[used],
        is_broken=found.is_contradicted[used],
        alpha=float(maps.certificate.alpha),
        is_about_all=maps.certificate.is_about_all,
        left_out=int(len(correct) - len(t)),
        intervals=int(((rows > 0) | (maps.rows > 0)).sum()),
    )


def _tested(maps: BinMaps, rows: Floats, right: Floats, squares: Floats) -> Judged:
    """Hold every bin against its interval, level by level."""
    levels = np.unique(maps.lineage.depth).tolist()
    of_level = [np.flatnonzero(np.repeat(maps.lineage.depth, np.diff(maps.offset)) == depth) for depth in levels]
    options: dict[str, Any] = {"gamma": GAMMA / len(levels), "is_mixed": not maps.certificate.is_about_all}
    parts = [
        judged(rows[mine], right[mine], squares[mine], (maps.low[mine], maps.high[mine]), **options)
        for mine in of_level
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
    """Return the group that each bin is of, None where it is of several."""
    number = np.searchsorted(maps.offset, bins, side="right") - 1
    depth, owner = maps.lineage.depth[number], maps.lineage.owner[number]
    deepest = deepest_level(maps.grouping, maps.max_depth)
    if maps.grouping is None or deepest == 0:
        return (None,) * len(bins)
    return tuple(maps.grouping.decode(np.where(depth == deepest, owner, -1)))


@dataclass(frozen=True)
class Promise:
    """What the fit's bins promise: by the theorem before a row was seen, and by their certificates after.

    certified : half of the test rows are in bins that are certified to be off by this much at most.
    """

    points_per_bin: int
    rows: int
    alpha: float
    levels: int
    epsilon: float
    certified: float
    largest: float
    kind: str


def promise_of(gathered: Gathered, maps: BinMaps) -> Promise:
    """Return what the bins that answered these rows promise."""
    chosen = gathered.model.calibrator_.get_params()
    # The rows of the root's bins, and the edge rows between them that Algorithm UMD keeps out of them.
    root = int(maps.offset[1])
    rows = max(int(maps.rows[:root].sum()) + (root - 1 if maps.is_jittered else 0), 2)
    levels, alpha = len(np.unique(maps.lineage.depth)), float(maps.certificate.alpha)
    # The bins of groups, where there are groups: the root's hold the same rows once more.
    first = int(maps.offset[1]) if len(maps.offset) > 2 else 0
    bounds, behind = maps.error_bounds()[first:], maps.rows[first:]
    n_bins = chosen.get("n_bins")
    # Bins that follow curves were asked for no number of points; half of the rows are in bins of the middle one.
    points = rows // n_bins if n_bins else int(chosen.get("points_per_bin", _middle(behind, behind)))
    points = min(max(points, 2), rows)
    return Promise(
        points_per_bin=points,
        rows=rows,
        alpha=alpha,
        levels=levels,
        epsilon=epsilon(points, rows, alpha, levels=levels),
        certified=float(np.median(maps.error_bounds()[gathered.column("bins")])),
        # Of bins without rows nothing is known, and nobody has asked.
        largest=float(bounds[behind > 0].max(initial=0.0)),
        kind=maps.certificate.kind,
    )


def _middle(values: Any, rows: Any) -> float:
    """Return the median of a value of bins over their rows."""
    order = np.argsort(values)
    through = np.cumsum(rows[order])
    return float(values[order][np.searchsorted(through, through[-1] / 2)])


def realised_of(gathered: Gathered, maps: BinMaps) -> Realised | None:
    """Return what these rows say of the intervals; None if they are not the rows to ask."""
    if why_not_judged(gathered):
        return None
    return realised_errors(maps, *(gathered.column(name) for name in ("bins", "levels", "correct", "ids")))


def why_not_judged(gathered: Gathered) -> str:
    """Return why a promise cannot be held against these rows; nothing if it can."""
    if gathered.is_familiar:
        return "the model was fitted on some of these questions, and the guarantee is about others. Use held-out rows."
    if not gathered.has_ids:
        return (
            "the guarantee is about rows other than those of the fit, and these may be the same. To tell, both need an "
            "id or a question."
        )
    if gathered.is_part:
        return (
            "these are only part of the rows, and the guarantee is about all of them together. Use one report for all."
        )
    if gathered.is_uneven:
        return (
            "some questions have more rows here than others. The guarantee is about the average over rows, but only "
            "questions can be tested, since rows of one question are dependent; the two averages differ. Use the same "
            "number of rows for every question."
        )
    return ""
