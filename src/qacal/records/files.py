"""Files of rows: Parquet, JSON lines, JSON lists and CSV, read in batches, and as often as needed."""

from __future__ import annotations

import codecs
import csv
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count, pairwise, repeat
from pathlib import Path
from typing import IO, Any

import numpy as np

from qacal.errors import InputError
from qacal.records.table import Fault, FrameTable, ObjectTable, StructRows, Table, require_polars, row_type
from qacal.records.text_files import ESCAPED, JsonDocument, encoding_problem, largest_row, opened_text, too_large
from qacal.tally.arrays import Ints

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
}
_ENDINGS = ".parquet, .jsonl, .json or .csv (the last three also .gz)"
_SEPARATORS = ",;\t"
# The place of a row, the row, and its size as text.
_Row = tuple[int, dict[str, Any], int]
# Rows have dozens of columns; a header with more than this is a matrix, or the file is not CSV.
_MOST_COLUMNS = 10_000

# Enough rows for arrays to pay off, few enough that their texts and vectors fit into any memory.
BATCH_ROWS = 16_384
# Narrow rows of Parquet come in larger batches, up to this many bytes. Each access to the file reads several batches.
_BATCH_BYTES, _ACCESS_BYTES = 4 * 2**20, 32 * 2**20
# JSON lines that are decoded together: objects of more text would not stay in the caches of the processor.
_BLOCK_BYTES = 2**20
# Fields are found one after the other if they are not in their order, so objects with more names are no structs.
_MOST_FIELDS = 256

OnFault = Callable[[Fault], None]


def refuse(fault: Fault) -> None:
    """Stop at the first bad row."""
    raise InputError(f"{fault} Fix the row, or skip such rows: --skip-bad-rows FILE (in Python: on_fault=BadRows()).")


def format_of(path: str | Path) -> str:
    """Return the format of a file by its name.

    >>> format_of("answers.jsonl.gz"), format_of("ANSWERS.CSV")
    ('jsonl', 'csv')
    """
    name = str(path).lower().removesuffix(".gz")
    format_ = _SUFFIXES.get(Path(name).suffix)
    if format_ is None or (format_ == "parquet" and str(path).lower().endswith(".gz")):
        raise InputError(f"{path}: cannot tell the format; expected a name ending in {_ENDINGS}.")
    return format_


@dataclass(frozen=True)
class File:
    """A file of rows that can be read several times.

    name : its name in messages; the path unless it is a copy of standard input.
    """

    path: Path
    format: str
    name: str
    _columns: dict[str, None] = field(default_factory=dict, repr=False, compare=False)

    def batches(self, on_fault: OnFault = refuse, batch_rows: int | None = None) -> Iterator[Table]:
        """Yield the rows in batches; lines that are not rows go to `on_fault`.

        batch_rows : how many rows a batch has, or fewer. By default 16,384, and more if they are narrow.
        """
        if not self.path.is_file():
            is_there = "is not a regular file, and rows are read more than once; copy them into a file."
            raise InputError(f"{self.name} {is_there if self.path.exists() else 'does not exist.'}")
        if self.format == "parquet":
            return _parquet(self, batch_rows)
        if self.format == "csv":
            return _tables(self, _csv(self, on_fault), batch_rows or BATCH_ROWS)
        # Many tools write JSON lines into files that are named .json.
        if self.format == "json" and _first_character(self.path, self.name) == "[":
            return _tables(self, _json_items(self, on_fault), batch_rows or BATCH_ROWS, unit="item")
        return _json_lines(self, on_fault, batch_rows or BATCH_ROWS)

    def known_length(self) -> int | None:
        """Return the number of rows, if the file says so before it is read: Parquet."""
        if self.format != "parquet" or not self.path.is_file():
            return None
        import polars as pl

        with reading_parquet(self.path, self.name):
            return int(pl.scan_parquet(self.path, glob=False).select(pl.len()).collect().item())

    def separator(self) -> str:
        """Return the separator of a CSV file; a comma for other formats, and for .tsv, where the name implies it."""
        if self.format != "csv" or is_tsv(self.name) or not self.path.is_file():
            return ","
        return _separator(_lines(self), self)[0]

    def columns(self) -> list[str]:
        """Return the names that any row has, in the order of their first use; the first call reads the whole file."""
        if not self._columns:
            for table in self.batches(lambda fault: None):
                self._columns.update(dict.fromkeys(table.names))
        return list(self._columns)


