r"""Was the promise kept? Each interval of a fit, held against rows that the fit has not seen.

*The promise*: with probability :math:`1 - \alpha` over the calibration rows, for every bin :math:`k` at once,
:math:`\theta_k = \mathrm{E}[Y \mid \text{bin}, \text{group}]` lies in :math:`[l_k, u_k]`. For the fit at hand it was
kept or it was not; one fit that breaks it does not belie the :math:`1 - \alpha`.

*The test* is that of :mod:`qacal.report.chance`. Bins and groups were fixed before any test row was seen. Given in
which bin and group of a level the test rows are, and nothing else, the labels of a bin are independent draws of
:math:`\theta_k`; the :math:`D` levels of maps have :math:`\gamma / D` each. So if the promise was kept, some interval
is contradicted with probability :math:`\gamma = 0.05` at most, and by a fit as it comes with :math:`\alpha + \gamma` at
most. Simulated, it was 1.3% with every truth at an end of its interval, the worst that a kept promise allows, and none
of 8,000 fits as they come (``tests/theory/test_kept_promises.py``).

*Who is counted.* The interval of a map speaks of all rows below its node, so all of these are its evidence, also those
that a map further down answers. Of every question one row is kept, since rows must be independent; so every question
must have as many, or the share of right answers over questions is not the one over rows that was promised
(:func:`qacal.report.promise.why_not_judged`).

For a promise about the calibration rows alone (:attr:`qacal.guarantee.Certificate.is_about_all` is False) there is one
assumption more: that within a bin the confidences of new rows are spread as those of the calibration rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.ancestry import deepest_level
from qacal.calibrators.bin_maps import BinMaps
from qacal.report.chance import GAMMA, Judged, judged
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.ids import one_of_each


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
