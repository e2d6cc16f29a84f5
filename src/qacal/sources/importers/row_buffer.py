"""Rows in a temporary file until all of them are known: only then is it clear which columns there are, of which types.

Logs have other columns in every task, and a column that holds numbers for 50,000 rows may hold text in the next. A file
has one type for a column, and CSV one set of columns; so the rows wait on disk, and memory holds one batch of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from qacal.records.table import FrameTable

if TYPE_CHECKING:
    import polars as pl

_BATCH_ROWS = 8_192
_MAXIMUM = 2**63
_MOST_COLUMNS = 500


@dataclass
class Spool:
    """Takes rows one by one and gives them back as tables of one schema.

    first : columns that come first and are there in any case.
    left_out : names of columns beyond the first 500; metadata with a name for each row is no table.

    >>> with Spool(("id",)) as spool:
    ...     spool.add({"id": "1", "year": 1999})
    ...     spool.add({"id": "2", "year": "unknown", "aliases": ["two", "II"]})
    ...     spool.frame().to_dict(as_series=False)
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

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; None is the same as no value."""
        for name, value in row.items():
            if value is None:
                continue
            if name in self._kinds or len(self._kinds) < _MOST_COLUMNS:
                self._kinds.setdefault(name, set()).add(_kind(value))
            else:
                self.left_out.add(name)
        self._waiting.append(row)
        self.count += 1
        if len(self._waiting) == _BATCH_ROWS:
            self._flush()

    def leave_out(self, name: str) -> None:
        """Leave a column out of all rows, those that are here already too."""
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
            dtype, shown = _type(kinds)
            values = [None if (value := row.get(name)) is None else shown(value) for row in rows]
            columns[_text(name)] = pl.Series(_text(name), values, dtype)
        return pl.DataFrame(list(columns.values()))


def _kind(value: Any) -> str:
    if type(value) is str or type(value) is float:
        return type(value).__name__
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -_MAXIMUM <= value < _MAXIMUM else "big"
    if isinstance(value, list | tuple):
        inner = {_kind(part) for part in value}
        return "texts" if inner <= {"str"} else "numbers" if inner <= {"int", "float"} else "object"
    return type(value).__name__ if isinstance(value, str | float | bool) else "object"


def _type(kinds: set[str]) -> tuple[Any, Callable[[Any], Any]]:
    """Return the one type that holds values of these kinds, and how to write them in it; text holds them all."""
    import polars as pl

    if kinds == {"bool"}:
        return pl.Boolean, bool
    if kinds == {"int"}:
        return pl.Int64, int
    if kinds and kinds <= {"int", "float"}:
        return pl.Float64, float
    if kinds == {"numbers"}:
        return pl.List(pl.Float64), lambda value: [float(number) for number in value]
    if "texts" in kinds and kinds <= {"texts", "str"}:
        return pl.List(pl.String), lambda value: [_text(part) for part in _listed(value)]
    return pl.String, _text


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.isascii():
        return text
    # Half a surrogate pair, which JSON can spell and no frame can hold.
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
