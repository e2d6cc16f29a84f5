"""The upstream: the one LLM server that this service passes requests on to.

The operator names it (`--upstream`); nothing in a request chooses it. Its key comes from the environment. Without one,
the caller's own credentials are passed on, unless callers send the key of this service in their place. What the
upstream says about a request (a status from 400) goes back to the caller as it is, without the operator's key in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from qacal import __version__
from qacal.errors import InputError
from qacal.service.guard import CallerLeftError, RefusedError
from qacal.service.settings import Settings
from qacal.sources.elicitation.masking import Masking, checked_url, credentials, without_secrets

_log = logging.getLogger("qacal.service")

# In bytes, decompressed. The longest replies, with 20 alternatives for each of 16,000 tokens, have half of it.
_LARGEST = 2**26
_LARGEST_EVENT = 2**24
_SECONDS_TO_CONNECT = 10.0
# Shorter than servers keep a connection (uvicorn and llama.cpp: 5 s), so that none is used while it is being closed.
_KEPT_SECONDS = 3.0
_CREDENTIALS = ("authorization", "api-key", "openai-organization", "openai-project")
_RETURNED = ("retry-after", "retry-after-ms", "x-request-id")
_RETURNED_BEGINNINGS = ("x-ratelimit-", "openai-")

Result = TypeVar("Result")


class UpstreamError(Exception):
    """The upstream refuses a request, or fails: its status, body and headers, for the caller."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(f"the upstream answered with status {status}.")
        self.status_code, self.body, self.headers = status, body, headers

    def response(self) -> Response:
        return Response(self.body, self.status_code, headers={**self.headers})


@dataclass(frozen=True)
class Answered:
    """What the upstream answered: JSON, and the headers that callers may see."""

    body: Any
    headers: Mapping[str, str]


