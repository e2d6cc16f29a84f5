"""JSON documents that are walked from front to back: of a list of a million rows, the one at hand is in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

from qacal.errors import InputError

# Rows have a few kilobytes; of anything this big the file is broken, or made to fill the memory.
LARGEST_ITEM = 2**28
_CHUNK = 2**16
_SPACE = " \t\r\n"
_ENDS = frozenset(_SPACE + ",]}:")


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
            if not self._next():
                raise ValueError("it is empty")
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
            found = f"there is {self._next()!r}" if self._next() else "it ends"
            raise ValueError(f"{found} where {expected!r} should be")
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
