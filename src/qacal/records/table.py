"""A batch of rows: a frame of pandas, polars or Arrow, or the objects of a JSON lines or CSV file.

A table has columns to read; rows can be left out and columns added. All else passes through unchanged, and the output
has the type of the input.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import chain, repeat
from operator import attrgetter
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError, QacalError
from qacal.records.columns import LABELS, number_in
from qacal.tally.arrays import Bools, Ints, column_of_any, is_forked

if TYPE_CHECKING:
    import polars as pl

# Columns that hold numbers even in CSV, and the number for certain.
_NUMBERS: Mapping[str, float] = MappingProxyType({"confidence": 1.0, "confidence_tokens": 1.0, "correct": 1.0})
_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})
# Columns of one of these types need no closer look at their values.
_PLAIN = {bool: "Boolean", int: "Int64", float: "Float64", str: "String"}


@dataclass(frozen=True)
class Fault:
    """One row that cannot be used, and why: the message names its place, its column and its value.

    kind : what it has in common with other bad rows, such as "confidence above 1"; bad rows are counted by kind.
    """

    origin: str
    place: str
    problem: str
    row: Any = None
    kind: str = "other"

    def __str__(self) -> str:
        return f"{self.origin} {self.place}: {self.problem}"

    def as_row(self) -> dict[str, Any]:
        """Return it as a row of a file of bad rows."""
        return {"place": self.place, "file": self.origin, "problem": self.problem, "row": self.row}


@dataclass(frozen=True, eq=False)
class Table(ABC):
    """Rows, and where they come from.

    origin : their name in messages, such as ``answers.jsonl``.
    unit : what `places` count: "line" in a text file, "item" in a JSON list, otherwise "row".
    places : the place of each row in its origin, counted from 1.
    """

    origin: str
    unit: str
    places: Ints

    # Every value is text, as in CSV; numbers are read from text.
    is_text = False

    def __len__(self) -> int:
        return len(self.places)

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns."""

    @abstractmethod
    def column(self, name: str) -> Any:
        """Return a column's values: a list, or a series of the frame."""

    @abstractmethod
    def only(self, keep: Bools) -> Table:
        """Return some of the rows."""

    @abstractmethod
    def extended(self, columns: pl.DataFrame, numbers: Mapping[str, float] = _NO_NUMBERS) -> Table:
        """Return the rows with further columns; one of the same name is replaced.

        numbers : columns of a CSV file that hold numbers, too, and the number for certain in each.
        """

    @abstractmethod
    def rows(self, *, typed: bool = False, numbers: Mapping[str, float] = _NO_NUMBERS) -> Iterator[dict[str, Any]]:
        """Yield the rows as objects; with `typed`, the numbers of a CSV file as numbers.

        numbers : as in :meth:`extended`.
        """

    @abstractmethod
    def row(self, place: int) -> dict[str, Any]:
        """Return one row as an object."""

    @abstractmethod
    def frame(self) -> pl.DataFrame:
        """Return the rows as a polars frame."""

    @property
    @abstractmethod
    def native(self) -> Any:
        """The rows in the type of the input."""

    @property
    def number_columns(self) -> Mapping[str, float]:
        """The columns of a CSV file that hold numbers, and the number for certain in each."""
        return {}

    def batches(self, on_fault: object = None) -> Iterator[Table]:
        """Yield the table, as a file yields its tables."""
        yield self

    def fault(self, row: int, problem: str, kind: str = "other") -> Fault:
        """Return what is wrong with a row, with its place."""
        return Fault(self.origin, f"{self.unit} {self.places[row]}", problem, self.row(row), kind)

    def has(self, name: str) -> bool:
        """Return whether there is a column, here or in other rows of the same file."""
        return name in self.names

    @property
    def all_names(self) -> list[str]:
        """The columns here and in other rows of the same file."""
        return self.names

    def require(self, name: str, remedy: str = "") -> None:
        """Raise if the file or frame lacks a column."""
        if not len(self):
            raise InputError(f"there are no rows in {self.origin}.")
        if not self.has(name):
            have = ", ".join(self.names) or "none"
            raise InputError(f"{self.origin} has no column {name!r}; it has {have}.{' ' + remedy if remedy else ''}")


@lru_cache(maxsize=8)
def row_type(*names: str) -> Any:
    """Return the type of structs with these names."""
    import msgspec

    fields = {f"field_{at}": name for at, name in enumerate(names)}
    # Structs hold no cycles of references, so that Python need not look for them.
    return msgspec.defstruct("Row", [*fields], rename=fields, forbid_unknown_fields=True, eq=False, gc=False)


