r"""The tally: the sums over rows from which calibrators and metrics are computed.

Calibrators and metrics do not need the rows themselves, only the number of rows and of correct rows for each (group,
confidence). LLM confidences are heavily tied (a stated 0.8, 0.9, 1.0), so ten million rows are often ten thousand
*cells*. A cell holds sums over its rows, with :math:`w` the weight of a row and :math:`t \in [0, 1]` its target (0/1,
or soft):

======  ==================  =====================================================
rows    :math:`n`           number of rows, without rows of weight 0
w       :math:`\sum w`      equals `rows` when no weights are given
wt      :math:`\sum wt`     number of correct rows
wtt     :math:`\sum wt^2`   equals `wt` for 0/1 targets; the Brier score needs it
ww      :math:`\sum w^2`    for the effective number of rows, :math:`(\sum w)^2 / \sum w^2`
wwt     :math:`\sum w^2t`   these two: for pairs of different rows, from which
wwtt    :math:`\sum w^2t^2` the debiased calibration error is computed
======  ==================  =====================================================

Tallies **add**, and a tally over a tree of depth :math:`D` **rolls up** to every smaller depth. The identity of a row
is used before counting, by a hash of its id: a `block` in the key keeps the rows of one question together for halves,
folds and the jackknife; a `tie` keeps the order among equal confidences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.parameters import is_whole, shown
from qacal.tally import ids as identity
from qacal.tally.arrays import (
    ArrayLike,
    Bools,
    Floats,
    Hashes,
    Ints,
    require_length,
    seven_decimals,
    unit_values,
    weight_values,
)
from qacal.tally.cells import SUMS, Cells, Sums, count_plain, gather, snap
from qacal.tally.groups import NO_GROUP, GroupColumn, Paths, as_grouping, merge_labels
from qacal.tally.table import read_cells, write_cells

if TYPE_CHECKING:
    import polars as pl


BLOCKS = 256
"""The number of blocks of questions in metrics: enough for a steady jackknife, few enough to keep cells few."""

COARSE = 0.001
"""The grid of confidences in a sum of tallies that would have too many cells."""

DOCUMENTS = 2**62
"""The number of blocks that puts every id into a block of its own: then a block has the rows of one document."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Sorted cells with their sums; see the module's text for the columns.

    Cells are sorted by (partitions in their order, block, confidence, tie), and no two have the same key.

    partitions : the columns of groups, by name; a column without a name is called "group".
    block, n_blocks, seed : the block of questions of a cell's rows, and how blocks were made.
    tie : the place of a row among equal confidences, in tallies that keep rows apart.
    is_weighted, is_soft : weights were given; some targets are neither 0 nor 1.
    is_clustered, is_sum : some question has several rows; some may have, since tallies were added.
    resolution : the grid that confidences were rounded to.

    Examples
    --------
    Six answers of two subjects; both law answers at 0.9 share a cell:

    >>> tally = Tally.of([.9, .9, .5, .9, .5, .5], [1, 0, 1, 1, 0, 1], groups=["law"] * 3 + ["art"] * 3)
    >>> tally
    Tally(6 rows in 4 cells, 2 groups)
    >>> tally.confidence, tally.rows, tally.wt
    (array([0.5, 0.9, 0.5, 0.9]), array([2, 1, 1, 2]), array([1., 1., 1., 1.]))
    >>> for label, cells in tally:
    ...     print(label, cells.mean)
    art 0.6666666666666666
    law 0.6666666666666666
    """

    confidence: Floats
    rows: Ints
    w: Floats
    wt: Floats
    wtt: Floats
    ww: Floats
    wwt: Floats
    wwtt: Floats
    partitions: Mapping[str, GroupColumn] = field(default_factory=dict)
    block: Ints | None = None
    n_blocks: int = 1
    seed: int = 0
    tie: Hashes | None = None
    is_weighted: bool = False
    is_soft: bool = False
    is_clustered: bool = False
    is_sum: bool = False
    resolution: float | None = None

    @staticmethod
    def of(
        confidence: ArrayLike,
        correct: ArrayLike,
        *,
        groups: ArrayLike | Paths | Mapping[str, ArrayLike | Paths] | None = None,
        sample_weight: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        n_blocks: int = 1,
        seed: int = 0,
        ties: bool = False,
        resolution: float | None = None,
    ) -> Tally:
        """Count rows into cells.

        Parameters
        ----------
        confidence : what the LLM stated, in [0, 1].
        correct : 0/1, or a soft target in [0, 1].
        groups : a label per row of any type, :class:`~qacal.Paths` of a tree, or a dict of several such columns.
        sample_weight : importance of each row; 0 leaves a row out. A weight is not a count of rows.
        ids : the question's id. Rows with one id share a block. Without ids a row is identified by its values.
        n_blocks : the number of blocks of questions; another `seed` gives other blocks.
        ties : keep rows of equal confidence (to seven decimals) apart, in the order of their ids' hashes.
        resolution : round confidences to the grid 0, resolution, ..., 1 (0.01 gives 101 values).
        """
        if not isinstance(ties, bool):
            raise InputError(f"ties is {shown(ties)}; expected True or False.")
        if not is_whole(n_blocks, 1):
            raise InputError(f"n_blocks is {shown(n_blocks)}; expected a whole number of 1 or more.")
        h = unit_values(confidence, "confidence")
        t = unit_values(correct, "correct")
        require_length(t, len(h), "correct")
        weight = weight_values(sample_weight, len(h))
        named = groups if isinstance(groups, Mapping) else {} if groups is None else {"group": groups}
        columns = {str(name): as_grouping(column, len(h)) for name, column in named.items()}
        hashes = None if ids is None else identity.id_hashes(ids, len(h))
        if resolution is not None:
            h = snap(h, resolution)
        elif ties:
            h = seven_decimals(h)
        if weight is not None and not weight.all():
            kept = weight > 0
            h, t, weight = h[kept], t[kept], weight[kept]
            columns = {name: column.take(kept) for name, column in columns.items()}
            hashes = None if hashes is None else hashes[kept]
        is_soft = bool(np.count_nonzero(t) > np.count_nonzero(t == 1))
        is_clustered = hashes is not None and identity.surplus(hashes) > 0
        if not (columns or n_blocks > 1 or ties or is_soft or weight is not None):
            return Tally(**_fields(count_plain(h, t), {}), is_clustered=is_clustered, resolution=resolution)
        tie = identity.tie_order(hashes, h) if ties else None
        keys = [key for column in columns.values() for key in _keys_of(column)]
        if n_blocks > 1:
            if hashes is None:
                hashes = identity.value_hashes(h, t, *([] if weight is None else [weight]), *keys)
            keys.append(identity.blocks(hashes, n_blocks, seed))
        sums: Sums = {"wt": t, "wtt": t * t} if is_soft else {"wt": t}
        if weight is not None:
            w, ww = weight, weight * weight
            sums = {"w": w, "wt": w * t, "wtt": w * t * t, "ww": ww, "wwt": ww * t, "wwtt": ww * t * t}
        cells = gather(keys, h, tie, sums, is_exact=weight is None and not is_soft)
        return Tally(
            **_fields(cells, columns),
            n_blocks=int(n_blocks),
            seed=seed if n_blocks > 1 else 0,
            is_weighted=weight is not None,
            is_soft=is_soft,
            is_clustered=is_clustered,
            resolution=resolution,
        )

    @staticmethod
    def of_counts(
        confidence: Floats,
        rows: Ints,
        correct: Ints,
        *,
        groups: Mapping[str, ArrayLike],
        resolution: float | None = None,
    ) -> Tally:
        """Return the tally of rows that were counted elsewhere: how many there are, and how many are correct.

        resolution : the grid that confidences are on.
        """
        w, wt = rows.astype(np.float64), correct.astype(np.float64)
        partitions = {name: as_grouping(column, len(rows)) for name, column in groups.items()}
        cells = Tally(confidence + 0.0, rows, w, wt, wt, w, wt, wt, partitions, resolution=resolution)
        return cells._merged()

    # What it holds

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.confidence)

    def __repr__(self) -> str:
        parts = [f"{self.n} rows in {len(self)} cells"]
        for name, column in self.partitions.items():
            groups = len(np.setdiff1d(column.leaves(), [NO_GROUP]))
            of = "" if len(self.partitions) == 1 else f" of {name}"
            parts.append(f"{groups} groups{of}" + (f" in a tree of depth {column.depth}" if column.is_tree else ""))
        if self.n_blocks > 1:
            parts.append(f"{self.n_blocks} blocks")
        return f"Tally({', '.join(parts)})"

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.sum())

    @property
    def is_by_document(self) -> bool:
        """Whether some ids have several rows, and the cells tell which rows these are (`n_blocks` is DOCUMENTS)."""
        return self.n_blocks == DOCUMENTS and self.block is not None and len(identity.distinct(self.block)) < self.n

    @property
    def mean(self) -> float:
        """The weighted share of correct answers."""
        return float(self.wt.sum() / self.w.sum())

    @property
    def grouping(self) -> GroupColumn | None:
        """The one partition's column, or None; several partitions must be named with :meth:`only`."""
        if len(self.partitions) > 1:
            raise InputError(f"this tally has the partitions {list(self.partitions)}; choose one with only(name).")
        return next(iter(self.partitions.values()), None)

    def group_runs(self) -> tuple[Ints, Ints, Ints]:
        """Return (codes, start, stop): each group's run of cells, if groups are flat or none."""
        if (column := self.grouping) is None:
            return np.array([NO_GROUP]), np.array([0]), np.array([len(self)])
        start = np.concatenate([[0], np.flatnonzero(column.code[1:] != column.code[:-1]) + 1])
        return column.code[start], start, np.append(start[1:], len(self))

    # Other tallies of the same rows

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of both sets of rows, from several files, machines or days.

        A question may be in both, so metrics treat the rows of a block as dependent.
        """
        for name, one, two in (
            ("the column of groups", list(self.partitions), list(other.partitions)),
            ("what is counted", *("documents" if one.n_blocks == DOCUMENTS else "rows" for one in (self, other))),
            ("n_blocks", self.n_blocks, other.n_blocks),
            ("the seed of the blocks", self.seed, other.seed),
            ("ties kept", self.tie is not None, other.tie is not None),
            ("resolution", self.resolution, other.resolution),
        ):
            if one != two:
                raise InputError(f"these tallies do not add: {name} is {one} in one and {two} in the other.")
        partitions = {}
        for name, column in self.partitions.items():
            first, second = merge_labels(column, other.partitions[name])
            code = np.concatenate([first.code, second.code])
            partitions[name] = GroupColumn(code, first.labels, _join(first.exit, second.exit), first.depth)
        joined = replace(
            self,
            confidence=np.concatenate([self.confidence, other.confidence]),
            partitions=partitions,
            block=_join(self.block, other.block),
            tie=_join(self.tie, other.tie),
            is_weighted=self.is_weighted or other.is_weighted,
            is_soft=self.is_soft or other.is_soft,
            is_clustered=self.is_clustered or other.is_clustered,
            is_sum=True,
            **{name: _join(getattr(self, name), getattr(other, name)) for name in SUMS},
        )
        return joined._merged()

    def __radd__(self, other: object) -> Tally:
        """Return self for ``sum(tallies)``, which starts from 0."""
        return self if other == 0 else NotImplemented

    def pooled(self) -> Tally:
        """Return the tally without groups."""
        return replace(self, partitions={})._merged() if self.partitions else self

    def only(self, name: str) -> Tally:
        """Return the tally over one of several partitions."""
        if name not in self.partitions:
            raise InputError(f"there is no partition {name!r}; this tally has {list(self.partitions)}.")
        return replace(self, partitions={name: self.partitions[name]})._merged()

    def roll_up(self, depth: int) -> Tally:
        """Return the tally over the same tree cut at `depth`, as if its rows had been counted there."""
        return self._with_grouping(self._single().at_depth(depth))

    def flat(self) -> Tally:
        """Return a tree's tally over its leaves as a flat column; rows that left the tree have no group."""
        column = self._single()
        return self._with_grouping(GroupColumn(column.leaves())) if column.is_tree else self

    def without_blocks(self) -> Tally:
        """Return the tally without blocks."""
        return replace(self, block=None, n_blocks=1, seed=0)._merged() if self.block is not None else self

    def without_ties(self) -> Tally:
        """Return the tally without the order among equal confidences."""
        return replace(self, tie=None)._merged() if self.tie is not None else self

    def snapped(self, resolution: float) -> Tally:
        """Return the same rows with confidences on the grid 0, resolution, ..., 1."""
        if self.resolution == resolution:
            return self
        if self.resolution is not None:
            raise InputError(f"this tally has resolution {self.resolution}; {resolution} needs the rows again.")
        return replace(self, confidence=snap(self.confidence, resolution), resolution=resolution)._merged()

    def to_seven_decimals(self) -> Tally:
        """Return the same rows with confidences to seven decimals, as calibrators compare them; a grid stays."""
        rounded = seven_decimals(self.confidence)
        if self.resolution is not None or np.array_equal(rounded, self.confidence):
            return self
        return replace(self, confidence=rounded)._merged()

    def fold(self, k: int, of: int) -> Tally:
        """Return the rows of fold `k` out of `of`: the blocks with a number of `k` modulo `of`, without blocks."""
        return self._select(self._in_fold(k, of)).without_blocks()

    def within_fold(self, k: int, of: int) -> Tally:
        """Return the rows of a fold, with their blocks."""
        return self._select(self._in_fold(k, of))

    def outside_fold(self, k: int, of: int) -> Tally:
        """Return the rows of all other folds, with their blocks."""
        return self._select(~self._in_fold(k, of))

    def with_confidence(self, confidence: Floats) -> Tally:
        """Return the same rows with another score per cell, such as a calibrated one."""
        return replace(self, confidence=np.asarray(confidence, dtype=np.float64), tie=None, resolution=None)._merged()

    def with_targets(self, targets: Floats) -> Tally:
        """Return the same rows with one soft target per cell, such as the values of a fitted model."""
        t, w, ww = np.asarray(targets, dtype=np.float64), self.w, self.ww
        return replace(self, wt=w * t, wtt=w * t * t, wwt=ww * t, wwtt=ww * t * t, is_soft=True)

    def group(self, label: Any) -> Tally:
        """Return the rows of one group, without their group."""
        column = self._single()
        code = column.encode([label], 1).leaves()[0]
        is_in_group = column.leaves() == code
        if code == NO_GROUP or not is_in_group.any():
            raise InputError(f"no row is in group {label!r}.")
        return self._select(is_in_group).pooled()

    def __iter__(self) -> Iterator[tuple[Any, Tally]]:
        """Yield (label, tally) for every group; rows without a group come first, under None."""
        column = self._single()
        if not column.is_tree:
            for code, start, stop in zip(*map(np.ndarray.tolist, self.group_runs()), strict=True):
                yield column.label(code), self._select(slice(start, stop)).pooled()
            return
        codes = column.leaves()
        for code in np.unique(codes):
            yield column.label(int(code)), self._select(codes == code).pooled()

    # From and to tables

    def to_polars(self) -> pl.DataFrame:
        """Return the cells as a table that :meth:`from_polars` reads back.

        Group columns hold the labels themselves, so that tables of several files can be stacked.
        """
        return write_cells({name: getattr(self, name) for name in self.__dataclass_fields__})

    @staticmethod
    def from_polars(table: pl.DataFrame) -> Tally:
        """Read cells from a table of :meth:`to_polars` or :meth:`sql`, or several stacked; equal keys are added up."""
        return Tally(**read_cells(table))._merged()

    @staticmethod
    def sql(
        table: str,
        *,
        dialect: str,
        confidence: str = "confidence",
        correct: str = "correct",
        groups: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        ids: str | None = None,
        resolution: float | None = None,
    ) -> str:
        """Return the SELECT that counts the rows of a table inside a database.

        :meth:`from_polars` reads its result, and gives what :meth:`of` gives on the same rows: exactly for 0/1 labels
        without weights, else up to the rounding of sums. Rows without a label (NULL) are left out. Whatever else
        :meth:`of` refuses is refused by :meth:`from_polars`: a confidence or a label that is not from 0 to 1, a missing
        confidence, weight or id. There are no blocks and ties, which come from hashes of ids.

        Parameters
        ----------
        table : the name of a table, as SQL writes it, or a SELECT.
        dialect : "bigquery", "duckdb", "postgres", "snowflake", "spark" or "sqlite".
        confidence, correct, sample_weight, ids : names of columns. `correct` may be numbers or booleans. With `ids`,
            the tally knows whether some id has several rows.
        groups : the name of a column, or several.
        resolution : as in :meth:`of`, 0.001 or more. Without it, continuous confidences give a cell for each row.

        Examples
        --------
        >>> import sqlite3, polars as pl
        >>> base = sqlite3.connect(":memory:")
        >>> _ = base.execute("CREATE TABLE logs AS SELECT 0.9 AS confidence, 1 AS correct, 'law' AS subject")
        >>> query = Tally.sql("logs", dialect="sqlite", groups="subject")
        >>> Tally.from_polars(pl.read_database(query, base))
        Tally(1 rows in 1 cells, 1 groups)
        >>> base.close()
        """
        from qacal.tally.sql import tally_sql

        return tally_sql(
            table,
            dialect=dialect,
            confidence=confidence,
            correct=correct,
            groups=groups,
            sample_weight=sample_weight,
            ids=ids,
            resolution=resolution,
        )

    # Inside

    def _single(self) -> GroupColumn:
        column = self.grouping
        if column is None:
            raise InputError("this tally has no groups; pass groups= when counting.")
        return column

    def _in_fold(self, k: int, of: int) -> Bools:
        if not 0 <= k < of:
            raise InputError(f"fold {k} of {of} does not exist; folds are numbered from 0 to {of - 1}.")
        if self.block is None or self.n_blocks % of:
            raise InputError(f"folds of {of} need blocks in a multiple of {of}; this tally has {self.n_blocks}.")
        return np.asarray(self.block % of == k)

    def _with_grouping(self, column: GroupColumn) -> Tally:
        name = next(iter(self.partitions))
        return replace(self, partitions={name: column})._merged()

    def _select(self, cells: Bools | slice) -> Tally:
        return replace(
            self,
            confidence=self.confidence[cells],
            partitions={name: column.take(cells) for name, column in self.partitions.items()},
            block=None if self.block is None else self.block[cells],
            tie=None if self.tie is None else self.tie[cells],
            **{name: getattr(self, name)[cells] for name in SUMS},
        )

    def _merged(self) -> Tally:
        """Sort by key and add up cells with the same key."""
        if len(self) == 0:
            return self
        keys = [key for column in self.partitions.values() for key in _keys_of(column)]
        if self.block is not None:
            keys.append(self.block)
        names = SUMS if self.is_weighted else ("rows", "wt", "wtt") if self.is_soft else ("rows", "wt")
        sums = {name: getattr(self, name).astype(np.float64, copy=False) for name in names}
        cells = gather(keys, self.confidence, self.tie, sums, is_exact=not (self.is_soft or self.is_weighted))
        return replace(self, **_fields(cells, self.partitions))


