"""From a row to its group: the paper's beta.

In: vectors of texts, or columns of the rows. Out: a label per row, or its path in a tree. Open `base.py` first, then
`bisecting.py` (the default).
"""

from __future__ import annotations

from typing import Any

from qacal.errors import InputError
from qacal.partitions.base import EMBEDDING, Partition
from qacal.partitions.bisecting import BisectingTree
from qacal.partitions.column import Column
from qacal.partitions.kdtree import KDTree
from qacal.partitions.kmeans import KMeans
from qacal.partitions.product import Product

__all__ = ["EMBEDDING", "BisectingTree", "Column", "KDTree", "KMeans", "Partition", "Product", "as_partition"]

_KNOWN = (
    '"kdtree:6", "bisecting:6" (depths), "kdtree:6:coordinate" (raw coordinates, as in the paper), '
    '"kmeans:32" (groups), "column:subject" (a name), several joined by "*", or a partition'
)
_COUNTED: dict[str, tuple[type[Partition], str]] = {
    "kdtree": (KDTree, "max_depth"),
    "bisecting": (BisectingTree, "max_depth"),
    "kmeans": (KMeans, "n_groups"),
}


def as_partition(value: Any) -> Partition:
    """Return the partition of a name; a partition is returned unchanged.

    >>> as_partition("kdtree:4")
    KDTree(max_depth=4)
    >>> as_partition("kdtree:4:coordinate")
    KDTree(max_depth=4, axes='coordinate')
    >>> as_partition("column:tenant * bisecting:4")
    Product(Column('tenant'), BisectingTree(max_depth=4))
    >>> as_partition("forest:3")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: 'forest:3' names no partition; there are "kdtree:6", ...
    """
    if isinstance(value, Partition):
        return value
    if isinstance(value, str):
        parts = [_spelled(part.strip(), value) for part in value.split("*")]
        return parts[0] if len(parts) == 1 else Product(*parts)
    raise InputError(f"{value!r} is not a partition; there are {_KNOWN}.")


def _spelled(text: str, whole: str) -> Partition:
    kind, colon, rest = text.partition(":")
    if kind == "column" and rest:
        return Column(rest)
    if kind in _COUNTED and not colon:
        return _COUNTED[kind][0]()
    depth = rest.removesuffix(":coordinate")
    if kind == "kdtree" and depth != rest and _is_number(depth):
        return KDTree(max_depth=int(depth), axes="coordinate")
    if kind in _COUNTED and _is_number(rest):
        make, parameter = _COUNTED[kind]
        return make(**{parameter: int(rest)})
    where = "" if text == whole else f" in {whole!r}"
    raise InputError(f"{text!r}{where} names no partition; there are {_KNOWN}.")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