class Upstream:
    """A client of the upstream, for all requests of a service. It raises :class:`UpstreamError` or RefusedError."""

    def __init__(self, settings: Settings) -> None:
        if settings.upstream is None:
            raise InputError("there is no upstream; expected the address of an LLM server.")
        self._base = checked_url(settings.upstream)
        self.shown = without_secrets(self._base)
        key = settings.upstream_key
        if key is not None and self._base.username is not None:
            raise InputError(
                "the URL of the upstream has credentials, and QACAL_UPSTREAM_KEY is set, too; only one can be sent. "
                "Remove one of them."
            )
        self._own = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._passes_credentials = key is None and settings.api_key is None
        self._masking = Masking([key or "", *credentials(self._base, {})])
        self._seconds = settings.upstream_seconds
        self._http = httpx2.AsyncClient(
            headers={"User-Agent": f"qacal/{__version__}", **self._own},
            timeout=httpx2.Timeout(self._seconds, connect=min(_SECONDS_TO_CONNECT, self._seconds)),
            limits=httpx2.Limits(max_connections=settings.max_requests, keepalive_expiry=_KEPT_SECONDS),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, caller: Mapping[str, str]) -> Answered:
        """Return what the upstream answers to a GET; `path` begins after the base URL, such as ``/models``."""
        return await self._answered("GET", path, None, caller, self._seconds)

    async def post(
        self, path: str, body: Mapping[str, Any], caller: Mapping[str, str], seconds: float | None = None
    ) -> Answered:
        """Return what the upstream answers to a POST.

        caller : the headers of the request that is passed on.
        seconds : a shorter limit on the time than that of the settings.
        """
        return await self._answered("POST", path, body, caller, min(seconds or self._seconds, self._seconds))

    @asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, Any], caller: Mapping[str, str]
    ) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[str]]]:
        """Open a stream; give the headers for the caller, and the data of each event in turn."""
        with self._reported():
            async with self._http.stream("POST", self._address(path), **self._sent(body, caller)) as response:
                if response.status_code != 200:
                    await self._require_success(response, await _whole(response))
                if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                    raise RefusedError(502, "upstream_garbage", "the upstream was asked for a stream and sent none.")
                yield _returned(response), self._events(response)

    async def _events(self, response: httpx2.Response) -> AsyncIterator[str]:
        with self._reported():
            async for event in httpx2.EventSource(response, _LARGEST_EVENT):
                if event.data:
                    yield event.data

    async def _answered(
        self, method: str, path: str, body: Mapping[str, Any] | None, caller: Mapping[str, str], seconds: float
    ) -> Answered:
        with self._reported():
            # The limit of httpx2 is for silence; a server that sends a byte a minute is within it.
            async with (
                asyncio.timeout(seconds),
                self._http.stream(method, self._address(path), **self._sent(body, caller)) as response,
            ):
                raw = await _whole(response)
        await self._require_success(response, raw)
        try:
            return Answered(json.loads(raw, parse_constant=lambda name: None), _returned(response))
        except (ValueError, RecursionError):
            raise RefusedError(502, "upstream_garbage", "the upstream's answer is not JSON.") from None

    async def _require_success(self, response: httpx2.Response, raw: bytes) -> None:
        status = response.status_code
        if status >= 400:
            said = raw.decode("utf-8", "replace")
            # Never as a page: a browser would run what the upstream, or a caller whose words it repeats, wrote into it.
            is_json = "json" in response.headers.get("content-type", "").partition(";")[0].lower()
            kind = "application/json" if is_json else "text/plain; charset=utf-8"
            headers = {"content-type": kind, "x-content-type-options": "nosniff", **_returned(response)}
            raise UpstreamError(status, self._masking.error(said).encode(), headers)
        if status != 200:  # a redirection is not followed: it could lead the key to another server
            raise RefusedError(502, "upstream_garbage", f"the upstream answered with status {status}.")

    def _sent(self, body: Mapping[str, Any] | None, caller: Mapping[str, str]) -> dict[str, Any]:
        names = [name for name in _CREDENTIALS if name in caller] if self._passes_credentials else []
        passed: dict[str, Any] = {name: caller[name].encode("latin-1") for name in names}
        if body is None:
            return {"headers": passed}
        try:
            content = json.dumps(body, allow_nan=False).encode()
        except ValueError:
            raise RefusedError(422, "invalid_request", "a number of the request is too large for JSON.") from None
        return {"headers": {**passed, "Content-Type": "application/json"}, "content": content}

    def _address(self, path: str) -> str:
        return self._base._replace(path=self._base.path + path).geturl()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise what goes wrong on the way to the upstream as an error for the caller, without the address."""
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException):
            raise RefusedError(504, "upstream_timeout", "the upstream did not answer in time.") from None
        except (httpx2.ConnectError, httpx2.InvalidURL) as error:
            why = error if isinstance(error, httpx2.ConnectError) else "it is no address"  # which may have a password
            _log.warning("the upstream %s cannot be reached: %s", self.shown, why)
            raise RefusedError(502, "upstream_unreachable", "the upstream cannot be reached.") from None
        except httpx2.SSEError:
            raise RefusedError(502, "upstream_garbage", "the upstream's stream cannot be read.") from None
        except httpx2.HTTPError:
            raise RefusedError(502, "upstream_failed", "the upstream broke off its answer.") from None


async def _whole(response: httpx2.Response) -> bytes:
    raw = bytearray()
    async for part in response.aiter_bytes():
        raw += part
        if len(raw) > _LARGEST:
            raise RefusedError(502, "upstream_garbage", f"the upstream's answer has more than {_LARGEST:,} bytes.")
    return bytes(raw)


def _returned(response: httpx2.Response) -> dict[str, str]:
    """Return the headers of the upstream that callers use: what to wait for, and by which name to ask about it."""
    return {
        name: value
        for name, value in response.headers.items()
        if name in _RETURNED or name.startswith(_RETURNED_BEGINNINGS)
    }


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of some work; cancel the work, and with it the upstream's, if the caller goes away first."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerLeftError
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
