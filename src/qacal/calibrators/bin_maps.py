r"""Maps made of bins: for every group a table of confidences, each bin with its value and its interval.

Bin :math:`k` of a map is (top of bin k-1, top of bin k]; the first starts at 0 and the last ends at 1, both included.
With ``ties="jitter"`` the order is that of the pair (confidence, hash of the id), and a bin is half open to the right
as in Algorithm UMD. One comparison serves both: a row is in the first bin with a (top, tie) above the row's own.

A group with fewer than :math:`b` rows has no map of its own. It uses that of the nearest ancestor with :math:`b` rows
or more; the root always has a map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np

from qacal.calibrators.ancestry import Lineage, flat_levels, groups_with_rows, lineage
from qacal.calibrators.base import Evidence, Rows, group_names
from qacal.errors import InputError
from qacal.guarantee import Certificate, check_alpha, jittered_certificate, uniform_certificate
from qacal.parameters import MOST, Axes, Between, Offsets, require
from qacal.tally.arrays import Bools, Floats, Hashes, Ints, seven_decimals
from qacal.tally.bins import Bins, check_points_per_bin, equal_bins, group_runs, mass_bins, rank_bins, search_within
from qacal.tally.cells import snap
from qacal.tally.groups import NO_GROUP, GroupColumn
from qacal.tally.tally import Tally

Ties: TypeAlias = Literal["merge", "jitter"]
CertificateKind: TypeAlias = Literal["uniform", "conditional"]


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
        levels = np.unique(self.lineage.depth).tolist()
        return np.stack([self._bins_at(rows, depth) for depth in levels], axis=1)

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
        if self.certificate.kind != "fixed" and self.resolution is None:
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

    def _bins_at(self, rows: Rows, depth: int) -> Ints:
        if depth == 0:
            return self._bins(rows, np.zeros(len(rows.confidence), dtype=np.int64))
        if self.grouping is None or rows.groups is None:
            return np.full(len(rows.confidence), -1)
        maps = np.flatnonzero(self.lineage.depth == depth)
        codes = rows.leaves(self.grouping, depth if self.grouping.is_tree else None)
        maps = maps[np.minimum(np.searchsorted(self.lineage.owner[maps], codes), len(maps) - 1)]
        return np.where(self.lineage.owner[maps] == codes, self._bins(rows, maps), -1)

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


def fit_bins(
    labels: Tally,
    targets: Tally,
    *,
    points_per_bin: int,
    n_bins: int | None = None,
    max_depth: int | None = None,
    ties: Ties = "merge",
    certificate: CertificateKind = "uniform",
    alpha: float = 0.1,
) -> BinMaps:
    """Return the maps for a tally.

    labels : the rows with their true labels, for bins and intervals.
    targets : the same rows with the targets for the values of bins, which may be the labels.
    n_bins : instead of points per bin, for tallies without groups.
    max_depth : use the groups of a tree at this depth. The uniform certificate covers all depths of the tree, so the
        depth may be chosen on the same rows.
    """
    check_alpha(alpha)
    for name, choice, kind in (("ties", ties, Ties), ("certificate", certificate, CertificateKind)):
        if choice not in get_args(kind):
            raise InputError(f"{name} is {choice!r}; expected one of {', '.join(map(repr, get_args(kind)))}.")
    check_points_per_bin(points_per_bin)
    if ties == "jitter" and points_per_bin < 2:
        raise InputError(f'points_per_bin is {points_per_bin}; ties="jitter" needs 2 or more, an edge row and another.')
    if ties == "jitter" and labels.n != len(labels):
        raise InputError(
            'some rows have the same id and the same confidence; ties="jitter" needs an id for every row, '
            "for example one of question and answer."
        )
    levels = flat_levels(labels, max_depth)
    levels_of_targets = levels if targets is labels else flat_levels(targets, max_depth)
    ancestry = lineage(levels, labels.grouping, points_per_bin)
    bins = [_bins(level, points_per_bin, n_bins, ties) for level in levels]
    has_map = [np.isin(of.group, ancestry.owner[ancestry.depth == depth]) for depth, of in enumerate(bins)]
    if ties == "jitter":
        counts = [_bins_with_rows(of, level, points_per_bin) for of, level in zip(bins, levels, strict=True)]
        guarantee = jittered_certificate(alpha, counts)
    elif certificate == "conditional":
        guarantee = Certificate("conditional", alpha, sum(int(which.sum()) for which in has_map))
    else:
        distinct = distinct_values(levels if max_depth is None else flat_levels(labels))
        guarantee = uniform_certificate(alpha, distinct, labels.resolution)
    parts = [_columns(*level, ties, guarantee) for level in zip(bins, levels_of_targets, has_map, strict=True)]
    sizes = [np.unique(of.group[which], return_counts=True)[1] for of, which in zip(bins, has_map, strict=True)]
    return BinMaps(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        offset=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
        lineage=ancestry,
        grouping=None if labels.grouping is None else labels.grouping.distinct(),
        max_depth=max_depth,
        certificate=guarantee,
        is_jittered=ties == "jitter",
        resolution=labels.resolution,
    )


def _bins(level: Tally, points_per_bin: int, n_bins: int | None, ties: Ties) -> Bins:
    if ties == "jitter":
        return rank_bins(level, points_per_bin, n_bins)
    return mass_bins(level, points_per_bin) if n_bins is None else equal_bins(level, n_bins)


def _bins_with_rows(bins: Bins, level: Tally, least: int) -> int:
    """Return the number of bins of a level in groups with `least` rows or more; the root always counts."""
    if level.grouping is None:
        return len(bins.group)
    return int(np.isin(bins.group, groups_with_rows(level, least)).sum())


def distinct_values(levels: list[Tally]) -> list[Ints]:
    """Return the number of distinct confidences of each node, level by level from the root."""
    counts = [np.array([len(levels[0])])]
    for level in levels[1:]:
        codes, first, last = group_runs(level)
        counts.append((last - first)[codes != NO_GROUP])
    return counts


def _columns(bins: Bins, targets: Tally, has_map: Bools, ties: Ties, guarantee: Certificate) -> dict[str, Any]:
    """Return the columns of those bins of a level whose group has a map."""
    labels = bins.tally
    sums = [bins.sum(column)[has_map] for column in (labels.rows, labels.w, labels.wt, labels.wtt, labels.ww)]
    low, high = guarantee.intervals(*sums)
    targets_w, targets_wt = (bins.sum(column)[has_map] for column in (targets.w, targets.wt))
    is_last = np.append(bins.group[1:] != bins.group[:-1], True)
    # Where a bin ends: at its highest confidence, or, in Algorithm UMD, just below the edge row that follows it.
    end = np.minimum(bins.stop - (1 if ties == "merge" else 0), len(labels) - 1)
    tie = np.zeros(len(labels), dtype=np.uint64) if labels.tie is None else labels.tie
    return {
        "top": np.where(is_last, np.inf, labels.confidence[end])[has_map],
        "tie": tie[end][has_map],
        "value": np.clip(targets_wt / targets_w, 0.0, 1.0),
        "low": low,
        "high": high,
        "rows": sums[0].astype(np.int64),
    }
