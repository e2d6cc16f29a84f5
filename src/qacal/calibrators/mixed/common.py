"""What the two models share: the cells of many groups, symmetric matrices of two by two, and the fitted result.

The models compute two things from cells: a polynomial of the feature in every cell, with the coefficients of its group,
and the moments of a column in every group. Arrays of groups have a row per number and a column per group; a symmetric
matrix is its three numbers (11, 12, 22).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from qacal.calibrators.curves import fit_logistic
from qacal.parameters import MODERATE, Axes
from qacal.tally.arrays import Floats, Ints

# Above this many cells it pays to look at some of them before all are sorted; and a first fit on this many values of x
# per group comes close, so that the full cells only polish it.
_MANY = 4096
_COARSE_VALUES = 16


@dataclass(frozen=True)
class MixedFit:
    r"""A fitted model, on the scale of the feature as given.

    fixed : :math:`\beta = (B_0, B_1)`.
    covariance : :math:`\Sigma` of the effects; in a tree, of the difference between a node and its parent.
    effects : (U, V) per group, one row each; in a tree per node, those of its ancestors included.
    negative_log_likelihood : Laplace's approximation, without binomial coefficients.
    is_singular : the covariance has rank one or zero: the groups do not need both effects.
    """

    fixed: Annotated[Floats, Axes(2), MODERATE]
    covariance: Annotated[Floats, Axes(2, 2), MODERATE]
    effects: Annotated[Floats, Axes("groups", 2), MODERATE]
    negative_log_likelihood: Annotated[float, MODERATE]
    is_singular: bool

    @staticmethod
    def without_effects(x: Floats, w: Floats, wt: Floats, groups: int) -> MixedFit:
        """Return one curve for all groups."""
        fixed = np.array(fit_logistic(x, w, wt))
        return MixedFit(fixed, np.zeros((2, 2)), np.zeros((groups, 2)), pooled_loss(fixed, x, w, wt), True)

    def curves(self) -> tuple[Floats, Floats]:
        """Return the intercept and the slope of each group."""
        return self.fixed[0] + self.effects[:, 0], self.fixed[1] + self.effects[:, 1]


def pooled_loss(fixed: Floats, x: Floats, w: Floats, wt: Floats) -> float:
    """Return the negative log likelihood of one curve for all cells."""
    eta = fixed[0] + fixed[1] * x
    return float(w @ np.logaddexp(0, eta) - wt @ eta)


@dataclass(frozen=True, eq=False)
class Runs:
    """Cells in runs, one run a group, each cell with a feature of its own.

    is_free : 1 for groups; 0 for the run of rows without a group, which has no effects.
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
        """Return z, w and wt of cells without groups."""
        return self.z, self.w, self.wt

    def coarse(self) -> Runs:
        """Merge neighbouring cells of a group, so that few are left; the sums stay, z becomes their average."""
        place = np.arange(len(self.z)) - np.repeat(self.starts, self.lengths)
        slot = place // np.repeat(np.maximum(self.lengths // _COARSE_VALUES, 1), self.lengths)
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

    Polynomials and moments are then products of matrices. Combinations without rows are cells of weight zero.

    powers : 1, z, z² and z³ of each value.
    """

    powers: Floats
    w: Floats
    wt: Floats
    is_free: Floats

    def polynomial(self, coefficients: Floats) -> Floats:
        return self.powers[: len(coefficients)].T @ coefficients

    def moments(self, column: Floats, degree: int) -> Floats:
        return self.powers[: degree + 1] @ column

    def pooled(self) -> tuple[Floats, Floats, Floats]:
        return self.powers[1], self.w.sum(1), self.wt.sum(1)


GroupCells: TypeAlias = Runs | Table


def quickest(runs: Runs) -> tuple[GroupCells, GroupCells]:
    """Return the cells in their quickest form, and fewer cells for a first fit if there are many."""
    table = as_table(runs)
    if table is not None:
        return table, table
    is_many = len(runs.z) > max(_MANY, 2 * _COARSE_VALUES * len(runs.starts))
    return runs, runs.coarse() if is_many else runs


def as_table(runs: Runs) -> Table | None:
    """Return the same cells as a table, unless most of it would be empty.

    >>> few = Runs(np.array([0., 1., 0., 1.]), np.ones(4), np.ones(4), np.array([0, 2]), np.array([2, 2]), np.ones(2))
    >>> as_table(few).w.shape
    (2, 2)
    """
    most = 2 * len(runs.z) // len(runs.starts)
    # If all values differ, some of them show that there are too many; sorting all is not needed.
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


def matrix(three: Floats) -> Floats:
    """Return a symmetric matrix from its three numbers."""
    return np.asarray(three[[0, 1, 1, 2]].reshape(2, 2))


def determinant(three: Floats) -> Floats:
    """Return the determinants of symmetric matrices."""
    return np.asarray(three[0] * three[2] - three[1] * three[1])


def times(A: Floats, x: Floats) -> Floats:
    """Return A x for symmetric matrices."""
    return np.asarray(A[:2] * x[0] + A[1:] * x[1])
