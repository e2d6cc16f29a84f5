"""JSON documents read as a stream: only the current row of a list is in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from qacal.errors import InputError
from qacal.records.file_options import largest_row, too_large

_CHUNK = 2**16
_SPACE = " \t\r\n\ufeff"  # the last is the byte order mark
_ENDS = frozenset(_SPACE + ",]}:")


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
