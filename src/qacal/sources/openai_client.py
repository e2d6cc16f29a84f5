"""A client of the package `openai` whose chat completions carry calibrated confidences, without a service.

The client that is returned is of the same class, and everything but `chat.completions.create` is unchanged;
`chat.completions.stream` uses it, too. The package is never imported here: whoever has a client has it.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from qacal.errors import InputError, QacalError
from qacal.model.base import BaseModel
from qacal.model.saved import as_model
from qacal.parameters import shown
from qacal.records.columns import PROVENANCE
from qacal.records.provenance import AllowOtherSource, allowed_sources
from qacal.sources.completions import (
    NAME,
    Asking,
    ConfidenceFrom,
    Found,
    Gathered,
    Plan,
    Planner,
    other_than_fitted,
    second_reply,
)
from qacal.sources.elicitation.reply import Reply, Request

Client = TypeVar("Client")

# What a request says about the way it is sent; a second question is sent the same way.
_TRANSPORT = ("extra_headers", "extra_query", "timeout")
_RAW = "x-stainless-raw-response"


def calibrated(
    client: Client,
    model: BaseModel | str | Path,
    *,
    confidence_from: str = "auto",
    abstain: bool = False,
    allow_other_source: AllowOtherSource = False,
) -> Client:
    """Return an OpenAI client whose chat completions have their evidence in `qa_calibration`.

    It is at the top of a completion, in its choice and in its message; in a stream, in the chunk that ends the answer.
    `calibrated` there is None, with a `reason`, if no confidence could be read. Completions with tools, images or
    several choices are unchanged.

    client : an ``openai.OpenAI`` or ``openai.AsyncOpenAI``; it is not changed.
    model : a fitted model, or the path of a saved one.
    confidence_from : "logprobs", "second-question", "one-call" or "p-true", as in ``qacal serve``; by default what the
        model was fitted on.
    abstain : replace the content of answers whose decision is to abstain. A stream is held back until then.
    allow_other_source : as in :meth:`QACalibrator.calibrate`; "model" accepts another LLM than that of the fit.
    """
    openai = sys.modules.get("openai")
    is_async = openai is not None and isinstance(client, openai.AsyncOpenAI)
    if not is_async and not (openai is not None and isinstance(client, openai.OpenAI)):
        raise InputError(f"client is {shown(client)}; expected an openai.OpenAI or openai.AsyncOpenAI.")
    if confidence_from not in [*ConfidenceFrom]:
        expected = ", ".join(ConfidenceFrom)
        raise InputError(f"confidence_from is {shown(confidence_from)}; expected one of {expected}.")
    allowed = allowed_sources(allow_other_source, {*PROVENANCE})
    loaded = as_model(model, warm=True)
    known: Any = client
    wrapped: Any = known.copy()

    def copied(**changes: Any) -> Any:
        settings: dict[str, Any] = {"abstain": abstain, "allow_other_source": allow_other_source}
        return calibrated(known.copy(**changes), loaded, confidence_from=confidence_from, **settings)

    wrapped.copy = wrapped.with_options = copied
    completions = wrapped.chat.completions
    create = completions.create

    async def call(**arguments: Any) -> Any:
        return await create(**arguments) if is_async else create(**arguments)

    planner = Planner(ConfidenceFrom(confidence_from), loaded)
    calibration = _Calibration(call, loaded, planner, abstain, allowed, is_async)
    completions.create = calibration.create if is_async else lambda **arguments: _now(calibration.create(**arguments))
    result: Client = wrapped
    return result


@dataclass(frozen=True)
class _Calibration:
    """Calls the `create` of a client, and adds the evidence to what it returns.

    call : it; if the client is not asynchronous, it waits for nothing, and so does all that is asynchronous here.
    """

    call: Callable[..., Awaitable[Any]]
    model: BaseModel
    planner: Planner
    abstains: bool
    allowed: set[str]
    is_async: bool
    asking: Asking = field(default_factory=Asking)

    async def create(self, **arguments: Any) -> Any:
        plan = self._plan(arguments)
        if plan is None:
            return await self.call(**arguments)
        completion = await self.asking.completion(plan, lambda sent: self.call(**sent))
        if plan.request.get("stream"):
            chunks = completion._iterator
            if self.is_async:
                completion._iterator = self._chunks(plan, chunks)
            else:
                completion._iterator = _iterated(self._chunks(plan, _each(chunks)))
            return completion
        parsed = (
            completion.parse() if hasattr(completion, "http_response") else completion
        )  # which a raw response keeps
        _annotate(plan, parsed, *await self._found(plan, Reply.from_body(parsed.model_dump())))
        return completion

    async def _chunks(self, plan: Plan, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        state = _Streamed(plan, holds=self.abstains or plan.one_call)
        async for chunk in chunks:
            for taken in state.take(chunk):
                yield taken
            if state.is_due:
                for last in state.finish(*await self._found(plan, state.reply)):
                    yield last
        if state.is_open:
            for last in state.finish(*await self._found(plan, state.reply)):
                yield last

    async def _found(self, plan: Plan, reply: Reply) -> Found:
        known = self.model._fitted_on("model")

        async def send(asked: Request) -> Any:
            return (await self.call(**_second(plan, asked))).model_dump()

        async def ask(asked: Request) -> Reply | None:
            return await second_reply(asked, send, (sys.modules["openai"].OpenAIError,))

        async def calibrate(record: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
            explained = await asyncio.to_thread(self._explained, record) if self.is_async else self._explained(record)
            return explained, other_than_fitted("answers of", record.get("model"), known)

        return await plan.found(reply, known, ask, calibrate, abstains=self.abstains)

    def _explained(self, record: dict[str, Any]) -> dict[str, Any]:
        dropped = self.allowed - {self.model._by}
        kept = {name: value for name, value in record.items() if name not in dropped}
        try:
            return self.model._explained_rows([kept], why=False)[0]
        except QacalError as error:
            return {"error": {"message": str(error)}}

    def _plan(self, arguments: dict[str, Any]) -> Plan | None:
        """Return how to find the confidence of a completion; `arguments` are as the caller gave them."""
        given = {name: value for name, value in arguments.items() if type(value).__name__ not in ("NotGiven", "Omit")}
        messages = given.get("messages")
        if messages is not None and not isinstance(messages, str | dict):
            # They may be an iterator, which is read only once, and replies of the client.
            arguments["messages"] = messages = list(messages)
            given["messages"] = [
                one if isinstance(one, dict) or not hasattr(one, "model_dump") else one.model_dump(exclude_none=True)
                for one in messages
            ]
        return self.planner.plan(given)


def _now(work: Any) -> Any:
    """Return the result of something asynchronous that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a client that is not asynchronous was waited for")


