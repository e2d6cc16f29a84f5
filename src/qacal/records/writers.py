"""Write rows as Parquet, JSON lines, a JSON list or CSV, into files that are complete or not there at all."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import chain, count, islice
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.records.files import format_of, is_tsv
from qacal.records.table import Table, as_table, frame_of, json_or_text, require_polars
from qacal.storage import patiently

if TYPE_CHECKING:
    import polars as pl

_ROWS_AT_ONCE = 10_000
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")

_ENDING = ".qacal-tmp"
PARTS = ".parts"
"""The ending of a folder with parts of what will be in the file or model beside it."""
# A temporary file that nobody wrote to for a week was left by a process that was killed.
_ABANDONED = 7 * 86_400.0

_DESCRIPTORS = {"/dev/stdout": 1, "/dev/stderr": 2}
# The number of links to follow, as in the kernel.
_LINKS = 40
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Writer(ABC):
    """Writes tables into one file."""

    @abstractmethod
    def write(self, table: Table) -> None:
        """Add rows."""

    def write_objects(self, objects: Iterable[dict[str, Any]], origin: str) -> int:
        """Add rows, few of them in memory at a time; return their number."""
        count, rows = 0, iter(objects)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            self.write(as_table(some, origin))
            count += len(some)
        return count

    def finish(self) -> None:  # noqa: B027 (lines need no end)
        """Write what comes after the last row."""


def output_format(path: str | Path, like: str) -> str:
    """Return the format by name; `like` for standard output, a device or a pipe without an ending."""
    try:
        return format_of(path)
    except InputError:
        if like and is_stream(path):
            return like
        raise


@contextmanager
def writing(path: str | Path, like: str, separator: str = ",") -> Iterator[Writer]:
    """Yield a writer for `path` in the format :func:`output_format`; `separator` is for .csv, .tsv has tabs."""
    with atomic_file(path) as temporary, _writer(temporary, path, like, separator) as writer:
        yield writer


@contextmanager
def write_pair(
    first: str | Path, second: str | Path, like: str = "jsonl", separator: str = ","
) -> Iterator[tuple[Writer, Writer]]:
    """Yield writers for two files; both are finished before either replaces an old one."""
    with (
        atomic_file(second) as later,
        atomic_file(first) as sooner,
        _writer(sooner, first, like, separator) as one,
        _writer(later, second, like, separator) as two,
    ):
        yield one, two


def write_frame(frame: pl.DataFrame, path: str | Path, like: str = "csv") -> None:
    """Write a frame to a file."""
    with writing(path, like) as writer:
        writer.write(as_table(frame))


def write_objects(objects: Iterable[dict[str, Any]], path: str | Path, origin: str) -> int:
    """Write rows to a file, few of them in memory at a time; return their number."""
    with writing(path, "jsonl") as writer:
        return writer.write_objects(objects, origin)


@contextmanager
def _writer(temporary: Path, path: str | Path, like: str, separator: str) -> Iterator[Writer]:
    """Yield a writer into the temporary file of `path`."""
    kind = output_format(path, like)
    if kind == "parquet":
        parts = Path(f"{temporary}{PARTS}")
        joined = _ParquetWriter(temporary, parts)
        try:
            parts.mkdir()
            yield joined
            joined.finish()
        finally:
            joined.stop()
            shutil.rmtree(parts, ignore_errors=True)
        return
    is_packed = str(path).lower().endswith(".gz")
    with temporary.open("wb") as raw:
        # Without a name and a time, so that the same rows give the same bytes.
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if is_packed else nullcontext(raw)
        with packed as file:
            if kind == "csv":
                writer: Writer = _CsvWriter(file, "\t" if is_tsv(str(path)) else separator)
            else:
                writer = _JsonListWriter(file) if kind == "json" else _JsonWriter(file)
            yield writer
            writer.finish()


@dataclass
class _JsonWriter(Writer):
    file: BufferedIOBase

    def write(self, table: Table) -> None:
        self.file.writelines(json_line(row) for row in table.rows(typed=True))


@dataclass
class _JsonListWriter(Writer):
    """Writes a list with one object on each line."""

    file: BufferedIOBase
    before: bytes = b"["

    def write(self, table: Table) -> None:
        for row in table.rows(typed=True):
            self.file.write(self.before + b"\n" + json_line(row).rstrip(b"\n"))
            self.before = b","

    def finish(self) -> None:
        self.file.write(b"\n]\n" if self.before == b"," else b"[]\n")


class _CsvWriter(Writer):
    def __init__(self, file: BufferedIOBase, separator: str) -> None:
        self._file = file
        lines: Any = SimpleNamespace(write=self._write_line)
        # The csv module quotes a carriage return only if lines end in one.
        self._csv = csv.writer(lines, lineterminator="\r\n", delimiter=separator)
        self._separator = separator
        self._names: list[str] = []
        self._has_commas = False

    def write(self, table: Table) -> None:
        rows = list(table.rows())
        if not self._names:
            self._names = table.all_names  # JSON lines may have further columns in later rows
            self._csv.writerow(self._names)
            # Only columns of numbers tell whether the file has decimal commas: an answer may be 1,234.
            numbers = [value for row in rows for value in map(row.get, table.number_columns) if value]
            has_points = any("." in str(value) for value in numbers)
            has_commas = any(isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value) for value in numbers)
            self._has_commas = self._separator != "," and has_commas and not has_points
        if further := {*table.names} - {*self._names}:
            names = ", ".join(sorted(further))
            raise InputError(f"{table.origin}: a row has columns that the first rows lack: {names}.")
        columns, plain = [], {str, int, bool, type(None), *(() if self._has_commas else (float,))}
        for name in self._names:
            values = [row.get(name) for row in rows]
            is_plain = {*map(type, values)} <= plain
            columns.append(values if is_plain else [_cell(value, self._has_commas) for value in values])
        self._csv.writerows(zip(*columns, strict=True))

    def _write_line(self, line: str) -> None:
        self._file.write(line.removesuffix("\r\n").encode("utf-8", "surrogatepass") + b"\n")


@dataclass
class _ParquetWriter(Writer):
    """Writes batches as they come. Rows with other columns, or other types, begin a new part; the end joins parts.

    parts : with the types of the columns that have values.
    """

    path: Path
    folder: Path
    parts: list[tuple[Path, dict[str, pl.DataType]]] = field(default_factory=list)
    sink: _ParquetSink | None = None

    def write(self, table: Table) -> None:
        frame = table.frame()
        if self.sink is not None and self.sink.schema != frame.schema:
            frame = _joining(frame, self.sink.schema)
        if self.sink is None or self.sink.schema != frame.schema:
            self._close()
            part = self.folder / f"{len(self.parts)}.parquet"
            self.parts.append((part, {}))
            self.sink = _ParquetSink(part, frame.schema)
        if frame.height:
            self.parts[-1][1].update((one.name, one.dtype) for one in frame if one.null_count() < frame.height)
        self.sink.write(frame)

    def finish(self) -> None:
        import polars as pl

        self._close()
        with plain_errors():
            if not self.parts:
                pl.DataFrame().write_parquet(self.path)
            elif len(self.parts) == 1:
                os.replace(self.parts[0][0], self.path)
            else:
                texts, scans = _mixed([types for _, types in self.parts]), list[pl.LazyFrame]()
                filled = {*chain.from_iterable(types for _, types in self.parts)}
                for part, types in self.parts:
                    scan = pl.scan_parquet(part)
                    # A column without values fits all types.
                    empty = [pl.lit(None).alias(name) for name in filled - {*types} if name in scan.collect_schema()]
                    found = [
                        pl.col(name).map_elements(_json_or_text, return_dtype=pl.String) for name in texts & {*types}
                    ]
                    scans.append(scan.with_columns(*empty, *found))
                pl.concat(scans, how="diagonal_relaxed").sink_parquet(self.path)

    def _close(self) -> None:
        if self.sink is not None:
            self.sink.close()
            self.sink = None

    def stop(self) -> None:
        """End the work on a file that will not be finished."""
        if self.sink is not None:
            self.sink.stop()


def _mixed(parts: Iterable[dict[str, pl.DataType]]) -> set[str]:
    """Return the columns with lists or objects in some parts and other values in others: they become text, as JSON."""
    types: dict[str, set[Any]] = {}
    for name, kind in chain.from_iterable(part.items() for part in parts):
        types.setdefault(name, set()).add(kind)
    nested = {name for name, kinds in types.items() if any(kind.is_nested() for kind in kinds)}
    return {name for name in nested if not all(kind.is_nested() for kind in types[name]) or not _have_type(types[name])}


def _have_type(kinds: Iterable[pl.DataType]) -> bool:
    """Return whether polars has a type for values of all these types."""
    import polars as pl

    try:
        pl.concat([pl.DataFrame(schema={"x": kind}) for kind in kinds], how="vertical_relaxed")
    except pl.exceptions.PolarsError:
        return False
    return True


def _json_or_text(value: Any) -> str:
    return json_or_text(value.to_list() if hasattr(value, "to_list") else value)


def _joining(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return a frame with all columns of a schema, too, and with its types where the frame has no values."""
    import polars as pl

    columns = {name: pl.Series(name, dtype=kind).clear(frame.height) for name, kind in schema.items()}
    columns |= {
        name: column
        for name, column in frame.to_dict().items()
        if name not in columns or column.dtype == schema[name] or column.null_count() < frame.height
    }
    return frame_of(columns.values())


