"""Cells as a table: the form in which tallies travel between machines and days.

What belongs to the whole tally (a tree's depth, the number of blocks) stands in every row: a table has no other safe
place for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qacal.cells import SUMS
from qacal.errors import InputError
from qacal.grouping import Grouping, Paths, as_grouping
from qacal.records import unit_values

if TYPE_CHECKING:
    import polars as pl

_FLAGS = ("is_weighted", "is_soft", "is_clustered")
_CONSTANTS = ("n_blocks", *_FLAGS, "resolution")


def write_cells(fields: dict[str, Any]) -> pl.DataFrame:
    """Return a tally's fields as a table, one row a cell."""
    import polars as pl

    columns: dict[str, Any] = {}
    for name, grouping in fields["partitions"].items():
        columns |= _key_columns(name, grouping)
    columns |= {name: fields[name] for name in ("block", "confidence", "tie", *SUMS) if fields[name] is not None}
    constants = {name: pl.lit(fields[name]) for name in _CONSTANTS}
    constants["resolution"] = pl.lit(fields["resolution"], dtype=pl.Float64)
    return pl.DataFrame(columns, strict=False).with_columns(**constants)


def read_cells(table: pl.DataFrame) -> dict[str, Any]:
    """Return the fields of a tally from its table; cells are not yet sorted or added up."""
    missing = [name for name in ("confidence", *SUMS, *_CONSTANTS) if name not in table.columns]
    if missing:
        raise InputError(f"the table lacks the columns {missing}; it was not made by Tally.to_polars.")
    if table.height == 0:
        raise InputError("the table is empty; at least one cell is needed.")
    fields: dict[str, Any] = {name: _checked_sum(table[name].to_numpy(), name) for name in SUMS}
    fields |= {name: bool(table[name].any()) for name in _FLAGS}
    fields |= {name: _constant(table, name) for name in ("n_blocks", "resolution")}
    fields |= {name: table[name].to_numpy() for name in ("block", "tie") if name in table.columns}
    fields["confidence"] = unit_values(table["confidence"], "confidence")
    fields["partitions"] = _partitions(table)
    return fields


def _key_columns(name: str, column: Grouping) -> dict[str, Any]:
    if not column.is_tree:
        return {f"{name}:label": column.decode(column.code)}
    return {
        f"{name}:path": column.code,
        f"{name}:exit": column.exit,
        f"{name}:depth": np.full(len(column), column.depth),
    }


def _partitions(table: pl.DataFrame) -> dict[str, Grouping]:
    columns = {}
    for column in table.columns:
        name, _, part = column.rpartition(":")
        if part == "label":
            columns[name] = as_grouping(table[column].to_list(), table.height)
        elif part == "path":
            depth = _constant(table, f"{name}:depth")
            paths = Paths(table[column].to_numpy(), table[f"{name}:exit"].to_numpy(), depth)
            columns[name] = as_grouping(paths, table.height)
    return columns


def _constant(table: pl.DataFrame, name: str) -> Any:
    values = table[name].unique()
    if len(values) != 1:
        raise InputError(f"the table mixes {name} {values.to_list()}; such tallies do not add.")
    return values[0]


def _checked_sum(values: NDArray[Any], name: str) -> NDArray[Any]:
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise InputError(f"{name}[{int(np.argmax(bad))}] is {values[np.argmax(bad)]}; a sum is 0 or more.")
    return values
