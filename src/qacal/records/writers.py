"""Write rows as Parquet, JSON lines, a JSON list or CSV: a complete file, or none."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import re
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.records.files import format_of, is_tsv
from qacal.records.table import FrameTable, ObjectTable, Table
from qacal.records.temporary import PARTS, held, sweep_files, temporary_folder
from qacal.storage import patiently

if TYPE_CHECKING:
    import polars as pl


_ROWS_AT_ONCE = 10_000
_ENDING = ".qacal-tmp"
_DESCRIPTORS = {"/dev/stdout": 1, "/dev/stderr": 2}
# The number of links to follow, as in the kernel.
_LINKS = 40
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a path to write to; it takes the place of `path` once all is written, and vanishes if that fails.

    For ``-`` (standard output), a device or a pipe, everything is sent at the end. A link is followed.
    """
    if is_stream(path):
        with temporary_folder() as folder:
            yield folder / "output"
            with (folder / "output").open("rb") as file, _stream(path) as out:
                shutil.copyfileobj(file, out)
                out.flush()
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise InputError(f"{target} is a folder; expected the name of a file to write.")
    sweep_files(target.parent, f".{target.name}.", _ENDING)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_ENDING, dir=target.parent)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}.") from None
    temporary = Path(name)
    try:
        with naming_full_disk(target), held(descriptor):
            yield temporary
            temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            patiently(lambda: os.replace(temporary, target))
    finally:
        temporary.unlink(missing_ok=True)


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
    if _descriptor(path) is not None or os.path.abspath(path).startswith("/proc/"):
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def is_standard_output(path: str | Path) -> bool:
    """Return whether a path is a name of standard output."""
    return _descriptor(path) == 1


def _descriptor(path: str | Path) -> int | None:
    """Return the number of the descriptor that a path stands for, directly or as a link; None for other paths."""
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
    descriptor = _descriptor(path)
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Writer(ABC):
    """Writes tables into one file."""

    @abstractmethod
    def write(self, table: Table) -> None:
        """Add rows."""

    def write_objects(self, objects: Iterable[dict[str, Any]], origin: str) -> int:
        """Add rows, few of them in memory at a time; return their number."""
        count, rows = 0, iter(objects)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            self.write(ObjectTable(origin, "row", np.arange(count + 1, count + len(some) + 1), some))
            count += len(some)
        return count

    @abstractmethod
    def close(self) -> None:
        """Finish the file."""

    def discard(self) -> None:
        """Close a file that will not be finished."""
        with suppress(OSError):
            self.close()


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


@contextmanager
def _writer(temporary: Path, path: str | Path, like: str, separator: str) -> Iterator[Writer]:
    """Yield a writer into the temporary file of `path`."""
    is_packed = str(path).lower().endswith(".gz")
    kinds: dict[str, Callable[[], Writer]] = {
        "parquet": lambda: _ParquetWriter(temporary),
        "jsonl": lambda: _JsonWriter(temporary, is_packed),
        "json": lambda: _JsonListWriter(temporary, is_packed),
        "csv": lambda: _CsvWriter(temporary, is_packed, "\t" if is_tsv(str(path)) else separator),
    }
    writer = kinds[output_format(path, like)]()
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise
    writer.close()


class _JsonWriter(Writer):
    def __init__(self, path: Path, is_packed: bool) -> None:
        self._file: Any = _Packed(path) if is_packed else path.open("wb")

    def write(self, table: Table) -> None:
        self._file.writelines(json_line(row) for row in table.typed_rows())

    def close(self) -> None:
        self._file.close()


class _JsonListWriter(_JsonWriter):
    """Writes a list with one object on each line."""

    _before = b"["

    def write(self, table: Table) -> None:
        for row in table.typed_rows():
            self._file.write(self._before + b"\n" + json_line(row).rstrip(b"\n"))
            self._before = b","

    def close(self) -> None:
        self._file.write(b"\n]\n" if self._before == b"," else b"[]\n")
        super().close()


