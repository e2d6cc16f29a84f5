"""A guardrail for LiteLLM: its proxy sends questions and answers here, and annotates or blocks answers as it is told.

This is LiteLLM's generic guardrail API; the operator of LiteLLM only writes a few lines of configuration. An answer
comes without its question and without log-probabilities. So questions are remembered for a while by the id of the call,
and the confidence is the one that the answer states; if it states none, it comes from a second question to the
upstream, if there is one.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr
from starlette.responses import Response

from qacal.service.answers import Answers, count_unread
from qacal.service.guard import RefusedError
from qacal.service.upstream import unless_gone
from qacal.sources.completions import NAME, Read, rejected, unread, warned, without_threshold
from qacal.sources.elicitation.prompts import PROMPTS
from qacal.sources.elicitation.reply import Reply

if TYPE_CHECKING:
    from qacal.service.app import Service

PATH = "/beta/litellm_basic_guardrail_api"
_MOST_CHARACTERS = 2**26
_MOST_SECONDS = 3600.0
_SECOND_QUESTIONS = [PROMPTS[name].stages[1].template for name in ("verb2s-top1", "p-true")]
_UNKNOWN = "the question of this answer is not known; let the guardrail run before the call, too: [pre_call, post_call]"


class Parameters(BaseModel):
    """What the operator of LiteLLM chose, in `additional_provider_specific_params`."""

    model_config = ConfigDict(extra="ignore")
    mode: Literal["annotate", "block", "observe"] = Field(
        default="annotate",
        description="annotate: write the calibrated confidence below the answer. block: answers whose decision is to "
        "abstain. observe: only store and count.",
    )
    model: str | None = Field(default=None, description="The name of a served model.")
    metadata: dict[str, StrictStr | StrictInt | StrictFloat] = Field(
        default={}, description="Further columns of the records."
    )


class Checked(BaseModel):
    """A request of LiteLLM: the messages before a call, or the texts that the LLM answered."""

    model_config = ConfigDict(extra="ignore")
    input_type: Literal["request", "response"]
    litellm_call_id: str | None = None
    texts: list[str] | None = None
    structured_messages: list[dict[str, Any]] | None = None
    images: list[Any] | None = None
    tool_calls: list[Any] | None = None
    model: str | None = None
    additional_provider_specific_params: Parameters | None = None


class Questions:
    """The messages of recent calls by their ids, for the answers that come without them."""

    def __init__(self, characters: int = _MOST_CHARACTERS, seconds: float = _MOST_SECONDS) -> None:
        self._most, self._seconds = characters, seconds
        self._kept: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, call: str, messages: list[dict[str, Any]]) -> None:
        text = json.dumps(messages)
        self._forget(call)
        self._kept[call] = (time.monotonic(), text)
        self._size += len(call) + len(text)
        while self._kept:
            oldest, (since, _) = next(iter(self._kept.items()))
            if self._size <= self._most and since > time.monotonic() - self._seconds:
                break
            self._forget(oldest)

    def of(self, call: str | None) -> list[dict[str, Any]] | None:
        """Return the messages of a call; they stay, since a stream is checked several times."""
        found = None if call is None else self._kept.get(call)
        if found is None or found[0] <= time.monotonic() - self._seconds:
            return None
        messages: list[dict[str, Any]] = json.loads(found[1])
        return messages

    def _forget(self, call: str) -> None:
        _, text = self._kept.pop(call, (0.0, None))
        self._size -= 0 if text is None else len(call) + len(text)


class Guardrail:
    """Finds the evidence of answers, and what to do about them."""

    def __init__(self, service: Service) -> None:
        self._service, self._answers, self._questions = service, Answers(service), Questions()

    async def check(self, checked: Checked) -> dict[str, Any]:
        """Return what LiteLLM is to do: NONE, BLOCKED, or GUARDRAIL_INTERVENED with other texts."""
        if checked.input_type == "request":
            if checked.litellm_call_id is not None and checked.structured_messages:
                self._questions.add(checked.litellm_call_id, checked.structured_messages)
            return {"action": "NONE"}
        messages, texts = self._questions.of(checked.litellm_call_id), checked.texts or []
        # If the upstream is LiteLLM itself, it has the second question checked, too.
        is_second = messages is not None and messages[-1].get("content") in _SECOND_QUESTIONS
        if checked.tool_calls or checked.images or is_second:
            return {"action": "NONE"}
        chosen = checked.additional_provider_specific_params or Parameters()
        found = [await self._evidence(text, messages, checked.model, chosen) for text in texts]
        return {**_action(chosen.mode, texts, found), NAME: found}

    async def _evidence(
        self, text: str, messages: list[dict[str, Any]] | None, llm: str | None, chosen: Parameters
    ) -> dict[str, Any]:
        request = {"model": llm, "messages": messages, "metadata": chosen.metadata}
        plan = self._answers.plan(request, chosen.model)
        if plan is None:
            count_unread(self._service, llm, chosen.model)
            return unread(Read(text, reason=_UNKNOWN if messages is None else "the question is not one text"))
        # Without the headers of LiteLLM: its key is for this service.
        evidence, _ = await self._answers.found(plan, Reply(text), {}, name=chosen.model)
        doubt = without_threshold(evidence) if chosen.mode == "block" else None
        return {**evidence, **warned(evidence.get("warning"), doubt)}


def _action(mode: str, texts: list[str], found: list[dict[str, Any]]) -> dict[str, Any]:
    bad = [one for one in found if one["decision"] == "abstain"]
    if mode == "block" and bad:
        return {"action": "BLOCKED", "blocked_reason": f"The answer is not reliable enough: {_noted(bad[0])}."}
    if mode != "annotate":
        return {"action": "NONE"}
    annotated = [_annotated(text, one) for text, one in zip(texts, found, strict=True)]
    return {"action": "NONE"} if annotated == texts else {"action": "GUARDRAIL_INTERVENED", "texts": annotated}


def _annotated(text: str, evidence: dict[str, Any]) -> str:
    """Return a text with a line about its confidence; JSON stays JSON."""
    if evidence["calibrated"] is None or _is_json(text):
        return text
    return f"{text}\n\n[{_noted(evidence)}]"


def _noted(evidence: dict[str, Any]) -> str:
    """Return the confidence in words.

    >>> _noted({"calibrated": 0.314, "decision": "abstain", "threshold": 0.6})
    'calibrated confidence 0.31, below the threshold of 0.6'
    """
    is_rejected = evidence["decision"] == "abstain"
    return f"calibrated confidence {rejected(evidence) if is_rejected else format(evidence['calibrated'], '.2f')}"


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route of the guardrail."""
    guardrail = Guardrail(service)

    @app.post(PATH, summary="Check an answer for LiteLLM")
    async def check(request: Request, checked: Checked) -> Response:
        """Return `action`: NONE, GUARDRAIL_INTERVENED with annotated `texts`, or BLOCKED with `blocked_reason`.

        `qa_calibration` has the evidence of each text; `calibrated` is null, with a `reason`, if no confidence could be
        read, and then nothing is done about the text.
        """
        count, most = len(checked.texts or ()), service.settings.max_items
        if count > most:
            raise RefusedError(413, "too_many_items", f"texts has {count:,} entries; at most {most:,} are accepted.")
        found = await unless_gone(request, guardrail.check(checked))
        return Response(json.dumps(found), media_type="application/json")
