"""Which map a group uses: its own if it has enough rows, else that of the nearest ancestor with enough rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from qacal.calibrators.evidence import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT
from qacal.errors import InputError
from qacal.parameters import Axes, Between, require
from qacal.tally.arrays import Floats, Ints
from qacal.tally.bins import group_runs
from qacal.tally.groups import MAX_DEPTH, NO_GROUP, GroupColumn, GroupIndex
from qacal.tally.tally import Tally


def flat_levels(tally: Tally, max_depth: int | None = None) -> list[Tally]:
    """Return the tally of the root, and of the groups of each depth below it; flat groups are all at depth 1."""
    return [level_of(tally, depth) for depth in range(deepest_level(tally.grouping, max_depth) + 1)]


def level_of(tally: Tally, depth: int) -> Tally:
    """Return the tally over the groups at one depth; at depth 0, a tally without groups."""
    if depth == 0:
        return tally.pooled()
    column = tally.grouping
    return tally.roll_up(depth).flat() if column is not None and column.is_tree else tally


def deepest_level(column: GroupColumn | None, max_depth: int | None = None) -> int:
    """Return the depth of the groups in use: 0 without a column, 1 for flat groups."""
    if column is None:
        return 0
    if column.depth is None:
        if max_depth is not None:
            raise InputError(f"max_depth is {max_depth}, and the groups are not a tree; leave it out, or pass Paths.")
        return 1
    deepest = column.depth if max_depth is None else max_depth
    if not 0 <= deepest <= column.depth:
        raise InputError(f"max_depth is {max_depth}; the groups are a tree of depth {column.depth}.")
    return deepest


@dataclass(frozen=True, eq=False)
class Lineage:
    """The nodes with maps, in the order of (depth, code); the root is the first.

    depth, owner : the depth of each node, and its code at that depth.
    source : what the node is to the groups that use its map: the group itself, an ancestor or the root.
    directory : from a group's code to the place of the node whose map it uses.
    """

    depth: Annotated[Ints, Axes("nodes", may_be_empty=False), Between(0, MAX_DEPTH)]
    owner: Annotated[Ints, Axes("nodes"), Between(NO_GROUP, 2**63 - 1)]
    source: Annotated[Ints, Axes("nodes")]
    directory: GroupIndex

    def _validate(self) -> None:
        is_root = self.depth[0] == 0 and self.owner[0] == NO_GROUP
        require(bool(is_root), "the first node must be the root, and is not.")
        is_below = np.diff(self.depth) > 0
        is_right = (np.diff(self.depth) == 0) & (np.diff(self.owner) > 0)
        are_groups = (self.depth[1:] > 0) & (self.owner[1:] >= 0)
        require(bool(((is_below | is_right) & are_groups).all()), "nodes must rise by depth and code.")
        require(
            bool((self.directory.entries < len(self.depth)).all()),
            "a group uses the map of a node that does not exist.",
        )

    def require_of(self, column: GroupColumn | None, max_depth: int | None = None) -> None:
        """Raise for nodes that :func:`lineage` cannot have made for these groups."""
        deepest = deepest_level(column, max_depth)
        require(bool((self.depth <= deepest).all()), f"a node is deeper than the groups, which have depth {deepest}.")
        require(np.array_equal(self.source, sources(self.depth, deepest)), "source does not agree with depth.")
        groups = self.owner[(self.depth == deepest) & (self.owner != NO_GROUP)]
        is_known = np.isin(groups, known_groups(column, max_depth)).all()
        require(bool(is_known), "a group has a map, but had no rows in the fit.")
        codes, entries = self.directory.codes, self.directory.entries
        depth = self.depth[entries]
        owner = np.where(depth == 0, NO_GROUP, codes >> (deepest - depth))
        require(np.array_equal(owner, self.owner[entries]), "a group uses the map of another group.")
        if column is None or deepest == 0:
            require(len(codes) == 0, "there are no groups, and the directory lists some.")
        elif column.is_tree:
            require(np.array_equal(codes, np.arange(2**deepest)), "the directory of a tree must list all its leaves.")


def lineage(levels: list[Tally], column: GroupColumn | None, rows: int) -> Lineage:
    """Return the nodes with maps, if a group needs `rows` rows to have its own."""
    deepest = len(levels) - 1
    if column is None or deepest == 0:
        leaves = np.array([], dtype=np.int64)
        reads = owner = leaves
    elif column.depth is None:
        leaves = owner = groups_with_rows(levels[1], rows)
        reads = np.ones_like(leaves)
    else:
        leaves = np.arange(2**deepest)
        reads = np.zeros_like(leaves)
        for depth in range(1, deepest + 1):
            reads[np.isin(leaves >> (deepest - depth), groups_with_rows(levels[depth], rows))] = depth
        owner = np.where(reads == 0, NO_GROUP, leaves >> (deepest - reads))
    root = np.array([[0], [NO_GROUP]])
    nodes, number = np.unique(np.concatenate([root, [reads, owner]], axis=1), axis=1, return_inverse=True)
    return Lineage(nodes[0], nodes[1], sources(nodes[0], deepest), GroupIndex(leaves, number.ravel()[1:]))


def sums_between(cuts: Floats, levels: list[Tally], ancestry: Lineage, names: Iterable[str]) -> dict[str, Floats]:
    """Return tables of (node, cut): sums of tally columns over confidences above the cut before, up to this one."""
    shape = (len(ancestry.depth), len(cuts))
    sums = {name: np.zeros(shape[0] * shape[1]) for name in names}
    for level, cells, place in places_between(cuts, levels, ancestry):
        for name, total in sums.items():
            total += np.bincount(place, weights=getattr(level, name)[cells], minlength=len(total))
    return {name: total.reshape(shape) for name, total in sums.items()}


def places_between(cuts: Floats, levels: list[Tally], ancestry: Lineage) -> Iterator[tuple[Tally, Ints, Ints]]:
    """Yield each level with its cells that are in a node, and their places in a table of (node, cut)."""
    for depth, level in enumerate(levels):
        cells, row = _cells_of(np.flatnonzero(ancestry.depth == depth), level, ancestry)
        yield level, cells, row * len(cuts) + np.searchsorted(cuts, level.confidence[cells])


def _cells_of(nodes: Ints, level: Tally, ancestry: Lineage) -> tuple[Ints, Ints]:
    """Return the cells of a level that are in one of these nodes, and the place of that node."""
    column = level.grouping
    if column is None or len(nodes) == 0 or ancestry.owner[nodes[0]] == NO_GROUP:
        n_cells = len(level) if len(nodes) else 0
        return np.arange(n_cells), np.zeros(n_cells, dtype=np.int64)
    at = np.minimum(np.searchsorted(ancestry.owner[nodes], column.code), len(nodes) - 1)
    cells = np.flatnonzero(ancestry.owner[nodes[at]] == column.code)
    return cells, nodes[at[cells]]


def known_groups(column: GroupColumn | None, max_depth: int | None = None) -> Ints:
    """Return the codes of the groups that had rows in the fit."""
    return np.array([], dtype=np.int64) if column is None else column.leaves(max_depth)


def sources(depth: Ints, deepest: int) -> Ints:
    """Return what nodes of these depths are to the groups that use their maps."""
    return np.where(depth == 0, FROM_ROOT, np.where(depth == deepest, FROM_GROUP, FROM_ANCESTOR))


def groups_with_rows(tally: Tally, rows: int) -> Ints:
    """Return the groups of a level that have `rows` rows or more."""
    codes, first, last = group_runs(tally)
    through = np.concatenate([[0], np.cumsum(tally.rows)])
    return np.asarray(codes[(codes != NO_GROUP) & (through[last] - through[first] >= rows)])
