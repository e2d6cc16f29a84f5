"""Secrets: keys, passwords and values of headers are masked in texts from a server before these are shown or stored.

Servers repeat a wrong key in their errors, whole or as its first and last characters. A reply is the text of the LLM:
only credentials are masked in it, and only where they are whole.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from qacal.errors import InputError

MASK = "***"
# Shorter values are not secrets ("none", "EMPTY"), and an answer may be the same word.
_SHORTEST_IN_REPLIES = 8
# Servers show a key by its first and last characters, at least four; twelve in a row are part of it in any word.
_SHORTEST_PART, _SURELY_A_PART = 4, 12
# A mask of the server is joined with ours.
_MASKS = re.compile(r"\*{3}(?:[*.•…]*\*{3})?\**")
# A text in JSON. One without an end goes to the end, so that the time is linear in the length.
_JSON_TEXT = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
# Names of headers and of query fields with credentials; `author` is not one.
_CREDENTIAL = re.compile(r"auth(?!or(?!i[sz]))|key|token|secret|password", re.I)
_SCHEME = re.compile(r"(?:bearer|basic|token|api-?key|key) +(\S+)", re.I)


class Masking:
    """Masks secrets.

    credentials : masked in replies and in errors.
    others : masked in errors only; they may be secrets, or words of an answer.

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
        """Return a reply, which is JSON, with credentials masked in its texts; everything else is unchanged."""
        # Most replies have none of them, unless one is spelled with escapes (\u0041).
        if not self._in_replies or ("\\u" not in text and not any(form in text for form in self._in_replies)):
            return text
        return _JSON_TEXT.sub(self._masked, text)

    def _masked(self, match: re.Match[str]) -> str:
        try:
            content = json.loads(match[0], strict=False)
        except ValueError:
            return match[0]
        masked = self._whole.sub(MASK, content)
        return match[0] if masked == content else json.dumps(masked)

    def error(self, text: str) -> str:
        """Return a server's error message, with secrets and their first and last characters masked."""
        for form in self._spelled:
            if len(form) >= _SHORTEST_PART:
                text = text.replace(form, MASK)
        for value in self._values:
            text = _without_start(_without_start(text, value)[::-1], value[::-1])[::-1]
        return _MASKS.sub(MASK, text)


def _without_start(text: str, secret: str) -> str:
    """Return the text with a mask for the first characters of a secret: a word of four, or any twelve of them."""
    if len(secret) < _SHORTEST_PART:
        return text
    parts, at = [], 0
    while (start := text.find(secret[:_SHORTEST_PART], at)) >= 0:
        end = start
        while end - start < len(secret) and text[end : end + 1] == secret[end - start]:
            end += 1
        is_part = end - start >= _SURELY_A_PART or not text[end : end + 1].isalnum()
        parts += [text[at:start], MASK if is_part else text[start:end]]
        at = end
    return "".join([*parts, text[at:]])


def _spelled(values: Iterable[str]) -> list[str]:
    """Return secrets as they are, in JSON and in a URL, the longest first: a part may be a secret itself."""
    forms: set[str] = set()
    for value in filter(None, values):
        in_json = json.dumps(value)[1:-1]
        forms |= {value, in_json, in_json.replace("/", "\\/"), quote(value, safe=""), unquote(value)}
    return sorted(forms, key=len, reverse=True)


# Secrets in a base URL and in headers


def checked_url(url: str) -> SplitResult:
    """Return the parts of a base URL, without the path of the chat API and without a fragment."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an open bracket, or a port beyond 65535
        is_valid = False
    if not is_valid or not url.isprintable() or " " in url:
        shown = re.sub(r"(//|^)[^/@]*@", r"\1***@", url).partition("?")[0]
        raise InputError(f"the base URL is {shown!r}; expected one such as http://127.0.0.1:8080/v1.")
    path = parts.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    return parts._replace(path=path, fragment="")


def without_secrets(url: SplitResult) -> str:
    """Return a URL without possible secrets: names and passwords before the host, and all after the path.

    >>> without_secrets(urlsplit("https://me:secret@example.org/v1?key=secret"))
    'https://example.org/v1'
    """
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="").geturl()


def credentials(url: SplitResult, headers: Mapping[str, str]) -> list[str]:
    """Return the password in a URL, as written and as sent, and the values of fields named like a credential.

    >>> url = urlsplit("https://me:hidden@example.org/v1?api-version=1&key=secret")
    >>> credentials(url, {"Authorization": "Bearer mine"})
    ['hidden', 'bWU6aGlkZGVu', 'mine', 'secret']
    >>> credentials(urlsplit("https://example.org/v1"), {"Ocp-Apim-Subscription-Key": "mine", "X-Author": "me"})
    ['mine']
    """
    name, password = url.username or "", url.password or ""
    login = f"{unquote(name)}:{unquote(password)}".encode()
    sent = [password or name, b64encode(login).decode()] if name or password else []
    fields = [*headers.items(), *parse_qsl(url.query)]
    named = [value for field, value in fields if _CREDENTIAL.search(field)]
    return [*sent, *(match[1] if (match := _SCHEME.fullmatch(value)) else value for value in named)]


def possible_secrets(url: SplitResult, headers: Mapping[str, str]) -> list[str]:
    """Return possible secrets of any name: values of headers, whole and their last words, and values of the query.

    >>> possible_secrets(urlsplit("https://example.org/v1?api-version=1&sig=a"), {"X-Title": "my test"})
    ['my test', 'test', 'a']
    """
    values = [*headers.values()]
    query = [value for field, value in parse_qsl(url.query) if field != "api-version"]
    return [*values, *(value.rpartition(" ")[2] for value in values), *query]
