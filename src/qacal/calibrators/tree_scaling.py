"""Tree scaling: one shape for all rows, shifted and stretched along a tree of groups as far as the rows support it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from qacal.calibrators.base import Calibrator, Evidence, Properties, Rows, expit, feature_values, group_names
from qacal.calibrators.curves import IsotonicCurve, isotonic_shape
from qacal.calibrators.maps import Lineage
from qacal.calibrators.mixed.common import MixedFit
from qacal.calibrators.mixed.nodes import Nodes, nodes_of
from qacal.calibrators.mixed.tree import fit_tree
from qacal.errors import InputError
from qacal.parameters import MOST, Axes, Between, require
from qacal.tally.arrays import Floats, Ints
from qacal.tally.groups import GroupColumn
from qacal.tally.tally import Tally

TreeFeature: TypeAlias = Literal["isotonic", "confidence", "logit"]


@dataclass(frozen=True, eq=False)
class TreeMaps:
    """A curve per node, in the order of (depth, code); the first is the root's, for rows of unknown groups.

    rows : the number of rows in each node, including those below it.
    shape : the curve of the feature "isotonic"; None for other features.
    nodes, lineage : the node of each curve, and which node a group uses. Both follow from the groups.
    """

    intercept: Annotated[Floats, Axes("nodes")]
    slope: Annotated[Floats, Axes("nodes")]
    rows: Annotated[Ints, Axes("nodes"), Between(0, MOST)]
    shape: IsotonicCurve | None
    grouping: GroupColumn | None
    max_depth: int | None
    feature: TreeFeature
    fit: MixedFit
    nodes: Nodes = field(init=False, repr=False)
    lineage: Lineage = field(init=False, repr=False)

    def __post_init__(self) -> None:
        nodes = nodes_of(self.grouping, self.max_depth)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "lineage", nodes.lineage())

    def apply(self, rows: Rows) -> Floats:
        node = self._nodes(rows)
        return expit(self.intercept[node] + self.slope[node] * self.scores(rows.confidence))

    def explain(self, rows: Rows) -> Evidence:
        node = self._nodes(rows)
        return Evidence.of(
            rows.exact,
            expit(self.intercept[node] + self.slope[node] * self.scores(rows.confidence)),
            group=group_names(rows.leaves(self.grouping, self.max_depth), self.grouping, self.max_depth),
            source=self.lineage.source[node],
            rows=self.rows[node],
        )

    def _validate(self) -> None:
        require(len(self.rows) == len(self.lineage.depth), "there must be one curve for each node.")
        has_shape = self.shape is not None
        require(has_shape == (self.feature == "isotonic"), f"the feature {self.feature!r} does not go with its shape.")
        intercept, slope = self.fit.curves()
        is_same = np.array_equal(intercept, self.intercept) and np.array_equal(slope, self.slope)
        require(is_same, "the curves are not those of the fitted effects.")

    def parameters(self) -> dict[str, Any]:
        return {"feature": self.feature, "max_depth": self.max_depth}

    def _nodes(self, rows: Rows) -> Ints:
        if self.grouping is None or rows.groups is None:
            return np.zeros(len(rows.confidence), dtype=np.int64)
        return self.nodes.find(self.grouping.encode(rows.groups, len(rows.confidence)))

    def scores(self, confidence: Floats) -> Floats:
        """Return the feature of each confidence."""
        return _scores(confidence, self.feature, self.shape)


def _scores(confidence: Floats, feature: TreeFeature, shape: IsotonicCurve | None) -> Floats:
    if shape is not None:
        return shape.apply(confidence)
    return feature_values(confidence, "logit" if feature == "logit" else "confidence")


def fit_tree_curves(tally: Tally, feature: TreeFeature = "isotonic", max_depth: int | None = None) -> TreeMaps:
    """Return the curves of all nodes for a tally; without groups, one curve."""
    if feature not in ("isotonic", "confidence", "logit"):
        raise InputError(f'feature is {feature!r}; expected "isotonic", "confidence" or "logit".')
    column = tally.grouping
    nodes = nodes_of(column, max_depth)
    node = np.zeros(len(tally), dtype=np.int64) if column is None else nodes.find(column)
    shape = isotonic_shape(tally) if feature == "isotonic" else None
    x = _scores(tally.confidence, feature, shape)
    # Shrinkage compares the rows of a node with its parent, so weights are scaled to effective rows.
    scale = tally.w.sum() / tally.ww.sum()
    fit = fit_tree(*_cells(x, tally.w * scale, tally.wt * scale, node), nodes)
    intercept, slope = fit.curves()
    rows = np.bincount(node, weights=tally.rows, minlength=len(nodes)).astype(np.float64)
    return TreeMaps(
        intercept=intercept,
        slope=slope,
        rows=nodes.subtree_sums(rows).astype(np.int64),
        shape=shape,
        grouping=None if column is None else column.distinct(),
        max_depth=max_depth,
        feature=feature,
        fit=fit,
    )


def _cells(x: Floats, w: Floats, wt: Floats, node: Ints) -> tuple[Floats, Floats, Floats, Ints]:
    """Return cells sorted by (node, x), with equal keys added up: several confidences may have the same score."""
    if not ((node[1:] > node[:-1]) | ((node[1:] == node[:-1]) & (x[1:] >= x[:-1]))).all():
        order = np.lexsort((x, node))
        x, w, wt, node = x[order], w[order], wt[order], node[order]
    starts = np.flatnonzero(np.append(True, (node[1:] != node[:-1]) | (x[1:] != x[:-1])))
    return x[starts], np.add.reduceat(w, starts), np.add.reduceat(wt, starts), node[starts]


@dataclass(kw_only=True, eq=False, repr=False)
class TreeScaling(Calibrator):
    r"""Fit one shape for all rows, and shift and stretch it along a tree of groups (partial pooling at every depth).

    .. math::
        p = \mathrm{logit}^{-1}\Big(B_0 + B_1 x(h) + \sum_{v} (U_v + V_v x(h))\Big), \quad (U_v, V_v) \sim N(0, \Sigma),

    with a sum over the nodes on a row's path, from the first split down to its leaf, or to where it left the tree.
    :math:`x(h)` is the logit of the pooled isotonic curve, so that only the order of the stated values matters. All
    depths are fitted together by Laplace-approximate maximum likelihood: a node with many rows follows its rows, a node
    with few rows follows its parent. Deeper nodes stay with their parents unless their rows show a difference, so the
    depth need not be chosen.

    Flat groups are a tree of depth one: then this is :class:`HierarchicalScaling` on the pooled shape. A group without
    calibration rows uses its nearest ancestor's curve; rows of unknown groups use the common one.

    How to choose: the most accurate probabilities of all methods here, for trees and for flat groups. It guarantees
    nothing, since curves can be wrong in shape: see :class:`TreeBinning` for probabilities with intervals.

    Parameters
    ----------
    feature : "isotonic", the pooled shape; or "confidence" or "logit" themselves, as in :class:`HierarchicalScaling`.
        With a few hundred rows or fewer these are safer, since no shape is fitted.
    max_depth : use the groups of a tree down to this depth; None uses all depths.

    Examples
    --------
    Two subjects of four topics each. Topic 3 has three rows, all correct. Flat groups only show that topics differ; the
    tree shows which subject the topic belongs to:

    >>> from qacal import Paths
    >>> from qacal.calibrators import HierarchicalScaling
    >>> rows, right = [40, 40, 40, 3, 40, 40, 40, 40], [12, 16, 14, 3, 30, 33, 28, 34]
    >>> topic, correct = np.repeat(range(8), rows), np.concatenate([np.arange(n) < k for n, k in zip(rows, right)])
    >>> stated = np.full(283, 0.8)
    >>> HierarchicalScaling().fit(stated, correct, groups=topic).predict(np.full(8, 0.8), groups=range(8)).round(2)
    array([0.33, 0.42, 0.38, 0.77, 0.74, 0.8 , 0.69, 0.82])
    >>> model = TreeScaling().fit(stated, correct, groups=Paths(topic, np.full(283, 4), depth=3))
    >>> model.predict(np.full(8, 0.8), groups=range(8)).round(2)
    array([0.34, 0.4 , 0.39, 0.55, 0.75, 0.8 , 0.72, 0.81])
    """

    feature: TreeFeature = "isotonic"
    max_depth: int | None = None
    maps_: TreeMaps = field(init=False)
    properties = Properties(is_monotone=True, uses_groups=True)

    def _fit_tally(self, tally: Tally) -> TreeMaps:
        return fit_tree_curves(tally, self.feature, self.max_depth)
