"""Parts of Parquet files: the unit of work, of output, and of what is left after a stop.

A part is a file, or a range of at most `PART_ROWS` rows of a larger one (more for a tally). Its output appears whole,
under its final name, and says in its metadata which part of which job it is: size and time of the input, and a digest
of the settings and the model. So a job that is started again does what is left, and what has changed.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.embedders.base import optional_package
from qacal.errors import InputError, QacalWarning
from qacal.records.files import BATCH_ROWS, OnFault, refuse
from qacal.records.table import FrameTable, Table
from qacal.records.writers import atomic_file, plain_errors
from qacal.storage import digest
from qacal.tally.arrays import Bools

if TYPE_CHECKING:
    import polars as pl

PART_ROWS = 8 * BATCH_ROWS
# If groups are a column, only cells are kept of a part, and they cost more than its rows: parts have more rows. On a
# grid they have few cells for even more rows, but several workers must have a part each.
LARGE, LARGE_ON_GRID = 64, 256
_METADATA = "qacal"
_STEM = re.compile(r"(-\d{5,}-of-\d{5,})?\.parquet$")
_MOST_NOTED = 2**22


def is_url(path: str) -> bool:
    """Return whether a path names an object store, such as s3://bucket/rows.parquet."""
    return "://" in path


@dataclass(frozen=True)
class Part:
    """Some rows of a file, and where their output goes.

    size, changed : of the file; a part is done again if they differ. An object store tells the size at most.
    first, rows : the range of rows; `whole` is the number of rows of the file.
    """

    path: str
    size: int
    changed: int
    first: int
    rows: int
    whole: int
    output: str = ""

    def scan(self) -> pl.LazyFrame:
        """Return the rows as a query; read it within :func:`readable`."""
        import polars as pl

        return pl.scan_parquet(self.path, glob=False).slice(self.first, self.rows)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows; with `columns`, only those of these columns that the file has."""
        with readable(self.path):
            scan = self.scan()
            if columns is not None:
                names = scan.collect_schema().names()
                scan = scan.select([name for name in dict.fromkeys(columns) if name in names])
            return scan.collect()

    def has(self, columns: Sequence[str]) -> bool:
        """Return whether the file has all these columns."""
        with readable(self.path):
            return {*columns} <= {*self.scan().collect_schema().names()}

    def pieces(self) -> Iterator[Part]:
        """Yield the part in pieces of at most `PART_ROWS` rows."""
        for first in range(self.first, self.first + self.rows, PART_ROWS):
            yield replace(self, first=first, rows=min(PART_ROWS, self.first + self.rows - first))

    def done(self, job: str) -> dict[str, Any] | None:
        """Return what an earlier run noted about this part; None if it is not done, or not for this job."""
        import polars as pl

        try:
            noted = json.loads(pl.read_parquet_metadata(self.output).get(_METADATA, "null"))
        except (pl.exceptions.PolarsError, OSError):
            if is_url(self.output) or not os.path.exists(self.output):
                return None
            noted = None
        if noted is None:
            raise InputError(f"{self.output} exists, and no job of qacal wrote it. Name another folder with -o.")
        is_same = noted["job"] == job and noted["part"] == asdict(self) | {"output": ""}
        return noted["result"] if is_same else None

    def write(self, frame: pl.DataFrame, job: str, result: dict[str, Any], more: dict[str, str]) -> None:
        """Write the output; it is there as a whole or not at all.

        Its metadata has the result, so that a run that finds it can tell the same. If there are too many bad rows for
        that, such a run does the part again.
        """
        noted = {"job": job, "part": asdict(self) | {"output": ""}, "result": result}
        if len(text := json.dumps(noted, default=str)) > _MOST_NOTED:
            text = json.dumps(noted | {"result": None})
        metadata = {**more, _METADATA: text}
        if is_url(self.output):
            frame.write_parquet(self.output, metadata=metadata)
            return
        os.makedirs(os.path.dirname(self.output), exist_ok=True)
        with atomic_file(self.output) as path, plain_errors():
            frame.write_parquet(path, metadata=metadata)


@dataclass(frozen=True)
class PartRows:
    """The rows of a part, as a source that the readers take; one piece of them is in memory at a time.

    label : a column; rows in which it is missing are left out.
    columns : if given, only these are read.
    batch_rows : None for a whole piece.
    """

    part: Part
    label: str | None = None
    columns: Sequence[str] | None = None
    batch_rows: int | None = BATCH_ROWS

    def batches(self, on_fault: OnFault = refuse) -> Iterator[Table]:
        for piece in self.part.pieces():
            whole = piece.read(self.columns)
            step = self.batch_rows or piece.rows
            for first in range(0, whole.height, step):
                frame = whole.slice(first, step)
                start = piece.first + first + 1
                table = FrameTable(self.part.path, "row", np.arange(start, start + frame.height), frame)
                if self.label in frame.columns:
                    table = table.only(_is_given(frame[self.label]))
                if len(table):
                    yield table

    def is_unlabelled(self) -> bool:
        """Return whether no row has a label; False if there is no such column, for the reader to say so."""
        assert self.label is not None
        frames = (piece.read([self.label]) for piece in self.part.pieces())
        return not any(not frame.width or _is_given(frame[self.label]).any() for frame in frames)


def _is_given(column: pl.Series) -> Bools:
    missing = column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()
    return (~missing).to_numpy()


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn errors of polars into one that names the file."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} cannot be read as Parquet: {reason:.300}") from None


def expanded(files: Sequence[str]) -> dict[str, str]:
    """Return the Parquet files that paths, folders and globs stand for, in the order of their paths, with their names.

    The name of a file is its path below the folder that was named, or below the part of a glob before its first
    wildcard. So it does not depend on which other files there are.
    """
    found: dict[str, str] = {}
    places: set[str] = set()
    for one in files:
        base = _base(one)
        paths = _matching(one)
        if not paths:
            raise InputError(f"{one}: there is no Parquet file.")
        if not (is_url(one) or _is_glob(one) or os.path.exists(one)):
            raise InputError(f"{one} does not exist.")
        for path in paths:
            if not path.endswith((".parquet", ".pq")):
                raise InputError(
                    f"{path}: jobs over many files read Parquet alone; expected a name ending in .parquet."
                )
            place = path if is_url(path) else os.path.realpath(path)
            if place in places:
                raise InputError(f"{path} is named twice; its rows would count twice.")
            places.add(place)
            name = posixpath.normpath(path.removeprefix(base).lstrip("/"))
            # A glob may go up again after a wildcard, and a store may list paths that are spelled in another way.
            is_below = path.startswith(base) and not name.startswith("../")
            found[path] = name if is_below else posixpath.basename(path)
    return dict(sorted(found.items()))


def require_apart(files: Sequence[str], output: str) -> None:
    """Raise if an output, a file or a folder, is among the inputs or would be when the command is started again."""
    if is_url(output):
        return
    target = os.path.realpath(output)
    for one in files:
        if is_url(one):
            continue
        is_searched = os.path.isdir(one) or (_is_glob(one) and "**" in one)
        base = os.path.realpath(_base(one) or ".")
        inside = [path for path in _matching(one) if f"{os.path.realpath(path)}{os.sep}".startswith(target + os.sep)]
        if inside or (is_searched and f"{target}{os.sep}".startswith(base.rstrip(os.sep) + os.sep)):
            raise InputError(f"the output {output} is among the inputs ({one}). Name another place with -o.")


def _matching(one: str) -> list[str]:
    """Return the files that one argument stands for."""
    if is_url(one):
        return _listed(one) if has_magic(one) or one.endswith("/") else [one]
    if os.path.isdir(one):
        return [f"{one.rstrip('/')}/{path.relative_to(one).as_posix()}" for path in _below(one)]
    return [Path(path).as_posix() for path in glob(one, recursive=True)] if _is_glob(one) else [Path(one).as_posix()]


def _below(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*.parquet") if not path.name.startswith(".")]


def _is_glob(one: str) -> bool:
    return has_magic(one) and not os.path.exists(one)


def _base(one: str) -> str:
    """Return the start of the paths that is no part of the names of outputs."""
    if not is_url(one) and os.path.isdir(one):
        return f"{one.rstrip('/')}/"
    path = one if is_url(one) else Path(one).as_posix()
    fixed = re.split(r"[*?[]", path, maxsplit=1)[0] if is_url(one) or _is_glob(one) else path
    return fixed[: fixed.rfind("/") + 1]


def _listed(url: str) -> list[str]:
    os.environ.setdefault("DO_NOT_TRACK", "true")
    daft = optional_package("daft", "cluster")
    try:
        names = daft.from_glob_path(f"{url}**/*.parquet" if url.endswith("/") else url).to_pydict()
    except (daft.exceptions.DaftCoreException, OSError) as error:
        raise InputError(f"{url} cannot be listed: {str(error).splitlines()[0]:.300}") from None
    return [str(path) for path in names["path"]]


def parts_of(
    files: Mapping[str, str], output: str, *, by_path: bool = False, times: int = 1
) -> tuple[list[Part], dict[str, str]]:
    """Return the parts of files, and what is wrong with those that cannot be read.

    files : paths with names, as :func:`expanded` returns them.
    output : a folder.
    by_path : the names of outputs are digests of paths; nobody but the job reads them, and files may have equal names.
    times : a part has up to this many times `PART_ROWS` rows.
    """
    parts, bad, most = [], {}, times * PART_ROWS
    paths: dict[str, str] = {}
    for path, name in files.items():
        try:
            whole = _whole(path)
        except InputError as error:
            bad[path] = str(error)
            continue
        count = -(-whole.whole // most)
        stem = digest({"path": path})[:16] if by_path else os.path.splitext(name)[0]
        for number in range(count):
            first = number * most
            name = f"{stem}.parquet" if count == 1 else f"{stem}-{number:05}-of-{count:05}.parquet"
            if name in paths:
                raise InputError(
                    f"{paths[name]} and {path} would have one output, {name}. Name the folder that both are in, rename "
                    "one of them, or pass each to a command of its own with another -o."
                )
            paths[name] = path
            rows = min(most, whole.whole - first)
            parts.append(replace(whole, first=first, rows=rows, output=f"{output.rstrip('/')}/{name}"))
    return parts, bad


def _whole(path: str) -> Part:
    import polars as pl

    size = changed = 0
    with readable(path):
        if not is_url(path):
            status = os.stat(path)
            size, changed = status.st_size, status.st_mtime_ns
        rows = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    return Part(path, size, changed, 0, rows, rows)


def remove_stale(parts: Sequence[Part], output: str, empty: Sequence[str] = ()) -> list[str]:
    """Remove outputs that earlier jobs wrote to a folder for these inputs under other names.

    The names are others if an input had another number of parts, or was named in another way; `empty` are inputs that
    have none. Return the outputs in a folder of this machine whose inputs no longer exist: they were renamed, or
    removed.
    """
    if is_url(output):
        _remove_stale_objects(parts, f"{output.rstrip('/')}/")
        return []
    kept = {os.path.realpath(part.output) for part in parts}
    inputs = {os.path.abspath(path) for path in (*(part.path for part in parts), *empty)}
    orphans = []
    for path in sorted(_below(output)):
        noted = None if os.path.realpath(path) in kept else _input_of(str(path))
        if noted is None:
            continue
        if os.path.abspath(noted) in inputs:
            path.unlink()
        elif not is_url(noted) and not os.path.exists(noted):
            orphans.append(path.relative_to(output).as_posix())
    return orphans


def _remove_stale_objects(parts: Sequence[Part], output: str) -> None:
    """Do the same in an object store, for inputs that are objects: on two machines, a path may be of two files."""
    inputs, kept = {part.path for part in parts if is_url(part.path)}, {part.output for part in parts}
    # To look into each object of a large folder would take too long; those of an input differ in numbers of parts only.
    stems = {_STEM.sub("", posixpath.basename(name)) for name in kept}
    if not inputs:
        return
    try:
        files = import_module("pyarrow.fs")
        system, folder = files.FileSystem.from_uri(output)
        folder = folder.rstrip("/")
        for found in system.get_file_info(files.FileSelector(folder, recursive=True, allow_not_found=True)):
            url = output + found.path.removeprefix(f"{folder}/")
            is_candidate = url not in kept and _STEM.sub("", posixpath.basename(url)) in stems
            if is_candidate and _input_of(url) in inputs:
                system.delete_file(found.path)
    # Without pyarrow, or in a store that it does not know or that does not allow it.
    except (OSError, ValueError, NotImplementedError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"{output}: outputs of earlier runs could not be looked for ({reason:.200}). If an input has another "
            "number of rows now, remove its old outputs.",
            QacalWarning,
            stacklevel=2,
        )


def _input_of(output: str) -> str | None:
    import polars as pl

    try:
        noted = json.loads(pl.read_parquet_metadata(output).get(_METADATA, "null"))
    except (pl.exceptions.PolarsError, OSError, ValueError):
        return None
    return None if noted is None else str(noted["part"]["path"])