class StructRows:
    """Rows with the same names as structs, which take two thirds of the memory of objects, and of the time.

    Names come in the order of the first row, whatever the order in the others.
    """

    def __init__(self, structs: list[Any], names: list[str]) -> None:
        self._structs = structs
        self.names = names

    def __len__(self) -> int:
        return len(self._structs)

    def __getitem__(self, at: int) -> dict[str, Any]:
        import msgspec

        return dict(zip(self.names, msgspec.structs.astuple(self._structs[at]), strict=True))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.__getitem__, range(len(self)))

    def column(self, name: str) -> list[Any]:
        """Return a column's values."""
        if name not in self.names:
            return [None] * len(self)
        return list(map(attrgetter(f"field_{self.names.index(name)}"), self._structs))

    def take(self, rows: Ints) -> StructRows:
        """Return some of the rows."""
        return StructRows([self._structs[row] for row in rows.tolist()], self.names)


@dataclass(frozen=True, eq=False)
class ObjectTable(Table):
    """Rows as objects, with values as they were written.

    numbers : columns that hold numbers even if every value is text, and the number for certain in each.
    added : further columns of the rows, which replace those of the same name.
    columns_of_all : returns the columns of all rows of the same file; it may have to read the file.
    """

    objects: Sequence[Mapping[str, Any]] | StructRows
    is_text: bool = False
    numbers: Mapping[str, float] = field(default_factory=lambda: _NUMBERS)
    added: pl.DataFrame | None = None
    columns_of_all: Callable[[], list[str]] | None = None

    @cached_property
    def names(self) -> list[str]:
        """The names that any row has, in the order of their first use."""
        objects, added = self.objects, () if self.added is None else self.added.columns
        own = objects.names if isinstance(objects, StructRows) else chain.from_iterable(objects)
        return list(dict.fromkeys(chain(own, added)))

    def has(self, name: str) -> bool:
        return name in self.names or name in self.all_names

    @property
    def all_names(self) -> list[str]:
        return list(dict.fromkeys([*self.names, *(self.columns_of_all() if self.columns_of_all else ())]))

    def column(self, name: str) -> Any:
        if self.added is not None and name in self.added.columns:
            return self.added[name].to_list()
        if isinstance(self.objects, StructRows):
            return self.objects.column(name)
        return [row.get(name) for row in self.objects]

    def row(self, place: int) -> dict[str, Any]:
        more = {} if self.added is None else self.added.row(place, named=True)
        return {**self.objects[place], **more}

    def only(self, keep: Bools) -> ObjectTable:
        rows, objects = np.flatnonzero(keep), self.objects
        kept = objects.take(rows) if isinstance(objects, StructRows) else [objects[row] for row in rows.tolist()]
        added = None if self.added is None else frame_of(column.gather(rows) for column in self.added)
        return replace(self, objects=kept, added=added, places=self.places[keep])

    def extended(self, columns: pl.DataFrame, numbers: Mapping[str, float] = _NO_NUMBERS) -> ObjectTable:
        before = {} if self.added is None else self.added.to_dict()
        return replace(self, added=frame_of((before | columns.to_dict()).values()), numbers={**self.numbers, **numbers})

    @property
    def number_columns(self) -> Mapping[str, float]:
        return {name: self.numbers[name] for name in self.names if name in self.numbers} if self.is_text else {}

    def rows(self, *, typed: bool = False, numbers: Mapping[str, float] = _NO_NUMBERS) -> Iterator[dict[str, Any]]:
        tops = {**self.numbers, **numbers} if typed and self.is_text else {}
        columns = {name: _numbers(self.column(name), top) for name, top in tops.items() if name in self.names}
        added: Iterable[dict[str, Any]] = repeat({}, len(self))
        if self.added is not None:
            added = self.added.iter_rows(named=True)
        for at, (own, more) in enumerate(zip(self.objects, added, strict=True)):
            row = {**own, **more}
            yield {**row, **{name: values[at] for name, values in columns.items() if name in row}} if columns else row

    def frame(self) -> pl.DataFrame:
        """Return the rows as a polars frame; each column gets one type (:func:`column_type`)."""
        import polars as pl

        tops, columns = self.number_columns, list[pl.Series]()
        for name in self.names:
            if self.added is not None and name in self.added.columns:
                columns.append(self.added[name])
                continue
            values = self.column(name)
            values = _numbers(values, tops[name]) if name in tops else values
            types = {*map(type, values)} - {type(None)}
            if len(types) == 1 and types <= _PLAIN.keys():
                # Whole numbers of more than 64 bits, and halves of characters, do not fit.
                with suppress(OverflowError, TypeError, UnicodeError):
                    columns.append(pl.Series(name, values, getattr(pl, _PLAIN[types.pop()])))
                    continue
            _, convert = column_type({value_kind(value) for value in values if value is not None})
            columns.append(pl.Series(name, [None if value is None else convert(value) for value in values]))
        return frame_of(columns)

    @property
    def native(self) -> list[dict[str, Any]]:
        return list(self.rows())


