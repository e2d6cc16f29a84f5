r"""Planning before any row is seen: how many rows and points per bin a guarantee needs.

The paper's theorem: with probability :math:`1 - \alpha` over the calibration rows,
every bin of every group has an error of at most :math:`\epsilon`, for distinct scores (``ties="jitter"``).

The paper derives its search from it. It fixes an error :math:`\epsilon` and searches the points per bin :math:`b` that
guarantee :math:`\epsilon` for label errors :math:`\nu` between 0 and 0.05, with numbers of groups that leave 3 to 10
bins in each group. This needs thousands of rows. With fewer rows, we search all :math:`b` from 10 up, and a note says
what the rows can guarantee.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from qacal.errors import InputError, NotEnoughRowsError
from qacal.guarantee import bounded_interval, check_alpha
from qacal.parameters import is_number, is_whole, shown
from qacal.tally.arrays import ArrayLike, require_length, unit_values
from qacal.tally.bins import mass_bins
from qacal.tally.groups import Paths
from qacal.tally.tally import Tally

BINS_A_GROUP = (3, 10)
"""The paper's range: fewer bins follow the confidence too little, more have too few rows."""

SMALLEST = 10
"""Fewer points per bin guarantee nothing useful."""


# Planning: epsilon for points per bin, and back.


def epsilon(points_per_bin: int, n: int, alpha: float, nu: float = 0.0, *, levels: int = 1) -> float:
    r"""Return the error that :math:`b` points per bin guarantee for `n` calibration rows.

    .. math:: \epsilon = \sqrt{\frac{\log(2 L n / (b \alpha))}{2 (b - 1)}} + \nu

    :math:`n/b` bounds the number of bins of one level, and :math:`L` is the number of levels of maps that may answer: 1
    if every group has its own map, 2 with the root's map, depth + 1 if groups may use any ancestor. For scaling methods
    `n` is the half of the rows that is binned. For one pooled map of :math:`B` bins, :math:`b = n/B`.

    nu : :math:`\nu`, the largest error of proxy labels *in every group and bin*. An average over groups is not enough:
        a pooled scaler can be right on average and wrong in every group. See :func:`nu_bound`.

    Examples
    --------
    >>> round(epsilon(226, n=1000, alpha=0.1), 4)
    0.0998
    """
    _check_planning(n, alpha, nu, levels)
    if not is_whole(points_per_bin, 2, n):
        raise InputError(f"points_per_bin is {shown(points_per_bin)}; expected a whole number from 2 to n={n}.")
    return _error(points_per_bin, n, alpha, nu, levels)


def _error(b: int, n: int, alpha: float, nu: float, levels: int) -> float:
    return float(np.sqrt(np.log(2 * (levels * n / b) / alpha) / (2 * (b - 1))) + nu)


def points_per_bin(epsilon: float, n: int, alpha: float, nu: float = 0.0, *, levels: int = 1) -> int:
    r"""Return the smallest number of points per bin that guarantees `epsilon`; see :func:`qacal.planning.epsilon`.

    With too few rows for `epsilon`, the error message says what they can guarantee.

    Examples
    --------
    >>> [points_per_bin(0.1, n=n, alpha=0.1) for n in (1000, 5000, 20000)]
    [226, 293, 353]
    """
    _check_planning(n, alpha, nu, levels)
    if not is_number(epsilon, 0, 1) or epsilon in (0, 1):
        raise InputError(f"epsilon is {shown(epsilon)}; expected a number between 0 and 1, such as 0.1.")
    if nu >= epsilon:
        raise NotEnoughRowsError(
            f"epsilon is {epsilon} and nu is {nu}: with a label error of nu, no error below nu is possible. "
            "Ask for an epsilon above nu, or use better labels."
        )
    # The error falls as b grows: there are fewer bins, with more rows in each.
    b = 2 + bisect_left(range(2, n + 1), True, key=lambda b: _error(b, n, alpha, nu, levels) <= epsilon)
    if b > n:
        raise NotEnoughRowsError(
            f"{n} rows cannot guarantee epsilon={epsilon}: one bin of all of them gives "
            f"{_error(n, n, alpha, nu, levels):.3f}. Ask for a larger epsilon or alpha, or label more rows."
        )
    return b


def _check_planning(n: int, alpha: float, nu: float, levels: int) -> None:
    if not is_whole(n, 2):
        raise InputError(f"n is {shown(n)}; a guarantee needs a whole number of 2 calibration rows or more.")
    if not is_whole(levels, 1):
        raise InputError(f"levels is {shown(levels)}; expected a whole number of 1 or more.")
    check_alpha(alpha)
    if not is_number(nu, 0, 1):
        raise InputError(f"nu is {shown(nu)}; expected 0 to 1.")


# nu: the error of proxy labels.


@dataclass(frozen=True)
class NuBound:
    """The error of proxy labels in the worst bin of the worst group.

    estimate : the largest mean difference of any bin.
    bound : nu is at most this with probability 1 - alpha, for all bins and groups of these rows.
    marginal : the largest mean difference of bins over all groups. It may be 0 although every group has an error; never
        use it as nu.
    rows : number of rows with both a proxy and a true label.
    """

    estimate: float
    bound: float
    marginal: float
    rows: int
    alpha: float


