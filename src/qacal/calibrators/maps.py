r"""Which map a group uses, and maps that are made of bins.

A group with fewer than :math:`b` rows has no map of its own. It uses that of the nearest ancestor with :math:`b` rows
or more; the root always has a map (:class:`Lineage`).

In maps of bins (:class:`BinMaps`), bin :math:`k` is (top of bin k-1, top of bin k]; the first starts at 0 and the last
ends at 1, both included. With ``ties="jitter"`` the order is that of the pair (confidence, hash of the id), and a bin
is half open to the right as in Algorithm UMD. One comparison serves both: a row is in the first bin with a (top, tie)
above the row's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from qacal.calibrators.base import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT, Evidence, Rows, group_names
from qacal.errors import InputError
from qacal.guarantee import Certificate
from qacal.parameters import MOST, Axes, Between, Offsets, require
from qacal.tally.arrays import Floats, Hashes, Ints, seven_decimals
from qacal.tally.bins import search_within
from qacal.tally.cells import snap
from qacal.tally.groups import MAX_DEPTH, NO_GROUP, GroupColumn, GroupIndex
from qacal.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class Lineage:
    """The nodes with maps, in the order of (depth, code); the root is the first.

    depth, owner : the depth of each node, and its code at that depth.
    source : what the node is to the groups that use its map: the group itself, an ancestor or the root.
    directory : from a group's code to the place of the node whose map it uses.
    levels : each depth below the root that has nodes, and the places of these by their codes.
    """

    depth: Annotated[Ints, Axes("nodes", may_be_empty=False), Between(0, MAX_DEPTH)]
    owner: Annotated[Ints, Axes("nodes"), Between(NO_GROUP, 2**63 - 1)]
    source: Annotated[Ints, Axes("nodes")]
    directory: GroupIndex
    levels: list[tuple[int, GroupIndex]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
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
        places = [(depth, np.flatnonzero(self.depth == depth)) for depth in np.unique(self.depth).tolist() if depth]
        levels = [(depth, GroupIndex(self.owner[nodes], nodes)) for depth, nodes in places]
        object.__setattr__(self, "levels", levels)

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


@dataclass(frozen=True, eq=False)
class BinMaps:
    """The maps of all groups, their bins end to end; map 0 is the root's.

    top, tie : where each bin ends; infinite in the last bin of a map.
    value, low, high, rows : the calibrated confidence of each bin, its interval, and the rows in it.
    offset : map j has the bins ``offset[j]`` to ``offset[j + 1] - 1``.
    lineage : the node of each map, and which map a group uses.
    """

    top: Annotated[Floats, Axes("bins")]
    tie: Annotated[Hashes, Axes("bins")]
    value: Annotated[Floats, Axes("bins"), Between(0, 1)]
    low: Annotated[Floats, Axes("bins"), Between(0, 1)]
    high: Annotated[Floats, Axes("bins"), Between(0, 1)]
    rows: Annotated[Ints, Axes("bins"), Between(0, MOST)]
    offset: Annotated[Ints, Offsets("bins")]
    lineage: Lineage
    grouping: GroupColumn | None
    max_depth: int | None
    certificate: Certificate
    is_jittered: bool
    resolution: float | None

    def apply(self, rows: Rows) -> Floats:
        return self.value[self.bins_of(rows)]

    def explain(self, rows: Rows) -> Evidence:
        codes = rows.leaves(self.grouping, self.max_depth)
        maps = self.lineage.directory.find(codes)
        bins = self._bins(rows, maps)
        return Evidence.of(
            rows.exact,
            self.value[bins],
            group=group_names(codes, self.grouping, self.max_depth),
            source=self.lineage.source[maps],
            rows=self.rows[bins],
            low=self.low[bins],
            high=self.high[bins],
            alpha=self.certificate.alpha,
        )

    def bins_of(self, rows: Rows) -> Ints:
        """Return the bin of each row, as a place in `value`, `low`, `high` and `rows`."""
        return self._bins(rows, self.lineage.directory.find(rows.leaves(self.grouping, self.max_depth)))

    def bins_by_level(self, rows: Rows) -> Ints:
        """Return the bin of each row in the map of its group at every level of maps, the root's first; -1 for no map.

        An ancestor's interval is about all rows of the ancestor, including those of groups with a map of their own.
        """
        if self not in rows.found:
            out = np.empty((len(rows.confidence), 1 + len(self.lineage.levels)), dtype=np.int64)
            out[:, 0] = self._bins(rows, np.zeros(len(out), dtype=np.int64))
            for at, (depth, nodes) in enumerate(self.lineage.levels, 1):
                out[:, at] = self._bins_at(rows, depth, nodes)
            rows.found[self] = out
        return rows.found[self]

    def _validate(self) -> None:
        """Raise for maps that no fit can have made: then lookups stay within a map, and values are in [0, 1]."""
        self.lineage.require_of(self.grouping, self.max_depth)
        require(len(self.offset) == len(self.lineage.depth) + 1, "there must be one map for each node.")
        require(bool((self.low <= self.high).all()), "an interval has its low above its high.")
        last = np.zeros(len(self.top), dtype=bool)
        last[self.offset[1:] - 1] = True
        require(bool((self.top[last] == np.inf).all()), "the last bin of a map must have no top.")
        is_inside = (self.top >= 0) & (self.top <= 1)
        require(bool((is_inside | last).all()), "the top of a bin is a number from 0 to 1; this one is not.")
        is_above = self.top[1:] > self.top[:-1]
        if self.is_jittered:
            is_above |= (self.top[1:] == self.top[:-1]) & (self.tie[1:] > self.tie[:-1])
        require(bool((is_above | last[:-1]).all()), "the tops of a map must rise.")
        # Tops that are confidences of rows have seven decimals; fixed tops and those on a grid need not.
        if self.certificate.kind not in ("fixed", "margins") and self.resolution is None:
            is_read = np.array_equal(seven_decimals(self.top[~last]), self.top[~last])
            require(is_read, "the tops of a map have seven decimals; this one is of an earlier qacal. Fit again.")
        is_theorem = self.certificate.kind == "distinct"
        require(is_theorem == self.is_jittered, 'the certificate "distinct" goes with jittered ties alone.')
        if self.certificate.kind == "fixed":
            n_bins = int(self.offset[1])
            is_repeated = np.array_equal(self.top, np.tile(self.top[:n_bins], len(self.offset) - 1))
            require(is_repeated, 'the certificate "fixed" goes with the same bins in every map.')
        grid = None
        if self.resolution is not None:
            snap(np.zeros(1), self.resolution)  # it checks the resolution
            grid = round(1 / self.resolution) + 1 if self.certificate.kind == "uniform" else None
        require(self.certificate.grid == grid, f"the certificate has a grid of {self.certificate.grid}, not {grid}.")

    def parameters(self) -> dict[str, Any]:
        common = {"max_depth": self.max_depth, "alpha": self.certificate.alpha, "resolution": self.resolution}
        if self.is_jittered:
            return common | {"ties": "jitter"}
        return common | {"ties": "merge", "certificate": self.certificate.kind}

    def error_bounds(self) -> Floats:
        """Return how far each bin's value can be from its true accuracy: the distance to the interval's far end."""
        return np.maximum(np.abs(self.value - self.low), np.abs(self.high - self.value))

    def median_error_bound(self) -> float:
        """Return the median of the error bound over the calibration rows."""
        bound = self.error_bounds()
        order = np.argsort(bound)
        through = np.cumsum(self.rows_read()[order])
        return float(bound[order][np.searchsorted(through, through[-1] / 2)])

    def rows_read(self) -> Floats:
        """Return how many calibration rows use each bin: rows of groups with a map of their own use that map instead.

        Fixed bins are the same in every map, so their rows can be counted. Other bins differ from map to map: the share
        of a map's rows that use it is assumed to be the same in each of its bins.
        """
        rows = self.rows.astype(np.float64)
        if self.certificate.kind == "fixed":
            return self._without_descendants(rows.reshape(len(self.lineage.depth), -1)).ravel()
        total = np.add.reduceat(rows, self.offset[:-1])
        share = self._without_descendants(total) / np.maximum(total, 1.0)
        return rows * np.repeat(share, np.diff(self.offset))

    def _without_descendants(self, total: Floats) -> Floats:
        """Return the total of each map, minus those of the maps right below it."""
        rest = total.copy()
        nodes = zip(self.lineage.depth.tolist(), self.lineage.owner.tolist(), strict=True)
        place = {node: at for at, node in enumerate(nodes)}
        for (depth, owner), child in list(place.items())[1:]:
            ancestors = ((depth - up, owner >> up) for up in range(1, depth))
            rest[next((place[node] for node in ancestors if node in place), 0)] -= total[child]
        return np.maximum(rest, 0.0)

    def _bins_at(self, rows: Rows, depth: int, nodes: GroupIndex) -> Ints:
        if self.grouping is None or rows.groups is None:
            return np.full(len(rows.confidence), -1)
        codes = rows.leaves(self.grouping, depth if self.grouping.is_tree else None)
        maps = nodes.find(codes)
        return np.where(maps > 0, self._bins(rows, maps), -1)

    def _bins(self, rows: Rows, maps: Ints) -> Ints:
        h = rows.confidence if self.resolution is None else snap(rows.confidence, self.resolution)
        if not maps.any():  # numpy's search of one map is faster
            bins = np.searchsorted(self.top[: self.offset[1] - 1], h)
        else:
            bins = search_within(self.top, h, self.offset[maps], self.offset[maps + 1] - 1)
        return self._among_equal_tops(h, rows.tie, bins, self.offset[maps + 1] - 1) if self.is_jittered else bins

    def _among_equal_tops(self, h: Floats, tie: Hashes | None, bins: Ints, stop: Ints) -> Ints:
        """Move rows with a confidence equal to tops on, to the first bin with a (top, tie) above their own."""
        on_edge = np.flatnonzero((bins < stop) & (self.top[bins] == h))
        if tie is None:
            if self.tie.any() and len(on_edge):
                at = on_edge[0]
                raise InputError(f"confidence[{at}] is {h[at]}, and bins divide that value by id. Pass ids= as in fit.")
            # Distinct scores were fitted, without ids: an edge is the first value of the bin above it.
            tie = np.zeros(len(h), dtype=np.uint64)
        first, last = bins[on_edge], stop[on_edge]
        beyond = search_within(self.top, h[on_edge], first, last, side="right")
        bins = bins.copy()
        bins[on_edge] = search_within(self.tie, tie[on_edge], first, beyond, side="right")
        return bins


# Levels of groups, and the nodes among them that have maps


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
    codes, first, last = tally.group_runs()
    through = np.concatenate([[0], np.cumsum(tally.rows)])
    return np.asarray(codes[(codes != NO_GROUP) & (through[last] - through[first] >= rows)])


def distinct_values(levels: list[Tally]) -> list[Ints]:
    """Return the number of distinct confidences of each node, level by level from the root."""
    counts = [np.array([len(levels[0])])]
    for level in levels[1:]:
        codes, first, last = level.group_runs()
        counts.append((last - first)[codes != NO_GROUP])
    return counts
