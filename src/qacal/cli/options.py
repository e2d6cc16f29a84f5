"""Shared by the commands: options, input rows, bad rows, progress and printing."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from qacal.cli import progress_line
from qacal.cli.text_table import TextTable
from qacal.errors import BadRowsError, InputError, counted, printable

if TYPE_CHECKING:
    from qacal.cluster.running import Outcome, Where
    from qacal.model.base import BaseModel
    from qacal.model.pipeline import Progress
    from qacal.records.files import File
    from qacal.records.reading import Reading
    from qacal.records.table import Fault
    from qacal.records.writers import Writer

# Start of a file of bad rows; without bad rows the file is empty.
_BAD_ROW = b'{"place": "'
# A hint for Python callers after an option of the command line; it may contain two levels of parentheses.
_IN_PYTHON = re.compile(r" \(in Python: (?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\)")
# Width of the output into a pipe, unless COLUMNS is set: wide enough that no line breaks.
_PIPE = 10_000

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model from qacal fit.")]
Rows = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Rows: .parquet, .jsonl, .json, .csv (all but the first also .gz), or - for standard input.",
    ),
]
_files = typer.Argument(
    metavar="FILE",
    help="Rows: a .parquet, .jsonl, .json or .csv file (all but the first also .gz), or - for standard input. Or "
    "many rows: Parquet files, folders, globs, URLs (s3://...).",
)
Files = Annotated[list[str], _files]
ParquetFiles = Annotated[
    list[str], typer.Argument(metavar="FILE", help="Rows: Parquet files, folders, globs, URLs (s3://...).")
]
FilesOrStore = Annotated[list[str] | None, _files]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="For many rows: local (this process), daft (all cores), or ray (a cluster).",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of the Ray cluster. Default: one on this machine, for this command."),
]
RowsOrStore = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="Rows, as in other commands: .parquet, .jsonl, .json, .csv, or -."),
]
Output = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Output: .parquet, .jsonl, .json or .csv; - for standard output."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=ITS_NAME",
        help="The name of a column in the file, such as confidence=score. May be repeated.",
    ),
]
Percent = Annotated[bool, typer.Option("--percent", help="Confidences are percents, 0 to 100.")]
PercentAsFitted = Annotated[
    bool | None,
    typer.Option(
        "--percent/--no-percent",
        help="Confidences are percents, 0 to 100, or not. Default: as in the rows of the fit.",
        show_default=False,
    ),
]
AllowOtherSource = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-other-source",
        metavar="COLUMN",
        help="Accept another model (the LLM), prompt, confidence_source, judge, or number or temperature of samples "
        "(samples, temperature) than in the fit. May be repeated. apply ignores the judge.",
    ),
]
Embedder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The embedder of the fit, if it is onnx:DIR or hf:ID, which load only by name.",
    ),
]
Expressions = Annotated[
    list[str] | None,
    typer.Option(
        "--expression",
        metavar="WORDS=NUMBER",
        help="The number for a confidence in words: High=0.85. May be repeated.",
    ),
]
SkipBadRows = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Skip bad rows, and write them to FILE (JSON lines) with the reason. FILE must not exist, unless an "
        "earlier run wrote it.",
    ),
]
MaxBad = Annotated[
    float,
    typer.Option(
        "--max-bad",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="With --skip-bad-rows: stop if a larger share of the rows is bad.",
    ),
]
TiesOption = Annotated[
    str,
    typer.Option(
        "--ties",
        help="Equal confidences: merge keeps them in one bin; jitter orders them by the hash of the id, like the "
        "paper's randomised ties.",
    ),
]
Store = Annotated[
    str,
    typer.Option(
        "--store", metavar="URL", help="The store of qacal serve: sqlite:///FILE, or postgresql+psycopg://..."
    ),
]
StoreOrFile = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="In place of a file, the store of qacal serve: sqlite:///FILE, or postgresql+psycopg://...",
    ),
]
ServedName = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="The name of the served model. Default: the name of its folder."),
]
Since = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="DATE",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
        help="Only answers that were served since then, in UTC: 2026-10-31, or 2026-10-31T18:00:00.",
    ),
]
Texts = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="The records that were served, with the same ids, if the store has no texts of them."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SeparateResults = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="COLUMN", help="Separate results for each value of this column, usually model: the LLM's name."
    ),
]


def chosen(option: str, value: str, choices: Sequence[str]) -> str:
    """Return a choice as the library spells it, or raise a usage error.

    >>> chosen("--tune", "log-loss", ["log_loss", "brier"])
    'log_loss'
    """
    spelled = value.replace("-", "_")
    if spelled not in choices:
        expected = ", ".join(choice.replace("_", "-") for choice in choices)
        raise typer.BadParameter(f"{option} is {value!r}; expected one of {expected}.")
    return spelled


def mapping(columns: list[str] | None, only: Sequence[str] | None = None) -> dict[str, str]:
    """Return ``--column`` options as a mapping.

    only : the standard names of this command, instead of the columns of records.

    >>> mapping(["confidence=score"])
    {'confidence': 'score'}
    """
    from qacal.records.columns import KNOWN

    accepted = KNOWN if only is None else only
    out = {}
    for text in columns or []:
        name, _, its_name = text.partition("=")
        if not (name and its_name):
            raise typer.BadParameter(f"{text!r} is not of the form NAME=ITS_NAME, such as question=text.")
        if name not in accepted:
            swapped = f" Did you mean {its_name}={name}?" if its_name in accepted else ""
            raise typer.BadParameter(
                f"there is no column {name} to map; expected one of {', '.join(accepted)}.{swapped}"
            )
        out[name] = its_name
    return out


def expressions(texts: list[str] | None) -> dict[str, float]:
    """Return ``--expression`` options as a mapping.

    >>> expressions(["High=0.85", "Very High=.95"])
    {'High': 0.85, 'Very High': 0.95}
    """
    out = {}
    for text in texts or []:
        words, _, number = text.rpartition("=")
        try:
            out[words.strip()] = float(number)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not of the form WORDS=NUMBER, such as High=0.85.") from None
    return out


@contextmanager
def opened(path: str) -> Iterator[File]:
    """Yield the file of rows at `path`, or a copy of standard input for ``-``."""
    from qacal.records.files import from_stream, open_file

    if path != "-":
        yield open_file(path)
        return
    if sys.stdin.isatty():
        raise typer.BadParameter("- reads standard input, and nothing is piped into it.")
    with from_stream(sys.stdin.buffer) as file:
        yield file


@contextmanager
def input_rows(
    path: str,
    column: list[str] | None,
    percent: bool | None,
    skip_bad_rows: Path | None,
    max_bad: float,
    expression: list[str] | None = None,
    *,
    model: BaseModel | None = None,
    bad_rows_are: str = "left out",
) -> Iterator[tuple[File, Reading, Progress | None]]:
    """Yield the rows of a command, how to read them, and a callback for progress.

    model : read the rows like those of its fit unless options differ; print what is assumed.
    bad_rows_are : what happens to bad rows, for the note.
    """
    with opened(path) as rows:
        reading = reading_of(rows, column, percent, expression, model)
        with (
            skipping(reading, skip_bad_rows, max_bad, bad_rows_are) as reading,
            progress_line.showing(cache(rows.known_length)) as tell,
        ):
            yield rows, reading, tell


def reading_of(
    rows: Any, column: list[str] | None, percent: bool | None, expression: list[str] | None, model: BaseModel | None
) -> Reading:
    """Return how to read rows; with a model, like those of its fit unless options differ: print what is assumed."""
    from qacal.records.reading import Reading

    columns, words = mapping(column), expressions(expression)
    if model is None:
        return Reading(columns, bool(percent), expressions=words)
    reading = model._reading(rows, columns, percent, words)
    assumed = {
        "--column": [f"{name} is {its}" for name, its in reading.columns.items() if name not in columns],
        "--no-percent": ["confidences are percents"] if reading.assumes_percent else [],
        "--expression": [] if words else [f"{word}={value}" for word, value in reading.expressions.items()],
    }
    parts = ", ".join(part for parts in assumed.values() for part in parts)
    if parts:
        changes = ", ".join(option for option, parts in assumed.items() if parts)
        note(f"As in the fit: {parts} (to change it: {changes}).")
    return reading


def is_job(files: Sequence[str], engine: str, address: str | None, output: str = "") -> bool:
    """Return whether a command runs as a job over Parquet files, and not on one file of rows.

    output : where the rows go; those of one Parquet file may go to a folder, too.
    """
    from glob import has_magic

    if engine not in ("local", "daft", "ray"):
        raise typer.BadParameter(f"--engine is {engine!r}; expected one of local, daft, ray.")
    if address is not None and engine != "ray":
        raise typer.BadParameter("--address is that of a Ray cluster; pass --engine ray, too.")
    if len(files) != 1 or engine != "local":
        return len(files) > 1 or engine != "local"
    (file,) = files
    is_pattern = has_magic(file) and not os.path.exists(file)
    goes_to_folder = file.endswith((".parquet", ".pq")) and (output.endswith("/") or os.path.isdir(output))
    return is_pattern or os.path.isdir(file) or "://" in file or goes_to_folder


def job_reading(
    files: Sequence[str],
    column: list[str] | None,
    percent: bool | None,
    expression: list[str] | None = None,
    skip_bad_rows: Path | None = None,
    max_bad: float = 0.0,
    model: BaseModel | None = None,
) -> dict[str, Any]:
    """Return how to read the rows of a job, as arguments of :class:`~qacal.cluster.jobs.Job`."""
    from qacal.cluster.parts import expanded, parts_of

    rows: Any = None
    if model is not None:
        parts = (part for path in expanded(files) for part in parts_of({path: path}, "")[0][:1])
        first = next(parts, None)
        rows = None if first is None else replace(first, rows=min(first.rows, 1000)).read()
    reading = reading_of(rows, column, percent, expression, model if rows is not None else None)
    skips = skip_bad_rows is not None
    how = {"columns": dict(reading.columns), "percent": reading.percent, "expressions": dict(reading.expressions)}
    return {**how, "skips": skips, "max_bad": max_bad if skips else 0.0}


@contextmanager
def job_runs(engine: Any, address: str | None, skip_bad_rows: Path | None) -> Iterator[Where]:
    """Yield where a job runs; bad rows go to a file, also if some files cannot be done."""
    from qacal.cluster.running import Where, removing_useless
    from qacal.records.writers import atomic_file, json_line

    totals: list[int | None] = [None]
    where = Where(engine, address, on_total=totals.append)
    with _stop_explained(), progress_line.showing(lambda: totals[-1]) as tell, removing_useless(where):
        where = replace(where, progress=tell)
        if skip_bad_rows is None:
            yield where
            return
        _require_bad_rows(skip_bad_rows)
        problem = None
        with atomic_file(skip_bad_rows) as path, path.open("wb") as file:
            try:
                yield replace(where, on_bad=lambda row: file.writelines([json_line(row)]))
            except InputError as error:
                problem = error
        if problem is not None:
            raise problem


@contextmanager
def _stop_explained() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if getattr(stop, "code", 130) in (130, 143):  # not if the terminal is gone
            note("Parts that are done stay: the same command, started again, does only what is left.")
        raise


def job_account(outcome: Outcome, began: float, output: str, errors: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a job did, for --json; `began` as in :func:`run_summary`, and `errors` of files by their paths."""
    parts = {
        "parts": len(outcome.parts),
        "done_before": outcome.old,
        "notes": outcome.notes,
        "errors": {**(errors or {})},
    }
    return _account(outcome.rows, outcome.written, outcome.bad, began, output) | parts


