r"""How far a row is from the rows of the fit.

A row is a point :math:`x`: principal components of its embedding, the form of its texts, its confidences and numbers,
and whether its categories are new. With the mean :math:`\mu` and covariance :math:`S` of the rows of the fit, its
distance is that of Mahalanobis,

.. math:: d^2 = (x - \mu)^\top (S + R)^{-1} (x - \mu),

the diagonal :math:`R` being a hundredth of the average variance of the block that a coordinate belongs to. The rank of
the distance among rows of the fit that did not define :math:`\mu` and :math:`S` is what users see as `unlike`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from qacal.parameters import Axes, Between, Rising
from qacal.tally.arrays import Floats

FAR = 0.99
"""Rows of a higher rank are farther from the fit than nearly all of its rows: no interval is about them."""

# Signals count in full up to the first rank, and half from FAR on. Fitted without one data set and applied to it (127
# sets of 13 LLMs), log loss is then higher than that of the pooled map by more than .01 on 9 sets; with full weight on
# 14. On held-out rows of the same sets it costs .0003.
_NEAR = 0.9
_LEAST_WEIGHT = 0.5
_WEIGHTS = np.array([_NEAR, FAR]), np.array([1.0, _LEAST_WEIGHT])

# The share of the rows that define the distance; the others give the ranks.
_DEFINING = 0.7
_RIDGE = 0.01
_QUANTILES = 257
_LARGEST = 1e6


@dataclass(frozen=True, eq=False)
class Likeness:
    """A map from points to ranks.

    mean, whitening : distances are lengths of ``(x - mean) @ whitening``.
    quantiles : of squared distances of rows of the fit.
    """

    mean: Annotated[Floats, Axes("width"), Between(-1e100, 1e100)]
    whitening: Annotated[Floats, Axes("width", "width"), Between(-1e100, 1e100)]
    quantiles: Annotated[Floats, Axes(_QUANTILES), Between(0, 1e300), Rising(strictly=False)]

    def rank(self, points: Floats) -> Floats:
        """Return the share of the rows of the fit that are nearer; a missing coordinate counts as average."""
        places, first = self._ranks
        distances = self._distances(points)
        ranks = np.interp(distances, places, first)
        return np.where(distances > places[-1], 1.0, ranks)

    @cached_property
    def _ranks(self) -> tuple[Floats, Floats]:
        """The distinct quantiles, and their ranks from 0 to 1: of equal ones, the first counts."""
        places, first = np.unique(self.quantiles, return_index=True)
        return places, first / (len(self.quantiles) - 1)

    def _distances(self, points: Floats) -> Floats:
        centred = np.where(np.isnan(points), 0.0, points - self.mean)
        moved = np.minimum(np.maximum(centred, -_LARGEST), _LARGEST) @ self.whitening
        return np.asarray((moved * moved).sum(axis=1))


def fit_likeness(blocks: list[Floats]) -> Likeness | None:
    """Return the likeness of points in a random order, given block by block; None if there are too few.

    >>> rng = np.random.default_rng(0)
    >>> likeness = fit_likeness([rng.normal(size=(1000, 2)), np.zeros((1000, 1))])
    >>> likeness.rank(np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 1.0]])).round(1)
    array([0. , 0.6, 1. , 1. ])
    """
    points = np.hstack(blocks)
    cut = int(_DEFINING * len(points))
    if cut < 2:
        return None
    known = ~np.isnan(points[:cut])
    mean = np.where(known, points[:cut], 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    centred = np.clip(np.where(known, points[:cut] - mean, 0.0), -_LARGEST, _LARGEST)
    covariance = centred.T @ centred / cut
    width = [block.shape[1] for block in blocks]
    variances = np.split(np.diag(covariance), np.cumsum(width)[:-1])
    # A block that never varies, such as new categories, is measured in units of its own.
    ridge = np.repeat([float(v.mean()) or 1.0 for v in variances if len(v)], [w for w in width if w]) * _RIDGE
    values, vectors = np.linalg.eigh(covariance + np.diag(ridge))
    whitening = vectors / np.sqrt(values)
    likeness = Likeness(mean, whitening, np.zeros(_QUANTILES))
    distances = likeness._distances(points[cut:])
    return Likeness(mean, whitening, np.quantile(distances, np.linspace(0, 1, _QUANTILES)))


def weight_of_signals(unlike: Floats) -> Floats:
    """Return how much signals count beside the pooled map: texts and columns of far rows say less than they seem to."""
    return np.asarray(np.interp(unlike, *_WEIGHTS))
