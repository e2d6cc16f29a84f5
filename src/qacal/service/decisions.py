"""Decisions: typed questions in, calibrated probabilities out, in the form of OpenAI's Decisions API.

An upstream that has the route answers; if it has none, its chat completions do, one for each question, by the
probabilities of tokens. Answers go back as they came, each with its evidence, or with calibrated numbers in place.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from starlette.responses import Response

from qacal.errors import InputError
from qacal.service.answers import COMPLETIONS, count_unread, doubt_of
from qacal.service.guard import RefusedError
from qacal.service.proxy import MODE
from qacal.service.upstream import Upstream, UpstreamError, unless_gone
from qacal.sources.completions import NAME, Read, llm_of, unread, warned, without_threshold
from qacal.sources.decisions import MOST_CHOICES, Given, answer_of, calibrated_fields, given_in, kind_of, request_for
from qacal.sources.decisions import text_of as text
from qacal.sources.elicitation.reply import Reply

if TYPE_CHECKING:
    from qacal.service.app import Service

_MODES = ("annotate", "replace", "abstain")
# What a server without the route says to it; OpenAI's own says 404 for an LLM that it does not have, too.
_ABSENT = (404, 405, 501)
_ASK_AGAIN_SECONDS = 600.0
_MOST_REMEMBERED = 1000
_AT_ONCE = 8

Instructions = StrictStr | list[dict[str, Any]]


class _Question(BaseModel):
    model_config = ConfigDict(extra="allow")
    instructions: Instructions
    name: StrictStr | None = None


class Predicate(_Question):
    """Whether something is true of the input."""

    type: Literal["predicate"]


class ChoiceValue(BaseModel):
    """A value to choose."""

    model_config = ConfigDict(extra="allow")
    value: StrictStr | StrictBool
    description: StrictStr | None = None


class Choice(_Question):
    """Which of some values fits the input."""

    type: Literal["choice"]
    choices: list[ChoiceValue] = Field(min_length=2, max_length=255)


class Level(BaseModel):
    """A level of a score."""

    model_config = ConfigDict(extra="allow")
    label: StrictStr
    description: StrictStr | None = None


class Score(_Question):
    """Which of some ordered levels fits the input."""

    type: Literal["score"]
    levels: list[Level] = Field(min_length=2, max_length=10, description="From the lowest to the highest.")


class Decide(BaseModel):
    """Questions about an input."""

    model_config = ConfigDict(extra="allow")
    model: StrictStr = Field(description="The LLM of the upstream.")
    input: StrictStr | list[dict[str, Any]] = Field(description="A text, or messages and calls of tools.")
    questions: list[Annotated[Predicate | Choice | Score, Field(discriminator="type")]] = Field(
        min_length=1, max_length=400
    )


class Decisions:
    """Passes questions on, and calibrates the answers."""

    def __init__(self, service: Service, upstream: Upstream) -> None:
        self._service, self._upstream = service, upstream
        self._absent_until: dict[str, float] = {}

    async def reply(self, asked: dict[str, Any], caller: Mapping[str, str], mode: str) -> Response:
        """Return the reply to a request."""
        body, headers, source = await self._answered(asked, caller)
        answers = body.get("answers") if isinstance(body, dict) else None
        if not isinstance(answers, list) or len(answers) != len(asked["questions"]):
            raise RefusedError(502, "upstream_garbage", "the upstream's answers are not one for each question.")
        found = await self._calibrated(asked, answers, body.get("model"), source)
        if mode == "abstain":
            found = [(given, {**one, **warned(one.get("warning"), without_threshold(one))}) for given, one in found]
        shown = [_shown(answer, *one, mode=mode) for answer, one in zip(answers, found, strict=True)]
        content = json.dumps({**body, "answers": shown})
        return Response(content, media_type="application/json", headers={**headers})

    async def _answered(self, asked: dict[str, Any], caller: Mapping[str, str]) -> tuple[Any, Mapping[str, str], str]:
        """Return the upstream's reply, its headers, and the kind of its confidences."""
        # By LLM: a gateway may have the route for some of its LLMs only.
        llm = asked["model"]
        if time.monotonic() >= self._absent_until.get(llm, 0.0):
            try:
                answered = await self._upstream.post("/decisions", asked, caller)
                return answered.body, answered.headers, "decision"
            except UpstreamError as error:
                if error.status_code not in _ABSENT:
                    raise
        body = await self._from_chat(asked, caller)
        if len(self._absent_until) >= _MOST_REMEMBERED:
            self._absent_until.clear()
        self._absent_until[llm] = time.monotonic() + _ASK_AGAIN_SECONDS
        return body, {}, "decision-tokens"

    async def _from_chat(self, asked: dict[str, Any], caller: Mapping[str, str]) -> dict[str, Any]:
        """Return a reply of the same form out of chat completions, one for each question."""
        for at, question in enumerate(asked["questions"]):
            if question["type"] == "choice" and len(question["choices"]) > MOST_CHOICES:
                raise RefusedError(
                    422,
                    "too_many_choices",
                    f"question {at} has {len(question['choices'])} choices, and the upstream has no /decisions; its "
                    f"chat completions give the probabilities of at most {MOST_CHOICES}.",
                )
        slots = asyncio.Semaphore(_AT_ONCE)

        async def complete(question: dict[str, Any]) -> Any:
            async with slots:
                sent = request_for(asked["model"], asked["input"], question)
                return (await self._upstream.post(COMPLETIONS, sent, caller)).body

        tasks = [asyncio.create_task(complete(question)) for question in asked["questions"]]
        try:
            bodies = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        try:
            replies = [Reply.from_body(body) for body in bodies]
        except InputError:
            raise RefusedError(502, "upstream_garbage", "the upstream's answer is not a chat completion.") from None
        if not any(reply.tokens for reply in replies):
            raise RefusedError(
                502, "no_logprobs", "the upstream has no /decisions, and no log-probabilities in its chat completions."
            )
        return {
            "model": next((reply.model for reply in replies if reply.model), asked["model"]),
            "answers": [
                answer_of(question, reply) for question, reply in zip(asked["questions"], replies, strict=True)
            ],
            "usage": _usage(bodies),
        }

    async def _calibrated(
        self, asked: dict[str, Any], answers: list[Any], replied: Any, source: str
    ) -> list[tuple[Given | None, dict[str, Any]]]:
        """Return what each answer claims, and the evidence of that."""
        llm = llm_of(asked["model"], replied if isinstance(replied, str) else None, self._service.models.llms)
        content = text(asked["input"])
        read = [given_in(answer) for answer in answers]
        kinds = [kind_of(question) for question in asked["questions"]]
        records = [
            {
                "question": f"{text(question['instructions'])}\n\n{content}",
                "answer": given.answer,
                "confidence": given.probability,
                "model": llm,
                "confidence_source": source,
                "question_kind": kind,
            }
            for question, kind, given in zip(asked["questions"], kinds, read, strict=True)
            if isinstance(given, Given)
        ]
        results = iter(await self._service.evidences(records) if records else [])
        found: list[tuple[Given | None, dict[str, Any]]] = []
        for kind, given in zip(kinds, read, strict=True):
            if not isinstance(given, Given):
                count_unread(self._service, llm)
                found.append((None, {**unread(Read("", None, source, given)), "question_kind": kind}))
                continue
            result = next(results)
            if "error" in result:
                failed = Read(given.answer, given.probability, source, result["error"]["message"])
                found.append((None, {**unread(failed), "question_kind": kind}))
            else:
                said = {"raw_confidence": given.probability, "confidence_source": source, "question_kind": kind}
                origins = (("confidence_source", source), ("model", llm))
                doubts = [doubt_of(self._service, column, value, result) for column, value in origins]
                is_calibrated = result["calibrated"] is not None
                found.append((given if is_calibrated else None, {**result, **said, **warned(*doubts)}))
        return found


