"""What comes back from a file is checked here: a saved state may be old, broken or hostile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.partitions.base import Arrays, Plain
from qacal.tally.arrays import Floats, Ints


def require_names(stored: Mapping[str, Any], names: Collection[str], kind: str) -> None:
    """Refuse a state with other entries than these.

    >>> require_names({"pivots": 1, "extra": 2}, ["pivots"], "kdtree")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: a saved kdtree has the entries ['extra', 'pivots']; expected ['pivots']. ...
    """
    if set(stored) != set(names):
        there = sorted(map(str, stored))
        raise InputError(f"a saved {kind} has the entries {there}; expected {sorted(names)}. Save it anew.")


def stored_floats(arrays: Arrays, name: str, shape: tuple[int, ...], kind: str, *, infinite: bool = False) -> Floats:
    """Return an array of float64 of this shape, finite; with `infinite` it may hold plus infinity."""
    array: Floats = _stored(arrays, name, np.float64, shape, kind)
    good = np.isfinite(array) | (array == np.inf) if infinite else np.isfinite(array)
    if not good.all():
        raise InputError(f"the {name} of a saved {kind} hold {array[~good][0]}; expected finite numbers.")
    return array


def stored_sizes(arrays: Arrays, n_groups: int, kind: str) -> Ints:
    """Return the sizes of the groups on the fitting rows."""
    sizes: Ints = _stored(arrays, "sizes", np.int64, (n_groups,), kind)
    if (sizes < 0).any():
        raise InputError(f"the sizes of a saved {kind} hold {sizes.min()}; a group has no fewer than 0 rows.")
    return sizes


def stored_whole(plain: Plain, name: str, low: int, high: int, kind: str) -> int:
    """Return a whole number between bounds."""
    value = plain[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"the {name} of a saved {kind} is {value!r}; expected a whole number from {low} to {high}.")
    return value


def _stored(arrays: Arrays, name: str, dtype: type[Any], shape: tuple[int, ...], kind: str) -> Any:
    array = arrays[name]
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        got = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(f"the {name} of a saved {kind} are {got}; expected {np.dtype(dtype)} of shape {shape}.")
    return array.copy()
