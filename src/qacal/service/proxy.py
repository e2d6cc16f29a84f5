"""The proxy: chat completions of the upstream, each with the calibrated confidence of its answer.

A request goes to the upstream as it came, apart from the log-probabilities that a confidence needs, and its reply goes
back as it came, apart from the evidence in it. Requests with tools, images or several choices go through untouched.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qacal.errors import InputError
from qacal.service.answers import COMPLETIONS, Answers
from qacal.service.guard import NOT_JSON, RefusedError
from qacal.service.upstream import Upstream, unless_gone
from qacal.sources.completions import Asking, Gathered, Plan, annotated
from qacal.sources.completions import without_logprobs as hidden
from qacal.sources.elicitation.reply import Reply
from qacal.sources.elicitation.reply import Request as Asked

if TYPE_CHECKING:
    from qacal.service.app import Service

MODE, CONFIDENCE, ID = (f"x-qa-calibration-{name}" for name in ("mode", "confidence", "id"))
_MODES = ("annotate", "abstain")
_DONE = "[DONE]"
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


class Proxy:
    """Passes completions on, with the evidence of their answers."""

    def __init__(self, service: Service, upstream: Upstream) -> None:
        self._upstream, self._answers, self._asking = upstream, Answers(service), Asking()

    async def completion(self, request: dict[str, Any], caller: Mapping[str, str], *, abstains: bool) -> Response:
        """Return the reply to a request."""
        plan = self._answers.plan(request)
        if plan is None:
            answered = await self._upstream.post(COMPLETIONS, request, caller)
            return _json(answered.body, answered.headers)
        answered = await self._asking.completion(plan, lambda sent: self._upstream.post(COMPLETIONS, sent, caller))
        try:
            reply = Reply.from_body(answered.body)
        except InputError:
            raise RefusedError(502, "upstream_garbage", "the upstream's answer is not a chat completion.") from None
        evidence, content = await self._answers.found(
            plan, reply, caller, response_id=answered.body.get("id"), abstains=abstains
        )
        headers = dict(answered.headers)
        if evidence["calibrated"] is not None:
            headers[CONFIDENCE] = f"{evidence['calibrated']:.6g}"
        if "id" in evidence:
            headers[ID] = evidence["id"]
        return _json(annotated(answered.body, evidence, content, hides_logprobs=plan.adds_logprobs), headers)

    @asynccontextmanager
    async def stream(
        self, request: dict[str, Any], caller: Mapping[str, str], *, abstains: bool
    ) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[str]]]:
        """Open a stream; give the headers for the caller, and the data of each event in turn."""
        plan = self._answers.plan(request)
        async with AsyncExitStack() as stack:

            def send(sent: Asked) -> Awaitable[tuple[Mapping[str, str], AsyncIterator[str]]]:
                return stack.enter_async_context(self._upstream.stream(COMPLETIONS, sent, caller))

            headers, events = await (send(request) if plan is None else self._asking.completion(plan, send))
            yield headers, events if plan is None else self._events(plan, events, caller, abstains=abstains)

    async def _events(
        self, plan: Plan, events: AsyncIterator[str], caller: Mapping[str, str], *, abstains: bool
    ) -> AsyncIterator[str]:
        """Yield the events of a stream, with the evidence in the chunk that ends the answer.

        An answer that may be replaced is held back until that is decided.
        """
        gathered = Gathered()
        held: list[str] = []
        is_over, holds = False, abstains or plan.one_call
        async for data in events:
            chunk = None if data.strip() == _DONE else _chunk(data)
            shown = data if chunk is None or not plan.adds_logprobs else json.dumps(hidden(chunk))
            if is_over or (chunk is not None and chunk.get("error")):
                yield shown
                is_over = True
                continue
            if chunk is not None:
                gathered.add(chunk)
            if chunk is not None and gathered.finish is None:
                if holds:
                    held.append(shown)
                else:
                    yield shown
                continue
            if gathered.chunk is None:
                break
            evidence, content = await self._answers.found(
                plan, gathered.reply, caller, response_id=gathered.chunk.get("id"), abstains=abstains
            )
            for part in held if content is None else [json.dumps(gathered.text(content))]:
                yield part
            ending = gathered.ending(evidence, None if content is not None else chunk)
            yield json.dumps(hidden(ending) if plan.adds_logprobs else ending)
            if chunk is None:
                yield data
            is_over = True
        if not is_over:
            raise RefusedError(502, "upstream_failed", "the upstream broke off its answer.")


class _Streamed(Response):
    """A stream of events; it ends, with the upstream's work, when the caller goes away."""

    def __init__(self, proxy: Proxy, request: Request, asked: dict[str, Any], *, abstains: bool) -> None:
        super().__init__()
        self._proxy, self._request, self._asked, self._abstains = proxy, request, asked, abstains

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(data: str) -> None:
            lines = "".join(f"data: {line}\n" for line in data.split("\n"))
            await send({"type": "http.response.body", "body": f"{lines}\n".encode(), "more_body": True})

        async def work() -> None:
            opened = self._proxy.stream(self._asked, self._request.headers, abstains=self._abstains)
            async with opened as (headers, events):
                sent = {**_EVENTS, **headers}.items()
                raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent]
                await send({"type": "http.response.start", "status": 200, "headers": raw})
                try:
                    async for data in events:
                        await write(data)
                except RefusedError as error:  # the status is sent; clients raise for an event with an error
                    await write(json.dumps(error.content()))
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await unless_gone(self._request, work())


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of the proxy."""
    proxy = app.state.proxy = None if service.upstream is None else Proxy(service, service.upstream)

    @app.post("/v1/chat/completions", summary="Complete a chat", openapi_extra=_BODY, responses=_REPLY)
    async def completions(request: Request) -> Response:
        """Pass a request on to the upstream, and return its completion with `qa_calibration` in it.

        That is the evidence of /v1/calibrate with `raw_confidence`: at the top, in the choice and in the message; in a
        stream, in the chunk that ends the answer. `calibrated` is null, with a `reason`, if no confidence could be
        read. The header `x-qa-calibration-mode: abstain` replaces answers whose decision is to abstain.
        """
        service.required_upstream()
        assert proxy is not None
        # A page of another site can send other types without asking the browser's leave.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "wrong_content_type", NOT_JSON)
        asked = _request(await request.body())
        mode = request.headers.get(MODE, _MODES[0])
        if mode not in _MODES:
            raise RefusedError(422, "invalid_request", f"{MODE} is {mode!r:.40}; expected {' or '.join(_MODES)}.")
        abstains = mode == _MODES[1]
        if asked.get("stream"):
            return _Streamed(proxy, request, asked, abstains=abstains)
        return await unless_gone(request, proxy.completion(asked, request.headers, abstains=abstains))

    @app.get("/v1/models", summary="The LLMs of the upstream")
    async def models(request: Request) -> Response:
        upstream = service.required_upstream()
        answered = await unless_gone(request, upstream.get("/models", request.headers))
        return _json(answered.body, answered.headers)


_REPLY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}}
}

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["messages"],
                    "properties": {
                        "model": {"type": "string"},
                        "messages": {"type": "array", "items": {"type": "object"}},
                        "stream": {"type": "boolean"},
                    },
                }
            }
        },
    }
}


def _request(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise RefusedError(422, "invalid_request", "the body is not a JSON object; expected a chat completion request.")
    return asked


def _chunk(data: str) -> dict[str, Any]:
    try:
        chunk = json.loads(data, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise RefusedError(502, "upstream_garbage", "an event of the upstream's stream is not a chunk of a completion.")
    return chunk


def _json(body: Any, headers: Mapping[str, str]) -> Response:
    return Response(json.dumps(body), media_type="application/json", headers={**headers})
