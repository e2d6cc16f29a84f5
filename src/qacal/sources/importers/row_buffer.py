"""Rows in a temporary file until all of them are read: only then are the columns and their types known.

Logs have other columns in every task, and a column that has numbers in 50,000 rows may have text in the next. A file
has one type for a column, and CSV one set of columns; so the rows wait on disk, and memory holds one batch of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from qacal.records.table import FrameTable, column_type, json_or_text, value_kind

if TYPE_CHECKING:
    import polars as pl

_BATCH_ROWS = 8_192
_MOST_COLUMNS = 500


@dataclass
class RowBuffer:
    """Takes rows one by one and returns them as tables of one schema.

    first : columns that come first and always exist.
    left_out : names of columns beyond the first 500: some logs have metadata with a name for each row.

    >>> with RowBuffer(("id",)) as rows:
    ...     rows.add({"id": "1", "year": 1999})
    ...     rows.add({"id": "2", "year": "unknown", "aliases": ["two", "II"]})
    ...     rows.frame().to_dict(as_series=False)
    {'id': ['1', '2'], 'year': ['1999', 'unknown'], 'aliases': [None, ['two', 'II']]}
    """

    first: tuple[str, ...]
    count: int = 0
    left_out: set[str] = field(default_factory=set)
    _kinds: dict[str, set[str]] = field(default_factory=dict)
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    _file: IO[str] = field(default_factory=lambda: tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115

    def __post_init__(self) -> None:
        self._kinds |= {name: set() for name in self.first}

    def __enter__(self) -> RowBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; None is the same as no value."""
        for name, value in row.items():
            if value is None:
                continue
            if name in self._kinds or len(self._kinds) < _MOST_COLUMNS:
                self._kinds.setdefault(name, set()).add(value_kind(value))
            else:
                self.left_out.add(name)
        self._waiting.append(row)
        self.count += 1
        if len(self._waiting) == _BATCH_ROWS:
            self._flush()

    def leave_out(self, name: str) -> None:
        """Leave a column out of all rows, earlier ones too."""
        self._kinds.pop(name, None)

    def tables(self, origin: str = "records") -> Iterator[FrameTable]:
        """Yield the rows, batch after batch."""
        self._flush()
        self._file.seek(0)
        seen = 0
        for line in self._file:
            rows = json.loads(line)
            yield FrameTable(origin, "row", np.arange(seen + 1, seen + len(rows) + 1), self._frame(rows))
            seen += len(rows)

    def frame(self) -> pl.DataFrame:
        """Return all rows."""
        import polars as pl

        frames = [table.given for table in self.tables()]
        return pl.concat(frames) if frames else self._frame([])

    def _flush(self) -> None:
        if self._waiting:
            self._file.write(json.dumps(self._waiting, default=str) + "\n")
            self._waiting = []

    def _frame(self, rows: list[dict[str, Any]]) -> pl.DataFrame:
        import polars as pl

        columns: dict[str, pl.Series] = {}
        for name, kinds in self._kinds.items():
            # One answer is a text, several are a list.
            is_mixed = "str" in kinds and "texts" in kinds and kinds <= {"str", "texts", "empty"}
            dtype, convert = column_type(kinds - {"str"} if is_mixed else kinds)
            values = [row.get(name) for row in rows]
            if is_mixed:
                values = [[value] if isinstance(value, str) else value for value in values]
            column = json_or_text(name)
            columns[column] = pl.Series(column, [None if one is None else convert(one) for one in values], dtype)
        return pl.DataFrame(list(columns.values()))