@dataclass(frozen=True, eq=False)
class FrameTable(Table):
    """A frame of pandas, polars, Arrow, or another library that narwhals can read."""

    data: Any

    @property
    def names(self) -> list[str]:
        return list(self.data.columns if _is_polars(self.data) else _narwhals(self.data).columns)

    def column(self, name: str) -> Any:
        return self.data[name] if _is_polars(self.data) else _narwhals(self.data)[name].to_native()

    def row(self, place: int) -> dict[str, Any]:
        if _is_polars(self.data):
            return dict(self.data.row(place, named=True))
        frame = _narwhals(self.data)
        return {name: frame[name][place] for name in frame.columns}

    def only(self, keep: Bools) -> FrameTable:
        if keep.all():
            return self
        rows = np.flatnonzero(keep)
        if _is_polars(self.data):
            # Column by column: all at once needs threads, which a forked child does not have.
            kept = frame_of(column.gather(rows) for column in self.data)
        else:
            kept = _narwhals(self.data)[rows.tolist()].to_native()
        return replace(self, data=kept, places=self.places[keep])

    def extended(self, columns: pl.DataFrame, numbers: Mapping[str, float] = _NO_NUMBERS) -> FrameTable:
        if _is_polars(self.data):
            kept = [column for column in self.data if column.name not in columns.columns]
            return replace(self, data=frame_of([*kept, *columns]))
        import narwhals as nw

        frame = _narwhals(self.data)
        if frame.implementation.is_pandas_like():
            return replace(self, data=self.data.assign(**_pandas_columns(columns, self.data.index)))
        series = []
        for name, column in columns.to_dict().items():
            kind = nw.from_native(column, series_only=True).dtype
            # A column of nulls has no type in narwhals; the backend chooses one.
            dtype = None if kind == nw.Unknown else kind
            series.append(nw.new_series(name, column.to_list(), dtype, backend=frame.implementation))
        return replace(self, data=frame.with_columns(*series).to_native())

    def rows(self, *, typed: bool = False, numbers: Mapping[str, float] = _NO_NUMBERS) -> Iterator[dict[str, Any]]:
        return self.frame().iter_rows(named=True)

    def frame(self) -> pl.DataFrame:
        import polars as pl

        if isinstance(self.data, pl.DataFrame):
            return self.data
        frame = _narwhals(self.data)
        return pl.DataFrame({name: _plain_column(frame[name], name) for name in frame.columns}, strict=False)

    @property
    def native(self) -> Any:
        return self.data


def as_table(data: Any, origin: str = "records") -> Table:
    """Return rows in memory as a table: a frame, a list of objects, or an object of columns.

    >>> as_table([{"question": "2+2?", "confidence": 0.9}]).names
    ['question', 'confidence']
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        import polars as pl

        columns = {name: _plain_column(column, name) for name, column in data.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len({*lengths.values()}) > 1:
            raise InputError(f"the columns of {origin} have different lengths: {lengths}; give one value per row.")
        data = pl.DataFrame(columns, strict=False)
    if isinstance(data, list | tuple):
        wrong = next((at for at, row in enumerate(data) if not isinstance(row, Mapping)), None)
        if wrong is not None:
            raise InputError(
                f"{origin}[{wrong}] is {data[wrong]!r}; expected an object with question, answer, confidence."
            )
        return ObjectTable(origin, "row", np.arange(1, len(data) + 1), data)
    frame = _narwhals(data)
    return FrameTable(origin, "row", np.arange(1, len(frame) + 1), frame.to_native())


def joined(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables of one origin as one table."""
    first, places = tables[0], np.concatenate([table.places for table in tables])
    if isinstance(first, ObjectTable):
        parts = [table for table in tables if isinstance(table, ObjectTable)]
        return replace(first, objects=[row for part in parts for row in part.rows()], added=None, places=places)
    import narwhals as nw

    frames = [_narwhals(table.native) for table in tables]
    return FrameTable(first.origin, first.unit, places, nw.concat(frames, how="vertical").to_native())


def _is_polars(data: Any) -> bool:
    """Return whether a frame is one of polars, as of all files: these do not need narwhals, which loads slowly."""
    import polars as pl

    return isinstance(data, pl.DataFrame)


def _narwhals(data: Any) -> Any:
    import narwhals as nw

    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        frame = None
    if not isinstance(frame, nw.DataFrame):
        kind = type(data).__name__
        raise InputError(
            f"records are {kind}; expected a path, a frame of pandas, polars or Arrow, a list of objects, "
            "or an object of columns. Collect a lazy frame first."
        )
    return frame