class TallySum:
    """Adds up tallies, those of like size first, so that many of them take little longer than one of all rows.

    most : with more cells than this, confidences are rounded to :data:`COARSE`, unless the tallies have ties or a grid
        of their own. The result does not depend on the order of the tallies.

    >>> total = TallySum()
    >>> for labels in ([0, 1], [1, 1], [0, 0]):
    ...     total.add(Tally.of([0.5, 0.9], labels))
    >>> total.total(), total.rows
    (Tally(6 rows in 2 cells), 6)
    """

    def __init__(self, most: int | None = None) -> None:
        self._parts: list[Tally] = []
        self._most = most
        self._is_coarse = False
        self.rows = 0

    def add(self, tally: Tally) -> None:
        self.rows += tally.n
        self._parts.append(tally.snapped(COARSE) if self._is_coarse else tally)
        while len(self._parts) > 1 and len(self._parts[-2]) <= 2 * len(self._parts[-1]):
            self._add_last()
        if self._most is not None and self.cells > 2 * self._most:
            self.total()

    @property
    def cells(self) -> int:
        """The number of cells, of which some may turn out to be the same."""
        return sum(map(len, self._parts))

    def total(self) -> Tally:
        """Return the sum; raise if there is nothing to add up."""
        while len(self._parts) > 1:
            self._add_last()
        if not self._parts:
            raise InputError("there are no rows to use: the records are empty, or every row was left out.")
        total = self._parts[0]
        is_fine = total.resolution is None and total.tie is None
        if self._most is not None and is_fine and len(total) > self._most:
            self._parts[0], self._is_coarse = total.snapped(COARSE), True
        return self._parts[0]

    def _add_last(self) -> None:
        last = self._parts.pop()
        self._parts[-1] += last


def _fields(cells: Cells, like: Mapping[str, GroupColumn]) -> dict[str, Any]:
    """Return the fields of a tally that cells determine; their keys are the columns `like`, then the block."""
    keys = list(cells.keys)
    columns = {}
    for name, column in like.items():
        code = keys.pop(0)
        exits = keys.pop(0) if column.exit is not None else None
        columns[name] = GroupColumn(code, column.labels, exits, column.depth)
    sums: Any = cells.sums
    w = sums["w"] if "w" in sums else sums["rows"].astype(np.float64)
    wtt = sums.get("wtt", sums["wt"])
    every = {"w": w, "wtt": wtt, "ww": w, "wwt": sums["wt"], "wwtt": wtt} | sums
    return {
        "confidence": cells.confidence,
        "partitions": columns,
        "block": keys.pop() if keys else None,
        "tie": cells.tie,
        **every,
    }


def _keys_of(column: GroupColumn) -> list[Ints]:
    return [column.code] if column.exit is None else [column.code, column.exit]


def _join(first: Any, second: Any) -> Any:
    return None if first is None else np.concatenate([first, second])
