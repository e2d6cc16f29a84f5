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
from qacal.tally.groups import Paths, as_labels


class Function(Partition):
    """Group rows by a function that takes columns by name and returns a label for each row.

    It must be a function of the row alone: fitting learns nothing, and the same row must always get the same label. It
    is code and cannot be saved; to save a model, write the labels into a column and use :class:`~qacal.Column`.

    Parameters
    ----------
    function : takes a mapping of columns and returns a column of labels, with None for rows that have no group.
    name : of the function, for descriptions; its own by default.
    columns : the columns that it gets; all by default.

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
        """The columns that it gets; empty for all."""
        require_kind(self.columns, Iterable, "columns", "a list of names")
        if isinstance(self.columns, str):
            raise InputError(f"columns is {self.columns!r}; expected a list of names, such as [{self.columns!r}].")
        return tuple(self.columns or ())

    def fit(self, Z: ArrayLike) -> Self:
        """Call the function once, so that it fails early; nothing is learned."""
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
                counts = f"{len(labels)} labels for the {len(column)} rows of {name!r}"
                raise InputError(f"{self._name()} returned {counts}.")
        return labels

    def fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        return self.fit(inputs)

    def groups_of(self, inputs: Mapping[str, ArrayLike]) -> Paths | NDArray[Any]:
        return self.assign(inputs)

    def describe(self) -> Plain:
        return {"kind": self.kind, "parameters": self.parameters(), "n_groups": None}

    def parameters(self) -> Plain:
        return {"name": self._name(), "columns": list(self.needs)}

    def validate(self) -> NoReturn:
        raise InputError(
            f"{self!r} is code and cannot be saved. Write its labels into a column of the rows, say 'kind', "
            "and use Column('kind') in its place."
        )

    def _name(self) -> str:
        return self.name or str(getattr(self.function, "__name__", type(self.function).__name__))
