"""The client: one request to an OpenAI-compatible server, repeated when the server is busy or away.

When one request has to wait, all wait: a server that is busy for one is busy for the others too.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Self
from urllib.parse import urljoin

from qacal.embedders.base import optional_package
from qacal.errors import InputError, printable
from qacal.parameters import is_whole
from qacal.sources.elicitation.masking import Masking, checked_url, credentials, possible_secrets, without_secrets
from qacal.sources.elicitation.reply import Reply, Request

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
# If connections fail for longer than this, and none was ever made, nothing listens at the address.
_LONGEST_AWAY = 2.0
# Some servers ask for hours: then the run fails, and the user comes back later.
_LONGEST_ASKED = 600.0
# In bytes, decompressed. The longest replies, with 20 alternatives for each of 16,000 tokens, have half of it.
_LARGEST_REPLY = 2**26
_LARGEST_LISTING = 2**22
_LONGEST_ERROR = 10_000
_NO_QUOTA = re.compile(r"insufficient_quota|insufficient_balance|billing_hard_limit|exceeded your current quota", re.I)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OUR_HEADERS = ("content-length", "content-type", "content-encoding", "transfer-encoding", "accept-encoding", "host")


class Trouble(StrEnum):
    """Why a request has no reply."""

    TIMEOUT = "no reply in time"
    UNREACHABLE = "not reached"
    BUSY = "told to wait"
    QUOTA = "no quota left"
    SERVER = "server errors"
    STRANGE = "no chat completion"
    NO_LOGPROBS = "no log-probabilities"
    REFUSED = "refused"


_GOES_ON = "All replies so far are stored: the same command continues from there."
_REMEDIES = {
    Trouble.TIMEOUT: f"Is the server running? --timeout gives it more time, fewer --workers less to do. {_GOES_ON}",
    Trouble.UNREACHABLE: f"Is the server running, and is the base URL right? {_GOES_ON}",
    Trouble.BUSY: f"The server gets too many requests: ask slower with --rpm 20, or fewer --workers. {_GOES_ON}",
    Trouble.QUOTA: f"The account has no quota or credit left, as the server counts it. {_GOES_ON}",
    Trouble.SERVER: f"Is the server running? The error is its own. {_GOES_ON}",
    Trouble.STRANGE: f"Is the base URL that of a chat API? Most end in /v1. {_GOES_ON}",
    Trouble.NO_LOGPROBS: "If the server has no token probabilities, pass --no-logprobs, and a prompt that needs none "
    "(--prompt verb1s-top1, not p-true).",
}


@dataclass(frozen=True)
class Got:
    """A reply: the body of the response, and the seconds that the request took."""

    body: str
    reply: Reply
    seconds: float


@dataclass(frozen=True)
class Failed:
    """No reply.

    why : the reason in a sentence.
    status : of the last response; None if there was none, because the server was not reached or took too long.
    seconds : of the last request.
    """

    why: str
    status: int | None
    seconds: float
    trouble: Trouble

    @property
    def is_refusal(self) -> bool:
        """Whether the server refuses this request, and would again."""
        return self.trouble in (Trouble.REFUSED, Trouble.NO_LOGPROBS, Trouble.QUOTA)

    @property
    def names_usual_field(self) -> bool:
        """Whether the server refuses a field that all requests have."""
        return self.trouble is Trouble.REFUSED and any(name in self.why for name in ("max_tokens", "temperature"))

    @property
    def remedy(self) -> str:
        if self.trouble in _REMEDIES:
            return _REMEDIES[self.trouble]
        if self.status in (401, 403):
            return "Is the key the right one? It is read from the environment (--key-env NAME), or sent with --header."
        if self.status == 404:
            return "Is the base URL the one that ends before /chat/completions, and does the server know this model?"
        if self.names_usual_field:
            return "If it is a reasoning LLM, pass --preset reasoning; --field temperature=null leaves a field out."
        return "Fields that a server does not take can be left out or changed: --field temperature=null."


@dataclass
class Traffic:
    """The number of requests, and of repeated ones by the trouble before."""

    requests: int = 0
    again: Counter[Trouble] = field(default_factory=Counter)


class Client:
    """Asks a server.

    base_url : where its API begins, such as ``http://127.0.0.1:8080/v1``; a query (``?api-version=...``) is kept.
    key : sent with every request, and never stored; if the server repeats it, it is masked.
    headers : sent with every request, and never stored. If the server repeats one in an error, it is masked; in a
        reply, only if its name is that of a credential (api-key, X-Token): others may be words of an answer.
    timeout : seconds until a request is given up.
    tries : how often a request is made before it counts as failed.
    rpm : the largest number of requests a minute.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        tries: int = 6,
        rpm: float | None = None,
    ) -> None:
        headers = headers or {}
        self._base = checked_url(base_url)
        self.shown_url = without_secrets(self._base)
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InputError("the key has letters that cannot be sent; expected plain ASCII, without a line break.")
        if not is_whole(tries, 1):
            raise InputError(f"tries is {tries!r}; expected a whole number from 1.")
        if rpm is not None and not rpm > 0:
            raise InputError(f"rpm is {rpm}; expected more than 0 requests a minute.")
        self._headers = _checked_headers(headers, key)
        secrets = [key or "", *credentials(self._base, headers)]
        self._masking = Masking(secrets, possible_secrets(self._base, headers))
        self._timeout, self._tries = timeout, tries
        self._between = 0.0 if rpm is None else 60.0 / rpm
        self._not_before = self._next_turn = 0.0
        self._was_reached, self._away_since = False, math.inf
        self._has_worked, self._strange = False, 0
        self.traffic = Traffic()

    async def __aenter__(self) -> Self:
        httpx2 = optional_package("httpx2", "elicit")
        # As many connections as there are workers: those decide how many requests there are at a time.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx2.AsyncClient(headers=self._headers, timeout=self._timeout, limits=limits)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    @property
    def is_strange(self) -> bool:
        """Whether the server sent two or more replies, and none was a chat completion."""
        return not self._has_worked and self._strange >= 2

    @property
    def is_nowhere(self) -> bool:
        """Whether nothing listens at the address; after a first contact, the client waits for the server instead."""
        return not self._was_reached and monotonic() - self._away_since > _LONGEST_AWAY

    def listed_models(self) -> list[str] | None:
        """Return the names of the LLMs that the server lists; None if it has no list."""
        httpx2, seconds = optional_package("httpx2", "elicit"), min(self._timeout, 10.0)
        end, raw = monotonic() + seconds, bytearray()
        try:
            with httpx2.stream("GET", self._address("/models"), headers=self._headers, timeout=seconds) as response:
                for part in response.iter_bytes() if response.status_code == 200 else ():
                    raw += part
                    if len(raw) > _LARGEST_LISTING or monotonic() > end:
                        return None
            names = [model["id"] for model in json.loads(self._masking.reply(_decoded(raw)))["data"]]
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, LookupError, TypeError, RecursionError):
            return None
        return [name for name in names if isinstance(name, str)] or None

    async def ask(self, request: Request, tell: Callable[[], None]) -> Got | Failed:
        """Return the reply to a request, or why there is none; `tell` is called before each repetition."""
        for trial in range(self._tries):
            await self._turn()
            self.traffic.requests += 1
            result, asked_for = await self._once(request)
            if isinstance(result, Got):
                self._has_worked = True
                return result
            self._strange += result.trouble is Trouble.STRANGE
            if result.is_refusal or self.is_strange or self.is_nowhere:
                return result
            if trial + 1 < self._tries:
                self.traffic.again[result.trouble] += 1
                tell()
                seconds = asked_for if asked_for is not None else min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**trial)
                self._not_before = max(self._not_before, monotonic() + seconds)
        return result

    async def _once(self, request: Request) -> tuple[Got | Failed, float | None]:
        httpx2, start = optional_package("httpx2", "elicit"), monotonic()

        def failed(trouble: Trouble, why: str, status: int | None = None) -> Failed:
            text = printable(" ".join(self._masking.error(why[:_LONGEST_ERROR]).split()))
            short = text if len(text) <= 300 else text[:299] + "…"
            return Failed(short, status, monotonic() - start, trouble)

        try:
            # The limit of httpx2 is for silence; a server that sends a byte a minute is within it.
            async with (
                asyncio.timeout(self._timeout),
                self._http.stream("POST", self._address("/chat/completions"), json=request) as response,
            ):
                self._was_reached = True
                status, raw = response.status_code, bytearray()
                async for part in response.aiter_bytes():
                    raw += part
                    if len(raw) > _LARGEST_REPLY:
                        why = (
                            f"the reply has more than {_LARGEST_REPLY / 2**20:,.4g} MB. If it is a chat completion, "
                            "ask for a shorter one (--field max_tokens=1000)"
                        )
                        return failed(Trouble.STRANGE, why, status), None
        except (TimeoutError, httpx2.TimeoutException):
            return failed(Trouble.TIMEOUT, f"there was no reply within {self._timeout:g} s"), None
        except httpx2.DecodingError as error:
            return failed(Trouble.STRANGE, f"the reply cannot be decompressed: {error}", response.status_code), None
        except httpx2.InvalidURL as error:
            raise InputError(f"{self.shown_url}: no request can be sent there: {error}.") from None
        except httpx2.HTTPError as error:
            if isinstance(error, httpx2.ConnectError):
                self._away_since = min(self._away_since, monotonic())
            why = f"the server cannot be reached: {str(error) or type(error).__name__}"
            return failed(Trouble.UNREACHABLE, why), None
        text = _decoded(raw)
        if 300 <= status < 400:
            target = urljoin(self._address("/chat/completions"), response.headers.get("location", "")).partition("?")[0]
            why = (
                f"status {status}: it redirects to {target}. If that is the LLM server, use that address as --base-url"
            )
            return failed(Trouble.STRANGE, why, status), None
        if status != 200:
            result = failed(_trouble(status, text, request), f"status {status}: {_error_message(text)}", status)
            return result, _retry_after(response.headers.get("retry-after"))
        text = self._masking.reply(text)
        try:
            return Got(text, Reply.from_text(text), monotonic() - start), None
        except InputError as error:
            kind = _other_kind(text, response.headers.get("content-type", "")) or str(error)
            return failed(Trouble.STRANGE, f"the reply is not a chat completion: {kind}", status), None

    def _address(self, path: str) -> str:
        return self._base._replace(path=self._base.path + path).geturl()

    async def _turn(self) -> None:
        """Wait until the server accepts requests again, and the rate allows one."""
        while (left := self._not_before - monotonic()) > 0:
            # Not all at the same instant: the server was too busy for that.
            await asyncio.sleep(left + random.uniform(0.0, 0.1 * left))
        if self._between:
            turn = max(self._next_turn, monotonic())
            self._next_turn = turn + self._between
            await asyncio.sleep(turn - monotonic())


