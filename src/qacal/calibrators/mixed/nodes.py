"""The nodes of a tree that have calibration rows, and which of them a row belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from qacal.calibrators.maps import Lineage, deepest_level, sources
from qacal.tally.arrays import Floats, Ints
from qacal.tally.groups import NO_GROUP, GroupColumn, GroupIndex


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes with rows of their own or below, in the order of (depth, code); the root is the first.

    A row belongs to the last node on its path.

    codes : the codes of the nodes at each depth. Flat groups are the children of the root, whatever their codes.
    deepest : the depth of the groups; not all depths need have nodes.

    >>> nodes = Nodes((np.array([0]), np.array([0, 1]), np.array([1, 2, 3])), deepest=2, is_tree=True)
    >>> nodes.parent, nodes.depth
    (array([0, 0, 0, 1, 2, 2]), array([0, 1, 1, 2, 2, 2]))
    >>> nodes.at(depth=2, code=np.array([0, 1, 2, 3]))  # group 0 has no rows, and uses its parent
    array([1, 3, 4, 5])
    """

    codes: tuple[Ints, ...]
    deepest: int
    is_tree: bool

    def __len__(self) -> int:
        return int(self.offset[-1])

    @cached_property
    def offset(self) -> Ints:
        """Where the nodes of each depth start, and where the last ones end."""
        return np.concatenate([[0], np.cumsum([len(codes) for codes in self.codes])])

    @cached_property
    def depth(self) -> Ints:
        return np.repeat(np.arange(len(self.codes)), np.diff(self.offset))

    @cached_property
    def parent(self) -> Ints:
        """The parent of each node; the root is its own. Children of one node are neighbours."""
        parents = [np.zeros(sum(len(codes) for codes in self.codes[:2]), dtype=np.int64)]
        for depth in range(2, len(self.codes)):
            above = np.searchsorted(self.codes[depth - 1], self.codes[depth] >> 1)
            parents.append(self.offset[depth - 1] + above)
        return np.concatenate(parents)

    @cached_property
    def levels(self) -> list[tuple[slice, Ints]]:
        """From the second depth on: the places of its nodes, and their parents."""
        bounds = self.offset.tolist()
        places = [slice(first, last) for first, last in pairwise(bounds[1:])]
        return [(place, self.parent[place]) for place in places]

    @cached_property
    def families(self) -> list[_Family]:
        """The children of each depth from the second on, by parent."""
        return [_Family.of(place, parents) for place, parents in self.levels]

    @cached_property
    def directory(self) -> GroupIndex:
        """From a group's code to its node; in a tree, from any place (2^depth + code) to the last node on its path."""
        if not self.is_tree:
            codes = self.codes[1] if len(self.codes) > 1 else np.zeros(0, dtype=np.int64)
            return GroupIndex(codes, np.arange(1, len(codes) + 1))
        table = np.zeros(2 ** (self.deepest + 1), dtype=np.int64)
        for depth in range(1, self.deepest + 1):
            here = table[2**depth : 2 ** (depth + 1)]
            here[:] = np.repeat(table[2 ** (depth - 1) : 2**depth], 2)
            if depth < len(self.codes):
                here[self.codes[depth]] = np.arange(self.offset[depth], self.offset[depth + 1])
        return GroupIndex(np.arange(len(table)), table)

    def at(self, depth: Ints | int, code: Ints) -> Ints:
        """Return the node of groups, from their depths and codes."""
        return self.directory.find((1 << depth) + code if self.is_tree else code)

    def find(self, column: GroupColumn) -> Ints:
        """Return the node of each row of a column; the root for rows of unknown groups."""
        if not self.is_tree or column.exit is None:
            return self.directory.find(column.code)
        depth = np.clip(column.exit - 1, 0, self.deepest)
        return self.at(depth, column.at_depth(self.deepest).code >> (self.deepest - depth))

    def lineage(self) -> Lineage:
        """Return the node whose curve each group uses, by the number or label of the group."""
        owner = np.concatenate(self.codes)
        owner[0] = NO_GROUP
        directory = self.directory
        if self.is_tree:
            leaves = np.arange(2**self.deepest if self.deepest else 0)
            directory = GroupIndex(leaves, self.at(self.deepest, leaves))
        return Lineage(self.depth, owner, sources(self.depth, self.deepest), directory)

    @property
    def tips(self) -> int:
        """The number of nodes without children."""
        return len(self) - len(np.unique(self.parent[1:])) if len(self) > 1 else 1

    def subtree_sums(self, values: Floats) -> Floats:
        """Return the sum over each node and all nodes below it; the last axis is the nodes."""
        total = values.copy()
        for family in reversed(self.families):
            family.add_to_parents(total[..., family.children], total)
        return total

    def cumulated(self, values: Floats) -> Floats:
        """Return the sum over each node and its ancestors."""
        total = values.copy()
        for place, parents in self.levels:
            total[..., place] += np.take(total, parents, axis=-1)
        return total


@dataclass(frozen=True, eq=False)
class _Family:
    """The nodes of a depth, where the children of each parent start, and those parents."""

    children: slice
    starts: Ints
    parents: Ints | slice
    is_pairs: bool

    @staticmethod
    def of(children: slice, parents: Ints) -> _Family:
        starts = np.concatenate([[0], np.flatnonzero(parents[1:] != parents[:-1]) + 1])
        heads = parents[starts]
        is_run = heads[-1] - heads[0] == len(heads) - 1
        is_pairs = bool((np.diff(starts, append=len(parents)) == 2).all())
        return _Family(children, starts, slice(int(heads[0]), int(heads[-1]) + 1) if is_run else heads, is_pairs)

    def add_to_parents(self, values: Floats, total: Floats) -> None:
        """Add the values of the children to the totals of their parents."""
        # Full trees have pairs; reduceat takes four times as long.
        sums = values[..., ::2] + values[..., 1::2] if self.is_pairs else np.add.reduceat(values, self.starts, axis=-1)
        total[..., self.parents] += sums


def nodes_of(column: GroupColumn | None, max_depth: int | None = None) -> Nodes:
    """Return the nodes for a column of groups: all depths of a tree down to `max_depth`, or two for flat groups."""
    deepest = deepest_level(column, max_depth)
    codes = [np.zeros(1, dtype=np.int64)]
    if column is not None and column.depth is None:
        codes.append(np.unique(column.code[column.code != NO_GROUP]))
    elif column is not None and column.exit is not None:
        cut = column.at_depth(deepest)
        exits = np.minimum(column.exit, deepest + 1)
        codes += [np.unique(cut.code[exits > depth] >> (deepest - depth)) for depth in range(1, deepest + 1)]
    return Nodes(tuple(level for level in codes if len(level)), deepest, column is not None and column.is_tree)
