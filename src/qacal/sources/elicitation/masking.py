"""Secrets in texts from a server: keys, passwords and values of headers are masked before a text is shown or stored.

Servers repeat a wrong key in their errors, whole or as its first and last characters. A reply is what the LLM said:
only credentials are masked in it, and only where they are whole.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote, unquote

MASK = "***"
# Shorter values are not secrets ("none", "EMPTY"), and an answer may be the same word.
_SHORTEST_IN_REPLIES = 8
# Servers show a key by its first and last characters, four at least.
_SHORTEST_PART, _SURELY_A_PART = 4, 12
# A mask of the server is joined with ours.
_RUN = re.compile(r"\*{3}(?:[*.•…]*\*{3})?\**")
# A text in JSON. One without an end goes to the end, so that the time is linear in the length.
_JSON_TEXT = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)


class Masking:
    """Masks secrets.

    credentials : masked in replies and in errors.
    others : masked in errors only; they may be secrets, or words of an answer.

    >>> Masking(["sk-abcd1234wxyz"]).error("Incorrect API key provided: sk-abcd1234wxyz.")
    'Incorrect API key provided: ***.'
    >>> Masking(["sk-abcd1234wxyz"]).error("Incorrect API key provided: sk-ab******wxyz.")
    'Incorrect API key provided: ***.'
    >>> Masking(["12345678"]).reply('{"created": 12345678, "content": "not 1712345678 but 12345678"}')
    '{"created": 12345678, "content": "not 1712345678 but ***"}'
    """

    def __init__(self, credentials: Iterable[str], others: Iterable[str] = ()) -> None:
        credentials = [*credentials]
        self._values = sorted({value for value in (*credentials, *others) if value}, key=len, reverse=True)
        self._spelled = _spelled(self._values)
        self._in_replies = [form for form in _spelled(credentials) if len(form) >= _SHORTEST_IN_REPLIES]
        any_of_them = "|".join(map(re.escape, self._in_replies))
        self._whole = re.compile(f"(?<![0-9A-Za-z])(?:{any_of_them})(?![0-9A-Za-z])")

    def reply(self, text: str) -> str:
        """Return a reply, which is JSON, with credentials masked in its texts; all else stays as it came."""
        # Most replies have none of them, unless one is spelled with escapes (\u0041).
        if not self._in_replies or ("\\u" not in text and not any(form in text for form in self._in_replies)):
            return text
        return _JSON_TEXT.sub(self._masked, text)

    def _masked(self, found: re.Match[str]) -> str:
        try:
            said = json.loads(found[0], strict=False)
        except ValueError:
            return found[0]
        masked = self._whole.sub(MASK, said)
        return found[0] if masked == said else json.dumps(masked)

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


def _spelled(values: Iterable[str]) -> list[str]:
    """Return secrets as they are, in JSON and in a URL, the longest first: a part may be a secret itself."""
    forms: set[str] = set()
    for value in filter(None, values):
        in_json = json.dumps(value)[1:-1]
        forms |= {value, in_json, in_json.replace("/", "\\/"), quote(value, safe=""), unquote(value)}
    return sorted(forms, key=len, reverse=True)


def basic_credentials(name: str, password: str) -> str:
    """Return how a name and a password in a URL are sent.

    >>> basic_credentials("me", "secret")
    'bWU6c2VjcmV0'
    """
    return b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
