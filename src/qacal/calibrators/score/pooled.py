r"""What a confidence is worth on average over all texts, in logits: the part of a score that texts and columns modify.

- "stated": the logit of what was stated, :math:`x = \mathrm{logit}(h)`.
- "line": :math:`a + b\,\mathrm{logit}(h)` (Platt's line).
- "curve": the logit of the isotonic regression, which needs some hundred rows and no scale.

With several confidences (stated, and the probability of the tokens), each is made a line or a curve of its own and
their weighted sum is fitted: :math:`a + \sum_j b_j x_j(h_j)`. A row may lack all but the first: then its term is a
number of its own, that of an average confidence unless enough rows lack one to tell how these do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from qacal.calibrators.platt import feature_values, fit_logistic
from qacal.calibrators.score.effects import FIXED, fit_effects
from qacal.storage import require, require_between, require_columns, require_offsets
from qacal.tally.arrays import Floats, Ints
from qacal.tally.isotonic import IsotonicCurve, isotonic_shape
from qacal.tally.tally import Tally

Kind: TypeAlias = Literal["stated", "line", "curve"]


@dataclass(frozen=True, eq=False)
class PooledMap:
    """A map from confidences to a logit.

    intercept, slopes, lacking : :math:`a`, the weights :math:`b_j`, and what stands for a confidence that is missing.
    knot, height, offset : the curves, one after the other; curve j has the knots ``offset[j]`` to ``offset[j + 1]``.
    """

    kind: Kind
    intercept: float
    slopes: Floats
    lacking: Floats
    knot: Floats
    height: Floats
    offset: Ints

    @property
    def n_confidences(self) -> int:
        """How many confidences it reads."""
        return len(self.slopes)

    def logits(self, confidences: Floats) -> Floats:
        """Return the logit of each row; `confidences` has a column for each, NaN where one is missing."""
        out = np.full(len(confidences), self.intercept)
        for j, slope in enumerate(self.slopes):
            h = confidences[:, j]
            there = ~np.isnan(h)
            x = _feature(np.where(there, h, 0.5), self.kind, self._shape(j))
            out += np.where(there, slope * x, self.lacking[j])
        return out

    def _shape(self, j: int) -> IsotonicCurve | None:
        if self.kind != "curve":
            return None
        return IsotonicCurve(*self._piece(j))

    def _piece(self, j: int) -> tuple[Floats, Floats]:
        piece = slice(self.offset[j], self.offset[j + 1])
        return self.knot[piece], self.height[piece]

    def validate(self) -> None:
        """Refuse what :func:`fit_pooled` cannot have made."""
        count = self.slopes.size
        require(count > 0, "a score reads one confidence or more.")
        require_columns(count, slopes=self.slopes, lacking=self.lacking)
        knots = self.knot.size
        require_columns(knots, knot=self.knot, height=self.height)
        # Products of these must stay finite.
        numbers = np.array([self.intercept]), self.slopes, self.lacking, self.height
        for column in numbers:
            require_between(-1e50, 1e50, logits=column)
        if self.kind == "curve":
            require_offsets(self.offset, count, knots)
            for j in range(count):
                IsotonicCurve(*self._piece(j)).validate()
        else:
            require(knots == 0, "a line has no knots.")
            require_columns(1, offset=self.offset)


def _feature(confidence: Floats, kind: Kind, shape: IsotonicCurve | None) -> Floats:
    if shape is None:
        return feature_values(confidence, "logit")
    return shape.apply(confidence)


def fit_pooled(confidences: Floats, correct: Floats, kind: Kind) -> PooledMap:
    """Return the map of a kind for rows; `confidences` has a column for each confidence, NaN where one is missing."""
    count = confidences.shape[1]
    there = ~np.isnan(confidences)
    shapes = [_shape(confidences[there[:, j], j], correct[there[:, j]], kind) for j in range(count)]
    intercept, slopes, lacking = 0.0, np.ones(count), np.zeros(count)
    if count > 1:
        columns = [_feature(np.where(there[:, j], confidences[:, j], 0.5), kind, shapes[j]) for j in range(count)]
        intercept, slopes, lacking = _weights(np.column_stack(columns), there, correct)
    elif kind == "line":
        tally = Tally.of(confidences[:, 0], correct)
        x = feature_values(tally.confidence, "logit")
        intercept, slope = fit_logistic(x, tally.w, tally.wt)
        slopes = np.array([slope])
    curves = [shape for shape in shapes if shape is not None]
    return PooledMap(
        kind=kind,
        intercept=intercept,
        slopes=slopes,
        lacking=lacking,
        knot=np.concatenate([curve.confidence for curve in curves] or [np.empty(0)]),
        height=np.concatenate([curve.score for curve in curves] or [np.empty(0)]),
        offset=np.cumsum([0] + [len(curve.confidence) for curve in curves]).astype(np.int64),
    )


def _shape(confidence: Floats, correct: Floats, kind: Kind) -> IsotonicCurve | None:
    if kind != "curve":
        return None
    if not len(confidence):  # every row lacks it
        return IsotonicCurve(np.array([0.5]), np.array([0.0]))
    return isotonic_shape(Tally.of(confidence, correct))


def _weights(features: Floats, there: np.ndarray, correct: Floats) -> tuple[float, Floats, Floats]:
    """Return the intercept, the weight of each feature, and what stands for a missing one."""
    count = features.shape[1]
    lacks = (~there).any(axis=0)
    n_lacking = int(lacks.sum())
    average = np.where(there, features, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    X = np.column_stack([np.ones(len(features)), np.where(there, features, average), ~there[:, lacks]])
    # How rows without a confidence differ from average ones is shrunk: there may be but one of them.
    block = np.r_[np.full(1 + count, FIXED), np.arange(n_lacking)]
    start = np.r_[0.0, np.full(count, 1 / count), np.zeros(n_lacking)]
    found = fit_effects(X, correct, block, start=start, variances=np.ones(n_lacking)).coefficients
    slopes = found[1 : 1 + count]
    lacking = slopes * average
    lacking[lacks] += found[1 + count :]
    return float(found[0]), slopes, lacking
