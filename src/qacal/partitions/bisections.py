r"""A tree of hyperplanes, fitted: which side of each does a vector lie on.

At a node with direction :math:`w` and offset :math:`c`, a vector :math:`z` goes right if :math:`z \cdot w > c`. Walking
down from node to node would read a direction for every row and level. Two things make it faster, and neither changes a
group: a few levels are done at once (see :mod:`~qacal.partitions.stages`), and products are taken in float32 first,
then again in float64 for the rows that came so near to a plane that rounding might have decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qacal.grouping import Paths
from qacal.partitions.stages import Scratch, Stages
from qacal.partitions.vectors import LARGEST, require_finite
from qacal.values import Bools, Floats, Ints

ROWS_AT_ONCE = 8192
"""Enough for a subtree to have rows of its own, few enough for the cache."""

NARROW_ROUNDING = 2.0**-24
"""What float32 rounds by, as a share of a number."""

NARROW_RANGE = (1e-30, 1e30)
"""Numbers within this range can be multiplied in float32 without falling out of its own."""


@dataclass(frozen=True, eq=False)
class Bisections:
    """A fitted tree of hyperplanes.

    directions, offsets : of each node, level after level: those of depth d from 2^d - 1 on. Directions have length 1; a
        direction of zeros is a node that does not split: everything goes left.
    sizes : how many fitting rows are in each leaf.
    """

    directions: Floats
    offsets: Floats
    sizes: Ints

    @property
    def depth(self) -> int:
        """The number of levels of splits."""
        return len(self.sizes).bit_length() - 1

    @property
    def width(self) -> int:
        """The number of coordinates of a vector."""
        return int(self.directions.shape[1])

    def paths(self, Z: NDArray[np.floating]) -> Paths:
        """Return where each vector stands. None is ever outside: a hyperplane has two sides, and no bounds."""
        path = np.zeros(len(Z), dtype=np.int64)
        if self.depth > 0:
            is_certain = self._walk_narrow(Z, path)
            self._walk_exact(Z, np.flatnonzero(~is_certain), path)
        return Paths(path, np.full(len(Z), self.depth + 1), self.depth)

    def _walk_narrow(self, Z: NDArray[np.floating], path: Ints) -> Bools:
        """Write the leaves of all rows by float32 into `path`; return which of them are certain."""
        is_certain = np.zeros(len(Z), dtype=bool)
        scratch = Scratch(min(len(Z), ROWS_AT_ONCE), self.width, np.float32)
        for start in range(0, len(Z), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            largest = float(max(Z[rows].max(), -Z[rows].min()))
            if not largest <= LARGEST:  # NaN is neither below nor above
                require_finite(Z[rows].astype(np.float64), start)
            if NARROW_RANGE[0] < max(largest, self._farthest) < NARROW_RANGE[1]:
                path[rows], distance = self._narrow.walk(Z[rows].astype(np.float32, copy=False), scratch)
                is_certain[rows] = distance > self._doubt(largest)
        return is_certain

    def _walk_exact(self, Z: NDArray[np.floating], index: Ints, path: Ints) -> None:
        """Write the leaves of some rows by float64 into `path`."""
        scratch = Scratch(min(len(index), ROWS_AT_ONCE), self.width, np.float64)
        for start in range(0, len(index), ROWS_AT_ONCE):
            rows = index[start : start + ROWS_AT_ONCE]
            path[rows], _ = self._exact.walk(Z[rows].astype(np.float64), scratch)

    def _doubt(self, largest: float) -> float:
        """Return how far a product less its offset can be off in float32, for numbers up to `largest`.

        A sum of n products is off by at most n roundings of the sum of their sizes (Higham, 2002, section 3.1), each
        factor was rounded too, and that sum is at most the length of the vector: sqrt(n) times its largest number.
        """
        length = largest * float(np.sqrt(self.width))
        return 2 * NARROW_ROUNDING * ((self.width + 4) * length + 2 * self._farthest)

    @cached_property
    def _farthest(self) -> float:
        return float(np.abs(self.offsets).max(initial=0.0))

    @cached_property
    def _exact(self) -> Stages[np.float64]:
        return Stages.of(self.directions, self.offsets, self.depth, np.float64)

    @cached_property
    def _narrow(self) -> Stages[np.float32]:
        return Stages.of(self.directions, self.offsets, self.depth, np.float32)
