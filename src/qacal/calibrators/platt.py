"""Platt scaling: one logistic curve for all rows ("S" in the paper's tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qacal.calibrators.base import Calibrator, Properties, Rows
from qacal.calibrators.evidence import Evidence
from qacal.calibrators.logistic import Feature, expit, feature_values, fit_logistic
from qacal.storage import require, require_moderate
from qacal.tally.arrays import Floats
from qacal.tally.tally import Tally


@dataclass(frozen=True)
class LogisticMap:
    """p = 1 / (1 + exp(-(intercept + slope x)))."""

    intercept: float
    slope: float
    feature: Feature
    rows: int

    def apply(self, rows: Rows) -> Floats:
        """Return the curve at each confidence."""
        x = feature_values(rows.confidence, self.feature)
        return expit(self.intercept + self.slope * x)

    def explain(self, rows: Rows) -> Evidence:
        """Return the curve at each confidence; it rests on all rows and certifies nothing."""
        return Evidence.of(rows.stated, self.apply(rows), rows=self.rows)

    def validate(self) -> None:
        """Refuse a curve that no rows can have given."""
        require_moderate(intercept=self.intercept, slope=self.slope)
        require(self.rows >= 1, f"the curve rests on {self.rows} rows; expected 1 or more.")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the fit."""
        return {"feature": self.feature}


def fit_platt(tally: Tally, feature: Feature = "confidence") -> LogisticMap:
    """Return the maximum-likelihood logistic curve of a tally."""
    x = feature_values(tally.confidence, feature)
    return LogisticMap(*fit_logistic(x, tally.w, tally.wt), feature=feature, rows=tally.n)


class PlattScaling(Calibrator):
    r"""Fit one logistic curve to all rows: :math:`p = \mathrm{logit}^{-1}(B_0 + B_1 h)`.

    Unpenalised maximum likelihood on the raw confidence, as the paper has it.

    How to choose: with a few hundred rows nothing safer exists. It knows no groups, and one curve cannot mend an LLM
    that is too sure of law and not sure enough of physics.

    Parameters
    ----------
    feature : "confidence" (the paper's) or "logit" of it, cut off at 0.001 and 0.999.

    Examples
    --------
    >>> said  = [0.5, 0.5, 0.5, 0.5, 0.9, 0.9, 0.9, 0.9]
    >>> right = [0, 0, 0, 1, 0, 1, 1, 1]
    >>> PlattScaling().fit(said, right).predict([0.5, 0.7, 0.9]).round(3)
    array([0.25, 0.5 , 0.75])
    """

    maps_: LogisticMap

    def __init__(self, *, feature: Feature = "confidence") -> None:
        self.feature = feature

    @property
    def properties(self) -> Properties:
        """Maximum likelihood with an intercept keeps the mean."""
        return Properties(is_monotone=True, keeps_mean=True)

    def _fit_tally(self, tally: Tally) -> LogisticMap:
        """Return the fitted curve."""
        return fit_platt(tally, self.feature)
