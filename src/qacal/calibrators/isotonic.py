"""Isotonic calibration: the best rising curve, pooled or per group. Not in the paper; a baseline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from qacal.calibrators.base import Calibrator, Evidence, Properties, Rows, group_names
from qacal.calibrators.maps import Lineage, flat_levels, lineage
from qacal.errors import InputError
from qacal.parameters import MOST, Axes, Between, Offsets, Rising, require
from qacal.tally.arrays import Floats, Ints
from qacal.tally.bins import search_within
from qacal.tally.groups import GroupColumn
from qacal.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class IsotonicMaps:
    """Rising curves given by knots, straight between them, flat outside; curve 0 is the pooled one.

    x, y : the knots of all curves, end to end; curve j has the knots ``offset[j]`` to ``offset[j + 1] - 1``.
    """

    x: Annotated[Floats, Axes("knots"), Between(0, 1), Rising(within="offset")]
    y: Annotated[Floats, Axes("knots"), Between(0, 1), Rising(strictly=False, within="offset")]
    offset: Annotated[Ints, Offsets("knots")]
    rows: Annotated[Ints, Axes("curves"), Between(0, MOST)]
    lineage: Lineage
    grouping: GroupColumn | None
    max_depth: int | None

    def apply(self, rows: Rows) -> Floats:
        return self._heights(rows.confidence, self.lineage.directory.find(rows.leaves(self.grouping, self.max_depth)))

    def explain(self, rows: Rows) -> Evidence:
        codes = rows.leaves(self.grouping, self.max_depth)
        curve = self.lineage.directory.find(codes)
        return Evidence.of(
            rows.exact,
            self._heights(rows.confidence, curve),
            group=group_names(codes, self.grouping, self.max_depth),
            source=self.lineage.source[curve],
            rows=self.rows[curve],
        )

    def _validate(self) -> None:
        self.lineage.require_of(self.grouping, self.max_depth)
        is_complete = len(self.offset) - 1 == len(self.rows) == len(self.lineage.depth)
        require(is_complete, "there must be one curve for each node.")

    def parameters(self) -> dict[str, Any]:
        return {} if self.grouping is None else {"max_depth": self.max_depth}

    def _heights(self, h: Floats, curve: Ints) -> Floats:
        first, last = self.offset[curve], self.offset[curve + 1] - 1
        right = np.clip(search_within(self.x, h, first, last), np.minimum(first + 1, last), last)
        left = np.maximum(right - 1, first)
        width = np.where(self.x[right] > self.x[left], self.x[right] - self.x[left], 1.0)
        share = np.clip((h - self.x[left]) / width, 0.0, 1.0)
        return self.y[left] + share * (self.y[right] - self.y[left])


def fit_isotonic(tally: Tally, rows_per_group: int, max_depth: int | None = None) -> IsotonicMaps:
    """Return the pooled curve, and one for every group or ancestor with enough rows."""
    levels = flat_levels(tally, max_depth)
    ancestry = lineage(levels, tally.grouping, rows_per_group)
    curves, rows = [], []
    for depth, level in enumerate(levels):
        codes, first, last = level.group_runs()
        owners = ancestry.owner[ancestry.depth == depth]
        runs = np.zeros(len(owners), dtype=np.int64) if depth == 0 else np.searchsorted(codes, owners)
        for start, stop in zip(first[runs].tolist(), last[runs].tolist(), strict=True):
            cells = slice(start, stop)
            rows.append(int(level.rows[cells].sum()))
            curves.append(_fit_one(level.confidence[cells], level.w[cells], level.wt[cells]))
    return IsotonicMaps(
        x=np.concatenate([x for x, _ in curves]),
        y=np.concatenate([y for _, y in curves]),
        offset=np.concatenate([[0], np.cumsum([len(x) for x, _ in curves])]),
        rows=np.array(rows),
        lineage=ancestry,
        grouping=None if tally.grouping is None else tally.grouping.distinct(),
        max_depth=max_depth,
    )


def _fit_one(h: Floats, w: Floats, wt: Floats) -> tuple[Floats, Floats]:
    # scikit-learn's IsotonicRegression calls this too; its validation takes ten times as long for a small group.
    from scipy.optimize import isotonic_regression

    y = np.asarray(isotonic_regression(np.clip(wt / w, 0.0, 1.0), weights=w).x)
    # Only the two ends of a level piece are needed.
    is_inside = np.zeros(len(y), dtype=bool)
    is_inside[1:-1] = (y[1:-1] == y[:-2]) & (y[1:-1] == y[2:])
    return h[~is_inside], y[~is_inside]


@dataclass(kw_only=True, eq=False, repr=False)
class IsotonicCalibration(Calibrator):
    """Fit the best curve that never falls, by least squares (scipy's isotonic regression inside, as in scikit-learn).

    How to choose: pooled, it is hard to beat on average with a thousand rows or more, but it ignores groups. One curve
    per group needs a few hundred rows in each group.

    Parameters
    ----------
    pooling : "full", one curve for all rows; "none", one per group.
    rows_per_group : groups with fewer rows use the curve of their nearest ancestor with enough, or the pooled curve.
    max_depth : use the groups of a tree at this depth.

    Examples
    --------
    >>> stated  = [0.5, 0.5, 0.7, 0.7, 0.9, 0.9]
    >>> correct = [0, 1, 0, 0, 1, 1]
    >>> IsotonicCalibration().fit(stated, correct).predict([0.5, 0.8, 0.9])
    array([0.25 , 0.625, 1.   ])
    """

    pooling: Literal["full", "none"] = "full"
    rows_per_group: int = 50
    max_depth: int | None = None
    maps_: IsotonicMaps = field(init=False)

    @property
    def properties(self) -> Properties:
        # Least squares over rising curves keeps the mean of every level piece.
        return Properties(is_monotone=True, keeps_mean=True, uses_groups=self.pooling == "none")

    def _fit_tally(self, tally: Tally) -> IsotonicMaps:
        if self.pooling not in ("full", "none"):
            raise InputError(f'pooling is {self.pooling!r}; expected "full" or "none".')
        return fit_isotonic(tally, self.rows_per_group, self.max_depth if self.properties.uses_groups else None)
