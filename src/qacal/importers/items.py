"""The rows of a log, one after the other: of JSON lines, a JSON document, CSV or Parquet, however long it is.

Nothing is held but the row at hand. A JSON document is not loaded either: the list in it is walked item by item.
"""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from qacal.errors import InputError
from qacal.files import OnFault, open_file
from qacal.importers.base import Outcome, UnusableRowError
from qacal.tables import Fault

# Logs have rows of a few kilobytes; of anything this big the file is broken, or made to fill the memory.
LARGEST_ITEM = 2**28
TABLES = ("*.parquet", "*.csv", "*.csv.gz", "*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz")
_CHUNK = 2**16
# Raw rows are large, and are let go at once.
_BATCH_ROWS = 256
_SPACE = " \t\r\n"
_ENDS = frozenset(_SPACE + ",]}:")


@dataclass(frozen=True, slots=True)
class Item:
    """A row of a log, and its place in it."""

    origin: str
    place: str
    value: dict[str, Any]


def read_each(items: Iterator[Item], read: Callable[[Item], Outcome], on_fault: OnFault) -> Iterator[Outcome]:
    """Yield what `read` makes of the items; those that it cannot use go to `on_fault`."""
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
    if _is_document(path):
        with opened(path) as stream:
            yield from checked_items(path, JsonDocument(stream, str(path)).items(*inside), on_fault)
        return
    file = open_file(path)
    sizes = {} if file.format == "parquet" else {"batch_rows": _BATCH_ROWS}
    for table in file.batches(on_fault, **sizes):
        for place, row in zip(table.places.tolist(), table.rows(), strict=True):
            yield Item(str(path), f"{table.unit} {place}", row)


def first_item(path: Path, *inside: str) -> dict[str, Any]:
    """Return the first row of a file, or nothing, to tell what kind of file it is."""
    return next((item.value for item in items_of(path, lambda fault: None, *inside)), {})


def document(path: Path) -> Any:
    """Return a JSON document that is small enough to be held."""
    with opened(path) as stream:
        try:
            return json.loads(stream.read(LARGEST_ITEM))
        except (ValueError, RecursionError, OSError, EOFError) as error:
            raise InputError(f"{path} cannot be read as JSON: {error}. Is the file whole?") from None


def files_in(paths: Sequence[Path], *patterns: str) -> list[Path]:
    """Return files, and those in folders whose names match, in the order of their names."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist.")
        inner = sorted({file for pattern in patterns for file in path.rglob(pattern)}) if path.is_dir() else [path]
        if not inner:
            raise InputError(f"{path} holds no file like {' or '.join(patterns)}.")
        found.extend(inner)
    return found


def _is_document(path: Path) -> bool:
    if path.suffixes[-1:] == [".json"] or path.suffixes[-2:] == [".json", ".gz"]:
        return True
    # Old harnesses wrote one list into files that are called JSON lines.
    with opened(path) as stream:
        return stream.read(64).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def opened(path: Path) -> IO[bytes]:
    """Return a file to read, unpacked if it is packed with gzip."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_packed else path.open("rb")  # type: ignore[return-value]


def checked_items(path: Path, values: Iterator[Any], on_fault: OnFault) -> Iterator[Item]:
    """Yield the objects among the items of a document; others go to `on_fault`."""
    for number, value in enumerate(values, 1):
        if isinstance(value, dict):
            yield Item(str(path), f"item {number}", value)
        else:
            on_fault(Fault(str(path), f"item {number}", f"it is {type(value).__name__}, not an object.", value))


class JsonDocument:
    """A JSON document that is read from front to back.

    header : the members of its top object that were passed on the way to the items.

    >>> import io
    >>> log = JsonDocument(io.BytesIO(b'{"eval": {"model": "m"}, "samples": [{"id": 1}, {"id": 2}]}'))
    >>> list(log.items("samples")), log.header
    ([{'id': 1}, {'id': 2}], {'eval': {'model': 'm'}})
    """

    def __init__(self, stream: IO[bytes], name: str = "the document") -> None:
        self._stream = stream
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._is_read = False
        self.header: dict[str, Any] = {}

    def items(self, *inside: str) -> Iterator[Any]:
        """Yield the items of the list at a path of names; a document that is a list itself is that list."""
        try:
            yield from self._list() if self._next() == "[" else self._members(inside, self.header)
            if self._next():
                raise ValueError("there is more after its end; JSON lines have names that end in .jsonl")
        except (ValueError, RecursionError, OSError, EOFError) as error:
            raise InputError(f"{self._name} cannot be read as JSON: {error}. Is the file whole?") from None

    def _members(self, inside: tuple[str, ...], header: dict[str, Any]) -> Iterator[Any]:
        self._take("{")
        while self._next() != "}":
            name = self._value()
            self._take(":")
            opening = self._next()
            if inside and name == inside[0] and opening in "[{":
                yield from self._list() if opening == "[" else self._members(inside[1:], {})
            else:
                header[name] = self._value()
            self._comma("}")
        self._take("}")

    def _list(self) -> Iterator[Any]:
        self._take("[")
        while self._next() != "]":
            yield self._value()
            self._comma("]")
        self._take("]")

    def _comma(self, end: str) -> None:
        if self._next() != end:
            self._take(",")

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            raise ValueError(f"expected {expected} where {self._next() or 'it ends'} is")
        self._at += 1

    def _next(self) -> str:
        """Return the character that comes next, spaces left out; nothing at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or not self._more(_CHUNK):
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except ValueError:
                value, end = None, len(self._text)
                if self._is_read:
                    raise
            if self._is_read or self._text[end : end + 1] in _ENDS:
                self._at = end
                return value
            # What was read so far may end within a number, as 0. does of 0.5, and then seems to be a shorter one.
            if len(self._text) - self._at > LARGEST_ITEM:
                raise ValueError(f"an item is broken, or larger than {LARGEST_ITEM >> 20} MB")
            self._more(max(_CHUNK, len(self._text) - self._at))

    def _more(self, size: int) -> bool:
        raw = self._stream.read(size)
        self._is_read = not raw
        self._text = self._text[self._at :] + self._decode.decode(raw, final=not raw)
        self._at = 0
        return not self._is_read
