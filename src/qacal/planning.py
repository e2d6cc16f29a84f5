r"""Planning before any row is seen: how many rows and points per bin a guarantee needs.

The paper's theorem: with probability :math:`1 - \alpha` over the calibration rows,
every bin of every group has an error of at most :math:`\epsilon`, for distinct scores (``ties="jitter"``).

The paper derives its search from it. It fixes an error :math:`\epsilon` and searches the points per bin :math:`b` that
guarantee :math:`\epsilon` for label errors :math:`\nu` between 0 and 0.05, with numbers of groups that leave 3 to 10
bins in each group. This needs thousands of rows. With fewer rows, we search all :math:`b` from 10 up, and a note says
what the rows can guarantee.

The default model has bands and groups instead (:class:`~qacal.calibrators.MarginBinning`); :func:`plan_margins` says
how many, and how wide their intervals will be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

from qacal.errors import InputError, NotEnoughRowsError
from qacal.guarantee import binomial_interval, bounded_interval, check_alpha
from qacal.parameters import is_number, is_whole, shown
from qacal.tally.arrays import ArrayLike, Floats, require_length, unit_values
from qacal.tally.bins import mass_bins
from qacal.tally.groups import Paths
from qacal.tally.tally import Tally

BINS_A_GROUP = (3, 10)
"""The paper's range: fewer bins follow the confidence too little, more have too few rows."""

SMALLEST = 10
"""Fewer points per bin guarantee nothing useful."""

MOST_BANDS = 40

# The default widths of bands and groups. They fall with the number of certifying rows, so that more labels give
# narrower intervals, and not only more cells.
_BAND_WIDTH, _BAND_ROWS, _BAND_POWER, _WIDEST_BAND = 0.05, 2_800, 1 / 4, 0.055
_GROUP_WIDTH, _GROUP_ROWS, _GROUP_POWER = 0.155, 700, 1 / 3
# Of a band's certifying rows, this share trained no score. The mean answer is estimated on them: answers differ from
# the first score by this standard deviation, and one more row is far away.
_HELD, _SPREAD, _FARTHEST = 1 / 7, 0.1, 0.5


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


# Bands and groups of the default model.


def widths(rows: float, within: float | None = None) -> tuple[float, float]:
    """Return the wanted widths of bands and of groups, if `rows` rows certify.

    >>> [round(width, 3) for width in widths(700)], [round(width, 3) for width in widths(14_000)]
    ([0.055, 0.155], [0.033, 0.057])
    """
    if within is not None:
        return within, within
    rows = max(rows, 1.0)
    return (
        min(_WIDEST_BAND, _BAND_WIDTH * (_BAND_ROWS / rows) ** _BAND_POWER),
        min(_GROUP_WIDTH, _GROUP_WIDTH * (_GROUP_ROWS / rows) ** _GROUP_POWER),
    )


def expected_widths(rows: Floats, accuracy: Floats, alpha: float, *, is_band: bool, is_fitted: bool = False) -> Floats:
    """Return how wide the intervals of cells will be, if all of them hold at once with probability 1 - `alpha`.

    Of a group, it is half the width of the interval. Of a band, it is the distance from the accuracy to the farther
    end, and the error of the mean answer is part of it.

    rows, accuracy : of each cell.
    is_fitted : the same labels fitted the answers, and their mean is known.
    """
    from scipy import special

    tail = alpha / (2 * len(rows))
    low, high = binomial_interval(rows * accuracy, rows, tail)
    if not is_band:
        return np.asarray((high - low) / 2)
    distance = np.maximum(accuracy - low, high - accuracy)
    if is_fitted:
        return distance
    held = np.maximum(_HELD * rows, 1.0)
    error = -special.stdtrit(held, tail) * np.sqrt(_SPREAD**2 * held + _FARTHEST**2) / held
    return np.minimum(np.hypot(distance, error), 1.0)


@dataclass(frozen=True)
class MarginPlan:
    """The bands and groups of a :class:`~qacal.calibrators.MarginBinning`, and how wide their intervals will be.

    rows : the number of certifying rows.
    band_width : how far off the answers of a band are on average, at most.
    group_width : half the width of the interval for the accuracy of a group; None without groups.
    """

    rows: int
    bands: int
    band_width: float
    groups: int
    group_width: float | None


