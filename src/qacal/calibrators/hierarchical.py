"""Hierarchical scaling: a logistic curve per group, drawn towards the common one by as much as the rows support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.ancestry import known_groups, leaf_level
from qacal.calibrators.base import Calibrator, Properties, Rows
from qacal.calibrators.evidence import FROM_GROUP, FROM_ROOT, Evidence
from qacal.calibrators.logistic import Feature, expit, feature_values
from qacal.calibrators.mixed.flat import HierarchicalFit, fit_hierarchical
from qacal.storage import require, require_between, require_columns
from qacal.tally.arrays import Floats, Ints
from qacal.tally.bins import group_runs
from qacal.tally.groups import NO_GROUP, GroupColumn
from qacal.tally.lookup import GroupIndex
from qacal.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class LogisticMaps:
    """A curve per group; entry 0 is the common one, for rows of no known group."""

    intercept: Floats
    slope: Floats
    rows: Ints
    directory: GroupIndex
    grouping: GroupColumn | None
    max_depth: int | None
    feature: Feature
    fit: HierarchicalFit

    def apply(self, rows: Rows) -> Floats:
        """Return each group's curve at each confidence."""
        entry = self.directory.find(rows.leaves(self.grouping, self.max_depth))
        x = feature_values(rows.confidence, self.feature)
        return expit(self.intercept[entry] + self.slope[entry] * x)

    def explain(self, rows: Rows) -> Evidence:
        """Return each group's curve at each confidence; curves certify nothing."""
        entry = self.directory.find(rows.leaves(self.grouping, self.max_depth))
        return Evidence.of(
            rows.stated,
            self.apply(rows),
            group=rows.names(self.grouping, self.max_depth),
            source=np.where(entry > 0, FROM_GROUP, FROM_ROOT),
            rows=self.rows[entry],
        )

    def validate(self) -> None:
        """Refuse what :func:`fit_curves` cannot have made."""
        if self.grouping is not None:
            self.grouping.validate()
        codes, curves = self.directory.codes, len(self.intercept.ravel())
        self.fit.validate(len(codes))
        require_columns(curves, intercept=self.intercept, slope=self.slope, rows=self.rows)
        require_between(0, 2**63 - 1, rows=self.rows)
        is_known = np.isin(codes, known_groups(self.grouping, self.max_depth)).all()
        require(bool(is_known), "a group has a curve, and had no row in the fit.")
        in_order = np.array_equal(self.directory.entries, np.arange(1, curves))
        require(in_order, "the curves must be the common one, and one per group in their order.")
        intercept, slope = _curves(self.fit)
        is_same = np.array_equal(intercept, self.intercept) and np.array_equal(slope, self.slope)
        require(is_same, "the curves are not those of the fitted effects.")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the fit."""
        return {"feature": self.feature, "max_depth": self.max_depth}


def _curves(fit: HierarchicalFit) -> tuple[Floats, Floats]:
    """Return intercepts and slopes: the common curve's first, then each group's."""
    intercept = fit.fixed[0] + np.append(0.0, fit.effects[:, 0])
    return intercept, fit.fixed[1] + np.append(0.0, fit.effects[:, 1])


def fit_curves(tally: Tally, feature: Feature = "confidence", max_depth: int | None = None) -> LogisticMaps:
    """Return the hierarchical model's curves for a tally; without groups, Platt's curve."""
    leaves = leaf_level(tally, max_depth)
    codes, first, last = group_runs(leaves)
    x = feature_values(leaves.confidence, feature)
    code = np.repeat(codes, last - first)
    # A model of groups must weigh rows against each other and against the common curve: in effective rows.
    scale = leaves.w.sum() / leaves.ww.sum()
    fit = fit_hierarchical(x, leaves.w * scale, leaves.wt * scale, code)
    known = codes[codes != NO_GROUP]
    rows = np.add.reduceat(leaves.rows, first)[codes != NO_GROUP]
    intercept, slope = _curves(fit)
    return LogisticMaps(
        intercept=intercept,
        slope=slope,
        rows=np.append(leaves.n, rows),
        directory=GroupIndex(known, np.arange(1, len(known) + 1)),
        grouping=None if tally.grouping is None else tally.grouping.distinct(),
        max_depth=max_depth,
        feature=feature,
        fit=fit,
    )


class HierarchicalScaling(Calibrator):
    r"""Fit a logistic curve per group, with random intercept and slope (partial pooling).

    .. math:: p = \mathrm{logit}^{-1}\big(B_0 + U_s + (B_1 + V_s) h\big), \qquad (U_s, V_s) \sim N(0, \Sigma)

    with a full covariance, by Laplace-approximate maximum likelihood: what
    ``lme4::glmer(correct ~ confidence + (1 + confidence | group), family = binomial)`` fits. Groups with many rows
    follow their own rows, groups with few the common curve. Rows of unknown groups get the common curve.

    How to choose: for many groups with few rows each; :class:`TreeScaling` is more accurate. Nothing is certified,
    since curves can be wrong in shape: see :class:`TreeBinning` for answers with intervals.

    Parameters
    ----------
    feature : "confidence" (the paper's) or "logit" of it, cut off at 0.001 and 0.999.
    max_depth : of the groups of a tree, use those at this depth.

    Examples
    --------
    Two subjects that are wrong in opposite directions:

    >>> said = np.full(80, 0.8)
    >>> right = np.repeat([1, 0, 1, 0], [26, 14, 38, 2])
    >>> subject = np.repeat(["law", "physics"], 40)
    >>> model = HierarchicalScaling().fit(said, right, groups=subject)
    >>> model.predict([0.8, 0.8, 0.8], groups=["law", "physics", "chess"]).round(2)
    array([0.67, 0.93, 0.85])
    >>> model.maps_.fit.is_singular  # one value of confidence cannot tell a slope
    True
    """

    maps_: LogisticMaps

    def __init__(self, *, feature: Feature = "confidence", max_depth: int | None = None) -> None:
        self.feature = feature
        self.max_depth = max_depth

    @property
    def properties(self) -> Properties:
        """Every group has a curve."""
        return Properties(is_monotone=True, uses_groups=True)

    def _fit_tally(self, tally: Tally) -> LogisticMaps:
        """Return the fitted curves."""
        return fit_curves(tally, self.feature, self.max_depth)
