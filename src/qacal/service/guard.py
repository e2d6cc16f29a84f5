"""The guard before the routes: key, limits, and the numbers and log lines of every request."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any, TypeAlias

from qacal.service.settings import LOCAL, Settings
from qacal.service.telemetry import Telemetry, parented

_log = logging.getLogger("qacal.service")

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = ("/healthz", "/readyz")
"""Routes that need no key and are answered however much is going on: they are for the machinery around the service."""


UPSTREAM = ("/v1/chat/completions", "/v1/models", "/v1/decisions", "/beta/litellm_basic_guardrail_api", "/ask")
"""Routes that wait for the upstream: their limit on the time is that of the upstream, and some more."""

PAGES = ("/", "/ask", "/login", "/logout")
"""Routes of the page, which asks for the key itself: in a form, since browsers do not send it in a header.

Links of other sites may lead to it; it refuses their forms itself.
"""


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NOT_JSON = "send the request as JSON: Content-Type: application/json."


class RefusedError(Exception):
    """A request that is not answered.

    code : a word for programs.
    message : what is wrong and what to do, for people.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    def content(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}


class CallerLeftError(Exception):
    """The caller went away, maybe in the middle of a stream. There is no reply, since nobody waits for one."""


class Guard:
    """Refuses requests without the key, too large, too slow or too many, and counts all of them."""

    def __init__(self, app: App, settings: Settings, telemetry: Telemetry) -> None:
        self._app, self._settings, self._telemetry = app, settings, telemetry
        self._hosts = {*LOCAL, settings.host.lower()}
        self._in_work = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        is_counted = scope["path"] not in OPEN
        self._in_work += is_counted
        try:
            await self._answer(scope, receive, sent)
        except RefusedError as refused:
            await _refuse(refused, sent)
        except CallerLeftError:
            status = 499
        finally:
            self._in_work -= is_counted
            # The route, and never the path or the text of a request, which may say anything.
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - began
            self._telemetry.requests.labels(route, str(status)).inc()
            self._telemetry.duration.labels(route).observe(seconds)
            if self._settings.log_requests:
                method = scope["method"] if scope["method"] in _METHODS else "other"
                _log.info("%s %s %d %.1f ms", method, route, status, 1000 * seconds)
        return None

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if scope["path"] in OPEN:
            return await self._app(scope, receive, send)
        if scope["path"] not in PAGES:
            _require_own_origin(headers)
        self._require_key(scope["path"], headers)
        if self._in_work > self._settings.max_requests:
            raise RefusedError(429, "too_many_requests", "too many requests are in work; try again in a second.")
        body = await self._body(headers, receive)
        is_read = False

        async def received() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        is_begun = is_streaming = False

        async def begun(message: Message) -> None:
            nonlocal is_begun, is_streaming
            is_begun = True
            if message["type"] == "http.response.start":
                is_streaming = (b"content-type", b"text/event-stream") in message["headers"]
            elif not message.get("more_body", False):
                is_streaming = False
            if is_streaming and not clock.expired():  # a long stream is no slow one
                clock.reschedule(asyncio.get_running_loop().time() + limit)
            await send(message)

        limit = self._settings.max_seconds
        if scope["path"] in UPSTREAM:
            limit = 2 * limit + self._settings.upstream_seconds
        try:
            with parented(headers):
                async with asyncio.timeout(limit) as clock:
                    await self._app(scope, received, begun)
        except TimeoutError:
            if is_streaming:
                slow = RefusedError(504, "too_slow", f"there was nothing to send for {limit:g} seconds.")
                event = f"data: {json.dumps(slow.content())}\n\n".encode()
                return await send({"type": "http.response.body", "body": event, "more_body": False})
            if is_begun:
                raise
            raise RefusedError(503, "too_slow", f"no answer within {limit:g} seconds; send fewer records.") from None
        return None

    def _require_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        """Refuse requests without the key; without a key, requests that a page of the web sent here by a trick."""
        key = self._settings.api_key
        if key is not None:
            sent = headers.get(b"authorization", b"")
            if path not in PAGES and not is_key(sent, key):
                problem = "this is not the API key of this service; send" if sent else "send the API key:"
                raise RefusedError(401, "unauthorized", f"{problem} Authorization: Bearer KEY.")
        elif not self._settings.insecure:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
            if name not in self._hosts:
                raise RefusedError(421, "wrong_host", "without an API key, this service answers to local names only.")

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Return the body, if it is small enough and comes soon enough."""
        most = self._settings.max_body
        too_large = RefusedError(413, "too_large", f"the request is larger than {most:,} bytes; send fewer records.")
        stated = headers.get(b"content-length", b"")
        if stated.isdigit() and int(stated[:20]) > most:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._settings.max_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise CallerLeftError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(408, "too_slow", "the request did not arrive in time; send it again.") from None


def _require_own_origin(headers: dict[bytes, bytes]) -> None:
    """Refuse what a page of another site makes a browser send: it would act with the rights of whoever looks at it."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    is_foreign = origin is not None and origin.lower().partition(b"://")[2] != host.lower()
    if is_foreign or headers.get(b"sec-fetch-site") == b"cross-site":
        raise RefusedError(
            403, "other_origin", "requests of other sites in a browser are refused; send it from a program."
        )


def is_key(header: bytes, key: str) -> bool:
    """Return whether a header Authorization has the key."""
    kind, _, given = header.partition(b" ")
    # Digests have one length, so the time to compare them says nothing about the key.
    return kind.lower() == b"bearer" and hmac.compare_digest(_digest(given.strip()), _digest(key.encode()))


async def _refuse(refused: RefusedError, send: Send) -> None:
    body = json.dumps(refused.content()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _digest(value: bytes) -> bytes:
    return sha256(value).digest()
