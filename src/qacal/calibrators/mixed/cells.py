"""The cells of many groups, in the form that is quickest to work on.

Two things are asked of them: the value of a polynomial of the feature in every cell, with coefficients of its group,
and back from the cells the moments of a column in every group. What belongs to groups has a row per power and a column
per group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from qacal.tally.arrays import Floats, Ints

# Above this many cells it pays to look at some of them before all are sorted.
_MANY = 4096


@dataclass(frozen=True, eq=False)
class Runs:
    """Cells in runs, one run a group, each cell with a feature of its own.

    is_free : 1 for groups; 0 for the run without one, whose effects are zero.
    """

    z: Floats
    w: Floats
    wt: Floats
    starts: Ints
    lengths: Ints
    is_free: Floats

    def polynomial(self, coefficients: Floats) -> Floats:
        """Return the sum over k of coefficients[k] z^k, per cell."""
        value = np.repeat(coefficients[-1], self.lengths)
        for row in coefficients[-2::-1]:
            value *= self.z
            value += np.repeat(row, self.lengths)
        return value

    def moments(self, column: Floats, degree: int) -> Floats:
        """Return the sums of column z^k over each group's cells, for k up to `degree`."""
        rows = [np.add.reduceat(column, self.starts)]
        for _ in range(degree):
            column = column * self.z
            rows.append(np.add.reduceat(column, self.starts))
        return np.stack(rows)

    def pooled(self) -> tuple[Floats, Floats, Floats]:
        """Return z, w and wt of cells that know no groups."""
        return self.z, self.w, self.wt

    def coarse(self, values: int) -> Runs:
        """Merge neighbouring cells of a group, so that few are left; the sums stay, z becomes their average."""
        place = np.arange(len(self.z)) - np.repeat(self.starts, self.lengths)
        slot = place // np.repeat(np.maximum(self.lengths // values, 1), self.lengths)
        new = np.concatenate([[True], slot[1:] != slot[:-1]])
        new[self.starts] = True
        starts = np.flatnonzero(new)
        w = np.add.reduceat(self.w, starts)
        z = np.add.reduceat(self.w * self.z, starts) / w
        runs = np.searchsorted(starts, self.starts)
        return Runs(z, w, np.add.reduceat(self.wt, starts), runs, np.diff(runs, append=len(starts)), self.is_free)


@dataclass(frozen=True, eq=False)
class Table:
    """Cells of groups that share their values of the feature: a row per value, a column per group.

    Whatever is asked of them is then one product of matrices. Combinations that no row has are cells of weight zero.

    powers : 1, z, z² and z³ of each value.
    """

    powers: Floats
    w: Floats
    wt: Floats
    is_free: Floats

    def polynomial(self, coefficients: Floats) -> Floats:
        """Return the sum over k of coefficients[k] z^k, per cell."""
        return self.powers[: len(coefficients)].T @ coefficients

    def moments(self, column: Floats, degree: int) -> Floats:
        """Return the sums of column z^k over each group's cells, for k up to `degree`."""
        return self.powers[: degree + 1] @ column

    def pooled(self) -> tuple[Floats, Floats, Floats]:
        """Return z, w and wt of cells that know no groups."""
        return self.powers[1], self.w.sum(1), self.wt.sum(1)


GroupCells: TypeAlias = Runs | Table


def as_table(runs: Runs) -> Table | None:
    """Return the same cells as a table, unless most of it would be empty.

    >>> few = Runs(np.array([0., 1., 0., 1.]), np.ones(4), np.ones(4), np.array([0, 2]), np.array([2, 2]), np.ones(2))
    >>> as_table(few).w.shape
    (2, 2)
    """
    most = 2 * len(runs.z) // len(runs.starts)
    # All different values need not be sorted to see that they are too many.
    if len(runs.z) > _MANY and len(np.unique(runs.z[: 2 * most])) > most:
        return None
    values = np.unique(runs.z)
    if len(values) > most:
        return None
    shape = len(values), len(runs.starts)
    place = np.searchsorted(values, runs.z) * shape[1] + np.repeat(np.arange(shape[1]), runs.lengths)
    # A value that a group has twice (rows, not cells) is added up.
    w = np.bincount(place, weights=runs.w, minlength=shape[0] * shape[1]).astype(np.float64, copy=False)
    wt = np.bincount(place, weights=runs.wt, minlength=shape[0] * shape[1]).astype(np.float64, copy=False)
    powers = np.array([np.ones_like(values), values, values**2, values**3])
    return Table(powers, w.reshape(shape), wt.reshape(shape), runs.is_free)
