r"""A tree of hyperplanes, fitted: which side of each does a vector lie on.

At a node with direction :math:`w` and offset :math:`c`, a vector :math:`z` goes right if :math:`z \cdot w > c`. Walking
down from node to node reads a direction for every row and level. Two things make it faster, and neither changes a
group: a few levels are done at once (see :mod:`~qacal.partitions.stages`), and that in float32; only the rows that came
so near to a plane that rounding might have decided walk from node to node, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qacal.partitions.cores import Portions, rows_at_once, share
from qacal.partitions.stages import Scratch, Stages
from qacal.tally.arrays import Bools, Floats, Ints
from qacal.tally.groups import Paths
from qacal.tally.vectors import require_finite

NARROW_ROUNDING = 2.0**-24
"""What float32 rounds by, as a share of a number."""

NARROW_RANGE = (1e-15, 1e15)
"""Vectors of a length within this range can be squared in float32 without falling out of its own."""


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
        """Write the leaves of rows by float32 into `path`; return which of them are certain.

        None is in a portion that float32 has no room for, or that has numbers which are not finite.
        """
        is_certain = np.zeros(len(Z), dtype=np.bool_)
        at_once = min(len(Z), rows_at_once(self.width))

        def walk(portions: Portions) -> None:
            scratch = Scratch(at_once, self.width)
            for rows in portions:
                block = scratch.block(Z[rows])
                length = _longest(block[:, :-1])
                if NARROW_RANGE[0] < max(length, self._farthest) and length < NARROW_RANGE[1]:
                    path[rows], is_certain[rows] = self._stages.walk(block, self._doubt(length), scratch)

        if self._farthest < NARROW_RANGE[1]:
            share(len(Z), at_once, walk)
        return is_certain

    def _walk_exact(self, Z: NDArray[np.floating], index: Ints, path: Ints) -> None:
        """Write the leaves of some rows by float64 into `path`."""
        offsets = np.where(self.directions.any(axis=1), self.offsets, np.inf)
        at_once = rows_at_once(self.width)
        for start in range(0, len(index), at_once):
            rows = index[start : start + at_once]
            block = Z[rows].astype(np.float64)
            require_finite(block, rows)
            node = np.zeros(len(rows), dtype=np.int64)  # the root; the children of k are 2k + 1 and 2k + 2
            for _ in range(self.depth):
                node += node + 1 + (np.vecdot(block, self.directions[node]) > offsets[node])
            path[rows] = node - (2**self.depth - 1)

    def _doubt(self, length: float) -> float:
        """Return how far a product less its offset can be off in float32, for vectors up to a length.

        A sum of n products is off by at most n roundings of the sum of their sizes (Higham, 2002, section 3.1), here of
        the coordinates' and the offset's, and each factor was rounded too. The sizes of the coordinates' products sum
        to the length of the vector at most, since directions have length 1. Twice that also covers roundings of
        roundings.
        """
        return 2 * NARROW_ROUNDING * (self.width + 4) * (length + self._farthest)

    @cached_property
    def _farthest(self) -> float:
        return float(np.abs(self.offsets).max(initial=0.0))

    @cached_property
    def _stages(self) -> Stages:
        return Stages.of(self.directions, self.offsets, self.depth)


def _longest(block: NDArray[np.float32]) -> float:
    """Return the length of the longest row; NaN or infinity if a number is, or cannot be squared."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.vecdot(block, block).max()))