def nu_bound(
    proxy: ArrayLike,
    truth: ArrayLike,
    confidence: ArrayLike,
    *,
    groups: ArrayLike | Paths | None = None,
    points_per_bin: int = 50,
    alpha: float = 0.1,
) -> NuBound:
    r"""Measure nu on rows that have both a proxy label (a judge's, or fitted values) and the truth.

    The theorem needs :math:`|\mathrm{E}[\tilde Y - Y \mid \text{bin}, \text{group}]| \le \nu` for every bin and group.
    The paper asks for it only averaged over groups, and then the theorem is false.

    points_per_bin : of the bins made here from these rows. The bound holds for them and their unions, not for finer
        bins: use few points per bin, or 1 for a bin per stated confidence.

    Examples
    --------
    A pooled scaler that is right on average and 0.1 off in each of two groups:

    >>> truth = np.repeat([1, 0, 1, 0], [700, 300, 500, 500])
    >>> bound = nu_bound(np.full(2000, 0.6), truth, np.full(2000, 0.8), groups=np.repeat([0, 1], 1000))
    >>> round(bound.estimate, 3), round(bound.marginal, 3), round(bound.bound, 3)
    (0.1, 0.0, 0.185)
    """
    check_alpha(alpha)
    h = unit_values(confidence, "confidence")
    judged, true = unit_values(proxy, "proxy"), unit_values(truth, "truth")
    require_length(judged, len(h), "proxy")
    require_length(true, len(h), "truth")
    # Map the differences from [-1, 1] to [0, 1], where they are soft targets.
    tally = Tally.of(h, (judged - true + 1) / 2, groups=groups)
    by_group = tally.flat() if groups is not None else tally
    bins = mass_bins(by_group, points_per_bin)
    low, high = bounded_interval(bins.mean, bins.rows, alpha / (2 * len(bins.rows)))
    pooled = mass_bins(tally.pooled(), points_per_bin)
    return NuBound(
        estimate=float(np.abs(2 * bins.mean - 1).max()),
        bound=float(np.maximum(np.abs(2 * low - 1), np.abs(2 * high - 1)).max()),
        marginal=float(np.abs(2 * pooled.mean - 1).max()),
        rows=tally.n,
        alpha=alpha,
    )


# What to search: points per bin, in how many groups.


@dataclass(frozen=True)
class Ranges:
    """Points per bin to try, and which of them go with a number of groups.

    points_per_bin : in falling order, so that the better guarantee wins among equal scores.
    bins_a_group : allowed range of bins in a group of average size; None if any number is allowed.
    note : explains the range.
    """

    points_per_bin: tuple[int, ...]
    bins_a_group: tuple[int, int] | None
    note: str

    def admits(self, rows: int, groups: int, points_per_bin: int) -> bool:
        """Return whether groups of average size have an allowed number of bins."""
        if self.bins_a_group is None:
            return True
        fewest, most = self.bins_a_group
        return fewest <= rows / (groups * points_per_bin) < most + 1


def paper_ranges(rows: int, *, epsilon: float = 0.1, alpha: float = 0.1, nu: float = 0.05) -> Ranges:
    """Return the paper's range for this many calibration rows: b guarantees `epsilon` with label errors of 0 to `nu`.

    >>> paper_ranges(8400).points_per_bin
    (1022, 918, 825, 741, 666, 599, 538, 483, 434, 390, 351, 315)
    """
    smallest = points_per_bin(epsilon, rows, alpha)
    try:
        largest = points_per_bin(epsilon, rows, alpha, nu)
    except NotEnoughRowsError:
        largest = rows // BINS_A_GROUP[0]
    largest = max(smallest, largest)
    note = f"points per bin from {smallest} to {largest}, which guarantee an error of {epsilon:g} with {rows:,} rows"
    return Ranges(_steps(smallest, largest), BINS_A_GROUP, note)


def wide_ranges(rows: int, *, alpha: float = 0.1) -> Ranges:
    """Return the range from 10 points per bin to a third of the rows, whatever it guarantees."""
    largest = max(SMALLEST, rows // BINS_A_GROUP[0])
    # The smallest useful choice: three bins in each of two groups.
    b = rows // (2 * BINS_A_GROUP[0])
    reach = f"{rows:,} rows guarantee nothing"
    if b >= 2:
        error = min(epsilon(b, rows, alpha), 1.0)
        reach = f"three bins in each of two groups guarantee an error of {error:.3f} with {rows:,} rows"
    return Ranges(_steps(SMALLEST, largest), None, f"points per bin from {SMALLEST} to {largest}; {reach}")


def search_ranges(rows: int, groups: Sequence[int], *, epsilon: float = 0.1, alpha: float = 0.1) -> Ranges:
    """Return the paper's range if it allows at least two numbers of groups, else the wide one.

    groups : the numbers of groups that could be used.

    >>> search_ranges(8400, [1, 2, 4, 8]).bins_a_group
    (3, 10)
    >>> print(search_ranges(1700, [1, 2, 4, 8]).note)
    points per bin from 10 to 566; three bins in each of two groups guarantee an error of 0.092 with 1,700 rows
    """
    if rows < 2:
        raise InputError(f"{rows} rows are left to calibrate on; a search needs more.")
    try:
        strict = paper_ranges(rows, epsilon=epsilon, alpha=alpha)
    except NotEnoughRowsError:
        return wide_ranges(rows, alpha=alpha)
    left = {count for count in groups if count > 1 for b in strict.points_per_bin if strict.admits(rows, count, b)}
    return strict if len(left) > 1 else wide_ranges(rows, alpha=alpha)


def _steps(smallest: int, largest: int) -> tuple[int, ...]:
    steps = np.unique(np.round(np.geomspace(smallest, largest, 12)).astype(int))
    return tuple(steps[::-1].tolist())


def rows_for_one_bin(epsilon: float, alpha: float) -> int:
    """Return the fewest calibration rows that guarantee `epsilon`, in one bin of all rows; see :func:`epsilon`.

    >>> rows_for_one_bin(0.1, alpha=0.1)
    151
    """
    return ceil(float(np.log(2 / alpha)) / (2 * epsilon**2)) + 1
