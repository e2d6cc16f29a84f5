"""The groups of an experiment: a tree with all its depths, k-means with several numbers of groups, or a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, TypeAlias

import numpy as np

from qacal.errors import InputError
from qacal.experiment.sample import Sample
from qacal.partitions import (
    BisectingTree,
    Column,
    KDTree,
    KMeans,
    Partition,
    as_partition,
)
from qacal.search import ROOT, ROWS_A_GROUP, Cut
from qacal.tally.arrays import Bools, Ints
from qacal.tally.groups import NO_GROUP, Paths, as_grouping

SearchedTree: TypeAlias = KDTree | BisectingTree

Groups: TypeAlias = Paths | Mapping[str, Any]
"""A row's place in a tree, or its group in each of several partitions."""

# The deepest tree, and the most groups of k-means, that are tried unless the spelling says otherwise.
_DEPTH = 10
_GROUPS = 64

# Groups are made from rows: a tree needs two in a leaf, a centre five.
_ROWS_A_LEAF = 2
_ROWS_A_CENTRE = 5


@dataclass(frozen=True)
class Beta:
    """How rows are grouped: which vectors, and which partition of them (the paper's beta_emb and beta_bin).

    partition : its spelling, or the partition itself; then its depth or number of groups is the most that is tried.
    """

    embedder: str
    partition: str | Partition

    @property
    def name(self) -> str:
        """The partition's name in the results.

        >>> Beta("static", "kdtree:8").name, Beta("static", KDTree(axes="coordinate")).name
        ('kdtree:8', "KDTree(axes='coordinate')")
        """
        return str(self.partition)

    def groups(self, sample: Sample, is_beta: Bools, seed: int = 0) -> Groups:
        """Fit the partition on the beta rows, and return the groups of all rows."""
        partition = self.partitions(int(is_beta.sum()), seed)
        if isinstance(partition, Column):
            return {partition.name: sample.columns[partition.name]}
        Z = sample.vectors[self.embedder]
        if isinstance(partition, dict):
            return {name: kmeans.fit(Z[is_beta]).assign(Z) for name, kmeans in partition.items()}
        return partition.fit(Z[is_beta]).paths(Z)

    def partitions(self, rows: int, seed: int = 0) -> Column | SearchedTree | dict[str, KMeans]:
        """Return the partitions to search with this many beta rows; k-means has several sizes, by name."""
        partition = as_partition(self.partition)
        partition._require_parameters()
        is_limited = not isinstance(self.partition, str) or ":" in self.partition
        if isinstance(partition, Column):
            return partition
        if isinstance(partition, SearchedTree):
            depth = partition.max_depth if is_limited else _DEPTH
            allowed = max(1, int(np.log2(max(rows, 2) / _ROWS_A_LEAF)))
            return type(partition)(**{**partition.get_params(deep=False), "max_depth": min(depth, allowed)})
        if isinstance(partition, KMeans):
            most = max(2, min(partition.n_groups if is_limited else _GROUPS, rows // _ROWS_A_CENTRE))
            counts = [2**power for power in range(1, most.bit_length())]
            return {str(count): KMeans(n_groups=count, seed=seed) for count in counts}
        raise InputError(f"{self.name} cannot be searched; there are kdtree, bisecting, kmeans and column:NAME.")


def only(groups: Groups, rows: Bools) -> Groups:
    """Return the groups of some rows."""
    if isinstance(groups, Paths):
        return replace(groups, path=groups.path[rows], exit=groups.exit[rows])
    return {
        name: column[rows] if isinstance(column, np.ndarray) else list(compress(column, rows))
        for name, column in groups.items()
    }


def at_cut(groups: Groups, cut: Cut) -> Any:
    """Return the groups of a cut as a calibrator takes them; of a tree it takes all depths."""
    if isinstance(groups, Paths):
        return groups
    return None if cut == ROOT else groups[str(cut)]


def common_groups(groups: Groups, rows: int) -> Ints:
    """Return the finest groups that have 30 rows on average: all methods are measured with them."""
    if isinstance(groups, Paths):
        cuts = [groups.groups(depth) for depth in range(1, groups.depth + 1)]
    else:
        codes = [as_grouping(column, rows).leaves() for column in groups.values()]
        cuts = sorted(codes, key=lambda code: len(np.unique(code)))
    best = np.zeros(rows, dtype=np.int64)
    for code in cuts:
        if len(np.setdiff1d(code, [NO_GROUP])) * ROWS_A_GROUP <= rows:
            best = code
    return best
