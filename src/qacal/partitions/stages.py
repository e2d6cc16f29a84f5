"""Walking rows down a tree of hyperplanes, a few levels at a time.

The rows that have come to one subtree are multiplied with all of its directions at once, which processors do best, and
then it is seen which of the products count: of 31 products five do. Still that is faster than a level at a time, in
which every row must be brought together with a direction of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from qacal.values import Floats, Ints

LEVELS_AT_ONCE = 5
"""With more, too many products that do not count; with fewer, rows are sorted more often."""

Real = TypeVar("Real", bound=np.floating[Any])


class Scratch(Generic[Real]):
    """Room for the work on one portion of rows, used again for the next: fresh memory takes longer than the work."""

    def __init__(self, n_rows: int, width: int, dtype: type[Real]) -> None:
        self._rows = np.empty((n_rows, width), dtype=dtype)
        self._products = np.empty(n_rows << LEVELS_AT_ONCE, dtype=dtype)

    def taken(self, block: NDArray[Real], order: Ints) -> NDArray[Real]:
        """Return rows in an order."""
        # "clip" changes nothing here; by default numpy would make room of its own after all.
        return block.take(order, axis=0, out=self._rows[: len(block)], mode="clip")

    def products(self, n_rows: int, n_nodes: int) -> NDArray[Real]:
        """Return room for the products of rows and directions."""
        return self._products[: n_rows * n_nodes].reshape(n_rows, n_nodes)


@dataclass(frozen=True, eq=False)
class Stage(Generic[Real]):
    """A slice of a tree: all subtrees of some height that start at one depth.

    directions : (subtree, coordinate, node); offsets : (subtree, node). In a subtree the root is node 1, and the
        children of node k are 2k and 2k + 1; node 0 is nobody. (32 columns are also multiplied in less time than 31.)
    """

    levels: int
    directions: NDArray[Real]
    offsets: NDArray[Real]

    def walk(self, block: NDArray[Real], path: Ints, scratch: Scratch[Real]) -> tuple[Ints, NDArray[Real]]:
        """Return the paths of rows after this stage, and how near each has come to one of the planes it passed."""
        order = np.argsort(path.astype(np.int16), kind="stable") if len(self.offsets) > 1 else None
        rows = block if order is None else scratch.taken(block, order)
        excess = scratch.products(len(rows), 1 << self.levels)
        for subtree, here in runs(path if order is None else path[order]):
            np.matmul(rows[here], self.directions[subtree], out=excess[here])
            excess[here] -= self.offsets[subtree]
        turns, distance = _turns(excess, self.levels)
        if order is not None:
            turns[order], distance[order] = turns.copy(), distance.copy()
        return (path << self.levels) + turns, distance


@dataclass(frozen=True)
class Stages(Generic[Real]):
    """A tree in slices of a few levels each."""

    stages: tuple[Stage[Real], ...]

    @classmethod
    def of(cls, directions: Floats, offsets: Floats, depth: int, dtype: type[Real]) -> Self:
        """Cut a tree of hyperplanes into stages of about equal height."""
        count = -(-depth // LEVELS_AT_ONCE)
        tops = [depth * k // count for k in range(count + 1)]
        # Where nothing splits, everything is far on the left.
        offsets = np.where(directions.any(axis=1), offsets, np.inf)
        return cls(tuple(_stage(directions, offsets, top, stop - top, dtype) for top, stop in pairwise(tops)))

    def walk(self, block: NDArray[Real], scratch: Scratch[Real]) -> tuple[Ints, NDArray[Real]]:
        """Return the leaf of each row, and how near it has come to one of the planes it passed."""
        path = np.zeros(len(block), dtype=np.int64)
        nearest = np.full(len(block), np.inf, dtype=block.dtype)
        for stage in self.stages:
            path, distance = stage.walk(block, path, scratch)
            np.minimum(nearest, distance, out=nearest)
        return path, nearest


def runs(path: Ints) -> Iterator[tuple[int, slice]]:
    """Yield each value of a sorted column and where it stands."""
    starts = np.flatnonzero(np.diff(path, prepend=-1))
    stops = np.append(starts[1:], len(path))
    for value, start, stop in zip(path[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield value, slice(start, stop)


def _stage(directions: Floats, offsets: Floats, top: int, levels: int, dtype: type[Real]) -> Stage[Real]:
    number = np.arange(1, 2**levels)
    level = np.array([int(k).bit_length() - 1 for k in number])
    root = 2**top + np.arange(2**top)
    node = (root[:, None] << level) + (number - (1 << level)) - 1
    own_directions = np.zeros((2**top, directions.shape[1], 2**levels), dtype=dtype)
    own_directions[:, :, 1:] = directions[node].transpose(0, 2, 1)
    own_offsets = np.zeros((2**top, 2**levels), dtype=dtype)
    own_offsets[:, 1:] = offsets[node]
    return Stage(levels, own_directions, own_offsets)


def _turns(excess: NDArray[Real], levels: int) -> tuple[Ints, NDArray[Real]]:
    """Return the turns of rows as bits, given by how much their products exceed the offset of each node."""
    flat = excess.ravel()
    start = np.arange(0, flat.size, 1 << levels)
    node: Ints = np.ones(len(excess), dtype=np.int64)
    nearest = np.full(len(excess), np.inf, dtype=excess.dtype)
    for _ in range(levels):
        value = flat[start + node]
        np.minimum(nearest, np.abs(value), out=nearest)
        node += node + (value > 0)
    return node - (1 << levels), nearest
