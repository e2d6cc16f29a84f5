"""The answers of an LLM, whichever way they come: how to find their confidences, and the evidence of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from qacal.errors import InputError
from qacal.service.guard import RefusedError
from qacal.service.served import Served
from qacal.service.upstream import UpstreamError
from qacal.sources.completions import Found, Plan, Planner, is_plain, other_than_fitted, second_reply
from qacal.sources.elicitation.reply import Reply, Request

if TYPE_CHECKING:
    from qacal.service.app import Service

COMPLETIONS = "/chat/completions"


class Answers:
    """Finds the evidence of completions."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._planners: WeakKeyDictionary[Served, Planner] = WeakKeyDictionary()
        self._first = Planner(service.settings.confidence_from, None)

    def plan(self, request: dict[str, Any], name: str | None = None) -> Plan | None:
        """Return how to find the confidence of a completion; None unless it is one text that answers a text.

        name : of the served model; without it the LLM decides.
        """
        if not is_plain(request):
            return None
        if not self._service.models.served:
            return self._first.plan(request)
        try:
            served, _ = self._service.models.choose(name, {"model": request.get("model")})
        except InputError as error:
            return Plan(request, (), warning=str(error))
        if served not in self._planners:
            self._planners[served] = Planner(self._service.settings.confidence_from, served.model)
        return self._planners[served].plan(request)

    async def found(
        self,
        plan: Plan,
        reply: Reply,
        caller: Mapping[str, str],
        *,
        name: str | None = None,
        response_id: Any = None,
        abstains: bool = False,
    ) -> Found:
        """Return the evidence of a reply, and the text that takes the place of its content, if one does.

        caller : the headers of the request that is passed on, for a second question.
        name : of the served model. Its operator says that it is the one for this LLM, whatever that is called.
        """
        service = self._service

        async def send(asked: Request) -> Any:
            upstream = service.required_upstream()
            return (await upstream.post(COMPLETIONS, asked, caller, service.settings.max_seconds)).body

        async def ask(asked: Request) -> Reply | None:
            return await second_reply(asked, send, (UpstreamError, RefusedError))

        async def calibrate(record: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
            if isinstance(response_id, str):
                record["response_id"] = response_id
            if name is not None:
                record.pop("model", None)
            (result,) = await service.evidences([record], name, reply.model)
            return result, doubt_of(service, "model", record.get("model"), result)

        evidence, content = await plan.found(reply, service.models.llms, ask, calibrate, abstains=abstains)
        if evidence["raw_confidence"] is None:
            count_unread(service, plan.request.get("model"), name)
        return evidence, content


def count_unread(service: Service, llm: Any, name: str | None = None) -> None:
    """Count an answer without a confidence, for the served model that it would be calibrated with."""
    try:
        served = service.models.choose(name, {"model": llm})[0].name
    except InputError:
        served = ""
    service.telemetry.refused(served, {}, "")


_WHAT = {"model": "answers of", "confidence_source": "confidences of the source"}


def doubt_of(service: Service, column: str, value: Any, result: Mapping[str, Any]) -> str | None:
    """Return the doubt about another LLM, or another kind of confidence, than those of the fit, which was allowed."""
    served = service.models.served.get(result.get("model", ""))
    if served is None or (column == "model" and value == served.name):
        return None
    return other_than_fitted(_WHAT[column], value, served.model._fitted_on(column))
