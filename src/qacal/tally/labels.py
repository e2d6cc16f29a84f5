"""Labels that rows already have: any value, None for none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.tally.arrays import ArrayLike, column_of_any
from qacal.tally.groups import NO_GROUP, as_grouping


def as_labels(values: ArrayLike, name: str) -> NDArray[np.object_]:
    """Return a column as an array of labels; what is missing (None, NaN, the number -1) is None.

    Labels are what calibrators take them for: the number 2 and the text "2" are two labels, 2.0 and 2 are one.

    >>> as_labels(["law", None, "art"], "subject")
    array(['law', None, 'art'], dtype=object)
    >>> as_labels([3.0, float("nan")], "tenant")
    array([3, None], dtype=object)
    """
    array = column_of_any(values, name)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; expected one label per row, as a list or column.")
    if array.dtype.kind in "mM":
        raise InputError(f"{name} holds dates or times; write them as text, such as 2025-01-31, to group by them.")
    column = as_grouping(array, len(array))
    if column.labels is not None:
        # The last entry serves NO_GROUP, which is -1.
        return object_array([*column.labels, None])[column.code]
    out = column.code.astype(object)
    out[column.code == NO_GROUP] = None
    return out


def object_array(values: Iterable[Any]) -> NDArray[np.object_]:
    """Return a flat array of any values; numpy itself would make a matrix of tuples."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def require_common_type(labels: Iterable[Any], mine: frozenset[str], name: str) -> None:
    """Refuse labels of which none can be known, since they are of another type than `mine`: "2" and 2, say."""
    theirs = {type_of(label) for label in set(labels) if label is not None}
    if theirs and mine and not theirs & mine:
        raise InputError(
            f"{name} has labels that are {', '.join(sorted(theirs))}; those of the fit are {', '.join(sorted(mine))}. "
            "Convert the column."
        )


def type_of(label: Any) -> str:
    """Return the kind of a label: labels of different kinds are never equal."""
    if isinstance(label, str):
        return "text"
    return "numbers" if isinstance(label, int | float) else type(label).__name__
