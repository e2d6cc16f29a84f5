"""The base classes of partitions: parameters, and a frozen fitted result that assigns rows to groups."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError, NotFittedError
from qacal.parameters import HasParameters, is_whole, require, shown
from qacal.tally.arrays import ArrayLike, Floats, Ints, as_vectors, portions, require_finite
from qacal.tally.groups import MAX_DEPTH, GroupColumn, Paths, as_grouping
from qacal.tally.ids import mix, row_hashes

EMBEDDING = "embedding"
"""The name of the column of vectors among the inputs of a partition."""

ROUNDING = 2.0**-40
"""Thresholds are put this far above a sum of products, as a share of the longest vector.

Libraries of linear algebra round a sum differently in a batch and alone. A row that lies exactly on a threshold (it may
be the median itself) must not change its group for that. The sums are exact to a few parts in 2^52, and vectors differ
by much more than 2^-40.
"""

_MOST_ROWS = 20_000


class Partition(HasParameters, ABC):
    r"""Group rows: the paper's :math:`\beta`, or for vectors its second half :math:`\beta_{bin}`.

    A subclass stores everything that it learns in one frozen object `fitted_`. Assigning changes nothing and needs only
    numpy.
    """

    fitted_: Any

    @property
    def _needs(self) -> tuple[str, ...]:
        """The columns that it reads; `EMBEDDING` stands for the vectors."""
        return (EMBEDDING,)

    @property
    def _rows_wanted(self) -> int:
        """The number of vectors to learn from; more vectors take longer and do not improve the groups."""
        return _MOST_ROWS

    @abstractmethod
    def fit(self, Z: ArrayLike) -> Self:
        """Learn the groups: from vectors (one row each), from a column of labels, or from a mapping of columns."""

    @abstractmethod
    def assign(self, Z: ArrayLike) -> NDArray[Any]:
        """Return a label per row. Rows without a group have `NO_GROUP`; in a column of labels, None."""

    def _groups(self, Z: ArrayLike) -> Paths | GroupColumn | NDArray[Any]:
        """Return what calibrators take as `groups`: labels, their codes, or paths in a tree with all ancestors."""
        return self.assign(Z)

    def _fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        """Learn the groups from columns by name; `_needs` lists the names."""
        return self.fit(column_of(inputs, self._needs[0], self))

    def _groups_of(self, inputs: Mapping[str, ArrayLike]) -> Paths | GroupColumn | NDArray[Any]:
        """Return `_groups` of columns by name."""
        return self._groups(column_of(inputs, self._needs[0], self))

    def _require_parameters(self) -> None:
        """Raise `InputError` if a parameter is not valid."""

    def clone(self) -> Self:
        """Return an unfitted partition with the same parameters."""
        return type(self)(**self.get_params(deep=False))

    def _require_fitted(self) -> None:
        if not hasattr(self, "fitted_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")


class Tree(Partition):
    """A partition with the leaves of a binary tree of one depth as groups.

    `fitted_` has the attributes `sizes` (the training rows in each leaf), `depth` and `width` (of a vector), and the
    method `paths`.
    """

    max_depth: int

    @property
    def _rows_wanted(self) -> int:
        self._require_parameters()
        return min(_MOST_ROWS, max(3_000, 200 << int(self.max_depth)))  # some hundred a leaf

    def paths(self, Z: ArrayLike) -> Paths:
        """Return each vector's place in the tree, which gives its groups at every depth."""
        self._require_fitted()
        paths: Paths = self.fitted_.paths(as_vectors(Z, self.fitted_.width))
        return paths

    def assign(self, Z: ArrayLike) -> Ints:
        """Return each vector's group, a leaf from 0 to 2^depth - 1; `NO_GROUP` (-1) for vectors out of bounds."""
        paths = self.paths(Z)
        return as_grouping(paths, len(paths)).leaves()

    # Calibrators also use the ancestors of groups.
    _groups = paths

    def _validate(self) -> None:
        """Raise `InputError` unless a fit with these parameters can have made `fitted_`, which may come from a file."""
        depth, leaves = self.fitted_.depth, len(self.fitted_.sizes)
        is_same = depth == self.max_depth <= MAX_DEPTH and leaves == 2**depth
        require(is_same, f"max_depth is {self.max_depth}, and the tree has {depth} levels, {leaves} leaves; fit again.")

    def _require_parameters(self) -> None:
        if not is_whole(self.max_depth, 0, MAX_DEPTH):
            raise InputError(f"max_depth is {shown(self.max_depth)}; expected a whole number from 0 to {MAX_DEPTH}.")


def column_of(inputs: Mapping[str, ArrayLike], name: str, reader: object) -> ArrayLike:
    """Return one of the columns; if it is missing, the error lists the others.

    >>> from qacal.partitions import Column
    >>> column_of({"subject": ["law"]}, "tenant", Column("tenant"))
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: Column('tenant') needs 'tenant', and the rows have 'subject'. ...
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"{reader!r} takes columns by name, such as {{{name!r}: [...]}}; got a {type(inputs).__name__}."
        )
    if name not in inputs:
        names = ", ".join(map(repr, inputs)) or "nothing"
        raise InputError(f"{reader!r} needs {name!r}, and the rows have {names}. Add that column, or rename yours.")
    return inputs[name]


def fitting_vectors(Z: ArrayLike) -> Floats:
    """Return vectors to learn from: float64, finite, and in the order of a hash of each row.

    So sums round the same way, and seeded choices pick the same rows, whatever the order of the file.
    """
    matrix = as_vectors(Z)
    for rows, block in portions(matrix):
        require_finite(block, range(rows.start, rows.stop))
    exact = matrix.astype(np.float64) + 0.0  # -0.0 equals 0.0 but has other bits
    return exact[np.argsort(row_hashes(exact), kind="stable")]


def start_of(seed: int, number: int) -> int:
    """Return the seed of a random start; each `number` gives another one."""
    return int(mix(np.array([number], dtype=np.uint64), seed)[0] % np.uint64(2**32))


_limit = RLock()


def _new_limit() -> None:
    """Give a forked child a lock that no thread of the parent has."""
    global _limit
    _limit = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_limit)


@contextmanager
def one_thread(*, waits: bool = True) -> Iterator[None]:
    """Keep numerical libraries to one thread.

    They add up one part per thread, and scikit-learn adds the parts in the order in which threads finish. The last
    digit would depend on the machine and on luck. For small matrices, threads are also slower.

    waits : the limit holds for the whole process, so only one thread sets it at a time. False goes on without setting
        it if another thread has: right where only speed is at stake.
    """
    # A library that is loaded later would still use all threads.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    lock = _limit
    if not lock.acquire(blocking=waits):
        yield
        return
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        lock.release()
