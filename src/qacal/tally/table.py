"""Cells as a table, to store tallies and to add them up later.

What belongs to the whole tally (a tree's depth, the number of blocks) is in every row: a table has no other safe place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.tally.arrays import unit_values
from qacal.tally.cells import SUMS, snap
from qacal.tally.groups import GroupColumn, Paths, as_grouping

if TYPE_CHECKING:
    import polars as pl

_CONSTANTS = ("n_blocks", "seed", "is_clustered", "is_sum", "resolution")


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
    import polars as pl

    if not isinstance(table, pl.DataFrame):
        raise InputError(f"from_polars takes a polars table, and got {type(table).__name__}; try Tally.from_arrow.")
    missing = [name for name in ("confidence", *SUMS, *_CONSTANTS) if name not in table.columns]
    if missing:
        raise InputError(f"the table lacks the columns {missing}; it was not made by Tally.to_polars.")
    if table.height == 0:
        raise InputError("the table is empty; at least one cell is needed.")
    fields: dict[str, Any] = {name: _checked_sum(table[name], name) for name in SUMS}
    fields |= _consistent(fields)
    for name in ("is_clustered", "is_sum"):
        if table[name].dtype != pl.Boolean or table[name].null_count():
            raise _unfit(table[name], "true or false")
        fields[name] = bool(table[name].any())
    fields |= {name: _constant(table, name) for name in ("n_blocks", "seed")}
    fields["resolution"] = _resolution(table)
    fields |= {name: _whole(table[name]) for name in ("block", "tie") if name in table.columns}
    fields["confidence"] = unit_values(table["confidence"], "confidence")
    fields["partitions"] = _partitions(table)
    _check_keys(fields)
    return fields


def _consistent(sums: dict[str, Any]) -> dict[str, bool]:
    """Refuse sums that no rows can have; return whether they show weights and soft targets."""
    rows, w, wt = sums["rows"], sums["w"], sums["wt"]
    for what, is_wrong in (
        ("rows", (rows < 1) | (rows >= 2**53) | (rows != np.rint(rows))),
        ("w", w <= 0),
        ("wt", wt > w * (1 + 1e-9)),
        ("wtt", sums["wtt"] > wt * (1 + 1e-9)),
        ("ww", sums["ww"] * rows < w * w * (1 - 1e-9)),
        ("wwt", sums["wwt"] > sums["ww"] * (1 + 1e-9)),
        ("wwtt", sums["wwtt"] > sums["wwt"] * (1 + 1e-9)),
    ):
        if is_wrong.any():
            at = int(np.argmax(is_wrong))
            raise InputError(f"{what}[{at}] is {sums[what][at]}, which no rows can add up to beside the other sums.")
    sums["rows"] = rows.astype(np.int64)
    is_weighted = not (np.array_equal(w, rows) and np.array_equal(sums["ww"], rows))
    return {"is_weighted": is_weighted, "is_soft": not np.allclose(sums["wtt"], wt, rtol=1e-12, atol=0)}


def _check_keys(fields: dict[str, Any]) -> None:
    block, n_blocks = fields.get("block"), fields["n_blocks"]
    if (block is None) != (n_blocks == 1):
        raise InputError(f"the table has n_blocks {n_blocks} and {'no' if block is None else 'a'} column block.")
    if block is not None and not ((block >= 0) & (block < n_blocks)).all():
        raise InputError(f"block holds {block.min()} to {block.max()}; expected 0 to {n_blocks - 1}.")
    if fields["resolution"] is not None:
        off = snap(fields["confidence"], fields["resolution"]) != fields["confidence"]
        if off.any():
            value = fields["confidence"][off][0]
            raise InputError(f"confidence {value} is not on the grid of resolution {fields['resolution']}.")


def _key_columns(name: str, column: GroupColumn) -> dict[str, Any]:
    if not column.is_tree:
        if column.labels is not None and len({type(label) for label in column.labels}) > 1:
            raise InputError(
                f"the labels of {name} are of several types; a table column holds one. Make them all text."
            )
        return {f"{name}:label": column.decode(column.code)}
    return {
        f"{name}:path": column.code,
        f"{name}:exit": column.exit,
        f"{name}:depth": np.full(len(column), column.depth),
    }


def _partitions(table: pl.DataFrame) -> dict[str, GroupColumn]:
    columns = {}
    for column in table.columns:
        name, _, part = column.rpartition(":")
        if part == "label":
            columns[name] = as_grouping(table[column].to_list(), table.height)
        elif part == "path":
            missing = [want for want in (f"{name}:exit", f"{name}:depth") if want not in table.columns]
            if missing:
                raise InputError(f"the table lacks the columns {missing}, without which {column} is no tree.")
            depth = _constant(table, f"{name}:depth")
            paths = Paths(_whole(table[column]), _whole(table[f"{name}:exit"]), depth)
            columns[name] = as_grouping(paths, table.height)
    return columns


def _constant(table: pl.DataFrame, name: str) -> int:
    """Return the whole number that all rows have."""
    values = np.unique(_whole(table[name]))
    if len(values) != 1:
        raise InputError(f"the table mixes {name} {values.tolist()}; such tallies do not add.")
    return int(values[0])


def _resolution(table: pl.DataFrame) -> float | None:
    column = table["resolution"]
    if column.null_count() == len(column):
        return None
    values = np.unique(_checked_sum(column, "resolution"))
    if len(values) != 1:
        raise InputError(f"the table mixes resolution {values.tolist()}; such tallies do not add.")
    return float(values[0])


def _whole(column: pl.Series) -> NDArray[Any]:
    if not column.dtype.is_integer() or column.null_count():
        raise _unfit(column, "whole numbers")
    return column.to_numpy()


def _unfit(column: pl.Series, expected: str) -> InputError:
    nulls = column.null_count()
    return InputError(f"the column {column.name} holds {column.dtype} with {nulls} nulls; expected {expected}.")


def _checked_sum(column: pl.Series, name: str) -> NDArray[np.float64]:
    if not column.dtype.is_numeric() or column.null_count():
        raise _unfit(column, "numbers")
    values = column.to_numpy().astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise InputError(f"{name}[{int(np.argmax(bad))}] is {values[np.argmax(bad)]}; a sum is 0 or more.")
    return values
