"""Hierarchical scaling: a logistic curve per group, shrunk towards the common one where a group has few rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from qacal.calibrators.base import (
    FROM_GROUP,
    FROM_ROOT,
    Calibrator,
    Evidence,
    Feature,
    Properties,
    Rows,
    expit,
    feature_values,
    group_names,
)
from qacal.calibrators.maps import deepest_level, known_groups, level_of
from qacal.calibrators.mixed.common import MixedFit
from qacal.calibrators.mixed.flat import fit_hierarchical
from qacal.parameters import MOST, Axes, Between, require
from qacal.tally.arrays import Floats, Ints
from qacal.tally.groups import NO_GROUP, GroupColumn, GroupIndex
from qacal.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class LogisticMaps:
    """A curve per group; entry 0 is the common curve, for rows of unknown groups."""

    intercept: Annotated[Floats, Axes("curves")]
    slope: Annotated[Floats, Axes("curves")]
    rows: Annotated[Ints, Axes("curves"), Between(0, MOST)]
    directory: GroupIndex
    grouping: GroupColumn | None
    max_depth: int | None
    feature: Feature
    fit: MixedFit

    def apply(self, rows: Rows) -> Floats:
        return self._heights(rows, self.directory.find(rows.leaves(self.grouping, self.max_depth)))

    def explain(self, rows: Rows) -> Evidence:
        codes = rows.leaves(self.grouping, self.max_depth)
        entry = self.directory.find(codes)
        return Evidence.of(
            rows.exact,
            self._heights(rows, entry),
            group=group_names(codes, self.grouping, self.max_depth),
            source=np.where(entry > 0, FROM_GROUP, FROM_ROOT),
            rows=self.rows[entry],
        )

    def _validate(self) -> None:
        is_known = np.isin(self.directory.codes, known_groups(self.grouping, self.max_depth)).all()
        require(bool(is_known), "a group has a curve, but had no rows in the fit.")
        in_order = np.array_equal(self.directory.entries, np.arange(1, len(self.rows)))
        require(in_order, "the curves must be the common one, and one per group in their order.")
        intercept, slope = _curves(self.fit)
        is_same = np.array_equal(intercept, self.intercept) and np.array_equal(slope, self.slope)
        require(is_same, "the curves are not those of the fitted effects.")

    def parameters(self) -> dict[str, Any]:
        return {"feature": self.feature, "max_depth": self.max_depth}

    def _heights(self, rows: Rows, entry: Ints) -> Floats:
        return expit(self.intercept[entry] + self.slope[entry] * feature_values(rows.confidence, self.feature))


def _curves(fit: MixedFit) -> tuple[Floats, Floats]:
    """Return intercepts and slopes: the common curve's first, then each group's."""
    intercept, slope = fit.curves()
    return np.append(fit.fixed[0], intercept), np.append(fit.fixed[1], slope)


def fit_curves(tally: Tally, feature: Feature = "confidence", max_depth: int | None = None) -> LogisticMaps:
    """Return the hierarchical model's curves for a tally; without groups, Platt's curve."""
    leaves = level_of(tally, deepest_level(tally.grouping, max_depth))
    codes, first, last = leaves.group_runs()
    x = feature_values(leaves.confidence, feature)
    code = np.repeat(codes, last - first)
    # Shrinkage compares a group's rows with the common curve, so weights are scaled to effective rows.
    scale = leaves.w.sum() / leaves.ww.sum()
    fit = fit_hierarchical(x, leaves.w * scale, leaves.wt * scale, code)
    is_group = codes != NO_GROUP
    rows = np.add.reduceat(leaves.rows, first)[is_group]
    intercept, slope = _curves(fit)
    return LogisticMaps(
        intercept=intercept,
        slope=slope,
        rows=np.append(leaves.n, rows),
        directory=GroupIndex(codes[is_group], np.arange(1, len(rows) + 1)),
        grouping=None if tally.grouping is None else tally.grouping.distinct(),
        max_depth=max_depth,
        feature=feature,
        fit=fit,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class HierarchicalScaling(Calibrator):
    r"""Fit a logistic curve per group, with random intercept and slope (partial pooling).

    .. math:: p = \mathrm{logit}^{-1}\big(B_0 + U_g + (B_1 + V_g) h\big), \qquad (U_g, V_g) \sim N(0, \Sigma)

    with a full covariance, by Laplace-approximate maximum likelihood: what
    ``lme4::glmer(correct ~ confidence + (1 + confidence | group), family = binomial)`` fits. Groups with many rows
    follow their own rows, groups with few the common curve. Rows of unknown groups get the common curve.

    How to choose: for many groups with few rows each; :class:`TreeScaling` is more accurate. It guarantees nothing,
    since curves can be wrong in shape: see :class:`TreeBinning` for probabilities with intervals.

    Parameters
    ----------
    feature : "confidence" (the paper's) or "logit" of it, cut off at 0.001 and 0.999.
    max_depth : use the groups of a tree at this depth.

    Examples
    --------
    The LLM states 0.8. In law that is too high, in physics too low:

    >>> correct = np.repeat([1, 0, 1, 0], [26, 14, 38, 2])
    >>> subject = np.repeat(["law", "physics"], 40)
    >>> model = HierarchicalScaling().fit(np.full(80, 0.8), correct, groups=subject)
    >>> model.predict([0.8, 0.8, 0.8], groups=["law", "physics", "chess"]).round(2)
    array([0.67, 0.93, 0.85])
    """

    feature: Feature = "confidence"
    max_depth: int | None = None
    maps_: LogisticMaps = field(init=False)
    properties = Properties(is_monotone=True, uses_groups=True)

    def _fit_tally(self, tally: Tally) -> LogisticMaps:
        return fit_curves(tally, self.feature, self.max_depth)
