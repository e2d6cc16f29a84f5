"""The rows of a log, one by one, from JSON lines, a JSON document, CSV or Parquet of any length.

Only one row at a time is in memory: even the list in a JSON document is read item by item.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.file_options import largest_row, opened_text, too_large
from qacal.records.files import OnFault, open_file
from qacal.records.json_stream import JsonDocument
from qacal.records.table import Fault
from qacal.sources.importers.base import Outcome, UnusableRowError

TABLES = ("*.parquet", "*.csv", "*.csv.gz", "*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz")
# Raw rows are large, and not kept.
_BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class Item:
    """A row of a log, and its place in it."""

    origin: str
    place: str
    value: dict[str, Any]


def read_each(items: Iterator[Item], read: Callable[[Item], Outcome], on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the outcomes of the items; items that `read` cannot use go to `on_fault`."""
    for item in items:
        try:
            outcome = read(item)
        except UnusableRowError as error:
            on_fault(Fault(item.origin, item.place, str(error), item.value))
        except RecursionError:
            on_fault(Fault(item.origin, item.place, "its values are nested too deeply."))
        except InputError as error:
            raise InputError(f"{item.origin} {item.place}: {error}") from None
        else:
            yield outcome


def items_of(path: Path, on_fault: OnFault, *inside: str) -> Iterator[Item]:
    """Yield the rows of a file; those of a JSON document are the items of the list at `inside`, or of the top."""
    if not path.is_file():
        raise InputError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; expected a file.")
    if path.suffixes[-1:] == [".json"] or path.suffixes[-2:] == [".json", ".gz"]:
        with opened_text(path) as stream:
            yield from checked_items(path, JsonDocument(stream, str(path)).items(*inside), on_fault)
        return
    file = open_file(path)
    sizes = {} if file.format == "parquet" else {"batch_rows": _BATCH_ROWS}
    for table in file.batches(on_fault, **sizes):
        for place, row in zip(table.places.tolist(), table.rows(), strict=True):
            yield Item(str(path), f"{table.unit} {place}", row)


def first_item(path: Path, *inside: str) -> dict[str, Any]:
    """Return the first row of a file, to recognise its format; empty if there is none."""
    return next((item.value for item in items_of(path, lambda fault: None, *inside)), {})


def document(path: Path) -> Any:
    """Return a JSON document that is small enough for memory."""
    with opened_text(path) as stream:
        try:
            text = stream.read(largest_row() + 1)
            if len(text) <= largest_row():
                return json.loads(text.removeprefix("\ufeff"))
        except UnicodeError:  # a ValueError; opened_text says what to do
            raise
        except (ValueError, RecursionError, OSError, EOFError) as error:
            raise InputError(f"{path} cannot be read as JSON: {error}. Is the file whole?") from None
    raise InputError(too_large(str(path)) + ".")


def files_in(paths: Sequence[Path], *patterns: str) -> list[Path]:
    """Return the files among the paths, and of folders the files that match a pattern, sorted by name."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist.")
        inner = sorted({file for pattern in patterns for file in path.rglob(pattern)}) if path.is_dir() else [path]
        if not inner:
            raise InputError(f"{path} holds no file like {' or '.join(patterns)}.")
        files.extend(inner)
    return files


def checked_items(path: Path, values: Iterator[Any], on_fault: OnFault) -> Iterator[Item]:
    """Yield the objects among the items of a document; others go to `on_fault`."""
    for number, value in enumerate(values, 1):
        if isinstance(value, dict):
            yield Item(str(path), f"item {number}", value)
        else:
            on_fault(Fault(str(path), f"item {number}", f"it is {type(value).__name__}, not an object.", value))