def _shown(answer: Any, given: Given | None, evidence: dict[str, Any], *, mode: str) -> Any:
    """Return an answer for the caller.

    The calibrated numbers are in the evidence; if they take the place of the answered ones, these are there instead.
    """
    if given is None:
        return {**answer, NAME: evidence} if isinstance(answer, dict) else answer
    fields = calibrated_fields(answer, given, evidence["calibrated"])
    if mode == "replace":
        return {**answer, **fields, NAME: {**evidence, "raw": {name: answer.get(name) for name in fields}}}
    if mode == "abstain" and evidence["decision"] == "abstain":
        return {"type": "refusal", "name": answer.get("name"), NAME: {**evidence, "replaced": True, "raw": answer}}
    return {**answer, NAME: {**evidence, **{name: one for name, one in fields.items() if name != "confidence"}}}


def _has_twins(question: Choice) -> bool:
    # A text and a boolean of the same spelling differ.
    return len({(type(one.value), one.value) for one in question.choices}) < len(question.choices)


def _usage(bodies: list[Any]) -> dict[str, Any]:
    def total(name: str) -> int:
        counts = [(body.get("usage") or {}).get(name) for body in bodies]
        return sum(count for count in counts if type(count) is int)

    read, written = total("prompt_tokens"), total("completion_tokens")
    return {
        "input_tokens": read,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route of decisions."""
    decisions = None if service.upstream is None else Decisions(service, service.upstream)

    @app.post("/v1/decisions", summary="Answer typed questions")
    async def decide(request: Request, asked: Decide) -> Response:
        """Pass questions on to the upstream, and return its answers, each with `qa_calibration`.

        That is the evidence of /v1/calibrate with `raw_confidence`, `question_kind`, and the calibrated numbers under
        the names of the answer's own; `calibrated` is null, with a `reason`, if an answer cannot be calibrated. With
        the header `x-qa-calibration-mode: replace` calibrated numbers take the place of the answer's own, which are
        then in `qa_calibration.raw`; with `abstain`, answers whose decision is to abstain are refusals.
        """
        service.required_upstream()
        assert decisions is not None
        mode = request.headers.get(MODE, _MODES[0])
        if mode not in _MODES:
            raise RefusedError(422, "invalid_request", f"{MODE} is {mode!r:.40}; expected {', '.join(_MODES)}.")
        for at, question in enumerate(asked.questions):
            if isinstance(question, Choice) and _has_twins(question):
                raise RefusedError(422, "invalid_request", f"questions.{at}.choices: two of them have the same value.")
        body = await request.json()
        try:
            json.dumps(body, allow_nan=False)
        except ValueError:
            raise RefusedError(422, "invalid_request", "a number of the request is too large for JSON.") from None
        return await unless_gone(request, decisions.reply(body, request.headers, mode))
