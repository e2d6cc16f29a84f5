"""What sound content is, in words that every frozen class uses to check itself.

Fits make sound content by construction. A file may hold anything; so whatever is read from one is asked to
``validate()``, and these are the questions. After that no lookup can leave its array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError

Ints = NDArray[np.int64]

# Beyond this a curve a + b x could overflow at a logit of 7; no fit comes near.
_LARGEST = 1e300


def require(is_so: bool, complaint: str) -> None:
    """Refuse content of which a claim is not true.

    >>> require(2 + 2 == 5, "sums are off; count again.")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: sums are off; count again.
    """
    if not is_so:
        raise InputError(complaint)


def require_columns(length: int, /, **columns: NDArray[Any]) -> None:
    """Refuse columns that are not flat or not of one length."""
    for name, column in columns.items():
        require(column.shape == (length,), f"{name} has shape {column.shape}; expected {length} values.")


def require_between(low: float, high: float, /, **columns: NDArray[Any]) -> None:
    """Refuse columns with a value that is NaN or outside of [low, high].

    >>> require_between(0, 1, value=np.array([0.5, 1.5]))
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: value[1] is 1.5; expected 0 to 1.
    """
    for name, column in columns.items():
        bad = ~((column >= low) & (column <= high))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(f"{name}[{at}] is {column[at]}; expected {low} to {high}.")


def require_moderate(**columns: NDArray[Any] | float) -> None:
    """Refuse numbers that are not finite, or so large that sums and products of them are not."""
    for name, column in columns.items():
        is_moderate = bool(np.all(np.abs(column) <= _LARGEST))
        require(is_moderate, f"{name} holds a number that is infinite, NaN or beyond {_LARGEST}.")


def require_offsets(offset: Ints, pieces: int, end: int) -> None:
    """Refuse offsets that do not cut ``range(end)`` into so many pieces, none of them empty."""
    require_columns(pieces + 1, offset=offset)
    is_cut = offset[0] == 0 and offset[-1] == end and rises(offset)
    require(is_cut, f"offset must rise from 0 to {end}, and does not.")


def rises(values: NDArray[Any]) -> bool:
    """Return whether each value is above the one before it."""
    return bool((values[1:] > values[:-1]).all())


def rises_within(offset: Ints, *keys: NDArray[Any]) -> bool:
    """Return whether, within each piece, the tuples of keys rise.

    >>> rises_within(np.array([0, 2, 3]), np.array([.2, .8, .1]))
    True
    """
    above = np.zeros(len(keys[0]) - 1, dtype=bool)
    for key in reversed(keys):
        above = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & above)
    is_start = np.zeros(len(keys[0]), dtype=bool)
    is_start[offset[:-1]] = True
    return bool((above | is_start[1:]).all())


def is_last(offset: Ints) -> NDArray[np.bool_]:
    """Return which places are the last of their piece."""
    last = np.zeros(int(offset[-1]), dtype=bool)
    last[offset[1:] - 1] = True
    return last
