r"""Maps made of bins: for every group a table of confidences, each bin with its answer and its interval.

Bin :math:`k` of a map is (top of bin k-1, top of bin k]; the first starts at 0 and the last ends at 1, both included.
With ``ties="jitter"`` the order is that of the pair (confidence, hash of the id), and a bin is half open to the right
as in Algorithm UMD. One comparison serves both: a row is in the first bin whose (top, tie) is above the row's own.

A group with fewer than :math:`b` rows has no map of its own. It reads that of the nearest ancestor with :math:`b` rows
or more; the root always has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from qacal.bins import Bins, group_runs, mass_bins, rank_bins
from qacal.calibrators.base import Rows
from qacal.calibrators.evidence import FROM_ANCESTOR, FROM_GROUP, FROM_ROOT, Evidence
from qacal.errors import InputError
from qacal.grouping import NO_GROUP, Grouping
from qacal.guarantee import Certificate, check_alpha, uniform_certificate
from qacal.lookup import Directory, search_within
from qacal.records import Bools, Floats, Hashes, Ints
from qacal.tally import Tally, snap

Ties: TypeAlias = Literal["merge", "jitter"]
CertificateKind: TypeAlias = Literal["uniform", "conditional"]


@dataclass(frozen=True, eq=False)
class BinMaps:
    """The maps of all groups, their bins end to end; map 0 is the root's.

    top, tie : where each bin ends; infinite in the last bin of a map.
    value, low, high, rows : each bin's answer, its certificate, and the rows behind it.
    offset : map j has the bins ``offset[j]`` to ``offset[j + 1] - 1``.
    owner, depth : whose map it is: a group's code, and the depth at which it is a group (0 is the root).
    source : whether those who read the map read their own (group), an ancestor's or the root's.
    directory : which map a group reads.
    """

    top: Floats
    tie: Hashes
    value: Floats
    low: Floats
    high: Floats
    rows: Ints
    offset: Ints
    owner: Ints
    depth: Ints
    source: Ints
    directory: Directory
    grouping: Grouping | None
    certificate: Certificate
    is_jittered: bool
    resolution: float | None

    def apply(self, rows: Rows) -> Floats:
        """Return the answer of each row's bin."""
        return self.value[self._bins(rows, self._maps(rows))]

    def explain(self, rows: Rows) -> Evidence:
        """Return the answer of each row's bin with its interval and rows."""
        maps = self._maps(rows)
        bins = self._bins(rows, maps)
        return Evidence.of(
            rows.confidence,
            self.value[bins],
            group=rows.names(self.grouping),
            source=FROM_ROOT if maps is None else self.source[maps],
            rows=self.rows[bins],
            low=self.low[bins],
            high=self.high[bins],
            alpha=self.certificate.alpha,
        )

    def _maps(self, rows: Rows) -> Ints | None:
        """Return the map that each row reads, None if all read the root's."""
        if self.grouping is None or rows.groups is None:
            return None
        return self.directory.find(rows.leaves(self.grouping))

    def _bins(self, rows: Rows, maps: Ints | None) -> Ints:
        h = rows.confidence if self.resolution is None else snap(rows.confidence, self.resolution)
        if maps is None:
            found = np.searchsorted(self.top[: self.offset[1] - 1], h)
        else:
            found = search_within(self.top, h, self.offset[maps], self.offset[maps + 1] - 1)
        if self.is_jittered and rows.tie is not None:
            stop = self.offset[1:][0 if maps is None else maps] - 1
            found = self._among_equal_tops(h, rows.tie, found, np.broadcast_to(stop, len(h)))
        return found

    def _among_equal_tops(self, h: Floats, tie: Hashes, found: Ints, stop: Ints) -> Ints:
        """Move rows that stand on an edge past the edges that are not above them."""
        on_edge = np.flatnonzero((found < stop) & (self.top[found] == h))
        first, last = found[on_edge], stop[on_edge]
        beyond = search_within(self.top, h[on_edge], first, last, side="right")
        found = found.copy()
        found[on_edge] = search_within(self.tie, tie[on_edge], first, beyond, side="right")
        return found


@dataclass(frozen=True)
class _Level:
    """The groups of one depth, from the root (0) down.

    bins : those of all its groups.
    codes : the groups with enough rows for a map.
    values : how many distinct confidences each of its groups has.
    """

    depth: int
    bins: Bins
    targets: Tally
    codes: Ints
    values: Ints


