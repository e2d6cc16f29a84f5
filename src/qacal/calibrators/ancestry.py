"""Who answers for a group: itself if it has enough rows, else its nearest ancestor that has, else the root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from qacal.calibrators.evidence import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT
from qacal.errors import InputError
from qacal.storage import require, require_between, require_columns, rises_within
from qacal.tally.arrays import Floats, Ints
from qacal.tally.bins import group_runs
from qacal.tally.groups import NO_GROUP, GroupColumn
from qacal.tally.lookup import GroupIndex
from qacal.tally.tally import Tally


def flat_levels(tally: Tally, max_depth: int | None = None) -> list[Tally]:
    """Return the tally of the root, and of the groups of each depth below it; flat groups are all at depth 1.

    max_depth : go no deeper into a tree than this.
    """
    return [_at_level(tally, depth) for depth in range(deepest_level(tally.grouping, max_depth) + 1)]


def leaf_level(tally: Tally, max_depth: int | None = None) -> Tally:
    """Return the last of these levels alone."""
    return _at_level(tally, deepest_level(tally.grouping, max_depth))


def deepest_level(column: GroupColumn | None, max_depth: int | None = None) -> int:
    """Return the depth at which rows have the groups of a column; 0 without one, 1 for flat groups."""
    if column is None:
        return 0
    if column.depth is None:
        if max_depth is not None:
            raise InputError(f"max_depth is {max_depth}, and the groups are no tree; leave it out, or pass Paths.")
        return 1
    deepest = column.depth if max_depth is None else max_depth
    if not 0 <= deepest <= column.depth:
        raise InputError(f"max_depth is {max_depth}; the groups are a tree of depth {column.depth}.")
    return deepest


def _at_level(tally: Tally, depth: int) -> Tally:
    if depth == 0:
        return tally.pooled()
    column = tally.grouping
    is_tree = column is not None and column.depth is not None
    return tally.roll_up(depth).flat() if is_tree else tally


@dataclass(frozen=True, eq=False)
class Lineage:
    """The groups and ancestors that answer, in the order of (depth, code); the root is the first.

    depth, owner : whose answer it is: a group's code, and the depth at which it is a group.
    source : whether those who read it read their own (group), an ancestor's or the root's.
    directory : which of them answers for a group.
    """

    depth: Ints
    owner: Ints
    source: Ints
    directory: GroupIndex

    def validate(self, column: GroupColumn | None, max_depth: int | None = None) -> None:
        """Refuse what :func:`lineage` cannot have made for the groups of a column."""
        deepest, answers = deepest_level(column, max_depth), len(self.depth.ravel())
        require_columns(answers, depth=self.depth, owner=self.owner, source=self.source)
        is_first = answers > 0 and self.depth[0] == 0 and self.owner[0] == NO_GROUP
        require(is_first, "the root must be the first to answer, and is not.")
        require_between(0, deepest, depth=self.depth)
        is_sorted = rises_within(np.array([0, answers]), self.depth, self.owner)
        require(is_sorted and bool((self.owner[1:] >= 0).all()), "those who answer must rise by depth and code.")
        require(np.array_equal(self.source, _source(self.depth, deepest)), "source does not agree with depth.")
        known = known_groups(column, max_depth)
        own = self.owner[(self.depth == deepest) & (self.owner != NO_GROUP)]
        require(bool(np.isin(own, known).all()), "a group answers that had no row in the fit.")
        self._require_readers(column, deepest)

    def _require_readers(self, column: GroupColumn | None, deepest: int) -> None:
        """Refuse a group that reads the answer of another, instead of its own or an ancestor's."""
        codes, entries = self.directory.codes, self.directory.entries
        require_between(0, len(self.depth) - 1, entries=entries)
        depth = self.depth[entries]
        owner = np.where(depth == 0, NO_GROUP, codes >> (deepest - depth))
        require(np.array_equal(owner, self.owner[entries]), "a group reads the answer of another group.")
        if column is None or deepest == 0:
            require(len(codes) == 0, "there are no groups, and the directory lists some.")
        elif column.is_tree:
            require(np.array_equal(codes, np.arange(2**deepest)), "the directory of a tree must list all its leaves.")


def lineage(levels: list[Tally], column: GroupColumn | None, rows: int) -> Lineage:
    """Return who answers for whom if a group needs `rows` rows to answer for itself."""
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
    answers, number = np.unique(np.concatenate([root, [reads, owner]], axis=1), axis=1, return_inverse=True)
    depth = answers[0]
    return Lineage(depth, answers[1], _source(depth, deepest), GroupIndex(leaves, number.ravel()[1:]))


def sums_between(cuts: Floats, levels: list[Tally], ancestry: Lineage, names: Iterable[str]) -> dict[str, Floats]:
    """Return tables of (who answers, cut): the sums over rows whose confidence is above the cut before, up to it.

    names : of the columns of a tally.
    """
    shape = (len(ancestry.depth), len(cuts))
    sums = {name: np.zeros(shape[0] * shape[1]) for name in names}
    for depth, level in enumerate(levels):
        cells, row = _answered_by(level, np.flatnonzero(ancestry.depth == depth), ancestry)
        place = row * len(cuts) + np.searchsorted(cuts, level.confidence[cells])
        for name, total in sums.items():
            total += np.bincount(place, weights=getattr(level, name)[cells], minlength=len(total))
    return {name: total.reshape(shape) for name, total in sums.items()}


def _answered_by(level: Tally, mine: Ints, ancestry: Lineage) -> tuple[Ints, Ints]:
    """Return the cells of a level whose groups answer for somebody, and at which place among those who answer."""
    column = level.grouping
    if column is None or len(mine) == 0 or ancestry.owner[mine[0]] == NO_GROUP:
        return np.arange(len(level) if len(mine) else 0), np.zeros(len(level) if len(mine) else 0, dtype=np.int64)
    at = np.minimum(np.searchsorted(ancestry.owner[mine], column.code), len(mine) - 1)
    cells = np.flatnonzero(ancestry.owner[mine[at]] == column.code)
    return cells, mine[at[cells]]


def known_groups(column: GroupColumn | None, max_depth: int | None = None) -> Ints:
    """Return the codes of the groups that had rows in the fit."""
    if column is None:
        return np.array([], dtype=np.int64)
    return (column if max_depth is None else column.at_depth(max_depth)).leaves()


def _source(depth: Ints, deepest: int) -> Ints:
    return np.where(depth == 0, FROM_ROOT, np.where(depth == deepest, FROM_GROUP, FROM_ANCESTOR))


def groups_with_rows(tally: Tally, rows: int) -> Ints:
    """Return the groups of a level that have `rows` rows or more."""
    codes, first, last = group_runs(tally)
    through = np.concatenate([[0], np.cumsum(tally.rows)])
    return np.asarray(codes[(codes != NO_GROUP) & (through[last] - through[first] >= rows)])
