"""The proxy: chat completions of the upstream, each with the calibrated confidence of its answer.

A request goes to the upstream as it came, apart from the log-probabilities that a confidence needs, and its reply goes
back as it came, apart from the evidence in it. Requests with tools, images or several choices go through untouched.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qacal.errors import InputError
from qacal.service.guard import RefusedError
from qacal.service.served import Served
from qacal.service.upstream import Upstream, UpstreamError, unless_gone
from qacal.sources.completions import (
    Gathered,
    Plan,
    Planner,
    Read,
    abstention,
    annotated,
    is_plain,
    other_than_fitted,
    unread,
)
from qacal.sources.completions import without_logprobs as hidden
from qacal.sources.elicitation.reply import Reply
from qacal.sources.elicitation.reply import Request as Asked

if TYPE_CHECKING:
    from qacal.service.app import Service

MODE, CONFIDENCE, ID = (f"x-qa-calibration-{name}" for name in ("mode", "confidence", "id"))
_PATH = "/chat/completions"
_MODES = ("annotate", "abstain")
# An upstream that does not take a field of a request says so with one of these.
_REFUSALS = (400, 403, 422, 501)
_MOST_REMEMBERED = 1000
_DONE = "[DONE]"
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


class Proxy:
    """Passes completions on, and finds their confidences."""

    def __init__(self, service: Service, upstream: Upstream) -> None:
        self._service, self._upstream = service, upstream
        self._planners: WeakKeyDictionary[Served, Planner] = WeakKeyDictionary()
        self._without_logprobs: set[str | None] = set()

    async def completion(self, request: dict[str, Any], caller: Mapping[str, str], *, abstains: bool) -> Response:
        """Return the reply to a request."""
        plan = self._plan(request)
        if plan is None:
            answered = await self._upstream.post(_PATH, request, caller)
            return _json(answered.body, answered.headers)
        sent = self._sent(plan)
        try:
            answered = await self._upstream.post(_PATH, sent, caller)
        except UpstreamError as error:
            if not self._may_be_logprobs(plan, sent, error):
                raise
            answered = await self._upstream.post(_PATH, plan.sent(with_logprobs=False), caller)
            self._remember(plan)
        try:
            reply = Reply.from_body(answered.body)
        except InputError:
            raise RefusedError(502, "upstream_garbage", "the upstream's answer is not a chat completion.") from None
        evidence, content = await self._found(plan, reply, answered.body.get("id"), caller, abstains=abstains)
        headers = dict(answered.headers)
        if evidence["calibrated"] is not None:
            headers |= {CONFIDENCE: f"{evidence['calibrated']:.6g}", ID: evidence["id"]}
        return _json(annotated(answered.body, evidence, content, hides_logprobs=plan.adds_logprobs), headers)

    @asynccontextmanager
    async def stream(
        self, request: dict[str, Any], caller: Mapping[str, str], *, abstains: bool
    ) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[str]]]:
        """Open a stream; give the headers for the caller, and the data of each event in turn."""
        plan = self._plan(request)
        sent = request if plan is None else self._sent(plan)
        async with AsyncExitStack() as stack:
            try:
                headers, events = await stack.enter_async_context(self._upstream.stream(_PATH, sent, caller))
            except UpstreamError as error:
                if plan is None or not self._may_be_logprobs(plan, sent, error):
                    raise
                again = self._upstream.stream(_PATH, plan.sent(with_logprobs=False), caller)
                headers, events = await stack.enter_async_context(again)
                self._remember(plan)
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
            response_id = gathered.chunk.get("id")
            evidence, content = await self._found(plan, gathered.reply, response_id, caller, abstains=abstains)
            for part in held if content is None else [json.dumps(gathered.text(content))]:
                yield part
            ending = gathered.ending(evidence, None if content is not None else chunk)
            yield json.dumps(hidden(ending) if plan.adds_logprobs else ending)
            if chunk is None:
                yield data
            is_over = True
        if not is_over:
            raise RefusedError(502, "upstream_failed", "the upstream broke off its answer.")

    async def _found(
        self, plan: Plan, reply: Reply, response_id: Any, caller: Mapping[str, str], *, abstains: bool
    ) -> tuple[dict[str, Any], str | None]:
        """Return the evidence of a reply, and the text that takes the place of its content, if one does."""
        reading = plan.reading(reply)
        try:
            asked = next(reading)
            while True:
                asked = reading.send(await self._second(asked, caller))
        except StopIteration as end:
            read: Read = end.value
        if read.confidence is None:
            self._service.telemetry.refused(served_name(self._service, plan.request.get("model")), {}, "")
            return unread(read), None
        known = {llm for served in self._service.models.served.values() for llm in served.llms}
        record = plan.record(read, reply.model, known)
        if isinstance(response_id, str):
            record["response_id"] = response_id
        (result,) = await self._service.evidences([record], upstream_model=reply.model)
        evidence = plan.evidence(read, result, other_llm(self._service, record.get("model"), result))
        replacement = abstention(evidence) if abstains else None
        if replacement is not None:
            evidence["replaced"] = True
        return evidence, replacement or (read.answer if plan.one_call else None)

    async def _second(self, asked: Asked, caller: Mapping[str, str]) -> Reply | None:
        """Return the reply to a second question; None if there is none: the answer is served all the same."""
        seconds = self._service.settings.max_seconds
        bare: Asked = {name: asked[name] for name in ("model", "messages", "logprobs", "top_logprobs") if name in asked}
        for sent in (asked, bare):
            try:
                return Reply.from_body((await self._upstream.post(_PATH, sent, caller, seconds)).body)
            except UpstreamError as error:
                if error.status not in _REFUSALS:
                    return None
            except (RefusedError, InputError):
                return None
        return None

    def _plan(self, request: dict[str, Any]) -> Plan | None:
        """Return how to find the confidence of a completion; None if it goes through untouched."""
        if not is_plain(request):
            return None
        try:
            served, _ = self._service.models.choose(None, {"model": request.get("model")})
        except InputError as error:
            return Plan(request, (), warning=str(error))
        if served not in self._planners:
            self._planners[served] = Planner(self._service.settings.confidence_from, served.model)
        return self._planners[served].plan(request)

    def _sent(self, plan: Plan) -> Asked:
        return plan.sent(with_logprobs=plan.request.get("model") not in self._without_logprobs)

    @staticmethod
    def _may_be_logprobs(plan: Plan, sent: Asked, error: UpstreamError) -> bool:
        """Return whether the upstream may refuse a request for a field that the caller did not send."""
        return plan.adds_logprobs and "logprobs" in sent and error.status in _REFUSALS

    def _remember(self, plan: Plan) -> None:
        """Remember that the upstream refuses log-probabilities for this LLM."""
        if len(self._without_logprobs) < _MOST_REMEMBERED:
            self._without_logprobs.add(plan.request.get("model"))


def served_name(service: Service, llm: Any) -> str:
    """Return the name of the served model for the answers of an LLM; "" if there is none."""
    try:
        return service.models.choose(None, {"model": llm})[0].name
    except InputError:
        return ""


def other_llm(service: Service, llm: Any, result: Mapping[str, Any]) -> str | None:
    """Return the doubt about an answer of another LLM than those of the fit, which the operator allowed."""
    served = service.models.served.get(result.get("model", ""))
    if served is None or llm == served.name:
        return None
    return other_than_fitted("answers of", llm, served.llms)


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
            raise RefusedError(415, "wrong_content_type", "send the request as JSON: Content-Type: application/json.")
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