class _ParquetSink:
    """One Parquet file, which polars writes in a thread while the next rows are computed; few rows are in memory."""

    def __init__(self, path: Path, schema: pl.Schema) -> None:
        from polars.io.plugins import register_io_source

        require_polars()
        self.schema = schema
        self._path = path
        self._waiting: Queue[pl.DataFrame | None] = Queue(maxsize=2)
        self._is_stopped = False
        self._error: BaseException | None = None
        self._rows = register_io_source(self._frames, schema=schema)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def write(self, frame: pl.DataFrame | None) -> None:
        while self._error is None:
            with suppress(Full):
                return self._waiting.put(frame, timeout=0.2)
        with plain_errors():
            raise self._error

    def close(self) -> None:
        """Write what is waiting, and end the file."""
        self.write(None)
        self._thread.join()
        if self._error is not None:
            with plain_errors():
                raise self._error

    def stop(self) -> None:
        self._is_stopped = True
        with suppress(Full):
            self._waiting.put_nowait(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._rows.sink_parquet(self._path)
        except BaseException as error:  # also a panic of polars, which is no Exception; write and close raise it
            self._error = error

    def _frames(self, *options: Any) -> Iterator[pl.DataFrame]:
        """Yield frames for polars; it asks for no selection of them."""
        while (frame := self._waiting.get()) is not None and not self._is_stopped:
            yield frame


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn the error of polars for a failed write into the OSError behind it."""
    import polars as pl

    try:
        yield
    except pl.exceptions.PolarsError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None and "transport error" in str(error):
            raise OSError(errno.ENOSPC, f"the disk is probably full (polars: {error})") from None
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


# json.dumps would make an encoder for each row.
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_plain, allow_nan=False)


def json_line(row: dict[str, Any]) -> bytes:
    """Return a row as one line of JSON."""
    try:
        text = _ENCODER.encode(row)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(finite(row), ensure_ascii=False, default=_plain)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair is not UTF-8
        return json.dumps(finite(row), default=_plain).encode() + b"\n"


def finite(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no infinity: they become None."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _cell(value: Any, has_commas: bool) -> Any:
    """Return a value for a cell of CSV."""
    if isinstance(value, list | dict | np.ndarray):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    return repr(value).replace(".", ",") if has_commas and type(value) is float else value


# Output files: complete, or not there at all. Standard output, devices and pipes stay what they are.


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a path to write to; it takes the place of `path` once all is written, and vanishes if that fails.

    For ``-`` (standard output), a device or a pipe, everything is sent at the end. A link is followed.
    """
    if is_stream(path):
        with tempfile.TemporaryDirectory(prefix="qacal-") as folder:
            temporary = Path(folder) / "output"
            yield temporary
            with temporary.open("rb") as file, _stream(path) as out:
                shutil.copyfileobj(file, out)
                out.flush()
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise InputError(f"{target} is a folder; expected the name of a file to write.")
    _sweep(target)
    # The name is chosen here: a signal that arrives while the file is created finds it in the try.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_ENDING}")
    try:
        try:
            temporary.touch(0o600, exist_ok=False)
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror or error}.") from None
        with naming_full_disk(target):
            yield temporary
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)
            patiently(lambda: os.replace(temporary, target))
    finally:
        with suppress(OSError):  # an error above says more
            temporary.unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """Remove temporary files of `target`, and their parts, that a killed process left behind."""
    pattern = re.escape(f".{target.name}.") + "[0-9a-f]{16}" + re.escape(_ENDING) + f"({re.escape(PARTS)})?"
    oldest = time.time() - _ABANDONED
    with suppress(OSError):  # the folder cannot be listed, or somebody else removes them meanwhile
        for path in target.parent.iterdir():
            if re.fullmatch(pattern, path.name) and path.lstat().st_mtime < oldest:
                if path.name.endswith(PARTS):
                    shutil.rmtree(path, ignore_errors=True)
                elif not path.is_dir():
                    path.unlink(missing_ok=True)


