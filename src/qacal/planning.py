r"""What to search: how many points per bin, in how many groups.

The paper sets the range of :math:`b` by what it promises. It fixes an error :math:`\epsilon`, lets the labels be off by
:math:`\nu` between 0 and 0.05, and takes the :math:`b` that guarantees :math:`\epsilon` at either end (root finding);
then it looks only at numbers of groups that leave each group 3 to 10 bins. That takes thousands of rows. With fewer
there is nothing left to search: the note says what the rows can promise, and :math:`b` starts at 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qacal.errors import InputError, UnreachableError
from qacal.guarantee import epsilon as epsilon_of
from qacal.guarantee import points_per_bin as points_for

BINS_A_GROUP = (3, 10)
"""The paper's: with fewer bins a group loses the confidence, with more than that the rows of a bin."""

SMALLEST = 10
"""Points per bin below this promise nothing that is worth printing."""

_STEPS = 12


@dataclass(frozen=True)
class Ranges:
    """Points per bin to try, and which of them go with a number of groups.

    points_per_bin : from large to small, so that of two that score the same the one that promises more is taken.
    bins_a_group : a group of average size must have so many bins; None if any number will do.
    note : how the range came about, for a person.
    """

    points_per_bin: tuple[int, ...]
    bins_a_group: tuple[int, int] | None
    note: str

    def admits(self, rows: int, groups: int, points_per_bin: int) -> bool:
        """Return whether groups of average size have the number of bins that is asked for."""
        if self.bins_a_group is None:
            return True
        fewest, most = self.bins_a_group
        return fewest <= rows / (groups * points_per_bin) < most + 1


def paper_ranges(rows: int, *, epsilon: float = 0.1, alpha: float = 0.1, nu: float = 0.05) -> Ranges:
    """Return the paper's range for so many calibration rows: b guarantees `epsilon` with labels off by 0 to `nu`.

    >>> paper_ranges(8400).points_per_bin
    (1022, 918, 825, 741, 666, 599, 538, 483, 434, 390, 351, 315)
    """
    smallest = points_for(epsilon, rows, alpha)
    try:
        largest = points_for(epsilon, rows, alpha, nu)
    except UnreachableError:
        largest = rows // BINS_A_GROUP[0]
    largest = max(smallest, largest)
    note = f"points per bin from {smallest} to {largest}, which promise an error of {epsilon:g} with {rows:,} rows"
    return Ranges(_steps(smallest, largest), BINS_A_GROUP, note)


def wide_ranges(rows: int, *, alpha: float = 0.1) -> Ranges:
    """Return the range from 10 points per bin up to a third of the rows, whatever it promises."""
    largest = max(SMALLEST, rows // BINS_A_GROUP[0])
    bins = _steps(min(SMALLEST, largest), largest)
    note = f"points per bin from {bins[-1]} to {bins[0]}"
    return Ranges(bins, None, f"{note}; {_reach(rows, alpha)}")


def search_ranges(rows: int, groups: Sequence[int], *, epsilon: float = 0.1, alpha: float = 0.1) -> Ranges:
    """Return the paper's range where it leaves two numbers of groups or more to choose from, else the wide one.

    groups : the numbers of groups that could be used.

    >>> search_ranges(8400, [1, 2, 4, 8]).bins_a_group
    (3, 10)
    >>> print(search_ranges(1700, [1, 2, 4, 8]).note)
    points per bin from 10 to 566; three bins in each of two groups promise an error of 0.092 with 1,700 rows
    """
    if rows < 2:
        raise InputError(f"{rows} rows are left to calibrate on; a search needs more.")
    try:
        strict = paper_ranges(rows, epsilon=epsilon, alpha=alpha)
    except UnreachableError:
        return wide_ranges(rows, alpha=alpha)
    left = {count for count in groups if count > 1 for b in strict.points_per_bin if strict.admits(rows, count, b)}
    return strict if len(left) > 1 else wide_ranges(rows, alpha=alpha)


def _reach(rows: int, alpha: float) -> str:
    """Say what the smallest choice worth its name, three bins in each of two groups, promises with so many rows."""
    b = rows // (2 * BINS_A_GROUP[0])
    if b < 2:
        return f"{rows:,} rows promise nothing"
    reach = min(epsilon_of(b, rows, alpha), 1.0)
    return f"three bins in each of two groups promise an error of {reach:.3f} with {rows:,} rows"


def _steps(smallest: int, largest: int) -> tuple[int, ...]:
    steps = np.unique(np.round(np.geomspace(smallest, largest, _STEPS)).astype(int))
    return tuple(steps[::-1].tolist())
