r"""Texts as coordinates in which a smooth function of the embedding is a weighted sum.

A function drawn from a Gaussian process with the kernel

.. math:: k(z, z') = \exp\big(-\|z - z'\|^2 / 2\ell^2\big)

takes near values at near texts and unrelated ones at texts far apart: groups without borders. With the principal
directions of the kernel among some landmarks (kernel principal components), such a function is
:math:`\sum_j a_j \phi_j(z)` with independent :math:`a_j \sim N(0, \sigma^2)`, up to what the smallest directions carry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qacal.partitions.vectors import as_vectors, portions, require_finite
from qacal.soundness import require, require_columns, require_moderate
from qacal.values import Floats

# What is below was chosen by log loss on five LLMs, two files and two embedders; half or twice as much of any of it
# changes log loss by .001 or less.

# Distances are taken in the plane of the first principal components: the others are mostly noise.
_COMPONENTS = 24
_AXES_ROWS = 5_000
_LANDMARKS = 384
_COORDINATES = 96
# The length scale, in units of the root mean square distance of two texts.
_LENGTH = 0.6
# Directions of the kernel that carry less than this share of the first are rounding.
_LEAST = 1e-6
# So many rows of kernels stay in the processor's cache.
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Kernel:
    """A map from vectors to coordinates.

    mean, axes : of the principal components, in units of the kernel's length scale.
    landmarks : vectors, in these components.
    weights, offset : from the kernels of the landmarks to coordinates, which are 0 on average.
    """

    mean: Floats
    axes: Floats
    landmarks: Floats
    weights: Floats
    offset: Floats

    @property
    def width(self) -> int:
        """The number of coordinates that it gives."""
        return int(self.weights.shape[1])

    def coordinates(self, vectors: NDArray[np.floating]) -> Floats:
        """Return the coordinates of vectors, one row each."""
        given = as_vectors(vectors, len(self.mean), "score")
        out = np.empty((len(given), self.width))
        for rows, block in portions(given, _ROWS_AT_ONCE):
            require_finite(block, range(rows.start, rows.stop))
            out[rows] = self._kernels((block - self.mean) @ self.axes) @ self.weights - self.offset
        return out

    def _kernels(self, Z: Floats) -> Floats:
        return _gauss(Z, self.landmarks)

    def require_sound(self) -> None:
        """Refuse what :func:`fit_kernel` cannot have made."""
        require(self.axes.ndim == self.landmarks.ndim == self.weights.ndim == 2, "the arrays of a kernel are tables.")
        (width, components), (landmarks, coordinates) = self.axes.shape, self.weights.shape
        require(min(width, components, landmarks, coordinates) > 0, "an array of a kernel is empty.")
        require(self.landmarks.shape == (landmarks, components), "the landmarks of a kernel do not fit its axes.")
        require_columns(width, mean=self.mean)
        require_columns(coordinates, offset=self.offset)
        require_moderate(mean=self.mean, offset=self.offset)
        for table in (self.axes, self.landmarks, self.weights):
            # Sums of products of these must stay finite.
            require(bool((np.abs(table) <= 1e100).all()), "a kernel holds a number beyond 1e100.")


def fit_kernel(vectors: Floats) -> Kernel | None:
    """Return the map for vectors that stand in a random order; None if all of them are equal."""
    if (vectors == vectors[0]).all():
        return None
    mean, axes = _principal_axes(vectors[:_AXES_ROWS])
    # Equal texts say the same: of each, one.
    _, first = np.unique(vectors[: 2 * _LANDMARKS], axis=0, return_index=True)
    landmarks = (vectors[np.sort(first)[:_LANDMARKS]] - mean) @ axes
    between = _gauss(landmarks, landmarks)
    centred = between - between.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    values, directions = _largest(centred, _COORDINATES)
    weights = directions / np.sqrt(values)
    weights -= weights.mean(axis=0)
    return Kernel(mean, axes, landmarks, weights, between.mean(axis=0) @ weights)


def _principal_axes(vectors: Floats) -> tuple[Floats, Floats]:
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    spread, axes = _largest(centred.T @ centred / len(centred), _COMPONENTS)
    # Two independent texts are at a squared distance of twice the variance on average.
    return mean, axes / (_LENGTH * np.sqrt(2 * spread.sum()))


def _largest(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues of a symmetric matrix and their vectors, the largest first."""
    from scipy.linalg import eigh

    size = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[max(0, size - count), size - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values >= _LEAST * values[0]
    return np.ascontiguousarray(values[kept]), np.ascontiguousarray(vectors[:, kept])


def _gauss(Z: Floats, landmarks: Floats) -> Floats:
    # Half the squared distances, negative; in place, since this is what scoring spends its time on.
    exponent = Z @ landmarks.T
    exponent -= 0.5 * (Z * Z).sum(axis=1)[:, None]
    exponent -= 0.5 * (landmarks * landmarks).sum(axis=1)
    np.minimum(exponent, 0.0, out=exponent)
    return np.asarray(np.exp(exponent, out=exponent))