def fit_bins(
    labels: Tally,
    targets: Tally | None = None,
    *,
    points_per_bin: int,
    ties: Ties = "merge",
    certificate: CertificateKind = "uniform",
    alpha: float = 0.1,
) -> BinMaps:
    """Return the maps for a tally.

    labels : the rows with their true labels: they make the bins and the intervals.
    targets : the same rows with what a bin should answer the mean of; the labels themselves by default.
    """
    check_alpha(alpha)
    _check_choice("ties", ties, ("merge", "jitter"))
    _check_choice("certificate", certificate, ("uniform", "conditional"))
    if ties == "jitter" and points_per_bin < 2:
        raise InputError(f'points_per_bin is {points_per_bin}; ties="jitter" needs 2 or more, an edge row and another.')
    levels = [_level(*pair, points_per_bin, ties) for pair in _depths(labels, labels if targets is None else targets)]
    level_of_map, owner, directory = _assign(levels, labels.grouping)
    used = [owner[level_of_map == level.depth] for level in levels]
    served = [np.isin(level.bins.group, codes) for level, codes in zip(levels, used, strict=True)]
    if ties == "jitter" or certificate == "conditional":
        kind = "distinct" if ties == "jitter" else "conditional"
        promise = Certificate(kind, alpha, sum(int(mine.sum()) for mine in served))
    else:
        distinct = np.concatenate([level.values for level in levels])
        promise = uniform_certificate(alpha, len(distinct), labels.resolution, distinct)
    parts = [_columns(level, mine, ties, promise) for level, mine in zip(levels, served, strict=True)]
    sizes = [
        np.unique(level.bins.group[mine], return_counts=True)[1] for level, mine in zip(levels, served, strict=True)
    ]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    finest = len(levels) - 1
    return BinMaps(
        **joined,
        offset=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
        owner=owner,
        depth=level_of_map,
        source=np.where(level_of_map == 0, FROM_ROOT, np.where(level_of_map == finest, FROM_GROUP, FROM_ANCESTOR)),
        directory=directory,
        grouping=labels.grouping,
        certificate=promise,
        is_jittered=ties == "jitter",
        resolution=labels.resolution,
    )


def _depths(labels: Tally, targets: Tally) -> Iterator[tuple[int, Tally, Tally]]:
    """Yield (depth, labels, targets) from the root down to the finest groups."""
    yield 0, labels.pooled(), targets.pooled()
    column = labels.grouping
    if column is None:
        return
    if column.depth is None:
        yield 1, labels, targets
        return
    for depth in range(1, column.depth + 1):
        yield depth, labels.roll_up(depth).flat(), targets.roll_up(depth).flat()


def _level(depth: int, labels: Tally, targets: Tally, points_per_bin: int, ties: Ties) -> _Level:
    bins = mass_bins(labels, points_per_bin) if ties == "merge" else rank_bins(labels, points_per_bin)
    codes, first, last = group_runs(labels)
    is_node = codes != NO_GROUP if depth else np.ones(1, dtype=bool)
    through = np.concatenate([[0], np.cumsum(labels.rows)])
    is_enough = is_node & ((through[last] - through[first] >= points_per_bin) | (depth == 0))
    return _Level(depth, bins, targets, codes[is_enough], (last - first)[is_node])


def _assign(levels: list[_Level], column: Grouping | None) -> tuple[Ints, Ints, Directory]:
    """Give every group the finest map on its way to the root; return the maps in use by depth and code."""
    if column is None:
        nobody = np.array([], dtype=np.int64)
        return np.array([0]), np.array([NO_GROUP]), Directory(nobody, nobody)
    finest = len(levels) - 1
    if column.depth is None:
        leaves = levels[1].codes
        reads, owner = np.ones_like(leaves), leaves
    else:
        leaves = np.arange(2**column.depth)
        reads = np.zeros_like(leaves)
        for level in levels[1:]:
            reads[np.isin(leaves >> (finest - level.depth), level.codes)] = level.depth
        owner = np.where(reads == 0, NO_GROUP, leaves >> (finest - reads))
    root = np.array([[0], [NO_GROUP]])
    tables, number = np.unique(np.concatenate([root, [reads, owner]], axis=1), axis=1, return_inverse=True)
    return tables[0], tables[1], Directory(leaves, number.ravel()[1:])


def _columns(level: _Level, mine: Bools, ties: Ties, promise: Certificate) -> dict[str, Any]:
    """Return the bins of those of a level's groups that have a map in use."""
    bins, labels, targets = level.bins, level.bins.tally, level.targets
    sums = [bins.sum(column)[mine] for column in (labels.rows, labels.w, labels.wt, labels.wtt, labels.ww)]
    low, high = promise.intervals(*sums)
    is_last = np.append(bins.group[1:] != bins.group[:-1], True)
    # Where a bin ends: at its highest confidence, or, in Algorithm UMD, just below the edge row that follows it.
    end = np.minimum(bins.stop - (1 if ties == "merge" else 0), len(labels) - 1)
    tie = np.zeros(len(labels), dtype=np.uint64) if labels.tie is None else labels.tie
    return {
        "top": np.where(is_last, np.inf, labels.confidence[end])[mine],
        "tie": tie[end][mine],
        "value": np.clip(bins.sum(targets.wt) / bins.sum(targets.w), 0.0, 1.0)[mine],
        "low": low,
        "high": high,
        "rows": sums[0].astype(np.int64),
    }


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}.")
