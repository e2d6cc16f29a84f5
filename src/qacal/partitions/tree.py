"""What the trees have in common: a depth, places that know their ancestors, leaves that are groups."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import MOST, shown
from qacal.partitions.base import MOST_ROWS, Partition, Plain
from qacal.storage import require, require_between, require_columns
from qacal.tally.arrays import ArrayLike, Ints
from qacal.tally.groups import MAX_DEPTH, Paths, as_grouping
from qacal.tally.vectors import as_vectors

_FEW_ROWS, _ROWS_A_LEAF = 3_000, 200

ROUNDING = 2.0**-40
"""How far above a sum of products, as a share of the longest vector, a threshold is put.

Libraries of linear algebra round a sum one way in a batch and another way alone. A row that lies on a threshold to the
last digit (it may be the median itself) must not change its group for that; with the threshold a hair above, it does
not. The sums are right to a few parts in 2^52, and vectors differ by much more than 2^-40.
"""


class FittedTree(Protocol):
    """The frozen result of fitting a tree."""

    @property
    def sizes(self) -> Ints:
        """How many fitting rows are in each leaf."""

    @property
    def depth(self) -> int:
        """The number of levels of splits."""

    @property
    def width(self) -> int:
        """The number of coordinates of a vector."""

    def validate(self) -> None:
        """Refuse content that no fit can have given."""

    def paths(self, Z: NDArray[np.floating]) -> Paths:
        """Return where each vector stands."""


def require_leaves(sizes: Ints, depth: int) -> None:
    """Refuse sizes that are not those of the leaves of a tree of this depth."""
    require(0 <= depth <= MAX_DEPTH, f"the tree has {depth} levels; expected 0 to {MAX_DEPTH}.")
    require_columns(2**depth, sizes=sizes)
    require_between(0, MOST, sizes=sizes)


class Tree(Partition):
    """A partition whose groups are the leaves of a binary tree of one depth."""

    max_depth: int
    fitted_: FittedTree

    @property
    def rows_wanted(self) -> int:
        """Some hundred a leaf."""
        self.require_parameters()
        return min(MOST_ROWS, max(_FEW_ROWS, _ROWS_A_LEAF << int(self.max_depth)))

    def paths(self, Z: ArrayLike) -> Paths:
        """Return each vector's place in the tree, from which the groups of every depth follow."""
        self._require_fitted()
        return self.fitted_.paths(as_vectors(Z, self.fitted_.width))

    def assign(self, Z: ArrayLike) -> Ints:
        """Return each vector's group, a leaf from 0 to 2^depth - 1; `NO_GROUP` (-1) for vectors out of bounds."""
        paths = self.paths(Z)
        return as_grouping(paths, len(paths)).leaves()

    def groups(self, Z: ArrayLike) -> Paths:
        """Return :meth:`paths`, which calibrators roll up to any depth."""
        return self.paths(Z)

    def describe(self) -> Plain:
        """Return the parameters, how many leaves have fitting rows and how many rows, and how each level splits."""
        self._require_fitted()
        sizes = self.fitted_.sizes
        return {
            "kind": self.kind,
            "parameters": self.parameters(),
            "depth": self.fitted_.depth,
            "n_groups": int((sizes > 0).sum()),
            "rows": int(sizes.sum()),
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
            "levels": self._levels(),
        }

    @abstractmethod
    def _levels(self) -> list[Plain]:
        """Return how each level splits, the root's first."""

    def validate(self) -> None:
        """Raise `InputError` if no fit with these parameters can have given `fitted_`, which may come from a file."""
        super().validate()
        depth = self.fitted_.depth
        require(depth == self.max_depth, f"max_depth is {self.max_depth}, and the tree has {depth} levels; fit again.")

    def require_parameters(self) -> None:
        """Refuse parameters that can mean nothing."""
        depth = self.max_depth
        if isinstance(depth, bool) or not isinstance(depth, int | np.integer) or not 0 <= depth <= MAX_DEPTH:
            raise InputError(f"max_depth is {shown(depth)}; expected a whole number from 0 to {MAX_DEPTH}.")
