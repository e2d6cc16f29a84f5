"""Groups by any function of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import require_kind
from qacal.partitions.base import Partition, Plain, column_of
from qacal.tally.arrays import ArrayLike
from qacal.tally.groups import Paths
from qacal.tally.labels import as_labels


class Function(Partition):
    """Group rows by a function that takes columns by name and returns a label for each row.

    It must be a function of the row alone: fitting learns nothing, and the same row must get the same label tomorrow.
    It cannot be saved, since only code could tell what it does; to save a model, write the labels into a column and
    use :class:`~qacal.Column`.

    Parameters
    ----------
    function : takes a mapping of columns and returns a column of labels, with None for rows that have no group.
    name : of the function, for descriptions; its own by default.
    columns : which columns it reads. It is given no others; by default it is given all there are.

    Examples
    --------
    >>> def length(rows):
    ...     return ["long" if len(question) > 20 else "short" for question in rows["question"]]
    >>> Function(length, columns=["question"]).groups_of({"question": ["Why?", "Who wrote War and Peace?"]})
    array(['short', 'long'], dtype=object)
    """

    kind = "function"

    def __init__(
        self,
        function: Callable[[Mapping[str, ArrayLike]], ArrayLike],
        *,
        name: str | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        self.function = function
        self.name = name
        self.columns = columns

    def __repr__(self) -> str:
        return f"Function({self._name()})"

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns that it reads; none named means that it is given all there are."""
        require_kind(self.columns, Iterable, "columns", "a list of names")
        if isinstance(self.columns, str):
            raise InputError(f"columns is {self.columns!r}; expected a list of names, such as [{self.columns!r}].")
        return tuple(self.columns or ())

    def fit(self, Z: ArrayLike) -> Self:
        """Learn nothing; the labels are tried out, so that a function that cannot work fails early."""
        self.assign(Z)
        return self

    def assign(self, Z: ArrayLike) -> NDArray[np.object_]:
        """Return the labels that the function gives to a mapping of columns by name."""
        if not callable(self.function):
            raise InputError(f"the function is {self.function!r}; expected something that can be called.")
        inputs = {name: column_of(Z, name, self) for name in self.needs or Z}
        labels = as_labels(self.function(inputs), f"what {self._name()} returned")
        for name, column in inputs.items():
            if len(column) != len(labels):
                raise InputError(
                    f"{self._name()} returned {len(labels)} labels for the {len(column)} rows of {name!r}."
                )
        return labels

    def fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        """Try the function out."""
        return self.fit(inputs)

    def groups_of(self, inputs: Mapping[str, ArrayLike]) -> Paths | NDArray[Any]:
        """Return the labels that the function gives."""
        return self.assign(inputs)

    def describe(self) -> Plain:
        """Return the name of the function; the number of groups is not known."""
        return {"kind": self.kind, "parameters": self.parameters(), "n_groups": None}

    def parameters(self) -> Plain:
        """Return the function's name and columns, which do not suffice to make it again."""
        return {"name": self._name(), "columns": list(self.needs)}

    def validate(self) -> NoReturn:
        """Refuse: a function cannot be saved."""
        raise InputError(
            f"{self!r} is code and cannot be saved. Write its labels into a column of the rows, say 'kind', "
            "and use Column('kind') in its place."
        )

    def _name(self) -> str:
        return self.name or str(getattr(self.function, "__name__", type(self.function).__name__))
