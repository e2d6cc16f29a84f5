"""Who answers for a group: itself if it has enough rows, else its nearest ancestor that has, else the root."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.bins import group_runs
from qacal.calibrators.evidence import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT
from qacal.errors import InputError
from qacal.grouping import NO_GROUP, Grouping
from qacal.lookup import Directory
from qacal.records import Ints
from qacal.tally import Tally


def flat_levels(tally: Tally, max_depth: int | None = None) -> list[Tally]:
    """Return the tally of the root, and of the groups of each depth below it; flat groups are all at depth 1.

    max_depth : go no deeper into a tree than this.
    """
    return [_at_level(tally, depth) for depth in range(_deepest(tally, max_depth) + 1)]


def leaf_level(tally: Tally, max_depth: int | None = None) -> Tally:
    """Return the last of these levels alone."""
    return _at_level(tally, _deepest(tally, max_depth))


def _deepest(tally: Tally, max_depth: int | None) -> int:
    column = tally.grouping
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
    directory: Directory


def lineage(levels: list[Tally], column: Grouping | None, rows: int) -> Lineage:
    """Return who answers for whom if a group needs `rows` rows to answer for itself."""
    deepest = len(levels) - 1
    if column is None or deepest == 0:
        leaves = np.array([], dtype=np.int64)
        reads = owner = leaves
    elif column.depth is None:
        leaves = owner = _with_rows(levels[1], rows)
        reads = np.ones_like(leaves)
    else:
        leaves = np.arange(2**deepest)
        reads = np.zeros_like(leaves)
        for depth in range(1, deepest + 1):
            reads[np.isin(leaves >> (deepest - depth), _with_rows(levels[depth], rows))] = depth
        owner = np.where(reads == 0, NO_GROUP, leaves >> (deepest - reads))
    root = np.array([[0], [NO_GROUP]])
    answers, number = np.unique(np.concatenate([root, [reads, owner]], axis=1), axis=1, return_inverse=True)
    depth = answers[0]
    source = np.where(depth == 0, FROM_ROOT, np.where(depth == deepest, FROM_GROUP, FROM_ANCESTOR))
    return Lineage(depth, answers[1], source, Directory(leaves, number.ravel()[1:]))


def _with_rows(tally: Tally, rows: int) -> Ints:
    codes, first, last = group_runs(tally)
    through = np.concatenate([[0], np.cumsum(tally.rows)])
    return np.asarray(codes[(codes != NO_GROUP) & (through[last] - through[first] >= rows)])