@contextmanager
def failures_as_json(json: bool, began: float, output: str) -> Iterator[None]:
    """With --json, print what a job did also if some files could not be processed."""
    from qacal.cluster.running import FailedFilesError

    try:
        yield
    except FailedFilesError as error:
        if json:
            print(json_text(job_account(error.outcome, began, output, error.errors)))
        raise


def tell_outcome(outcome: Outcome, rows: int, written: str, skip_bad_rows: Path | None) -> None:
    """Print what a job did, and with how many rows."""
    files, parts = len({part.path for part in outcome.parts}), len(outcome.parts)
    is_old = 0 < outcome.old == parts
    note(f"{'Nothing was left to do: ' if is_old else ''}{rows:,} rows of {counted(files, 'file')} {written}.")
    if outcome.old and not is_old:
        note(f"{counted(outcome.old, 'part')} of {parts:,} had been done before and stayed.")
    if outcome.bad and skip_bad_rows is not None:
        note(f"Bad rows: {outcome.bad:,}. They are in {skip_bad_rows}.")


@contextmanager
def skipping(
    reading: Reading, skip_bad_rows: Path | None, max_bad: float, bad_rows_are: str = "left out"
) -> Iterator[Reading]:
    """Yield how to read rows; with `skip_bad_rows`, write bad rows to that file, even if there are too many."""
    from qacal.records.reading import BadRows
    from qacal.records.writers import atomic_file, json_line

    if skip_bad_rows is None:
        yield replace(reading, on_fault=BadRows(reading.on_fault))
        return
    _require_bad_rows(skip_bad_rows)
    too_many = None
    with atomic_file(skip_bad_rows) as path, path.open("wb") as file:

        def write(fault: Fault) -> None:
            file.write(json_line(fault.as_row()))

        bad = BadRows(write)
        try:
            yield replace(reading, on_fault=bad, max_bad=max_bad)
        except BadRowsError as error:
            too_many = BadRowsError(f"{error}\nAll bad rows are in {skip_bad_rows}.")
    if too_many is not None:
        raise too_many
    note(f"Bad rows, written to {skip_bad_rows} and {bad_rows_are}: {bad}" if bad.count else "No bad rows.")


