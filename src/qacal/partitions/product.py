"""The product of partitions: tenant x topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.partitions.base import Partition
from qacal.tally.arrays import ArrayLike
from qacal.tally.groups import GroupColumn, Paths, as_grouping, as_labels, object_array

MOST_PARTS = 16


class Product(Partition):
    """Group rows by several partitions at once: a group for every combination that occurs.

    The label of a group is text: the labels of the parts, joined by " / ". A "/" inside a label is doubled, so that
    different combinations never share a label. A row without a group in one of the parts has no group.

    Parameters
    ----------
    parts : partitions. Groups multiply: with many parts, groups are too small for their own maps.

    Notes
    -----
    The groups are flat, even if a part is a tree: the leaves of the tree are combined, and borrow from the root. Labels
    are compared as text, so the number 2 and the text "2" are one label.

    Examples
    --------
    >>> from qacal.partitions import Column, KDTree
    >>> rows = {"tenant": ["acme", "acme", "a/b", None], "embedding": [[0.0], [2.0], [2.0], [0.0]]}
    >>> both = Product(Column("tenant"), KDTree(max_depth=1)).fit(rows)
    >>> both.assign(rows)
    array(['acme / 0', 'acme / 1', 'a//b / 1', None], dtype=object)
    """

    fitted_: tuple[Partition, ...]

    def __init__(self, *parts: Partition) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.parts))})"

    @property
    def _needs(self) -> tuple[str, ...]:
        self._require_parameters()
        return tuple(dict.fromkeys(name for part in self.parts for name in part._needs))

    def fit(self, Z: ArrayLike) -> Self:
        """Fit a copy of each part to a mapping of columns by name."""
        self._require_parameters()
        self.fitted_ = tuple(part.clone()._fit_rows(Z) for part in self.parts)
        return self

    def assign(self, Z: ArrayLike) -> NDArray[np.object_]:
        """Return the combined labels of a mapping of columns by name."""
        self._require_fitted()
        parts = [_flat(part._groups_of(Z)) for part in self.fitted_]
        lengths = {len(part) for part in parts}
        if len(lengths) > 1:
            raise InputError(f"the columns have {', '.join(map(str, sorted(lengths)))} rows; expected one length.")
        rows = list(zip(*(part.tolist() for part in parts), strict=True))
        names = {
            row: None if None in row else " / ".join(str(label).replace("/", "//") for label in row)
            for row in set(rows)
        }
        return object_array(map(names.__getitem__, rows))

    def _fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        return self.fit(inputs)

    def _groups_of(self, inputs: Mapping[str, ArrayLike]) -> NDArray[np.object_]:
        return self.assign(inputs)

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        # The parameters of the fitted parts are those of the product.
        product = cls(*(part.clone() for part in values["fitted_"]))
        product.fitted_ = values["fitted_"]
        return product

    def clone(self) -> Self:
        return type(self)(*(part.clone() for part in self.parts))

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    def _require_parameters(self) -> None:
        if not isinstance(self.parts, tuple) or not 1 <= len(self.parts) <= MOST_PARTS:
            raise InputError(f"the parts of a Product are {self.parts!r}; expected 1 to {MOST_PARTS} partitions.")
        for part in self.parts:
            if isinstance(part, Product):
                raise InputError(f"{part!r} is a part of a Product; list its parts instead: Product(a, b, c).")
            if not isinstance(part, Partition):
                raise InputError(f'a part of the Product is {part!r}; expected partitions, such as Column("tenant").')


def _flat(groups: Paths | GroupColumn | NDArray[Any]) -> NDArray[np.object_]:
    """Return the labels of one part; for a tree, its leaves."""
    if isinstance(groups, GroupColumn):
        return object_array(groups.decode(groups.code))
    leaves = as_grouping(groups, len(groups)).leaves() if isinstance(groups, Paths) else groups
    return as_labels(leaves, "a part of the Product")
