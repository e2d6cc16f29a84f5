"""Text of any file: opened with the options of a block of code (encoding, limits of size), and JSON read as a stream.

The command line imports this module for its options, so it needs nothing beside the standard library.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TextIO

from qacal.errors import EncodingError, InputError

# Rows have a few kilobytes. As objects in memory, 32 MB of JSON take up to 1 GB; a packed file may have them in 30 kB.
MAX_ROW_MB = 32
# Text packs to a tenth, logs with many repeats to a fiftieth; a file that unpacks to more was made for that.
_RATIO, _UNPACKED = 100, 2**28
_SAMPLE = 4096
_CHUNK = 2**16
_SPACE = " \t\r\n\ufeff"  # the last is the byte order mark
_ENDS = frozenset(_SPACE + ",]}:")

OTHER_ENCODING = 'Name it: qacal --encoding {0} COMMAND (in Python: with qacal.file_options(encoding="{0}"): ...).'
ESCAPED = re.compile("[\udc80-\udcff]")
"""What stands for a byte that cannot be decoded."""
NOT_UTF8 = "it may be Latin-1 or Windows-1252, as Excel writes. " + OTHER_ENCODING.format("cp1252")


@dataclass(frozen=True)
class FileOptions:
    """See :func:`file_options`."""

    encoding: str | None = None
    max_row_mb: float = MAX_ROW_MB
    max_unpacked_gb: float | None = None


_DEFAULT = FileOptions()
_current: ContextVar[FileOptions] = ContextVar("file_options", default=_DEFAULT)


def current_options() -> FileOptions:
    """Return the options of the innermost block."""
    return _current.get()


@contextmanager
def file_options(
    *, encoding: str | None = None, max_row_mb: float | None = None, max_unpacked_gb: float | None = None
) -> Iterator[None]:
    """Set how files are read within a block; None keeps the current value.

    encoding : of text files; UTF-8 by default.
    max_row_mb : the largest row, in megabytes; 32 by default.
    max_unpacked_gb : the largest unpacked gzip file, in gigabytes; 100 times its packed size by default.

    Examples
    --------
    >>> import qacal
    >>> with qacal.file_options(encoding="latin-1"):
    ...     model = qacal.QACalibrator().fit("answers.csv")  # doctest: +SKIP
    """
    try:
        "a".encode(encoding or "utf-8")  # refuses codecs that are not for text, such as hex
    except (LookupError, ValueError):
        raise InputError(
            f"there is no encoding {encoding!r} of text; expected a name such as latin-1, cp1252 or utf-16."
        ) from None
    options = {"encoding": encoding, "max_row_mb": max_row_mb, "max_unpacked_gb": max_unpacked_gb}
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    before = _current.set(replace(_current.get(), **changes))
    try:
        yield
    finally:
        _current.reset(before)


def largest_row() -> int:
    """Return the size limit of an unpacked row, in bytes."""
    return int(_current.get().max_row_mb * 2**20)


def too_large(what: str) -> str:
    """Return the message about a row or item above the size limit."""
    limit = f"{_current.get().max_row_mb:g} MB"
    return (
        f"{what} is larger than {limit}; if you trust the file, allow more: qacal --max-row-mb MB (in Python: "
        "with qacal.file_options(max_row_mb=MB): ...)"
    )


@contextmanager
def opened_text(path: Path, name: str | None = None, errors: str = "strict") -> Iterator[TextIO]:
    """Yield a text file to read, unpacked if it is packed with gzip; messages call it `name`.

    A byte order mark stays. With ``errors="surrogateescape"``, bytes of another encoding become :data:`ESCAPED`.
    """
    stream: io.BufferedReader = path.open("rb")
    if stream.peek(2)[:2] == b"\x1f\x8b":
        stream = io.BufferedReader(_Unpacked(stream, path.stat().st_size, name or str(path)))
    encoding = _current.get().encoding
    start = stream.peek(_SAMPLE)[:_SAMPLE]
    even, odd = start[::2].count(0), start[1::2].count(0)
    has_mark = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    # Text with two bytes a character has many zeros, most of them in every other place.
    if encoding is None and (has_mark or (len(start) >= 4 and max(even, odd) > len(start) / 4)):
        wide = "UTF-16" if has_mark else "UTF-16-BE" if even > odd else "UTF-16-LE"
        stream.close()
        raise EncodingError(f"{name or path} is {wide} text; expected UTF-8. {OTHER_ENCODING.format(wide.lower())}")
    with io.TextIOWrapper(stream, encoding or "utf-8", errors, newline="") as text:
        try:
            yield text
        except UnicodeError:
            raise EncodingError(f"{name or path} {encoding_problem()}") from None


def encoding_problem() -> str:
    """Return the message about text in another encoding than expected, after "the line" or the name of a file."""
    encoding = _current.get().encoding
    return f"is not UTF-8 text; {NOT_UTF8}" if encoding is None else f"cannot be read as {encoding}."


class _Unpacked(io.RawIOBase):
    """The content of a gzip file; raises if the file is damaged or unpacks to suspiciously much."""

    def __init__(self, packed: IO[bytes], size: int, name: str) -> None:
        self._name = name
        self._packed = packed
        self._file = gzip.GzipFile(fileobj=packed)
        self._size = size
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read1(len(buffer))
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{self._name} cannot be read beyond byte {self._count:,}, unpacked: {error}. Is the file whole?"
            ) from None
        self._count += len(data)
        allowed = _current.get().max_unpacked_gb
        if self._count > (max(_UNPACKED, _RATIO * self._size) if allowed is None else allowed * 2**30):
            raise InputError(
                f"{self._name} has {self._size:,} bytes and unpacks to more than {self._count - len(data):,}, like a "
                "file that was made to fill the memory. If you trust the file, unpack it first, or allow more: "
                "qacal --max-unpacked-gb GB (in Python: with qacal.file_options(max_unpacked_gb=GB): ...)."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()


class JsonDocument:
    """A JSON document read as a stream.

    header : the members of the top object beside the items, as far as they were read.

    >>> import io
    >>> log = JsonDocument(io.StringIO('{"eval": {"model": "m"}, "samples": [{"id": 1}, {"id": 2}]}'))
    >>> list(log.items("samples")), log.header
    ([{'id': 1}, {'id': 2}], {'eval': {'model': 'm'}})
    """

    def __init__(self, stream: TextIO, name: str = "the document") -> None:
        self._stream = stream
        self._name = name
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._is_read = False
        self._passed = 0
        self.header: dict[str, Any] = {}

    @property
    def position(self) -> int:
        """The number of characters read so far."""
        return self._passed + self._at

    def items(self, *inside: str) -> Iterator[Any]:
        """Yield the items of the list at a path of names, or of the document itself if it is a list."""
        try:
            if not self._next():
                raise ValueError("it is empty")
            yield from self._list() if self._next() == "[" else self._members(inside, self.header)
            if self._next():
                raise ValueError("there is more after its end; JSON lines have names that end in .jsonl")
        except UnicodeError:  # a ValueError; opened_text says what to do
            raise
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
            problem = f"there is {self._next()!r}" if self._next() else "it ends"
            raise ValueError(f"{problem} where {expected!r} should be")
        self._at += 1

    def _next(self) -> str:
        """Skip spaces and return the next character without consuming it; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or not self._more(_CHUNK):
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        while True:
            size = len(self._text) - self._at
            try:
                value, end = self._scan(self._text, self._at)
            except ValueError:
                value, end = None, len(self._text)
                if self._is_read:
                    raise
            # A number may go on in the next chunk: 0. may be the start of 0.5.
            is_whole = self._is_read or self._text[end : end + 1] in _ENDS
            if (end - self._at if is_whole else size) > largest_row():
                raise ValueError(too_large("an item is broken, or"))
            if is_whole:
                self._at = end
                return value
            self._more(min(max(_CHUNK, size), largest_row() + 1 - size))

    def _more(self, size: int) -> bool:
        read = self._stream.read(size)
        self._is_read = not read
        self._passed += self._at
        self._text = self._text[self._at :] + read
        self._at = 0
        return not self._is_read
