"""Secrets in texts from a server: keys, passwords and values of headers are masked before a text is shown or stored.

Servers repeat a wrong key in their errors, whole or as its first and last characters.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote, unquote

MASK = "***"
# Shorter values are no secrets ("none", "EMPTY"), and an answer may be the same word.
_SHORTEST_IN_REPLIES = 8
# Servers show a key by its first and last characters, four at least.
_SHORTEST_PART, _SURELY_A_PART = 4, 12
# What a server has masked by itself goes with it.
_RUN = re.compile(r"\*{3}(?:[*.•…]*\*{3})?\**")


class Masking:
    """Masks secrets.

    >>> Masking(["sk-abcd1234wxyz"]).error("Incorrect API key provided: sk-abcd1234wxyz.")
    'Incorrect API key provided: ***.'
    >>> Masking(["sk-abcd1234wxyz"]).error("Incorrect API key provided: sk-ab******wxyz.")
    'Incorrect API key provided: ***.'
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted({value for value in values if value}, key=len, reverse=True)
        spelled = {form: value for value in self._values for form in _forms(value)}
        # The longest first: a part of it may be a secret of its own.
        self._spelled = sorted(spelled, key=len, reverse=True)

    def reply(self, text: str) -> str:
        """Return a reply with secrets masked where they are whole; all else is what the LLM said."""
        for form in self._spelled:
            if len(form) >= _SHORTEST_IN_REPLIES:
                text = text.replace(form, MASK)
        return text

    def error(self, text: str) -> str:
        """Return what a server says went wrong, with secrets and their first and last characters masked."""
        for form in self._spelled:
            if len(form) >= _SHORTEST_PART:
                text = text.replace(form, MASK)
        for value in self._values:
            text = _without_start(_without_start(text, value)[::-1], value[::-1])[::-1]
        return _RUN.sub(MASK, text)


def _without_start(text: str, secret: str) -> str:
    """Return the text with a mask for the first characters of a secret: a word of four, or any twelve of them."""
    start, parts, at = secret[:_SHORTEST_PART], [], 0
    while len(start) == _SHORTEST_PART and (found := text.find(start, at)) >= 0:
        end = found
        while end - found < len(secret) and text[end : end + 1] == secret[end - found]:
            end += 1
        is_part = end - found >= _SURELY_A_PART or not text[end : end + 1].isalnum()
        parts += [text[at:found], MASK if is_part else text[found:end]]
        at = end
    return "".join([*parts, text[at:]])


def _forms(value: str) -> set[str]:
    """Return the ways in which a secret is written: as it is, in JSON, in a URL, and for basic authentication."""
    in_json = json.dumps(value)[1:-1]
    return {value, in_json, in_json.replace("/", "\\/"), quote(value, safe=""), unquote(value)}


def basic_credentials(name: str, password: str) -> str:
    """Return how a name and a password in a URL are sent.

    >>> basic_credentials("me", "secret")
    'bWU6c2VjcmV0'
    """
    return b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
