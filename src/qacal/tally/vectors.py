"""Vectors, one per row: check them, read them in portions, and sort them in an order that depends on them alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.tally.arrays import ArrayLike, Floats, Hashes, Ints
from qacal.tally.ids import mix

LARGEST = 1e100
"""Larger numbers than this cannot be squared and summed."""


def as_vectors(Z: ArrayLike, width: int | None = None, fitted: str = "tree") -> NDArray[np.floating]:
    """Return vectors as a matrix; float32 and float64 are not copied.

    width, fitted : the expected number of coordinates, and the name of the fitted object, for the error.

    >>> as_vectors([[1.0, 2.0, 3.0]], width=2)
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the vectors have 3 coordinates; the tree was fitted on 2.
    """
    if np.ma.is_masked(Z):
        raise InputError("some numbers of the vectors are masked; leave those rows out, or fill them.")
    try:
        matrix = np.asarray(Z)
        if matrix.dtype.kind == "O":  # a column of lists, or numbers of any type
            matrix = np.array(matrix.tolist(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("the vectors are not all numbers, as many in every row; expected a matrix of them.") from None
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"the vectors are of type {matrix.dtype}; expected numbers, such as the rows of an embedding.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"the vectors have shape {matrix.shape}; expected (rows, coordinates), at least one of each.")
    if width is not None and matrix.shape[1] != width:
        raise InputError(f"the vectors have {matrix.shape[1]} coordinates; the {fitted} was fitted on {width}.")
    return matrix


def fitting_vectors(Z: ArrayLike) -> Floats:
    """Return vectors to learn from: float64, finite, and in the order of a hash of each row.

    So sums round the same way, and seeded choices pick the same rows, whatever the order of the file.
    """
    matrix = as_vectors(Z)
    for rows, block in portions(matrix):
        require_finite(block, range(rows.start, rows.stop))
    exact = matrix.astype(np.float64) + 0.0  # -0.0 equals 0.0 but has other bits
    return exact[np.argsort(row_hashes(exact), kind="stable")]


def portions(Z: NDArray[np.floating], n_rows: int = 4096) -> Iterator[tuple[slice, Floats]]:
    """Yield the rows as float64, in portions that fit into the processor's cache, with their places."""
    for start in range(0, len(Z), n_rows):
        rows = slice(start, start + n_rows)
        yield rows, Z[rows].astype(np.float64, copy=False)


def require_finite(block: Floats, numbers: Sequence[int] | Ints) -> None:
    """Raise on NaN, infinity and numbers too large to be squared; `numbers` are the row numbers for the error."""
    if not (block.max(initial=0.0) <= LARGEST and block.min(initial=0.0) >= -LARGEST):  # NaN fails both
        row, column = np.argwhere(~(np.abs(block) <= LARGEST))[0]
        raise InputError(
            f"the vector of row {numbers[row]} has {block[row, column]} at {column}; expected finite numbers."
        )


def row_hashes(Z: Floats) -> Hashes:
    """Return a hash of the bits of each row; there must be no -0.0.

    The bits of each number are multiplied by a random number of its column, added up and mixed.
    """
    # The high bits of a float vary most, and do not affect the low bits of a product.
    bits = np.ascontiguousarray(Z).view(np.uint64)
    bits = bits ^ (bits >> np.uint64(32))
    bits *= mix(np.arange(Z.shape[1], dtype=np.uint64)) | np.uint64(1)
    return mix(bits.sum(axis=1, dtype=np.uint64))
