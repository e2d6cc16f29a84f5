"""The client: one request to an OpenAI-compatible server, tried again when the server is busy or away.

When one request is told to wait, all wait: a server that is busy for one is busy for the others too.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from qacal.elicitation.masking import Masking, basic_credentials
from qacal.elicitation.replies import Reply
from qacal.elicitation.requests import Request
from qacal.errors import InputError

# The server is busy, or away for a moment; asking again is what these ask for.
_AGAIN = {408, 409, 425, 429}
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
# A server may ask for hours; a person should rather come back.
_LONGEST_ASKED = 600.0


@dataclass(frozen=True)
class Got:
    """A reply: the body as it came, and the seconds of the request that brought it."""

    body: str
    reply: Reply
    seconds: float


@dataclass(frozen=True)
class Failed:
    """No reply.

    why : in a sentence.
    status : of the last response; None if there was none, since the server could not be reached or took too long.
    seconds : of the last request.
    """

    why: str
    status: int | None
    seconds: float

    @property
    def is_refusal(self) -> bool:
        """Whether the server refuses this request, and would again."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _AGAIN


class Client:
    """Asks a server.

    base_url : where its API begins, such as ``http://127.0.0.1:8080/v1``; `shown_url` is that without a password.
    key : sent with every request, and never stored; where the server repeats it, it is masked.
    timeout : seconds until a request is given up.
    tries : how often it is made before it counts as failed.
    """

    def __init__(self, base_url: str, *, key: str | None = None, timeout: float = 120.0, tries: int = 6) -> None:
        self.base_url = _checked_url(base_url)
        self.shown_url = _without_secrets(self.base_url)
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InputError("the key has letters that cannot be sent; expected plain ASCII, without a line break.")
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._masking = Masking([*([] if key is None else [key]), *_secrets(self.base_url)])
        self._timeout, self._tries = timeout, tries
        self._not_before = 0.0

    async def __aenter__(self) -> Self:
        httpx2 = _httpx2()
        # As many connections as there are workers: those decide how many requests there are at a time.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx2.AsyncClient(headers=self._headers, timeout=self._timeout, limits=limits)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    def listed_models(self) -> list[str] | None:
        """Return the names of the LLMs that the server lists; None if it lists none, or does not say."""
        httpx2 = _httpx2()
        try:
            found = httpx2.get(f"{self.base_url}/models", headers=self._headers, timeout=min(self._timeout, 10.0))
            body = json.loads(self._masking.reply(found.text)) if found.status_code == 200 else {"data": []}
            names = [model["id"] for model in body["data"]]
        except (httpx2.HTTPError, ValueError, LookupError, TypeError):
            return None
        return [name for name in names if isinstance(name, str)] or None

    async def ask(self, request: Request) -> Got | Failed:
        """Return the reply to a request, or why there is none."""
        for trial in range(self._tries):
            await self._pause()
            result, asked_for = await self._once(request)
            if isinstance(result, Got) or result.is_refusal:
                return result
            if trial + 1 < self._tries:
                self._hold(asked_for if asked_for is not None else _waiting(trial))
        return result

    async def _once(self, request: Request) -> tuple[Got | Failed, float | None]:
        httpx2, start = _httpx2(), monotonic()
        try:
            # The limit of httpx2 is for silence; a server that sends a byte a minute is within it.
            async with asyncio.timeout(self._timeout):
                response = await self._http.post(f"{self.base_url}/chat/completions", json=request)
        except (TimeoutError, httpx2.TimeoutException):
            return Failed(f"there was no reply within {self._timeout:g} s", None, monotonic() - start), None
        except httpx2.HTTPError as error:
            said = self._masking.error(str(error)) or type(error).__name__
            return Failed(f"the server cannot be reached: {said}", None, monotonic() - start), None
        seconds = monotonic() - start
        if response.status_code != 200:
            why = f"status {response.status_code}: {_shortened(self._masking.error(_said(response.text)))}"
            return Failed(why, response.status_code, seconds), _retry_after(response.headers.get("retry-after"))
        text = self._masking.reply(response.text)
        try:
            return Got(text, Reply.from_body(json.loads(text)), seconds), None
        except (InputError, ValueError) as error:
            said = self._masking.error(str(error))
            return Failed(f"the reply is no chat completion: {said}", response.status_code, seconds), None

    def _hold(self, seconds: float) -> None:
        self._not_before = max(self._not_before, monotonic() + seconds)

    async def _pause(self) -> None:
        while (left := self._not_before - monotonic()) > 0:
            # Not all at the same instant: that is what the server could not take.
            await asyncio.sleep(left + random.uniform(0.0, 0.1 * left))


def _waiting(trial: int) -> float:
    return float(min(_LONGEST_WAIT, _FIRST_WAIT * 2**trial))


def _retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for, given as such or as a date.

    >>> _retry_after("3"), _retry_after("soon")
    (3.0, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_ASKED) if seconds == seconds else None


def _said(text: str) -> str:
    """Return what the body of a response says went wrong."""
    try:
        body = json.loads(text)
    except ValueError:
        return text
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:299] + "…"


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an open bracket, or a port beyond 65535
        is_sound = False
    if not is_sound:
        shown = re.sub(r"(//|^)[^/@]*@", r"\1***@", url).partition("?")[0]
        raise InputError(f"the base URL is {shown!r}; expected one such as http://127.0.0.1:8080/v1.")
    return url.rstrip("/").removesuffix("/chat/completions")


def _without_secrets(url: str) -> str:
    """Return a URL without what may be a secret: names and passwords before the host, and what follows the path.

    >>> _without_secrets("https://me:secret@example.org/v1?key=secret")
    'https://example.org/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _secrets(url: str) -> list[str]:
    """Return what must not be shown of a URL: the password, as it stands and as it is sent, and values of the query.

    >>> _secrets("https://me:hidden@example.org/v1?api-version=1&key=secret")
    ['hidden', 'bWU6aGlkZGVu', 'secret']
    """
    parts = urlsplit(url)
    name, password = parts.username or "", parts.password or ""
    sent = [password or name, basic_credentials(name, password)] if name or password else []
    return [*sent, *(value for field, value in parse_qsl(parts.query) if field != "api-version")]


def _httpx2() -> Any:
    try:
        import httpx2
    except ImportError:
        raise InputError("asking a server needs the package httpx2: pip install 'qacal[elicit]' brings it.") from None
    return httpx2