def plan_margins(
    rows: int,
    *,
    within: float | None = None,
    groups: int | None = None,
    most_groups: int = 16,
    accuracy: float = 0.5,
    alpha: float = 0.1,
) -> MarginPlan:
    """Return how many bands and groups the default model has with `rows` certifying rows, 70% of its labelled rows.

    It assumes that all cells are equally large and have the same accuracy.

    within : the width that intervals should have; by default it falls with the number of rows. If even one band is
        wider, there is one band.
    groups : their number, 0 for none; by default the largest power of two, up to `most_groups`, that allows the width.
    accuracy : intervals are widest for 0.5.

    Examples
    --------
    >>> plan = plan_margins(3500)
    >>> plan.bands, round(plan.band_width, 3), plan.groups, round(plan.group_width, 3)
    (3, 0.041, 8, 0.066)
    >>> plan = plan_margins(3500, within=0.1)
    >>> plan.bands, plan.groups
    (11, 8)
    """
    _check_margins(within, groups, accuracy, alpha)
    if not is_whole(rows, 1):
        raise InputError(f"rows is {shown(rows)}; expected a whole number of 1 or more certifying rows.")
    for_bands, for_groups = widths(rows, within)
    if groups is None:
        trials = [2**depth for depth in range(1, most_groups.bit_length())]
        reached = [count for count in trials if _width(rows, count, accuracy, alpha / 2, is_band=False) <= for_groups]
        groups = max(reached, default=0)
    part = alpha / 2 if groups else alpha
    bands = [k for k in range(1, MOST_BANDS + 1) if _width(rows, k, accuracy, part, is_band=True) <= for_bands]
    most = max(bands, default=1)
    return MarginPlan(
        rows=rows,
        bands=most,
        band_width=_width(rows, most, accuracy, part, is_band=True),
        groups=groups,
        group_width=_width(rows, groups, accuracy, part, is_band=False) if groups else None,
    )


def rows_for_margins(
    within: float,
    *,
    bands: int = 1,
    groups: int = 0,
    accuracy: float = 0.5,
    alpha: float = 0.1,
    is_fitted: bool = False,
) -> int:
    """Return how many rows must certify until so many bands and groups have intervals of the width `within`.

    Of all labelled rows, 70% certify; all of them if the same labels fit the answers (`is_fitted`), as for groups that
    are columns. The other arguments are those of :func:`plan_margins`.

    >>> rows_for_margins(0.1), rows_for_margins(0.1, groups=8)
    (125, 1540)
    """
    _check_margins(within, groups, accuracy, alpha)
    if not is_whole(bands, 1):
        raise InputError(f"bands is {shown(bands)}; expected a whole number of 1 or more.")
    part = alpha / 2 if groups else alpha
    cells = [(bands, True)] + ([(groups, False)] if groups else [])

    def is_reached(rows: int) -> bool:
        return all(
            _width(rows, count, accuracy, part, is_band=is_band, is_fitted=is_fitted) <= within
            for count, is_band in cells
        )

    enough = 1
    while not is_reached(enough):
        enough *= 2
    return 1 + bisect_left(range(1, enough), True, key=is_reached)


def _width(rows: float, cells: int, accuracy: float, alpha: float, *, is_band: bool, is_fitted: bool = False) -> float:
    """Return the expected width of equally large cells."""
    n = max(rows / cells, 1.0)
    equal = np.full(cells, n), np.full(cells, accuracy)
    return float(expected_widths(*equal, alpha, is_band=is_band, is_fitted=is_fitted)[0])


def _check_margins(within: float | None, groups: int | None, accuracy: float, alpha: float) -> None:
    check_alpha(alpha)
    if within is not None and not (is_number(within, 0, 1) and 0 < within < 1):
        raise InputError(f"within is {shown(within)}; expected a distance between 0 and 1, such as 0.1.")
    if groups is not None and not is_whole(groups, 0):
        raise InputError(f"groups is {shown(groups)}; expected a whole number of 0 or more.")
    if not is_number(accuracy, 0, 1):
        raise InputError(f"accuracy is {shown(accuracy)}; expected 0 to 1, and 0.5 for the widest intervals.")


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


def rounded_up(number: float) -> int:
    """Return an estimate, rounded up to two digits.

    >>> rounded_up(8203.6), rounded_up(57.2)
    (8300, 58)
    """
    unit = int(10 ** max(0, floor(log10(number)) - 1))
    return ceil(number / unit) * unit


def shown_bound(bound: float) -> str:
    """Return a bound with two decimals, rounded up: less is not guaranteed.

    >>> shown_bound(0.0415), shown_bound(0.04)
    ('0.05', '0.04')
    """
    return f"{ceil(100 * bound - 1e-6) / 100:.2f}"


def rows_for_one_bin(epsilon: float, alpha: float) -> int:
    """Return the fewest calibration rows that guarantee `epsilon`, in one bin of all rows; see :func:`epsilon`.

    >>> rows_for_one_bin(0.1, alpha=0.1)
    151
    """
    return ceil(float(np.log(2 / alpha)) / (2 * epsilon**2)) + 1