def _pandas_columns(columns: pl.DataFrame, index: Any) -> dict[str, Any]:
    import pandas as pd
    import polars as pl

    out = {}
    for name, column in columns.to_dict().items():
        # Whole numbers with gaps would become floats, and group 3 would be 3.0.
        whole = column.dtype.is_integer() and column.null_count() > 0
        kind = "Int64" if whole else "float64" if column.dtype == pl.Float64 else None
        values = column.to_list()
        out[name] = pd.Series(values if kind or column.dtype != pl.String else np.array(values, object), index, kind)
    return out


def _numbers(values: list[Any], most: float) -> list[Any]:
    """Return numbers and labels in texts as numbers, and empty texts as None; other texts stay.

    >>> _numbers(["0.90", "", "70%", "yes", "high"], 1.0)
    [0.9, None, 0.7, 1.0, 'high']
    """
    out: list[Any] = []
    for value in values:
        text = (value or "").strip().lower()
        number = LABELS[text] if text in LABELS else number_in(text, most)
        out.append(None if not value else value if math.isnan(number) else number)
    return out


def value_kind(value: Any) -> str:
    """Return the kind of a value; :func:`column_type` derives the type of a column from the kinds of its values.

    >>> [value_kind(value) for value in ("a", 1, 2**64, True, [1, 0.5], ["a"], [], {"a": 1})]
    ['str', 'int', 'large', 'bool', 'floats', 'texts', 'empty', 'object']
    """
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        is_float = -(2**1023) < value < 2**1023
        return "int" if -(2**63) <= value < 2**63 else "large" if is_float else "object"
    if isinstance(value, list | tuple):
        inner = {"object" if isinstance(part, list | tuple) else value_kind(part) for part in value}
        if not inner:
            return "empty"
        lists = {"texts": {"str"}, "ints": {"int"}, "floats": {"int", "float"}}
        return next((kind for kind, parts in lists.items() if inner <= parts), "object")
    return "str" if isinstance(value, str) else "float" if isinstance(value, float) else "object"


def frame_of(columns: Iterable[pl.Series]) -> pl.DataFrame:
    """Return a frame of columns, of which one may have an empty name, as an index of pandas has; polars renames it."""
    import polars as pl

    columns = list(columns)
    frame = pl.DataFrame([column.alias(str(at)) for at, column in enumerate(columns)])
    frame.columns = [column.name for column in columns]
    return frame


def column_type(kinds: set[str]) -> tuple[Any, Callable[[Any], Any]]:
    """Return the polars type for values of these kinds, and a function that converts a value to it.

    Lists of numbers or texts stay lists. Among numbers true is 1 and false 0. All other mixtures and objects become
    text, as JSON.
    """
    import polars as pl

    if kinds == {"bool"}:
        return pl.Boolean, bool
    if kinds and kinds <= {"int", "bool"}:
        return pl.Int64, int
    if "float" in kinds and kinds <= {"float", "int", "bool", "large"}:
        return pl.Float64, float
    if "ints" in kinds and kinds <= {"ints", "empty"}:
        return pl.List(pl.Int64), list
    if "floats" in kinds and kinds <= {"floats", "ints", "empty"}:
        return pl.List(pl.Float64), lambda value: [float(number) for number in value]
    if kinds and kinds <= {"texts", "empty"}:
        return pl.List(pl.String), lambda value: [json_or_text(text) for text in value]
    return pl.String, json_or_text


def json_or_text(value: Any) -> str:
    """Return text unchanged and other values as JSON; polars cannot store half a surrogate pair, so it is replaced."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _plain_column(column: Any, name: str) -> Any:
    """Return a column in a form that polars accepts, with None for missing values."""
    if isinstance(column, list | tuple | range):
        return list(column)
    import polars as pl

    if isinstance(column, pl.Series):
        return column
    array = column_of_any(column, name)
    return array.tolist() if array.dtype == object else array


# Polars in a forked child. A fork does not copy the threads of polars, so work that needs them would wait for ever.
# Calibrating rows in memory needs none; reading and writing files does. A spawned child is not affected.

_PATIENCE = 10.0  # seconds; with threads, the trial below takes milliseconds


def require_polars() -> None:
    """Raise if polars would wait for threads that this process does not have."""
    if is_forked() and not _polars_has_threads(os.getpid()):
        raise QacalError(
            "this process was forked after polars had started its threads, which a fork does not copy: reading files, "
            'saving models and reports would wait for ever. Start processes with multiprocessing.get_context("spawn").'
        )


@cache
def _polars_has_threads(process: int) -> bool:
    """Return whether polars has threads here; `process` is the number of this process, since its children have none."""
    import polars as pl

    frame = pl.DataFrame({"a": [1]})
    trial = Thread(target=lambda: frame.select(pl.col("a").sum(), b=pl.col("a").max()), daemon=True)
    trial.start()
    trial.join(_PATIENCE)
    return not trial.is_alive()