@contextmanager
def naming_full_disk(target: Path) -> Iterator[None]:
    """Turn the error of a full disk into one that names the output."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise InputError(f"{target} cannot be written: {error.strerror}. The old file, if any, is unchanged.") from None


def is_stream(path: str | Path) -> bool:
    """Return whether a path is standard output, a device or a pipe: all but regular files and folders."""
    # A descriptor may lead to a regular file, if the output is redirected; it must not be replaced.
    if descriptor_of(path) is not None or os.path.abspath(path).startswith("/proc/"):
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def descriptor_of(path: str | Path) -> int | None:
    """Return the descriptor that a path stands for, directly or as a link (1 is standard output); None for others."""
    name = "/dev/stdout" if str(path) == "-" else os.path.abspath(path)
    for _ in range(_LINKS):
        if name in _DESCRIPTORS:
            return _DESCRIPTORS[name]
        if match := re.fullmatch(rf"/(?:dev|proc/(?:self|thread-self|{os.getpid()}))/fd/(\d+)", name):
            return int(match[1])
        if not os.path.islink(name):
            break
        name = os.path.abspath(os.path.join(os.path.dirname(name), os.readlink(name)))
    return None


@contextmanager
def _stream(path: str | Path) -> Iterator[IO[bytes]]:
    descriptor = descriptor_of(path)
    if descriptor == 1:
        yield sys.stdout.buffer
        return
    try:
        # Opening /dev/stderr again would overwrite the file that it is redirected to.
        opened = os.open(path, os.O_WRONLY | os.O_APPEND) if descriptor is None else os.dup(descriptor)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    sys.stderr.flush()
    with open(opened, "wb") as file:
        yield file


# Names for files to write


def ending_of(file: str) -> str:
    """Return the ending of a file's name; .parquet for standard input.

    >>> ending_of("answers.csv.gz"), ending_of("-")
    ('.csv.gz', '.parquet')
    """
    return "".join(Path(file).suffixes[-2 if file.lower().endswith(".gz") else -1 :]) or ".parquet"


def split_names(file: str) -> tuple[str, str]:
    """Return free names in the current folder for the training and the held-out part of a file.

    >>> split_names("answers.csv")
    ('train.csv', 'test.csv')
    """
    ending = ending_of(file)
    stem = Path(file).name.removesuffix(ending)
    candidates = chain(("", f"{stem}_"), (f"{stem}_{number}_" for number in count(2)))
    names = ((f"{start}train{ending}", f"{start}test{ending}") for start in candidates)
    return next(pair for pair in names if not any(Path(name).exists() for name in pair))


def free_name(name: str) -> str:
    """Return a name in the current folder that no file has: this one, or this one with a number.

    >>> free_name("bad.jsonl")
    'bad.jsonl'
    """
    ending = ending_of(name)
    numbered = (f"{name.removesuffix(ending)}_{number}{ending}" for number in count(2))
    return next(one for one in chain((name,), numbered) if not Path(one).exists())


def held_out_name(file: str) -> str | None:
    """Return the name of the held-out part of a training file; None if the name of the file does not have "train".

    >>> held_out_name("data/names_train.csv"), held_out_name("constraints.csv")
    ('data/names_test.csv', None)
    """
    path = Path(file)
    name, changes = re.subn(r"(?<![a-z])train(?![a-z])", "test", path.name)
    return str(path.with_name(name)) if changes else None
