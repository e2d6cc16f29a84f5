"""Count the rows of files into a tally: as many rows as you like, in little memory.

In Parquet, polars groups and counts; all that Python sees are cells. If confidences are rounded to a grid, some million
rows at a time are counted in a table of all places on it, which is faster. Rows for which that cannot be trusted (bad
ones, soft labels, confidences in words) and other formats go through :func:`~qacal.records.reading.read`, so that a row
means the same either way, and bad rows have the same messages.
"""

from __future__ import annotations

import glob
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from qacal.errors import InputError
from qacal.records.files import File, open_file, reading_parquet
from qacal.records.reading import BadRows, Reading, read, warn_of_unlabelled
from qacal.records.table import require_polars
from qacal.tally.arrays import Hashes, as_written
from qacal.tally.cells import grid_steps
from qacal.tally.groups import NO_GROUP, GroupColumn, as_grouping
from qacal.tally.ids import Repeats, id_hashes
from qacal.tally.tally import Tally, TallySum

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
U = TypeVar("U")

MOST_CELLS = 2**23
"""A tally with more cells than this is refused: it would have nearly as many cells as rows."""

# Rows that are counted at a time: enough that adding up costs little, few enough for the memory if no two are alike.
# Those on a grid are in memory themselves.
_ROWS_A_STEP, _ROWS_A_STEP_ON_GRID = 2**23, 2**22
_IDS_A_STEP = 2**20
_FLOATS = ("Float32", "Float64")
# Labels of groups of these types mean the same in polars and in Python; ids have all but the first.
_LABELS = ("Boolean", "String", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_NUMBERS = (*_FLOATS, "Boolean", *_LABELS[2:])

_Tell: TypeAlias = Callable[[int], None]


def tally_files(
    paths: str | Path | Sequence[str | Path],
    groups: str | Sequence[str] = (),
    *,
    reading: Reading | None = None,
    resolution: float | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Tally:
    r"""Return the tally of all labelled rows of files, as :meth:`qacal.Tally.of` would of the rows in memory.

    With labels of 0 and 1 it does not depend on the number and order of files and rows.

    paths : files of records, or patterns such as ``"logs/*.parquet"``.
    groups : the columns that rows are grouped by. Each is a partition of the tally, with the name of the column.
    reading : how to read the rows.
    resolution : round confidences to the grid 0, resolution, ..., 1. Without it, confidences that are all different
        make as many cells as rows, and too many cells are an error.
    progress : called with the name of the step and the number of rows so far.

    Examples
    --------
    >>> import json, tempfile
    >>> rows = [{"topic": "law", "confidence": 0.9, "correct": right} for right in (0, 1, 1)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day in ("monday", "tuesday"):
    ...         _ = Path(folder, f"{day}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ...     tally = tally_files(f"{folder}/*.jsonl", "topic")
    >>> tally, tally.rows, tally.wt
    (Tally(6 rows in 1 cells, 1 groups), array([6]), array([4.]))
    """
    reading = reading or Reading()
    names = [groups] if isinstance(groups, str) else list(groups)
    if resolution is not None:
        grid_steps(resolution)  # it checks the resolution
    counted, repeats = TallySum(), Repeats()
    for file in files_of(paths):
        before = counted.rows

        def tell(rows: int, before: int = before) -> None:
            if progress is not None:
                progress("counting", before + rows)

        tally = _counted_by_polars(file, reading, names, resolution, repeats, tell)
        counted.add(tally or _counted_by_batches(file, reading, names, resolution, repeats, tell))
    # Only here it is known which questions are in several files; added tallies do not know it.
    return replace(counted.total(), is_clustered=repeats.surplus() > 0, is_sum=False)


def files_of(paths: str | Path | Sequence[str | Path]) -> list[File]:
    """Return files; those that match a pattern in the order of their names.

    >>> [file.name for file in files_of(["b.csv", "a.csv"])]
    ['b.csv', 'a.csv']
    """
    found: list[File] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        is_pattern = glob.has_magic(str(path)) and not Path(path).exists()
        matching = sorted(glob.glob(str(path), recursive=True)) if is_pattern else [path]
        if not matching:
            raise InputError(f"no file matches {path}.")
        found.extend(map(open_file, matching))
    if not found:
        raise InputError("there are no files to count; name at least one.")
    repeated = [name for name, n in Counter(file.path.resolve() for file in found).items() if n > 1]
    if repeated:
        raise InputError(f"{repeated[0]} is named twice; its rows would count twice.")
    return found


def _counted_by_batches(
    file: File, reading: Reading, groups: list[str], resolution: float | None, repeats: Repeats, tell: _Tell
) -> Tally:
    counted = TallySum()
    for batch in read(file, reading, needs_labels=True, needs_text=False, uses_text=False):
        columns = {name: batch.column(name) for name in groups}
        counted.add(Tally.of(batch.confidence, batch.correct, groups=columns, resolution=resolution))
        require_few(counted, file.name)
        if batch.ids is not None:
            repeats.add(batch.ids)
        tell(counted.rows)
    return counted.total()


def _counted_by_polars(
    file: File, reading: Reading, groups: list[str], resolution: float | None, repeats: Repeats, tell: _Tell
) -> Tally | None:
    """Return the tally of a file of Parquet; None if the file needs a closer look at each row."""
    import polars as pl

    if file.format != "parquet" or not file.path.is_file():
        return None
    require_polars()
    with reading_parquet(file.path, file.name):
        scan = pl.scan_parquet(file.path, glob=False)
        counted = plain_tally(scan, reading, groups, resolution, file.name, tell)
        if counted is None or not _added_ids(scan, reading, repeats):
            return None
        length = int(scan.select(pl.len()).collect().item())
    unlabelled = length - counted.n
    if isinstance(reading.on_fault, BadRows):
        seen = BadRows()
        seen.add_rows(file.name, length)
        seen.add_unlabelled(file.name, unlabelled)
        reading.on_fault.take_rows(seen)
    warn_of_unlabelled(unlabelled, length, reading.prefix or f"{file.name}: ")
    return counted


def plain_tally(
    scan: pl.LazyFrame,
    reading: Reading,
    groups: Sequence[str],
    resolution: float | None,
    name: str,
    tell: _Tell = lambda rows: None,
) -> Tally | None:
    """Return the tally of labelled rows, counted as columns; None if rows need a closer look, or there are none.

    name : of the rows in messages.
    """
    import polars as pl

    schema = scan.collect_schema()
    confidence, correct = (reading.name(name) for name in ("confidence", "correct"))
    columns = {name: reading.name(name) for name in groups}
    types = {name: str(schema.get(name)) for name in (confidence, correct, *columns.values())}
    is_plain = not reading.percent and all(types[name] in _NUMBERS for name in (confidence, correct))
    is_plain = is_plain and all(types[name] in _LABELS for name in columns.values())
    if not (is_plain and {*reading.columns.values()} <= {*schema}):
        return None
    length = int(scan.select(pl.len()).collect().item())
    counted, step = TallySum(), _ROWS_A_STEP if resolution is None else _ROWS_A_STEP_ON_GRID

    def of_step(first: int) -> Tally | None:
        labels = [pl.col(column).alias(f"{name}:label") for name, column in columns.items()]
        rows = scan.slice(first, step).select(*labels, confidence=confidence, correct=correct)
        return _grouped(rows, groups) if resolution is None else _on_grid(rows, groups, resolution)

    steps = range(0, length, step)
    # Polars groups on all cores, but a table is counted on one.
    takes_turns = resolution is None or len(steps) == 1
    for first, tally in ((at, of_step(at)) for at in steps) if takes_turns else ahead(of_step, steps, threads=2):
        if tally is None:
            return None
        if len(tally):
            counted.add(tally)
        require_few(counted, name)
        tell(min(first + step, length))
    return counted.total() if counted.rows else None


def ahead(make: Callable[[T], U], items: Iterable[T], threads: int) -> Iterator[tuple[T, U]]:
    """Yield items, each with what is made of it; threads make that of up to `threads` items after the one yielded.

    If there is an error in the items, those before it are yielded first.

    >>> list(ahead(len, ["a", "bb", "ccc"], threads=1))
    [('a', 1), ('bb', 2), ('ccc', 3)]
    """
    waiting, error = deque[tuple[T, Future[U] | None]](), None
    pool, items, process = ThreadPoolExecutor(threads), iter(items), os.getpid()

    def begun(item: T) -> Future[U] | None:
        with suppress(RuntimeError):  # the interpreter is about to end, and starts no threads
            return pool.submit(make, item) if os.getpid() == process else None
        return None

    def made_of(item: T, made: Future[U] | None) -> U:
        # A forked process does not have the threads.
        return make(item) if made is None or os.getpid() != process else made.result()

    try:
        while True:
            try:
                item = next(items)
            except StopIteration:
                break
            except Exception as raised:
                error = raised
                break
            waiting.append((item, begun(item)))
            if len(waiting) > threads:
                first, made = waiting.popleft()
                yield first, made_of(first, made)
        for first, made in waiting:
            yield first, made_of(first, made)
    finally:
        pool.shutdown(cancel_futures=True)
    if error is not None:
        raise error


def _grouped(rows: pl.LazyFrame, groups: Sequence[str]) -> Tally | None:
    """Return the tally of rows that polars groups, of which Python sees the cells only; None for a closer look."""
    import polars as pl

    label = pl.col("correct")
    missing = ~is_labelled("correct", rows.collect_schema())
    cells = (
        rows.group_by(pl.exclude("correct"))
        .agg(rows=pl.len(), right=(label == 1).sum(), wrong=(label == 0).sum(), missing=missing.sum())
        .collect(engine="streaming")
    )
    count = (cells["right"] + cells["wrong"]).to_numpy().astype(np.int64)
    if count.sum() + cells["missing"].sum() < cells["rows"].sum():
        return None
    if not count.all():
        cells, count = cells.filter(pl.Series(count > 0)), count[count > 0]
    h = as_written(cells["confidence"].to_numpy())
    if not ((h >= 0) & (h <= 1)).all():
        return None
    return Tally.of_counts(h, count, cells["right"].to_numpy(), groups=_labels(cells, groups))


def _on_grid(rows: pl.LazyFrame, groups: Sequence[str], resolution: float) -> Tally | None:
    """Return the tally of rows on a grid, None for a closer look.

    Many rows have few values, so that to count them in a table of all places is faster than to group them.
    """
    read = rows.filter(is_labelled("correct", rows.collect_schema())).collect(engine="streaming")
    h, correct = as_written(read["confidence"].to_numpy()), read["correct"].to_numpy()
    is_right = correct == 1
    # A missing confidence is NaN here, which fails all comparisons.
    if not ((h >= 0) & (h <= 1) & (is_right | (correct == 0))).all():
        return None
    labels = _labels(read, groups)
    if not len(h):
        return Tally.of_counts(h, none := np.empty(0, dtype=np.int64), none, groups=labels)
    return Tally.of(h, is_right, groups=labels, resolution=resolution)


def _labels(rows: pl.DataFrame, groups: Sequence[str]) -> dict[str, GroupColumn]:
    """Return the columns of groups in codes. Polars finds the codes of rows: Python sees each label once."""
    import polars as pl

    columns = {}
    for name in groups:
        texts = rows[f"{name}:label"]
        labels = texts.drop_nulls().unique()
        found = as_grouping(labels, len(labels))
        place = texts.cast(pl.String).cast(pl.Enum(labels.cast(pl.String))).to_physical().cast(pl.UInt32)
        codes = np.append(found.code, NO_GROUP)
        columns[name] = GroupColumn(codes[place.fill_null(len(labels)).to_numpy()], found.labels)
    return columns


def is_labelled(name: str, schema: pl.Schema) -> pl.Expr:
    """Return whether rows have a label: neither null, NaN nor empty text, as for the readers."""
    import polars as pl

    column, kind = pl.col(name), str(schema[name])
    if kind == "String":
        return (column != "").fill_null(False)
    return (~column.is_nan()).fill_null(False) if kind in _FLOATS else column.is_not_null()


def _added_ids(scan: pl.LazyFrame, reading: Reading, repeats: Repeats) -> bool:
    """Add the ids of labelled rows, or the questions that stand for them; return False if some are not ids."""
    schema = scan.collect_schema()
    name = next((name for name in map(reading.name, ("id", "question")) if name in schema), None)
    if name is None:
        return True
    if str(schema[name]) not in _LABELS[1:]:
        return False
    import polars as pl

    labelled = is_labelled(reading.name("correct"), schema)
    hashes = list[Hashes]()
    length = int(scan.select(pl.len()).collect().item())
    for first in range(0, length, _IDS_A_STEP):
        # To filter first would read the file from its start in each step.
        column = scan.slice(first, _IDS_A_STEP).filter(labelled).select(name).collect()[name]
        if column.null_count() or (str(column.dtype) == "String" and (column.str.strip_chars() == "").any()):
            return False
        hashes.append(id_hashes(column, len(column)))
    for some in hashes:
        repeats.add(some)
    return True


class TooManyCellsError(InputError):
    """A tally has nearly as many cells as rows."""


def require_few(counted: TallySum, name: str) -> None:
    """Raise if a tally has nearly as many cells as rows."""
    if counted.cells > MOST_CELLS and len(counted.total()) > MOST_CELLS:
        raise TooManyCellsError(
            f"{name}: the tally has more than {MOST_CELLS:,} cells, because most confidences differ. Round them: "
            "--resolution 0.001 (in Python: resolution=0.001)."
        )