def open_file(path: str | Path) -> File:
    """Return the file at `path`, in the format of its name."""
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; expected a file ending in {_ENDINGS}.")
    return File(Path(path), format_of(path), str(path))


@contextmanager
def from_stream(stream: IO[bytes], name: str = "standard input") -> Iterator[File]:
    """Yield a copy of a stream as a file, because rows are read more than once; its first bytes tell the format."""
    with tempfile.TemporaryDirectory(prefix="qacal-") as folder:
        path = Path(folder) / "input"
        with path.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        start = "" if is_parquet else _first_character(path, name)
        if not is_parquet and not start:
            raise InputError(f"{name} is empty; expected rows as Parquet, JSON lines or CSV.")
        yield File(path, "parquet" if is_parquet else {"[": "json", "{": "jsonl"}.get(start, "csv"), name)


def _first_character(path: Path, name: str) -> str:
    with opened_text(path, name, "surrogateescape") as text:
        return text.read(1024).removeprefix("\ufeff").lstrip()[:1]


@contextmanager
def reading_parquet(path: str | Path, name: str = "") -> Iterator[None]:
    """Turn errors of polars about a file into one that names the file; `name` if messages call it otherwise."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        is_empty = os.path.isfile(path) and not os.path.getsize(path)
        why = "it is empty (0 bytes)." if is_empty else (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{name or path} cannot be read as Parquet: {why:.300}") from None
    except pl.exceptions.PanicException as error:  # not an Exception: a bug in polars, or a damaged file
        message = f"{str(error).partition(chr(10))[0]:.200}"
        raise InputError(
            f"{name or path} cannot be read as Parquet and is probably damaged; write it again. Polars gave up: "
            f"{message}"
        ) from None


def _parquet(file: File, batch_rows: int | None) -> Iterator[Table]:
    import polars as pl

    require_polars()
    with reading_parquet(file.path, file.name):
        scan = pl.scan_parquet(file.path, glob=False)
        length = int(scan.select(pl.len()).collect().item())
        first, access, size = 0, batch_rows or BATCH_ROWS, batch_rows or BATCH_ROWS
        while first < length:
            frame = scan.slice(first, access).collect()
            for start in range(0, len(frame), size):
                batch = frame[start : start + size]
                yield FrameTable(file.name, "row", first + start + np.arange(1, len(batch) + 1), batch)
            first += access
            # The first rows show how many of them are worth reading at a time.
            row_bytes = max(frame.estimated_size() / max(len(frame), 1), 1.0)
            size = batch_rows or max(BATCH_ROWS, int(_BATCH_BYTES / row_bytes))
            access = max(size, int(_ACCESS_BYTES / row_bytes) // size * size)


def _json_lines(file: File, on_fault: OnFault, batch_rows: int) -> Iterator[ObjectTable]:
    """Yield the rows of JSON lines: those of a block decoded together if all are objects, else one by one."""
    most, number = largest_row(), 1
    rows: StructRows | list[dict[str, Any]] | None
    for block, errors, is_all in _blocks(file, most):
        if len(block) > most:
            for at, line in enumerate(block.splitlines(keepends=True), number):
                if len(line) > most:
                    raise _too_large(file, at)
        rows = decoded(block)
        if rows is not None:
            places = np.arange(number, number := number + len(rows))
        else:
            lines = [line.decode("utf-8", errors) for line in block.splitlines()]
            places, rows = _json_rows(file, on_fault, number, lines)
            number += len(lines)
        columns = None if is_all and len(rows) <= batch_rows else file.columns
        table = ObjectTable(file.name, "line", places, rows, columns_of_all=columns)
        if len(rows) > batch_rows:
            batch = np.arange(len(rows)) // batch_rows
            yield from (table.only(batch == at) for at in range(batch[-1] + 1))
        elif rows:
            yield table


def _blocks(file: File, most: int) -> Iterator[tuple[bytes, str, bool]]:
    """Yield lines in blocks of UTF-8, how to decode bytes that are not UTF-8, and whether a block is the whole file.

    Only a line of more than `most` bytes may be cut.
    """
    size = min(_BLOCK_BYTES, most // 4 + 1)
    with opened_text(file.path, file.name, "surrogateescape") as text:
        stream: Any = text.buffer
        # Without decoding it is faster, but there only line feeds end a line.
        is_plain = codecs.lookup(text.encoding).name == "utf-8" and b"\n" in stream.peek(1)
        stream = stream if is_plain else text
        # Bytes that are no text in the encoding of the file must not be UTF-8 by chance.
        errors = "surrogateescape" if is_plain else "surrogatepass"
        for is_first in chain([True], repeat(False)):
            if is_plain and stream.seekable():
                # To look for the end of the last line first is faster than to add it to a block, which copies both.
                here = stream.tell()
                stream.seek(here + size)
                rest = len(stream.readline(most + 1))
                stream.seek(here)
                block, is_last = stream.read(size + rest), not rest
            else:
                start = stream.read(size)
                block, is_last = start + stream.readline(most + 1), len(start) < size
                block = block if is_plain else block.encode("utf-8", errors)
            if block:
                yield block.removeprefix(codecs.BOM_UTF8) if is_first else block, errors, is_first and is_last
            if is_last:
                return


def decoded(block: bytes) -> StructRows | list[dict[str, Any]] | None:
    r"""Return the objects of JSON lines, as structs if all have the same names; None if a line is no object.

    Values are those of :func:`json.loads`. What only that accepts, such as NaN, gives None, too.

    >>> list(decoded(b'{"a": 1, "b": "x"}\n{"b": [2.0], "a": null}\n'))
    [{'a': 1, 'b': 'x'}, {'a': None, 'b': [2.0]}]
    >>> decoded(b'{"a": 1}\n{"b": 2}'), decoded(b'{"a": 1}\n{"a": NaN}'), decoded(b'{"a": 1}\n[]')
    ([{'a': 1}, {'b': 2}], None, None)
    """
    import msgspec

    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text[:-1] == ord("\n"))
    # The decoder does not look at lines. But within an object, no { follows } without a comma: a line feed between
    # them ends an object, and if there are as many objects as lines, each line is one.
    is_between = (text[ends - 1] == ord("}")) & (text[ends + 1] == ord("{"))
    if block[:1] != b"{" or b"\r" in block or not is_between.all():
        return None
    rows: StructRows | list[dict[str, Any]] | None = None
    try:
        names = list(msgspec.json.decode(block[: ends[0]] if len(ends) else block))
        if len(names) <= _MOST_FIELDS:
            with suppress(msgspec.ValidationError, ValueError):  # other names, or one with a quote, which structs lack
                rows = StructRows(msgspec.json.Decoder(row_type(*names)).decode_lines(block), names)
        if rows is None:
            rows = msgspec.json.Decoder().decode_lines(block)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return rows if len(rows) == len(ends) + 1 else None


def _json_rows(file: File, on_fault: OnFault, number: int, lines: list[str]) -> tuple[Ints, list[dict[str, Any]]]:
    """Return the rows of JSON lines with their places."""
    import msgspec

    strict, decode = msgspec.json.Decoder().decode, json.JSONDecoder().decode
    places, rows = list[int](), list[dict[str, Any]]()
    for place, line in enumerate(lines, number):
        if not line.strip():
            continue
        kind = problem = ""
        try:
            try:
                row = strict(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                row = decode(line)  # Python also takes NaN, and it says what is wrong
            if type(row) is not dict:
                kind = "not an object"
                problem = f"the line is {type(row).__name__}, not an object with question, answer and confidence."
        except (ValueError, RecursionError) as error:
            kind, problem = "not JSON", f"the line is not JSON ({error}). One object on each line is expected."
        if not line.isascii() and ESCAPED.search(line):
            kind, problem = "not UTF-8", f"the line {encoding_problem()}"
        if problem:
            content = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            on_fault(Fault(file.name, f"line {place}", problem, content, kind))
        else:
            places.append(place)
            rows.append(row)
    return np.array(places, np.int64), rows


def _json_items(file: File, on_fault: OnFault) -> Iterator[_Row]:
    with opened_text(file.path, file.name) as stream:
        document, before = JsonDocument(stream, file.name), 0
        for place, value in enumerate(document.items(), 1):
            size, before = document.position - before, document.position
            if isinstance(value, dict):
                yield place, value, size
            else:
                problem = f"it is {type(value).__name__}, not an object."
                on_fault(Fault(file.name, f"item {place}", problem, value, "not an object"))


def _csv(file: File, on_fault: OnFault) -> Iterator[_Row]:
    # Answers may be long: the limit of the csv module is the one of rows.
    csv.field_size_limit(min(largest_row(), 2**31 - 1))
    lines = _lines(file)
    separator, start = _separator(lines, file)
    reader = csv.reader(chain(start, lines), strict=True, delimiter=separator)
    header: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if "field limit" in str(error):
                raise _too_large(file, line) from None
            problem = f"the line is not CSV ({error})."
            if "unexpected end" in str(error):
                problem = f"a quote that opens in line {line} is not closed before the end of the file."
            for place in range(line, reader.line_num + 1):  # an open quote takes all lines after it
                on_fault(Fault(file.name, f"line {place}", problem, kind="not CSV"))
            continue
        if not header:
            header = values
            _require_header(header, file)
        elif values:
            text = "".join(values)
            kind = problem = ""
            if len(values) != len(header):
                kind = f"{'more' if len(values) > len(header) else 'fewer'} values than the header has"
                problem = f"the row has {len(values)} values and the header {len(header)}."
                if kind.startswith("more") and any(
                    one.isdecimal() and two.isdecimal() for one, two in pairwise(values)
                ):
                    problem += ' Where commas separate, a decimal comma needs quotes: "0,75".'
            elif not text.isascii() and ESCAPED.search(text):
                kind, problem = "not UTF-8", f"the row {encoding_problem()}"
            if problem:
                on_fault(Fault(file.name, f"line {line}", problem, values, kind))
            else:
                yield line, dict(zip(header, values, strict=True)), len(text)


def _lines(file: File) -> Iterator[str]:
    """Yield the lines of a text file; a line that is too large is an error."""
    most = largest_row()
    with opened_text(file.path, file.name, "surrogateescape") as text:
        for number in count(1):
            line = text.readline(most + 1)
            if not line:
                return
            if len(line) > most:
                raise _too_large(file, number)
            yield line if number > 1 else line.removeprefix("\ufeff")


def _too_large(file: File, line: int) -> InputError:
    return InputError(f"{file.name} line {line}: {too_large('the row is broken, or')}.")


def _separator(text: Iterable[str], file: File) -> tuple[str, list[str]]:
    """Return the separator, and the lines that were read to find it.

    It is the one of comma, semicolon and tab that splits the header into the most parts.
    """
    if is_tsv(file.name):
        return "\t", []
    start = []
    for line in text:
        start.append(line)
        if line.strip():
            break
    header = start[-1] if start else ""

    def n_columns(separator: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=separator), []))
        except csv.Error:
            return 0

    return max(_SEPARATORS, key=n_columns), start


def is_tsv(name: str) -> bool:
    """Return whether a file is named .tsv, so tabs separate its values."""
    return ".tsv" in Path(name.lower()).suffixes


def _require_header(header: list[str], file: File) -> None:
    if len(header) > _MOST_COLUMNS:
        raise InputError(
            f"{file.name} line 1: the header names {len(header):,} columns; at most {_MOST_COLUMNS:,} are read. Leave "
            "out those that are not needed; vectors go into one column of Parquet or JSON lines, as lists."
        )
    repeated = {name for name, count in Counter(header).items() if count > 1}
    if repeated:
        raise InputError(f"{file.name} line 1: the header names {', '.join(sorted(repeated))} more than once.")


def _tables(file: File, rows: Iterator[_Row], batch_rows: int, unit: str = "line") -> Iterator[ObjectTable]:
    """Yield batches of up to `batch_rows` rows; fewer if they are large: two batches may be in memory at once."""
    is_csv, largest = file.format == "csv", largest_row() // 4
    # In CSV every row has the columns of the header; in JSON each object has its own.
    columns = None if is_csv else file.columns
    is_first = True
    while True:
        places, objects, total = list[int](), list[dict[str, Any]](), 0
        for place, row, size in rows:
            places.append(place)
            objects.append(row)
            total += size
            if len(objects) == batch_rows or total > largest:
                break
        else:
            columns = None if is_first else columns  # there are no other rows
        if not objects:
            return
        is_first = False
        yield ObjectTable(file.name, unit, np.array(places), objects, is_csv, columns_of_all=columns)
