"""What every partition is: parameters, and a frozen fitted result that says which group a row is in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError, NotFittedError
from qacal.parameters import HasParameters, shown
from qacal.tally.arrays import ArrayLike
from qacal.tally.groups import Paths
from qacal.tally.ids import mix

EMBEDDING = "embedding"
"""The name under which a row's vector is found among the inputs of a partition."""

Plain: TypeAlias = dict[str, Any]
"""What JSON can hold: text, numbers, booleans, None, lists and dictionaries of these."""

MOST_ROWS = 20_000
"""The most vectors that groups are learned from."""


class Partition(HasParameters, ABC):
    r"""Group rows: the paper's :math:`\beta`, or its second half :math:`\beta_{bin}` where vectors come in.

    A subclass names its `kind`, keeps all that it learns in one frozen object `fitted_`, and never changes it when it
    assigns. Applying a fitted partition needs numpy alone.
    """

    kind: ClassVar[str]
    fitted_: Any

    @property
    def needs(self) -> tuple[str, ...]:
        """What is read of a row, by name; `EMBEDDING` stands for its vector."""
        return (EMBEDDING,)

    @property
    def uses_labels(self) -> bool:
        """True if groups are learned from which answers were right; then `fit_rows` reads these columns too.

        They are `confidence` and `correct`. The rows of such a fit must not calibrate.
        """
        return False

    @property
    def rows_wanted(self) -> int:
        """From how many vectors to learn: more make no better groups, only longer waits."""
        return MOST_ROWS

    @abstractmethod
    def fit(self, Z: ArrayLike) -> Self:
        """Learn the groups: from vectors (one row each), from a column of labels, or from a mapping of columns."""

    @abstractmethod
    def assign(self, Z: ArrayLike) -> NDArray[Any]:
        """Return a label per row: a whole number, `NO_GROUP` for none; in a column of labels None for none."""

    def groups(self, Z: ArrayLike) -> Paths | NDArray[Any]:
        """Return what a calibrator takes as `groups=`: places in a tree, which know their ancestors, or labels."""
        return self.assign(Z)

    def fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        """Learn the groups from columns by name, of which `needs` tells the names."""
        return self.fit(column_of(inputs, self.needs[0], self))

    def groups_of(self, inputs: Mapping[str, ArrayLike]) -> Paths | NDArray[Any]:
        """Return :meth:`groups` of columns by name."""
        return self.groups(column_of(inputs, self.needs[0], self))

    @abstractmethod
    def describe(self) -> Plain:
        """Return the facts of the fitted partition: its kind, parameters, number of groups, and how it splits."""

    def parameters(self) -> Plain:
        """Return the hyperparameters in a form that JSON can hold."""
        given = self.get_params(deep=False).items()
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in given}

    def validate(self) -> None:
        """Raise `InputError` if no fit with these parameters can have given `fitted_`, which may come from a file."""
        self._require_fitted()
        self.require_parameters()
        self.fitted_.validate()

    def require_parameters(self) -> None:
        """Refuse parameters that can mean nothing."""

    def clone(self) -> Self:
        """Return an unfitted partition with the same parameters."""
        return type(self)(**self.get_params(deep=False))

    def _require_fitted(self) -> None:
        if not hasattr(self, "fitted_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")


def column_of(inputs: Mapping[str, ArrayLike], name: str, reader: object) -> ArrayLike:
    """Return one of the columns, or say which is missing and which there are.

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
        there = ", ".join(map(repr, inputs)) or "nothing"
        raise InputError(
            f"{reader!r} needs {name!r}, and the rows have {there}. Add it, or rename the column that is it."
        )
    return inputs[name]


def start_of(seed: int, number: int) -> int:
    """Return the seed of a random start; `number` tells several starts of one seed apart."""
    return int(mix(np.array([number], dtype=np.uint64), seed)[0] % np.uint64(2**32))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep libraries that are loaded to one thread.

    They sum in as many parts as there are threads, scikit-learn in the order in which these finish: the last digit
    would depend on the machine and on luck. And on the small nodes of a tree, threads wait for each other longer than
    they work.
    """
    # A library that came later would still use all threads.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def check_seed(seed: object) -> None:
    """Refuse a seed that is no whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"seed is {shown(seed)}; expected a whole number.")
