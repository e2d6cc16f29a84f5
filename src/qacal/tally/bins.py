r"""Uniform-mass bins: runs of neighbouring confidences that hold at least :math:`b` rows each.

Going up through the confidences of a group, a bin closes at the first value at which it holds :math:`b` rows; a rest
that is too short joins the last bin. Equal confidences always share a bin. Labels are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import Floats, Ints
from qacal.tally.tally import Tally

# Rows are searched in portions that stay in the processor's cache.
_PORTION = 2**14


@dataclass(frozen=True)
class Bins:
    """Bins of a tally, group after group, each a run of its cells.

    start, stop : the cells ``start`` to ``stop - 1`` are the bin's. Between two bins of one group there may be a cell
        that belongs to neither (an edge row of Algorithm UMD).
    group : the code of the bin's group.
    """

    tally: Tally
    start: Ints
    stop: Ints
    group: Ints

    def __len__(self) -> int:
        return len(self.start)

    def sum(self, cells: Floats | Ints) -> Floats:
        """Add up a column of the tally (or any value per cell) over each bin."""
        if np.array_equal(self.start[1:], self.stop[:-1]) and self.stop[-1] == len(cells):
            return np.add.reduceat(cells, self.start).astype(np.float64)
        # Each bin by itself: differences of running sums would lose small weights next to large ones. Every other sum
        # is over the cells between two bins; the zero at the end lets the last bin end there.
        edges = np.stack([self.start, self.stop], axis=1).ravel()
        return np.add.reduceat(np.append(cells, 0.0), edges)[::2]

    @property
    def rows(self) -> Floats:
        """How many rows are in each bin."""
        return self.sum(self.tally.rows)

    @property
    def mean(self) -> Floats:
        """The accuracy of each bin."""
        return np.clip(self.sum(self.tally.wt) / self.sum(self.tally.w), 0.0, 1.0)

    @property
    def top(self) -> Floats:
        """The highest confidence in each bin."""
        return self.tally.confidence[self.stop - 1]

    @property
    def of_cell(self) -> Ints:
        """The bin that each cell is in; cells between bins count to the bin below."""
        return np.searchsorted(self.start, np.arange(len(self.tally)), side="right") - 1


def _runs(tally: Tally) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in tally.group_runs()), strict=True))


def mass_bins(tally: Tally, points_per_bin: int) -> Bins:
    """Cut every group of a flat tally into bins of at least `points_per_bin` rows.

    A group with fewer rows than that is one bin.

    >>> tally = Tally.of([.5, .6, .6, .7, .8, .9], [0, 0, 1, 0, 1, 1])
    >>> bins = mass_bins(tally, 2)
    >>> bins.top, bins.rows
    (array([0.6, 0.9]), array([3., 3.]))
    """
    check_points_per_bin(points_per_bin)
    through = np.cumsum(tally.rows)
    before = through - tally.rows
    # For each cell, where the next bin starts if one starts there: the loop takes one step a bin.
    following = np.searchsorted(through, before + points_per_bin) + 1
    starts, groups = [], []
    for code, cell, end in _runs(tally):
        rows_to_end = through[end - 1]
        starts.append(cell)
        groups.append(code)
        while (cell := int(following[cell])) < end and rows_to_end - before[cell] >= points_per_bin:
            starts.append(cell)
            groups.append(code)
    start = np.array(starts)
    return Bins(tally, start, np.append(start[1:], len(tally)), np.array(groups))


def equal_bins(tally: Tally, n_bins: int) -> Bins:
    """Cut every group of a flat tally into `n_bins` bins of equal count, or fewer where ties do not allow it.

    Going up, a bin closes at the first value where it holds its share of the rows that are left.

    >>> equal_bins(Tally.of([.1, .2, .3, .4, .5], [0, 0, 1, 0, 1]), 3).rows
    array([2., 2., 1.])
    """
    if not is_whole(n_bins, 1):
        raise InputError(f"n_bins is {shown(n_bins)}; expected a whole number of 1 or more, such as 15.")
    through = np.cumsum(tally.rows)
    starts, groups = [], []
    for code, cell, end in _runs(tally):
        total = int(through[end - 1])
        for left in range(n_bins, 0, -1):
            starts.append(cell)
            groups.append(code)
            before = int(through[cell - 1]) if cell else 0
            cell = int(through.searchsorted(before + -(-(total - before) // left))) + 1
            if cell >= end:
                break
    start = np.array(starts)
    return Bins(tally, start, np.append(start[1:], len(tally)), np.array(groups))


def check_points_per_bin(points_per_bin: int) -> None:
    """Raise unless points per bin are a whole number of 1 or more."""
    if not is_whole(points_per_bin, 1):
        raise InputError(
            f"points_per_bin is {shown(points_per_bin)}; expected a whole number of 1 or more, such as 50."
        )


def rank_bins(tally: Tally, points_per_bin: int | None = None, n_bins: int | None = None) -> Bins:
    r"""Cut every group at the ranks of Algorithm UMD: :math:`\lceil k (n + 1) / B \rceil`, edge rows in no bin.

    For tallies with one row a cell, in the order of (confidence, tie); :math:`B` is `n_bins`, or
    :math:`\lfloor n / b \rfloor`. The rows at the cuts are in no bin, so that the rows of a bin, given its edges, are
    independent draws from it.
    """
    start, stop, group = [], [], []
    for code, cell, end in _runs(tally):
        n = end - cell
        B = n // points_per_bin if n_bins is None and points_per_bin is not None else min(n_bins or 1, n // 2)
        B = max(B, 1)
        # In whole numbers: with a rounded step (n + 1) / B, k=13 of n=53, B=26 would be rank 28, not 27.
        cuts = -(-np.arange(B + 1) * (n + 1) // B)
        start.append(cell + cuts[:-1])
        stop.append(cell + cuts[1:] - 1)
        group.append(np.full(B, code))
    return Bins(tally, np.concatenate(start), np.concatenate(stop), np.concatenate(group))


def search_within(ordered: NDArray[Any], values: NDArray[Any], start: Ints, stop: Ints, side: str = "left") -> Ints:
    """Return where each value belongs in its own stretch ``ordered[start:stop]``: many `numpy.searchsorted` at once.

    >>> search_within(np.array([.2, .8, .5, .6]), np.array([.7, .7]), np.array([0, 2]), np.array([2, 4]))
    array([1, 4])
    """
    out, last = np.empty(len(values), dtype=np.int64), len(ordered) - 1
    for first in range(0, len(values), _PORTION):
        part = slice(first, first + _PORTION)
        value, low, high = values[part], start[part], stop[part]
        # All stretches are halved at once, until the longest is done.
        for _ in range(int((high - low).max()).bit_length()):
            middle = (low + high) >> 1
            at = ordered[np.minimum(middle, last)]
            goes_right = (at < value if side == "left" else at <= value) & (low < high)
            low = np.where(goes_right, middle + 1, low)
            high = np.where(goes_right, high, middle)
        out[part] = low
    return out
