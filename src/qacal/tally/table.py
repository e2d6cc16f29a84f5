"""Cells as a table, to store tallies and to add them up later.

Settings of the whole tally (a tree's depth, the number of blocks) are in every row: a table has no other safe place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError, counted
from qacal.tally.arrays import unit_values
from qacal.tally.cells import SUMS
from qacal.tally.groups import GroupColumn, Paths, as_grouping, distinct

if TYPE_CHECKING:
    import polars as pl

# Without weights, these sums repeat others.
_WEIGHTED = {"w": "rows", "ww": "rows", "wwt": "wt", "wwtt": "wtt"}
_CONSTANTS = ("n_blocks", "seed", "is_clustered", "is_sum", "resolution")

# Of these, Tally.sql writes a null if the sum means nothing.
_IMPOSSIBLE = {
    "w": "some of their weights are missing, below 0, or not from 1e-100 to 1e100",
    "wt": "some of their labels are not numbers from 0 to 1",
}


def write_cells(fields: dict[str, Any]) -> pl.DataFrame:
    """Return a tally's fields as a table, one row per cell."""
    import polars as pl

    columns: dict[str, Any] = {}
    for name, column in fields["partitions"].items():
        if column.is_tree:
            depth = np.full(len(column), column.depth)
            columns |= {f"{name}:path": column.code, f"{name}:exit": column.exit, f"{name}:depth": depth}
        elif len({type(label) for label in column.labels or ()}) > 1:
            raise InputError(
                f"the labels of {name} are of several types; a table column holds one. Make them all text."
            )
        else:
            used, where = distinct(column.code)
            columns[f"{name}:label"] = pl.Series(column.decode(used), strict=False).gather(where)
    columns |= {name: fields[name] for name in ("block", "confidence", "tie", *SUMS) if fields[name] is not None}
    constants = {name: pl.lit(fields[name]) for name in _CONSTANTS}
    constants["resolution"] = pl.lit(fields["resolution"], dtype=pl.Float64)
    return pl.DataFrame(columns, strict=False).with_columns(**constants)


def repeated_sums(is_weighted: bool, is_soft: bool) -> list[str]:
    """Return the sums that :func:`read_cells` does not need: without weights, and with labels of 0 and 1."""
    return [] if is_weighted else [*_WEIGHTED, *([] if is_soft else ["wtt"])]


def read_cells(table: pl.DataFrame) -> dict[str, Any]:
    """Return the fields of a tally from its table; cells are not yet sorted or added up.

    A table that :func:`write_cells` did not make is refused if columns are missing or of another type. That its sums
    belong together is checked only as far as weights and labels go.
    """
    import polars as pl

    if not isinstance(table, pl.DataFrame):
        raise InputError(
            f"from_polars takes a polars table, and got {type(table).__name__}; pl.DataFrame(table) may help."
        )
    _require_columns(table, ("confidence", "rows", "wt", *_CONSTANTS), "it was not made by Tally.to_polars")
    if not _WEIGHTED.keys() & {*table.columns}:
        table = table if "wtt" in table.columns else table.with_columns(wtt="wt")
        table = table.with_columns(**_WEIGHTED)
    _require_columns(table, SUMS, "it was not made by Tally.to_polars")
    if table.height == 0:
        raise InputError("the table is empty; at least one cell is needed.")
    fields: dict[str, Any] = {name: _numbers(table[name]) for name in SUMS if name != "rows"}
    rows = fields["rows"] = _whole(table["rows"])
    if (rows < 1).any():
        raise InputError(f"rows[{np.argmax(rows < 1)}] is {rows.min()}; a cell has 1 row or more.")
    w, wt = fields["w"], fields["wt"]
    if (w <= 0).any():
        raise InputError(f"w[{np.argmax(w <= 0)}] is {w.min():g}; the weight of a cell is above 0.")
    if (is_above := wt > w * (1 + 1e-9)).any():
        at = int(np.argmax(is_above))
        raise InputError(f"wt[{at}] is {wt[at]:g} and w[{at}] is {w[at]:g}; labels are at most 1, so wt is at most w.")
    fields["is_weighted"] = not (np.array_equal(fields["w"], rows) and np.array_equal(fields["ww"], rows))
    fields["is_soft"] = not np.allclose(fields["wtt"], fields["wt"], rtol=1e-12, atol=0)
    if table["is_clustered"].null_count():  # what the SELECT gives
        raise InputError("is_clustered is missing, so some rows have no id; give every row one, or count without ids.")
    for name in ("is_clustered", "is_sum"):
        # SQLite has no booleans: it writes them as 0 and 1.
        is_flag = table[name].dtype == pl.Boolean or (
            table[name].dtype.is_integer() and table[name].is_in([0, 1]).all()
        )
        _require_type(table[name], is_flag, "true or false")
        fields[name] = bool(table[name].max())
    fields |= {name: int(_constant(_whole(table[name]), name)) for name in ("n_blocks", "seed")}
    if fields["n_blocks"] > 1:
        _require_columns(table, ("block",), f"it has {fields['n_blocks']} blocks")
    resolution = table["resolution"]
    has_none = resolution.null_count() == table.height
    fields["resolution"] = None if has_none else float(_constant(_numbers(resolution), "resolution"))
    fields |= {name: _whole(table[name]) for name in ("block", "tie") if name in table.columns}
    fields["confidence"] = unit_values(table["confidence"], "confidence")
    fields["partitions"] = _partitions(table)
    return fields


def _partitions(table: pl.DataFrame) -> dict[str, GroupColumn]:
    import polars as pl

    columns = {}
    for column in table.columns:
        name, _, part = column.rpartition(":")
        if part == "label":
            values = table[column]
            columns[name] = as_grouping(values if values.dtype == pl.String else values.to_list(), table.height)
        elif part == "path":
            _require_columns(table, (f"{name}:exit", f"{name}:depth"), f"{column} alone is not a tree")
            depth = int(_constant(_whole(table[f"{name}:depth"]), f"{name}:depth"))
            columns[name] = as_grouping(
                Paths(_whole(table[column]), _whole(table[f"{name}:exit"]), depth), table.height
            )
    return columns


def _require_columns(table: pl.DataFrame, names: tuple[str, ...], reason: str) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InputError(f"the table lacks the columns {missing}; {reason}.")


def _constant(values: NDArray[Any], name: str) -> Any:
    """Return the value that all rows have."""
    distinct = np.unique(values)
    if len(distinct) != 1:
        raise InputError(f"the table mixes {name} {distinct.tolist()}; such tallies do not add.")
    return distinct[0]


def _whole(column: pl.Series) -> NDArray[Any]:
    _require_type(column, column.dtype.is_integer(), "whole numbers")
    return column.to_numpy()


def _numbers(column: pl.Series) -> NDArray[np.float64]:
    if column.name in _IMPOSSIBLE and (nulls := column.null_count()):
        raise InputError(f"{column.name} is null in {counted(nulls, 'cell')}: {_IMPOSSIBLE[column.name]}.")
    _require_type(column, column.dtype.is_numeric(), "numbers")
    values = column.to_numpy().astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(f"{column.name}[{at}] is {values[at]}; a sum is 0 or more.")
    return values


def _require_type(column: pl.Series, is_expected: bool, expected: str) -> None:
    nulls = column.null_count()
    if nulls or not is_expected:
        raise InputError(f"the column {column.name} holds {column.dtype} with {nulls} nulls; expected {expected}.")
