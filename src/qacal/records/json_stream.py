"""JSON documents read as a stream: only the current row of a list is in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from qacal.errors import EncodingError, InputError
from qacal.records.file_options import NOT_UTF8, largest_row, too_large

_CHUNK = 2**16
# Largest total size of the header: the values beside the rows.
_LARGEST_HEADER = 2**24
_STRUCTURE = re.compile(r'["\[\]{}]')
_TOO_LARGE = object()
_IN_TEXT = re.compile(r'["\\]')
_SPACE = " \t\r\n"
_ENDS = frozenset(_SPACE + ",]}:")


class JsonDocument:
    """A JSON document read as a stream.

    header : the members of the top object beside the items, as far as they were read; large ones are left out.

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
        self._passed = 0
        self._room = _LARGEST_HEADER
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
        except UnicodeDecodeError:
            raise EncodingError(f"{self._name} is not UTF-8 text; {NOT_UTF8}") from None
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
                self._keep(name, opening, header)
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
        value = self._up_to(largest_row())
        if value is _TOO_LARGE:
            raise ValueError(too_large("an item is broken, or"))
        return value

    def _up_to(self, most: int) -> Any:
        """Return the next value; if it is longer than `most`, consume nothing and return _TOO_LARGE."""
        self._next()
        while True:
            size = len(self._text) - self._at
            try:
                value, end = self._scan(self._text, self._at)
            except ValueError:
                value, end = None, len(self._text)
                if self._is_read:
                    raise
            # A number may go on in the next chunk: 0. may be the start of 0.5.
            if self._is_read or self._text[end : end + 1] in _ENDS:
                if end - self._at > most:
                    return _TOO_LARGE
                self._at = end
                return value
            if size > most:
                return _TOO_LARGE
            self._more(min(max(_CHUNK, size), most + 1 - size))

    def _keep(self, name: Any, opening: str, header: dict[str, Any]) -> None:
        """Add a member to the header if there is room; otherwise skip it."""
        if opening not in '"[{':
            header[name] = self._value()
            return
        before = self.position
        value = self._up_to(self._room)
        if value is _TOO_LARGE:
            self._skip()
        else:
            self._room -= self.position - before
            header[name] = value

    def _skip(self) -> None:
        """Skip text, a list or an object without building it."""
        depth, is_text = 0, False
        while True:
            sign = (_IN_TEXT if is_text else _STRUCTURE).search(self._text, self._at)
            self._at = len(self._text) if sign is None else sign.end()
            is_escape = sign is not None and sign[0] == "\\"
            needs_more = sign is None or (is_escape and self._at == len(self._text))
            if needs_more and not self._more(_CHUNK):
                raise ValueError("it ends within a value")
            if sign is None:
                continue
            if is_escape:
                self._at += 1
            elif sign[0] == '"':
                is_text = not is_text
            else:
                depth += 1 if sign[0] in "[{" else -1
            if depth == 0 and not is_text:
                return

    def _more(self, size: int) -> bool:
        raw = self._stream.read(size)
        self._is_read = not raw
        self._passed += self._at
        self._text = self._text[self._at :] + self._decode.decode(raw, final=not raw)
        self._at = 0
        return not self._is_read