def _checked_headers(headers: Mapping[str, str], key: str | None) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OUR_HEADERS:
            raise InputError(f"{name!r} is not a header that can be set; expected one such as api-key.")
        if not (value.isascii() and value.isprintable()):
            raise InputError(f"the header {name} has letters that cannot be sent; expected plain ASCII in one line.")
    needs_no_key = key is None or "authorization" in map(str.lower, headers)
    return dict(headers) if needs_no_key else {"Authorization": f"Bearer {key}", **headers}


def _decoded(raw: bytearray) -> str:
    return raw.decode("utf-8", "replace").removeprefix("\ufeff")


def _trouble(status: int, text: str, request: Request) -> Trouble:
    if request.get("logprobs") and "logprob" in text.lower():
        return Trouble.NO_LOGPROBS
    if status == 402 or (status == 429 and _NO_QUOTA.search(text)):
        return Trouble.QUOTA
    if status == 429:
        return Trouble.BUSY
    # The server is away for a moment with these three, so the request is made again.
    return Trouble.REFUSED if 400 <= status < 500 and status not in (408, 409, 425) else Trouble.SERVER


def _error_message(text: str) -> str:
    try:
        body = json.loads(text)
        error = body.get("error", body) if isinstance(body, dict) else body
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, RecursionError):
        return text


def _other_kind(text: str, content_type: str) -> str | None:
    """Describe a reply that is not JSON; None if its kind is not known."""
    begins = text.lstrip()[:80]
    if not begins:
        return "it is empty"
    if content_type.startswith("text/event-stream") or begins.startswith(("data:", "event:")):
        return f"it is an event stream, which was not asked for: {begins!r}"
    return f"it is a web page: {begins!r}" if begins.startswith("<") else None


def _retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None for anything else, such as a date.

    >>> _retry_after("3"), _retry_after("soon")
    (3.0, None)
    """
    match = re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value or "")
    return None if match is None else min(float(match[0]), _LONGEST_ASKED)