class _CsvWriter(Writer):
    def __init__(self, path: Path, is_packed: bool, separator: str) -> None:
        self._separator = separator
        raw = _Packed(path) if is_packed else path.open("wb")
        self._file = io.TextIOWrapper(raw, "utf-8", "surrogatepass", newline="")
        self._line = io.StringIO(newline="")
        self._rows: Any = None
        self._has_commas = False

    def write(self, table: Table) -> None:
        if self._rows is None:
            # The csv module quotes a carriage return only if lines end in one; _flush_line cuts lines to a newline.
            options: dict[str, Any] = {"extrasaction": "raise", "lineterminator": "\r\n", "delimiter": self._separator}
            self._rows = csv.DictWriter(self._line, table.names, **options)
            self._rows.writeheader()
            self._flush_line()
            # Only columns of numbers tell whether the file has decimal commas: an answer may be 1,234.
            numbers = [value for row in table.rows() for value in map(row.get, table.number_names) if value]
            has_points = any("." in str(value) for value in numbers)
            has_commas = any(isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value) for value in numbers)
            self._has_commas = self._separator != "," and has_commas and not has_points
        for row in table.rows():
            try:
                self._rows.writerow({name: _cell(value, self._has_commas) for name, value in row.items()})
            except ValueError as error:
                raise InputError(f"{table.origin}: a row has columns that the first rows lack: {error}.") from None
            self._flush_line()

    def _flush_line(self) -> None:
        self._file.write(self._line.getvalue()[:-2] + "\n")
        self._line.seek(0)
        self._line.truncate()

    def close(self) -> None:
        self._file.close()


class _ParquetWriter(Writer):
    """Writes each batch as a part, and joins the parts at the end without holding them in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts = Path(f"{path}{PARTS}")
        self._parts.mkdir()
        self._count = 0

    def write(self, table: Table) -> None:
        with plain_errors():
            table.frame().write_parquet(self._parts / f"{self._count}.parquet")
        self._count += 1

    def close(self) -> None:
        import polars as pl

        parts = [self._parts / f"{number}.parquet" for number in range(self._count)]
        try:
            with plain_errors():
                if not parts:
                    pl.DataFrame().write_parquet(self._path)
                elif len(parts) == 1:
                    # Into the same file: whoever holds its lock goes on holding it.
                    shutil.copyfile(parts[0], self._path)
                else:
                    whole = pl.concat([pl.scan_parquet(part) for part in parts], how="diagonal_relaxed")
                    whole.sink_parquet(self._path)
        finally:
            self.discard()

    def discard(self) -> None:
        shutil.rmtree(self._parts, ignore_errors=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn the error of polars for a failed write into the OSError behind it."""
    import polars as pl

    try:
        yield
    except pl.exceptions.PolarsError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


def json_line(row: dict[str, Any]) -> bytes:
    """Return a row as one line of JSON."""
    try:
        text = json.dumps(row, ensure_ascii=False, default=_plain, allow_nan=False)
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


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


def _cell(value: Any, has_commas: bool) -> Any:
    """Return a value for a cell of CSV."""
    if isinstance(value, list | dict | np.ndarray):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    return repr(value).replace(".", ",") if has_commas and type(value) is float else value


class _Packed(gzip.GzipFile):
    """A gzip file without a name and a time, so that the same rows give the same bytes."""

    def __init__(self, path: Path) -> None:
        self._raw = path.open("wb")
        super().__init__(filename="", mode="wb", fileobj=self._raw, mtime=0)

    def close(self) -> None:
        super().close()
        self._raw.close()


def write_frame(frame: pl.DataFrame, path: str | Path, like: str = "csv") -> None:
    """Write a frame to a file."""
    with writing(path, like) as writer:
        writer.write(FrameTable("table", "row", np.arange(1, len(frame) + 1), frame))


def write_objects(objects: Iterable[dict[str, Any]], path: str | Path, origin: str) -> int:
    """Write rows to a file, few of them in memory at a time; return their number."""
    with writing(path, "jsonl") as writer:
        return writer.write_objects(objects, origin)
