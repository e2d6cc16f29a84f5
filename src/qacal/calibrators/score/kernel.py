r"""Texts as coordinates in which a smooth function of the embedding is a weighted sum.

A function drawn from a Gaussian process with the kernel

.. math:: k(z, z') = \exp\big(-\|z - z'\|^2 / 2\ell^2\big)

takes near values at near texts and unrelated ones at texts far apart: groups without borders. With the principal
directions of the kernel among some landmarks (kernel principal components), such a function is
:math:`\sum_j a_j \phi_j(z)` with independent :math:`a_j \sim N(0, \sigma^2)`, up to what the smallest directions carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from qacal.parameters import FACTORS, Axes, Between
from qacal.tally.arrays import LARGEST, Floats, as_vectors, portions, require_finite
from qacal.tally.ids import row_hashes

# These numbers were chosen by log loss on five LLMs, two files and two embedders; half or twice any of them changes log
# loss by .001 or less.

# Distances are taken in the space of the first principal components: the others are mostly noise.
_COMPONENTS = 24
KERNEL_ROWS = 5_000
"""Axes and landmarks are found from the first rows, at most this many."""

_LANDMARKS = 256
_COORDINATES = 112
# The length scale, in units of the root mean square distance of two texts.
_LENGTH = 0.6
# Directions of the kernel are rounding if they carry less than this share of the first, or less than this at all, the
# kernel of a text with itself being 1.
_LEAST = 1e-6
_ROUNDING = 1e-12
# Below this variance texts count as equal: the squares of their differences vanish.
_LEAST_SPREAD = 1e-150
# In units of the length scale: no landmark is as far out as the first, and beyond the second a text is far from all.
_FARTHEST_LANDMARK, FARTHEST = 1e3, 1e6


@dataclass(frozen=True, eq=False)
class Kernel:
    """A map from vectors to coordinates.

    mean, axes : of the principal components, in units of the kernel's length scale.
    landmarks : vectors, in these components.
    weights, offset : from the kernels of the landmarks to coordinates, which are 0 on average.
    """

    mean: Annotated[Floats, Axes("width"), Between(-LARGEST, LARGEST)]
    axes: Annotated[Floats, Axes("width", "components", may_be_empty=False), Between(-LARGEST, LARGEST)]
    landmarks: Annotated[
        Floats, Axes("landmarks", "components", may_be_empty=False), Between(-_FARTHEST_LANDMARK, _FARTHEST_LANDMARK)
    ]
    weights: Annotated[Floats, Axes("landmarks", "coordinates", may_be_empty=False), FACTORS]
    offset: Annotated[Floats, Axes("coordinates"), FACTORS]

    @property
    def width(self) -> int:
        """The number of coordinates that it gives."""
        return int(self.weights.shape[1])

    @cached_property
    def _half_squares(self) -> Floats:
        return half_squares(self.landmarks)

    def places(self, vectors: NDArray[np.floating]) -> Floats:
        """Return vectors in the principal components."""
        matrix = as_vectors(vectors, len(self.mean), "score")
        out = np.empty((len(matrix), self.axes.shape[1]))
        for rows, block in portions(matrix, 512):
            require_finite(block, range(rows.start, rows.stop))
            out[rows] = self.components(block)
        return out

    def components(self, vectors: Floats) -> Floats:
        """Return what :meth:`places` does, for vectors that are known to be finite."""
        return np.minimum(np.maximum((vectors - self.mean) @ self.axes, -FARTHEST), FARTHEST)

    def coordinates(self, vectors: NDArray[np.floating]) -> Floats:
        """Return the coordinates of vectors, one row each."""
        return self.at(self.places(vectors))

    def at(self, places: Floats) -> Floats:
        """Return the coordinates of vectors that are given by their principal components."""
        out = np.empty((len(places), self.width))
        for first in range(0, len(places), 512):  # the kernels of 512 rows stay in the processor's cache
            rows = slice(first, first + 512)
            np.matmul(_gauss(places[rows], self.landmarks, self._half_squares), self.weights, out=out[rows])
        out -= self.offset
        return out


def fit_kernel(vectors: Floats, coordinates: int = _COORDINATES) -> Kernel | None:
    """Return the map for vectors in a random order; None if they are all equal, or nearly."""
    some = vectors[:KERNEL_ROWS]
    mean, spread, axes = _principal_axes(some)
    if not spread > _LEAST_SPREAD:
        return None
    places = (some - mean) @ axes
    # Of equal texts, one.
    _, first = np.unique(row_hashes(places + 0.0), return_index=True)
    landmarks = places[np.sort(first)[:_LANDMARKS]]
    between = _gauss(landmarks, landmarks, half_squares(landmarks))
    centred = between - between.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    values, directions = _largest(centred, coordinates, _ROUNDING)
    if not len(values):
        return None
    weights = directions / np.sqrt(values)
    weights -= weights.mean(axis=0)
    return Kernel(mean, axes, landmarks, weights, between.mean(axis=0) @ weights)


def _principal_axes(vectors: Floats) -> tuple[Floats, float, Floats]:
    """Return the mean of vectors, their variance, and the axes in units of the length scale."""
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    spread, axes = _largest(centred.T @ centred / len(centred), _COMPONENTS)
    total = float(spread.sum())
    # Two independent texts are at a squared distance of twice the variance on average.
    return mean, total, axes / (_LENGTH * np.sqrt(2 * max(total, _LEAST_SPREAD)))


def _largest(matrix: Floats, count: int, least: float = 0.0) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues of a symmetric matrix and their vectors, the largest first; none below `least`."""
    from scipy.linalg import eigh

    size = len(matrix)
    # If many are wanted, finding all of them is faster than finding some.
    some = {"subset_by_index": [size - count, size - 1]} if 4 * count < size else {"driver": "evd"}
    values, vectors = eigh(matrix, **some)
    values, vectors = values[-count:][::-1], vectors[:, -count:][:, ::-1]
    kept = values >= max(least, _LEAST * values[0])
    return np.ascontiguousarray(values[kept]), np.ascontiguousarray(vectors[:, kept])


def half_squares(Z: Floats) -> Floats:
    """Return half of the squared length of vectors: by a sum, since BLAS rounds by where an array is in memory."""
    return np.asarray(0.5 * (Z * Z).sum(axis=-1))


def _gauss(Z: Floats, landmarks: Floats, of_landmarks: Floats) -> Floats:
    # Half the squared distances, negative; in place, since scoring spends its time here.
    exponent = Z @ landmarks.T
    exponent -= half_squares(Z)[:, None]
    exponent -= of_landmarks
    np.minimum(exponent, 0.0, out=exponent)
    return np.asarray(np.exp(exponent, out=exponent))