async def _each(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def _iterated(items: AsyncIterator[Any]) -> Iterator[Any]:
    with suppress(StopAsyncIteration):
        while True:
            yield _now(anext(items))


def _second(plan: Plan, asked: Request) -> Request:
    sent = {name: plan.request[name] for name in _TRANSPORT if name in plan.request}
    if sent.get("extra_headers"):
        sent["extra_headers"] = {name: value for name, value in sent["extra_headers"].items() if name.lower() != _RAW}
    own = {name: asked[name] for name in ("chat_template_kwargs",) if name in asked}
    return {**{name: value for name, value in asked.items() if name not in own}, **sent, "extra_body": own or None}


def _annotate(plan: Plan, completion: Any, evidence: dict[str, Any], content: str | None) -> None:
    choice = completion.choices[0]
    if content is not None:
        choice.message = type(choice.message)(role="assistant", content=content)
    for part in (completion, choice, choice.message):
        setattr(part, NAME, evidence)
    if plan.adds_logprobs or content is not None:
        choice.logprobs = None


class _Streamed:
    """The chunks of a stream, with the evidence in the one that ends the answer."""

    def __init__(self, plan: Plan, *, holds: bool) -> None:
        self._plan, self._holds = plan, holds
        self._gathered, self._held = Gathered(), list[Any]()
        self._last: Any = None
        self._is_over = False

    @property
    def reply(self) -> Reply:
        return self._gathered.reply

    @property
    def is_due(self) -> bool:
        """Whether the answer is complete, and its evidence is to be found."""
        return self._gathered.finish is not None and not self._is_over

    @property
    def is_open(self) -> bool:
        """Whether there is an answer without its evidence."""
        return self._last is not None and not self._is_over

    def take(self, chunk: Any) -> Iterator[Any]:
        """Yield a chunk, unless it ends the answer or is held back."""
        choices = getattr(chunk, "choices", None)
        if self._is_over or not choices:
            yield chunk
            return
        self._gathered.add(chunk.model_dump())
        self._last = chunk
        if self._plan.adds_logprobs:
            choices[0].logprobs = None
        if self._gathered.finish is None:
            if self._holds:
                self._held.append(chunk)
            else:
                yield chunk

    def finish(self, evidence: dict[str, Any], content: str | None) -> Iterator[Any]:
        """Yield what was held back, or something in its place, and the chunk that ends the answer."""
        ending, finish = self._last, self._gathered.finish
        if content is not None:
            text = self._emptied()
            text.choices[0].delta.role, text.choices[0].delta.content = "assistant", content
            yield text
        else:
            yield from self._held
        if content is not None or finish is None:
            ending = self._emptied()
            ending.choices[0].finish_reason = finish or "stop"
        for part in (ending, ending.choices[0], ending.choices[0].delta):
            setattr(part, NAME, evidence)
        self._is_over = True
        yield ending

    def _emptied(self) -> Any:
        """Return a chunk like the last one, without a text."""
        chunk = copy.copy(self._last)
        choice = chunk.choices[0]
        chunk.choices = [type(choice)(index=0, delta=type(choice.delta)(), finish_reason=None)]
        return chunk