def _require_bad_rows(skip_bad_rows: Path) -> None:
    """Raise if the file exists and does not have bad rows: users may pass the file of rows by mistake."""
    from qacal.records.writers import is_stream

    if is_stream(skip_bad_rows) or not skip_bad_rows.is_file():
        return
    with skip_bad_rows.open("rb") as file:
        start = file.read(len(_BAD_ROW))
    if start not in (b"", _BAD_ROW):
        raise InputError(
            f"{skip_bad_rows} exists and was not written by --skip-bad-rows, so it is not overwritten. Choose another "
            "name for the file of bad rows."
        )


@contextmanager
def printing() -> Iterator[None]:
    """Print in this block; a reader that closes the pipe (``| head``) does not change the exit code."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        close_output()
    except SystemExit as stop:  # rich raises it for a closed pipe
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        close_output()


def close_output() -> None:
    """Discard the remaining output, so that Python does not complain about the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)


def for_shell(text: str) -> str:
    """Return a message of the library without its hints for Python callers.

    >>> for_shell("Pass --percent (in Python: percent=True), or --skip-bad-rows FILE (in Python: on_fault=BadRows()).")
    'Pass --percent, or --skip-bad-rows FILE.'
    """
    return _IN_PYTHON.sub("", text)


def note(text: str) -> None:
    """Print a message to standard error, in place of a line of progress."""
    progress_line.clear()
    print(_wrapped(printable(for_shell(text)), _width(sys.stderr)), file=sys.stderr)


