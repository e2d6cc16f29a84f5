"""Walking rows down a tree of hyperplanes in float32, a few levels at a time.

The rows that have come to one subtree are multiplied with all of its directions at once, which processors do best, and
then it is seen which of the products count: of 31 products five do. Still that is faster than a level at a time, in
which every row must be brought together with a direction of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qacal.partitions.cores import multiply
from qacal.tally.arrays import Bools, Floats, Ints

LEVELS_AT_ONCE = 5
"""With more, too many products that do not count; with fewer, rows are sorted more often."""

Narrow: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
Turns: TypeAlias = NDArray[np.uint32]

FAR_LEFT = float(np.finfo(np.float32).max)
"""The offset of a node that does not split: no product exceeds it, and none comes near."""


class Scratch:
    """Room for the work on one portion of rows, used again for the next: fresh memory takes longer than the work."""

    def __init__(self, n_rows: int, width: int) -> None:
        # After its coordinates a row has a one, which is multiplied with minus the offset of a plane.
        self._block = np.ones((n_rows, width + 1), dtype=np.float32)
        self._sorted = np.empty((n_rows, width + 1), dtype=np.float32)
        self._excess = np.empty(n_rows << LEVELS_AT_ONCE, dtype=np.float32)
        self._bits = np.empty(n_rows << LEVELS_AT_ONCE, dtype=np.bool_)

    def block(self, Z: NDArray[np.floating]) -> Narrow:
        """Return vectors in float32, each with a one at its end; what is too large becomes infinite."""
        block = self._block[: len(Z)]
        with np.errstate(over="ignore", invalid="ignore"):
            block[:, :-1] = Z
        return block

    def taken(self, block: Narrow, order: Ints) -> Narrow:
        """Return rows in an order."""
        # "clip" changes nothing here; by default numpy would make room of its own after all.
        return block.take(order, axis=0, out=self._sorted[: len(block)], mode="clip")

    def excess(self, n_rows: int, n_nodes: int) -> Narrow:
        """Return room for a number of each row and node."""
        return self._excess[: n_rows * n_nodes].reshape(n_rows, n_nodes)

    def words(self, excess: Narrow, threshold: float) -> Words:
        """Return a word a row, of which bit k says whether the row exceeds a threshold at node k."""
        bits = np.greater(excess.ravel(), threshold, out=self._bits[: excess.size])
        return np.packbits(bits, bitorder="little").view(f"<u{excess.shape[1] // 8}")


@dataclass(frozen=True, eq=False)
class Stage:
    """A slice of a tree: all subtrees of some height that start at one depth.

    planes : (subtree, coordinate, node), and after the last coordinate minus the offset. In a subtree the root is node
        1, and the children of node k are 2k and 2k + 1; node 0 is nobody, as are those that fill up a byte.
    """

    levels: int
    planes: Narrow

    def walk(self, block: Narrow, path: Turns, doubt: float, scratch: Scratch) -> tuple[Turns, Bools]:
        """Return the paths of rows after this stage, and which of them kept away from the planes by more than doubt."""
        excess = scratch.excess(len(block), self.planes.shape[2])
        if len(self.planes) == 1:
            multiply(block, self.planes[0], excess)
            return self._turns(scratch.words(excess, doubt), scratch.words(excess, -doubt))
        subtrees = path.astype(np.int16)
        order = np.argsort(subtrees, kind="stable")
        rows = scratch.taken(block, order)
        for subtree, here in runs(subtrees[order]):
            multiply(rows[here], self.planes[subtree], excess[here])
        turns, is_certain = self._turns(scratch.words(excess, doubt), scratch.words(excess, -doubt))
        turns[order], is_certain[order] = turns.copy(), is_certain.copy()
        return np.left_shift(path, self.levels) + turns, is_certain

    def _turns(self, surely: Words, perhaps: Words) -> tuple[Turns, Bools]:
        """Return the turns of rows and which are certain, given the nodes where a row goes right surely, or perhaps."""
        turns = _turns(surely, self.levels)
        is_certain = surely == perhaps
        # The node in doubt may be one that is not on the row's way.
        unsure = np.flatnonzero(~is_certain)
        is_certain[unsure] = _turns(perhaps[unsure], self.levels) == turns[unsure]
        return turns, is_certain


@dataclass(frozen=True)
class Stages:
    """A tree in slices of a few levels each."""

    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, directions: Floats, offsets: Floats, depth: int) -> Self:
        """Cut a tree of hyperplanes into stages of about equal height."""
        count = -(-depth // LEVELS_AT_ONCE)
        tops = [depth * k // count for k in range(count + 1)]
        planes = np.column_stack([directions, np.where(directions.any(axis=1), -offsets, -FAR_LEFT)])
        return cls(tuple(_stage(planes.astype(np.float32), top, stop - top) for top, stop in pairwise(tops)))

    def walk(self, block: Narrow, doubt: float, scratch: Scratch) -> tuple[Turns, Bools]:
        """Return the leaf of each row, and whether it is certain if products less offsets are off by up to `doubt`."""
        path = np.zeros(len(block), dtype=np.uint32)
        is_certain = np.ones(len(block), dtype=np.bool_)
        for stage in self.stages:
            path, is_near_none = stage.walk(block, path, doubt, scratch)
            is_certain &= is_near_none
        return path, is_certain


def runs(path: NDArray[np.signedinteger[Any]]) -> Iterator[tuple[int, slice]]:
    """Yield each value of a sorted column and where it stands."""
    starts = np.flatnonzero(np.diff(path, prepend=-1))
    stops = np.append(starts[1:], len(path))
    for value, start, stop in zip(path[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield value, slice(start, stop)


def _stage(planes: Narrow, top: int, levels: int) -> Stage:
    number = np.arange(1, 2**levels)
    level = np.array([int(k).bit_length() - 1 for k in number])
    root = 2**top + np.arange(2**top)
    node = (root[:, None] << level) + (number - (1 << level)) - 1
    own = np.zeros((2**top, planes.shape[1], max(8, 2**levels)), dtype=np.float32)
    own[:, -1] = -FAR_LEFT
    own[:, :, 1 : 2**levels] = planes[node].transpose(0, 2, 1)
    return Stage(levels, own)


def _turns(words: Words, levels: int) -> Turns:
    """Return the turns of rows, a bit each, the first one highest; bit k of a word is the turn at node k."""
    node = np.ones_like(words)
    for _ in range(levels):
        node += node + (words >> node & 1)
    return (node - (1 << levels)).astype(np.uint32, copy=False)
