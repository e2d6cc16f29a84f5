r"""The pooled map: the logit of the accuracy at a confidence, over all rows. Texts and columns then modify it.

- "stated": the logit of the stated confidence, :math:`x = \mathrm{logit}(h)`.
- "line": :math:`a + b\,\mathrm{logit}(h)` (Platt's line).
- "curve": the logit of the isotonic regression, which needs some hundred rows.

With several confidences (stated, and the probability of the tokens), each has a line or curve of its own, and their
weighted sum is fitted: :math:`a + \sum_j b_j x_j(h_j)`. A row may lack all but the first: then the term is a fixed
number, that of an average confidence unless enough rows lack it to show a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

import numpy as np

from qacal.calibrators.base import feature_values
from qacal.calibrators.curves import LOGITS, IsotonicCurve, fit_platt, isotonic_shape
from qacal.calibrators.score.effects import FIXED, fit_effects
from qacal.parameters import FACTORS, Axes, Between, Offsets, Rising, require
from qacal.tally.arrays import Bools, Floats, Ints
from qacal.tally.tally import Tally

Kind: TypeAlias = Literal["stated", "line", "curve"]


@dataclass(frozen=True, eq=False)
class PooledMap:
    """A map from confidences to a logit.

    intercept, slopes, lacking : :math:`a`, the weights :math:`b_j`, and the term of a confidence that is missing.
    knot, height, offset : the curves, one after the other; curve j has the knots ``offset[j]`` to ``offset[j + 1]``.
    """

    kind: Kind
    intercept: Annotated[float, FACTORS]
    slopes: Annotated[Floats, Axes("confidences", may_be_empty=False), FACTORS]
    lacking: Annotated[Floats, Axes("confidences"), FACTORS]
    knot: Annotated[Floats, Axes("knots"), Between(0, 1), Rising(within="offset")]
    height: Annotated[Floats, Axes("knots"), LOGITS, Rising(strictly=False, within="offset")]
    offset: Annotated[Ints, Offsets("knots")]

    @property
    def n_confidences(self) -> int:
        """How many confidences it reads."""
        return len(self.slopes)

    def logits(self, confidences: Floats) -> Floats:
        """Return the logit of each row; `confidences` has a column for each, NaN where one is missing."""
        return np.asarray(self.parts(confidences).sum(axis=1))

    def parts(self, confidences: Floats) -> Floats:
        """Return what each confidence adds to the logit of each row.

        A further confidence adds nothing where it is missing: the first has the logit of a row that lacks the others.
        """
        if self.n_confidences == 1:  # it is never missing
            return np.asarray(self.slopes * _feature(confidences, self._curves[0]) + self.intercept)
        out = np.empty(confidences.shape)
        for j, curve in enumerate(self._curves):
            out[:, j] = self.slopes[j] * _feature(confidences[:, j], curve) - self.lacking[j]
        out[np.isnan(confidences)] = 0.0
        out[:, 0] += self.intercept + self.lacking.sum()
        return out

    @cached_property
    def _curves(self) -> list[IsotonicCurve | None]:
        if self.kind != "curve":
            return [None] * len(self.slopes)
        pieces = (slice(*ends) for ends in pairwise(self.offset.tolist()))
        return [IsotonicCurve(self.knot[piece], self.height[piece]) for piece in pieces]

    def _validate(self) -> None:
        curves = len(self.slopes) if self.kind == "curve" else 0
        require(len(self.offset) - 1 == curves, f"a pooled map of this kind has {curves} curves.")


def _feature(confidence: Floats, curve: IsotonicCurve | None) -> Floats:
    return feature_values(confidence, "logit") if curve is None else curve.apply(confidence)


def fit_pooled(confidences: Floats, correct: Floats, kind: Kind) -> PooledMap:
    """Return the map of a kind for rows; `confidences` has a column for each confidence, NaN where one is missing."""
    count = confidences.shape[1]
    is_known = ~np.isnan(confidences)
    shapes: list[IsotonicCurve | None] = [None] * count
    if kind == "curve":
        shapes = [_shape(confidences[known, j], correct[known]) for j, known in enumerate(is_known.T)]
    intercept, slopes, lacking = 0.0, np.ones(count), np.zeros(count)
    if count > 1:
        columns = [_feature(np.where(is_known[:, j], confidences[:, j], 0.5), shapes[j]) for j in range(count)]
        intercept, slopes, lacking = _weights(np.column_stack(columns), is_known, correct)
    elif kind == "line":
        line = fit_platt(Tally.of(confidences[:, 0], correct), "logit")
        intercept, slopes = line.intercept, np.array([line.slope])
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


def _shape(confidence: Floats, correct: Floats) -> IsotonicCurve:
    if not len(confidence):  # every row lacks it
        return IsotonicCurve(np.array([0.5]), np.array([0.0]))
    return isotonic_shape(Tally.of(confidence, correct))


def _weights(features: Floats, is_known: Bools, correct: Floats) -> tuple[float, Floats, Floats]:
    """Return the intercept, the weight of each feature, and the term of a missing one."""
    count = features.shape[1]
    lacks = (~is_known).any(axis=0)
    n_lacking = int(lacks.sum())
    average = np.where(is_known, features, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    X = np.column_stack([np.ones(len(features)), np.where(is_known, features, average), ~is_known[:, lacks]])
    # The difference between rows without a confidence and average rows is shrunk: there may be only one such row.
    block = np.r_[np.full(1 + count, FIXED), np.arange(n_lacking)]
    start = np.r_[0.0, np.full(count, 1 / count), np.zeros(n_lacking)]
    coefficients = fit_effects(X, correct, block, start=start, variances=np.ones(n_lacking)).coefficients
    slopes = coefficients[1 : 1 + count]
    lacking = slopes * average
    lacking[lacks] += coefficients[1 + count :]
    return float(coefficients[0]), slopes, lacking
