"""Columns whose values have effects: tenant, language, topic. Crossed: a row has one value of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.storage import require, require_between, require_columns
from qacal.tally.arrays import Ints
from qacal.tally.labels import as_labels, require_common_type, type_of

# Values beyond the most frequent ones have no effects of their own: they would be a row or two each.
_MOST = 256

NO_LEVEL = -1


@dataclass(frozen=True, eq=False)
class Levels:
    """The values of some columns that have effects.

    names : of the columns.
    labels, column : the values, and which column each belongs to.
    """

    names: tuple[Any, ...]
    labels: tuple[Any, ...]
    column: Ints

    def __len__(self) -> int:
        return len(self.labels)

    def codes(self, columns: Mapping[str, Any]) -> Ints:
        """Return the place of each row's values, a column for each column; `NO_LEVEL` for values without effects."""
        found = []
        for at, name in enumerate(self.names):
            known = {self.labels[place]: place for place in np.flatnonzero(self.column == at).tolist()}
            values = as_labels(columns[name], name).tolist()
            # Files do not agree on what a number is: without its effects, a row would get another score unnoticed.
            require_common_type(values, frozenset(map(type_of, known)), name)
            found.append(np.fromiter((known.get(value, NO_LEVEL) for value in values), np.int64, len(values)))
        return np.column_stack(found)

    def validate(self) -> None:
        """Refuse what :func:`find_levels` cannot have made."""
        require(all(isinstance(name, str) for name in self.names), "the columns of a score have names.")
        require_columns(len(self.labels), column=self.column)
        require(len(self.labels) > 0, "the columns of a score have no values.")
        require_between(0, len(self.names) - 1, column=self.column)
        known = set(zip(self.column.tolist(), self.labels, strict=True))
        require(len(known) == len(self.labels), "a column of a score has a value twice.")


def find_levels(columns: Mapping[str, Any]) -> Levels | None:
    """Return the values with effects; None if there are no columns, or none of them has two values."""
    labels: list[Any] = []
    owners: list[int] = []
    for at, (name, values) in enumerate(columns.items()):
        counts: dict[Any, int] = {}
        for value in as_labels(values, name).tolist():
            counts[value] = counts.get(value, 0) + 1
        counts.pop(None, None)
        # In an order that does not depend on that of the rows.
        frequent = sorted(counts, key=lambda label: (-counts[label], str(type(label)), str(label)))[:_MOST]
        if len(frequent) > 1:
            labels += frequent
            owners += [at] * len(frequent)
    return Levels(tuple(columns), tuple(labels), np.array(owners, dtype=np.int64)) if labels else None