def show(text: str | TextTable, *, hang: int = 0) -> None:
    """Print text or a table as wide as the terminal; in a pipe as wide as COLUMNS says, or as needed.

    hang : how far the further lines of a paragraph are indented.
    """
    width = _width(sys.stdout)
    if isinstance(text, str):
        print(_wrapped(printable(text), width, hang))
        return
    from rich.console import Console

    Console(width=width or _PIPE).print(text, markup=False, highlight=False)


def _width(stream: TextIO) -> int | None:
    """Return the width for lines: COLUMNS, or that of the terminal; None in a pipe, where no line breaks."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _wrapped(text: str, width: int | None, hang: int = 0) -> str:
    """Return text with lines that break between words, except lines indented by four spaces: commands to paste."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if width is not None and (hang or not line.startswith("    ")):
            whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
            inset = " " * hang or ("    " if line.startswith(" ") else "")
            lines[at] = textwrap.fill(line, width, subsequent_indent=inset, **whole)
    return "\n".join(lines)


def show_table(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    show(TextTable(printable(title), [*map(printable, header)], [[*map(printable, row)] for row in rows]))


def json_text(value: Any) -> str:
    """Return a value as indented JSON."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str)
    return text if printable(text) == text else json.dumps(value, indent=2, allow_nan=False, default=str)


def run_summary(reading: Reading | None, began: float, output: str, written: int | None = None) -> dict[str, Any]:
    """Return the account of a run for --json.

    began : when it began, by `time.monotonic`.
    written : the number of rows in the output, if it has rows.
    """
    from qacal.records.reading import BadRows

    counts = None if reading is None else reading.on_fault
    rows, bad = (counts.rows, counts.count) if isinstance(counts, BadRows) else (None, 0)
    return _account(rows, written, bad, began, output)


def _account(rows: int | None, written: int | None, bad: int, began: float, output: str) -> dict[str, Any]:
    seconds = round(monotonic() - began, 3)
    return {"rows_read": rows, "rows_written": written, "bad_rows": bad, "seconds": seconds, "output": output}


def open_output(output: str, rows: File) -> AbstractContextManager[Writer]:
    """Return a writer in the format of the input; Parquet is not printed on a terminal."""
    from qacal.records.writers import descriptor_of, writing

    is_shown = descriptor_of(output) == 1 and sys.stdout.isatty()
    return writing(output, "jsonl" if is_shown and rows.format == "parquet" else rows.format, rows.separator())


def require_free_output(json: bool, output: str) -> None:
    """Raise if both --json and the rows would go to standard output."""
    from qacal.records.writers import descriptor_of

    if json and descriptor_of(output) == 1:
        raise typer.BadParameter(f"--json writes to standard output, and so would -o {output}; name a file with -o.")


def require_apart(*paths: str | Path | None) -> None:
    """Raise if a file is named twice; devices and pipes are allowed."""
    from qacal.records.writers import is_stream

    files = [Path(path).resolve() for path in paths if path is not None and not is_stream(path)]
    for path in files:
        if files.count(path) > 1:
            raise typer.BadParameter(f"{path} is named twice; input, output and bad rows need a file each.")


def require_folder(path: str) -> None:
    """Raise early if the folder of an output does not exist, or cannot be written to."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InputError(f"{path}: the folder {Path(path).parent} does not exist. Create it first.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: nothing can be written to the folder {folder}. Choose another one.")


def require_output_folder(path: str) -> None:
    """Raise early if a job has no folder to write to."""
    if path == "-" or os.path.isfile(path) or path.endswith((".parquet", ".pq")):
        job = "several files, a folder, a URL, and --engine daft or ray need a folder for their output"
        given = "" if path == "-" else f"-o is {path}; "
        raise typer.BadParameter(f"{given}{job}: -o FOLDER.")
    if "://" not in path:
        require_folder(path.rstrip("/"))


def require_writable(path: str, file: str = "-") -> None:
    """Raise early if an output for the rows of `file` cannot be written."""
    from qacal.records.writers import is_stream, output_format

    try:
        output_format(path, "jsonl")
    except InputError:  # what is wrong with the input may be why it is no job, whose output is a folder
        if file != "-" and not os.path.exists(file):
            raise InputError(f"{file} does not exist.") from None
        if os.path.isdir(path) or path.endswith("/"):
            reason = "is a folder; only rows of Parquet files go to one. Name a file with -o."
            raise InputError(f"{path} {reason}") from None
        raise
    if not is_stream(path):
        require_folder(path)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors about options into usage errors (exit code 2)."""
    try:
        yield
    except InputError as error:
        raise typer.BadParameter(for_shell(str(error))) from None


def seconds(since: datetime | None) -> float | None:
    """Return a time in UTC as seconds since 1970."""
    return None if since is None else since.replace(tzinfo=UTC).timestamp()


def require_one_source(file: str | None, store: str | None, *only_of_store: object) -> None:
    """Raise unless there is either a file or a store; `only_of_store` are options that go with a store."""
    if file is None and store is None:
        raise typer.BadParameter("there are no rows: name a file of rows, or the store of qacal serve (--store URL).")
    if file is not None and store is not None:
        raise typer.BadParameter(f"--store reads rows of the store of qacal serve; leave out it or {file}.")
    if store is None and any(value is not None for value in only_of_store):
        raise typer.BadParameter("--name and --since go with --store.")


def require_partition(name: str) -> None:
    """Raise a usage error if there is no such partition."""
    from qacal.partitions import as_partition

    with usage_errors():
        as_partition(name)
