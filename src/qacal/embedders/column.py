"""Vectors that the records already carry, in a column of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from qacal.embedders.base import Progress, Vectors, settings_digest
from qacal.errors import InputError
from qacal.parameters import shown
from qacal.tally.arrays import ArrayLike


class ColumnEmbedder:
    """Take the vectors from a column: lists of numbers, arrays, or JSON text of either.

    Choose it when you have embedded your rows already. The vectors are used unchanged. They must all have length `dim`,
    or the length of the first vector.

    Examples
    --------
    >>> column = ColumnEmbedder("embedding")
    >>> column.vectors([[0.0, 1.0], "[0.5, 0.5]"])
    array([[0. , 1. ],
           [0.5, 0.5]], dtype=float32)
    >>> column.name, column.dim
    ('column:embedding', 2)
    >>> column.vectors([[1, 2], [1, 2, 3]])
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: embedding[1] has 3 numbers; expected 2, as in the vectors before it.
    """

    def __init__(self, column: str, dim: int | None = None) -> None:
        self.column = column
        self.dim = dim

    @property
    def name(self) -> str:
        return f"column:{self.column}"

    @property
    def digest(self) -> str:
        """The sha256 of the column's name and the length of the vectors; nothing else is known about them."""
        return settings_digest(kind="column", column=self.column, dim=self.dim)

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> NoReturn:
        """Raise: these vectors come with the records and cannot be made from text."""
        raise InputError(
            f"{self.name} reads vectors from the column {self.column!r} and cannot embed text. Pass records that have "
            'this column, or choose an embedder of text, such as "static".'
        )

    def vectors(self, values: ArrayLike) -> Vectors:
        """Return a column's values as a matrix; the error names the first row that is not a vector."""
        whole = _as_matrix(values)
        if whole is not None and len(whole) and self.dim in (None, whole.shape[1]):
            self.dim = whole.shape[1]
            return whole
        listed = values.to_pylist() if hasattr(values, "to_pylist") else values  # Arrow's values are objects of its own
        rows = [_numbers(value, self.column, at) for at, value in enumerate(listed)]
        dim = self.dim
        for at, row in enumerate(rows):
            if dim is not None and len(row) != dim:
                raise InputError(
                    f"{self.column}[{at}] has {len(row)} numbers; expected {dim}, as in the vectors before it."
                )
            dim = len(row)
        self.dim = dim
        return np.stack(rows) if rows else np.empty((0, dim or 0), dtype=np.float32)


def _as_matrix(values: Any) -> Vectors | None:
    """Return a typed column of finite vectors of one length without a loop; None for any other column."""
    if hasattr(values, "list") and hasattr(values, "null_count"):
        if values.null_count():
            return None
        if str(values.dtype).startswith("List"):
            widths = np.unique(values.list.len().to_numpy())  # n_unique() of polars needs threads, which forks lack
            if len(widths) != 1 or not widths[0]:
                return None
            values = values.list.to_array(int(widths[0]))
        values = values.to_numpy()
    if not isinstance(values, np.ndarray) or values.ndim != 2 or not values.shape[1] or values.dtype.kind not in "iuf":
        return None
    with np.errstate(over="ignore"):
        matrix: Vectors = values.astype(np.float32)
    return matrix if np.isfinite(matrix).all() else None


def _numbers(value: object, column: str, at: int) -> Vectors:
    try:
        raw = np.asarray(json.loads(value) if isinstance(value, str | bytes) else value)
    except ValueError:
        raw = np.empty(0)
    if raw.ndim != 1 or len(raw) == 0 or raw.dtype.kind not in "iuf":
        raise InputError(f"{column}[{at}] is {shown(value)}; expected a list of numbers, or JSON text of one.")
    with np.errstate(over="ignore"):
        row: Vectors = raw.astype(np.float32)
    bad = ~np.isfinite(row)
    if bad.any():
        where = int(np.argmax(bad))
        raise InputError(f"{column}[{at}] has {raw[where]} at {where}; expected finite numbers (of 32 bits).")
    return row
