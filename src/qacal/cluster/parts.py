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
from dataclasses import asdict, dataclass, replace
from glob import escape, glob, has_magic
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.embedders.base import optional_package
from qacal.errors import InputError, QacalWarning
from qacal.records.files import BATCH_ROWS, OnFault, reading_parquet, refuse
from qacal.records.table import FrameTable, Table
from qacal.records.tallying import is_labelled
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
_SUFFIXES = (".parquet", ".pq")
# Names that begin with a point, and folders such as _delta_log, but not _day=1.
_HIDDEN = re.compile(r"(^|/)(\.|_[^=/]*/)")
_STEM = re.compile(r"(-\d{5,}-of-\d{5,})?\.parquet$")
_MOST_NOTED = 2**22


def is_url(path: str) -> bool:
    """Return whether a path names an object store, such as s3://bucket/rows.parquet."""
    return "://" in path


def absolute(path: str) -> str:
    """Return a path that means the same in the folder of a worker, and of a later run."""
    return path if is_url(path) else Path(os.path.abspath(path)).as_posix()


@dataclass(frozen=True)
class Part:
    """Some rows of a file, and where their output goes.

    size, changed : of the file; a part is done again if they differ. An object store tells the size at most.
    first, rows : the range of rows; `whole` is the number of rows of the file.
    folder, name : where its output goes.
    """

    path: str
    size: int
    changed: int
    first: int
    rows: int
    whole: int
    folder: str = ""
    name: str = ""

    @property
    def output(self) -> str:
        return f"{self.folder}/{self.name}"

    def scan(self) -> pl.LazyFrame:
        """Return the rows as a query; read it within :func:`~qacal.records.files.reading_parquet`."""
        import polars as pl

        return pl.scan_parquet(self.path, glob=False).slice(self.first, self.rows)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows; with `columns`, only those of these columns that the file has."""
        with reading_parquet(self.path):
            scan = self.scan()
            if columns is not None:
                names = scan.collect_schema().names()
                scan = scan.select([name for name in dict.fromkeys(columns) if name in names])
            return scan.collect()

    def has(self, columns: Sequence[str]) -> bool:
        """Return whether the file has all these columns."""
        with reading_parquet(self.path):
            return {*columns} <= {*self.scan().collect_schema().names()}

    def pieces(self) -> Iterator[Part]:
        """Yield the part in pieces of at most `PART_ROWS` rows."""
        for first in range(self.first, self.first + self.rows, PART_ROWS):
            yield replace(self, first=first, rows=min(PART_ROWS, self.first + self.rows - first))

    def noted(self, job: str) -> dict[str, Any] | None:
        """Return what an earlier run noted about this part; None if it is not done, or not for this job.

        Raise if there is something else: a file of somebody else, or the output of another input or kind of job.
        """
        import polars as pl

        try:
            noted = json.loads(pl.read_parquet_metadata(self.output).get(_METADATA, "null"))
        except FileNotFoundError:
            return None
        except pl.exceptions.PolarsError:
            noted = None
        if noted is None:
            raise InputError(
                f"{self.output} exists, and no job of qacal wrote it, or it is damaged. Choose another output folder, "
                "or remove it."
            )
        (kind, path), own = (noted["job"].split()[0], noted["part"]["path"]), job.split()[0]
        is_other = path != self.path and (is_url(path) or (os.path.exists(path) and not _is_same(path, self.path)))
        if kind != own or is_other:
            raise InputError(
                f"{self.output} has the output of qacal {kind} for {path}. Choose another output folder, or remove it."
            )
        return noted if noted["job"] == job and noted["part"] == self._own() else None

    def _own(self) -> dict[str, Any]:
        """Return what tells this part from others; outputs may be moved to another folder."""
        return {name: value for name, value in asdict(self).items() if name not in ("folder", "name")}

    def write(self, frame: pl.DataFrame, job: str, result: dict[str, Any], more: dict[str, str]) -> None:
        """Write the output; it is there as a whole or not at all.

        Its metadata has the result, also bad rows, so that a run that finds it can tell the same. If there are too many
        bad rows for that, such a run does the part again.
        """
        noted = {"job": job, "name": self.name, "part": self._own(), "result": result}
        if len(text := json.dumps(noted, default=str)) > _MOST_NOTED:
            text = json.dumps(noted | {"result": None})
        metadata = {**more, _METADATA: text}
        if is_url(self.output):
            frame.write_parquet(self.output, metadata=metadata)
            return
        os.makedirs(os.path.dirname(self.output), exist_ok=True)
        with atomic_file(self.output) as path, plain_errors():
            frame.write_parquet(path, metadata=metadata)


def _is_link(path: str) -> bool:
    return not is_url(path) and os.path.realpath(path) != path


def _is_same(path: str, other: str) -> bool:
    return not is_url(other) and os.path.samefile(path, other)


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
                    table = table.only(_is_labelled(frame, str(self.label)))
                if len(table):
                    yield table

    def is_unlabelled(self) -> bool:
        """Return whether no row has a label; False if there is no such column, for the reader to say so."""
        assert self.label is not None
        frames = (piece.read([self.label]) for piece in self.part.pieces())
        return not any(not frame.width or _is_labelled(frame, self.label).any() for frame in frames)


def _is_labelled(frame: pl.DataFrame, label: str) -> Bools:
    return frame.select(is_labelled(label, frame.schema)).to_series().to_numpy()


_AS_PARQUET = 'Write other files as Parquet first: polars.read_ndjson("a.jsonl").write_parquet("a.parquet").'


def expanded(files: Sequence[str]) -> dict[str, str]:
    """Return the Parquet files that paths, folders and globs stand for, in the order of their paths, with their names.

    The name of a file is its path below the folder that was named, or below the part of a glob before its first
    wildcard. So it does not depend on which other files there are.
    """
    found: dict[str, str] = {}
    places: set[str] = set()
    for one in files:
        if not (is_url(one) or _is_glob(one) or os.path.exists(one)):
            raise InputError(f"{one or 'the file without a name'} does not exist.")
        paths = [absolute(path) for path in _matching(one)]
        if not paths:
            raise InputError(
                f"{one}: there is no Parquet file, and jobs over many files read nothing else. {_AS_PARQUET}"
            )
        base = _base(one) if is_url(one) else f"{absolute(_base(one) or '.').rstrip('/')}/"
        before = {*places}
        # Of a file and links to it, the file counts.
        for path in sorted(paths, key=_is_link):
            if path.encode(errors="ignore").decode() != path:
                raise InputError(f"{path!r}: the name of the file is not UTF-8; rename it.")
            if not path.endswith(_SUFFIXES):
                wrong = f"{path}: jobs over many files read Parquet alone; expected a name ending in .parquet."
                raise InputError(f"{wrong} {_AS_PARQUET}")
            place = path if is_url(path) else os.path.realpath(path)
            if place in before:
                raise InputError(f"{path} is named twice; its rows would count twice.")
            if place in places:
                continue
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
            raise InputError(f"the output {output} is among the inputs ({one}). Choose another place for it.")


def _matching(one: str) -> list[str]:
    """Return the files that one argument stands for."""
    if is_url(one):
        return _listed(one) if has_magic(one) or one.endswith("/") else [one]
    found = glob(one, recursive=True) if _is_glob(one) else [one]
    found = [path for path in found if path == one or not _HIDDEN.search(f"{Path(path).name}/")]
    nested = (_below(path) if os.path.isdir(path) else [Path(path)] for path in found)
    # A folder may match, and files in it as well.
    return list(dict.fromkeys(path.as_posix() for paths in nested for path in paths))


def _below(folder: str) -> list[Path]:
    """Return the Parquet files in a folder and all below it, but for hidden ones, and what others keep beside rows."""
    # Links to folders are followed, as everywhere in globs.
    found = map(Path, glob(f"{escape(str(folder))}/**/*.p*q*", recursive=True))
    return [
        path
        for path in found
        if path.suffix in _SUFFIXES and not _HIDDEN.search(path.relative_to(folder).as_posix()) and path.is_file()
    ]


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
    return [str(path) for path in names["path"] if not _HIDDEN.search(str(path).removeprefix(_base(url)))]


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
                    "one of them, or give each an output folder of its own, one after the other."
                )
            paths[name] = path
            rows = min(most, whole.whole - first)
            parts.append(replace(whole, first=first, rows=rows, folder=output.rstrip("/"), name=name))
    return parts, bad


def _whole(path: str) -> Part:
    import polars as pl

    size = changed = 0
    with reading_parquet(path):
        if not is_url(path):
            status = os.stat(path)
            size, changed = status.st_size, status.st_mtime_ns
        rows = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    return Part(path, size, changed, 0, rows, rows)


def remove_stale(parts: Sequence[Part], output: str, kind: str, empty: Sequence[str] = ()) -> list[str]:
    """Remove outputs that earlier jobs wrote to a folder for these inputs under other names.

    The names are others if an input had another number of parts, or was named in another way; `empty` are inputs that
    have none. Outputs of jobs of another kind, and of other folders, stay. Return the outputs in a folder of this
    machine whose inputs no longer exist: they were renamed, or removed.
    """
    if is_url(output):
        _remove_stale_objects(parts, output.rstrip("/"), kind)
        return []
    kept = {os.path.realpath(part.output) for part in parts}
    inputs = {*(part.path for part in parts), *empty}
    orphans = []
    for path in sorted(_below(output)):
        noted = None if os.path.realpath(path) in kept else _input_of(path, path.relative_to(output).as_posix(), kind)
        if noted is None:
            continue
        if noted in inputs:
            path.unlink()
        elif not is_url(noted) and not os.path.exists(noted):
            orphans.append(path.relative_to(output).as_posix())
    return orphans


def _remove_stale_objects(parts: Sequence[Part], output: str, kind: str) -> None:
    """Do the same in an object store, for inputs that are objects: on two machines, a path may be of two files."""
    inputs, kept = {part.path for part in parts if is_url(part.path)}, {part.output for part in parts}
    # To look into each object of a large folder would take too long; those of an input differ in numbers of parts only.
    stems = {_STEM.sub("", posixpath.basename(name)) for name in kept}
    if not inputs:
        return
    try:
        files = import_module("pyarrow.fs")
        system, folder = files.FileSystem.from_uri(f"{output}/")
        folder = folder.rstrip("/")
        for found in system.get_file_info(files.FileSelector(folder, recursive=True, allow_not_found=True)):
            url = f"{output}/{found.path.removeprefix(f'{folder}/')}"
            is_candidate = url not in kept and _STEM.sub("", posixpath.basename(url)) in stems
            if is_candidate and _input_of(url, url.removeprefix(f"{output}/"), kind) in inputs:
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


def _input_of(output: str | Path, name: str, kind: str) -> str | None:
    """Return the input of an output; None for files of others, and of jobs of another kind or with another folder."""
    import polars as pl

    try:
        noted = json.loads(pl.read_parquet_metadata(output).get(_METADATA, "null"))
    except (pl.exceptions.PolarsError, OSError, ValueError):
        return None
    is_of_job = noted is not None and noted.get("name") == name and noted["job"].startswith(f"{kind} ")
    return str(noted["part"]["path"]) if is_of_job else None
