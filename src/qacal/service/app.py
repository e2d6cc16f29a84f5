"""The routes of the service: records in, evidence out; labels in, by the ids of the evidence."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from html import escape
from inspect import signature
from secrets import token_hex
from typing import Annotated, Any, Literal, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from qacal import __version__
from qacal.errors import InputError
from qacal.parameters import is_number
from qacal.service import decisions, guardrail, pages, proxy, watch
from qacal.service.audits import Label, UnknownAnswerError, require_id
from qacal.service.database import StoreError
from qacal.service.guard import NOT_JSON, Guard, RefusedError
from qacal.service.served import Models, Served, Watcher, Worker
from qacal.service.settings import NO_STORE, Settings
from qacal.service.store import Store, row_of
from qacal.service.telemetry import Telemetry
from qacal.service.upstream import Upstream, UpstreamError
from qacal.sources.completions import SOURCES

_DESCRIPTION = """Turns the confidence that an LLM states into the probability that its answer is correct.

A record has a `question`, an `answer`, a `confidence` from 0 to 1, and the further columns that the model reads."""


# A database that takes longer to write is not ready.
_CHECK_SECONDS = 2.0
NO_MODEL = "there is no model yet; this answer is stored for its first fit"

_PROBLEM = {
    "description": "What is wrong, and what to do",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["message"],
                        "properties": {"message": {"type": "string"}},
                        "description": "A `message` for people, and of qacal's own errors a `code` for programs.",
                    }
                },
            }
        }
    },
}


class Batch(BaseModel):
    """Records to calibrate."""

    model_config = ConfigDict(extra="forbid")
    items: list[Any] = Field(
        min_length=1,
        description="Records, which are objects: question, answer, confidence, and the columns that the model reads.",
        examples=[[{"question": "What is 17 * 23?", "answer": "391", "confidence": 0.9}]],
    )
    model: str | None = Field(
        None,
        description="The name of a served model. Without it the column model of a record decides, if several are.",
    )
    explain: bool = Field(
        False,
        strict=True,
        description="Also return what moved the probability, the nearest examples that the model keeps, and the "
        "columns that the record lacks.",
    )


class LabelOf(BaseModel):
    """The label of a served answer."""

    id: str = Field(max_length=100, description="The id of a result of /v1/calibrate.")
    correct: StrictBool | Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)] = Field(
        description="1 or true for a correct answer, 0 or false for a wrong one, or a number in between."
    )
    source: Literal["volunteered", "audit"] = Field(
        "volunteered", description="audit if answers were drawn at random for labelling; only these certify."
    )
    probability: Annotated[float, Field(ge=1e-6, le=1, allow_inf_nan=False, strict=True)] | None = Field(
        None,
        description="The probability with which an audit drew this answer; it may be left out if qacal label-next "
        "--store drew it.",
    )


class Labels(BaseModel):
    """Labels of served answers."""

    model_config = ConfigDict(extra="forbid")
    items: list[Any] = Field(
        min_length=1,
        description="Labels: the `id` of a result, and `correct`: true or 1, false or 0, or a number in between. "
        "`source` is `audit` if answers were drawn at random for labelling (only these certify), else `volunteered`, "
        "which is the default. The `probability` with which an audit drew the answer may be left out if "
        "qacal label-next --store drew it.",
        examples=[[{"id": "0123456789abcdef0123456789abcdef", "correct": True}]],
    )


class Service:
    """What the routes share: settings, models, the worker, the store and the numbers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models = Models(settings.models, settings.embedder, may_lack=settings.collects)
        self.store = None if settings.store == NO_STORE else Store(settings.store, settings.keep_days)
        self.telemetry = Telemetry(self.models, self.store)
        self.worker = Worker()
        self.watcher = Watcher(self.models, settings.reload_seconds)
        self.upstream = None if settings.upstream is None else Upstream(settings)

    def close(self) -> None:
        """End the threads; what is queued is written first."""
        self.watcher.close()
        self.worker.close()
        if self.store is not None:
            self.store.close()

    async def calibrate(
        self, batch: Batch, upstream_model: str | None = None, *, is_own: bool = False
    ) -> list[dict[str, Any]]:
        """Return a result for each record: its evidence, or an error.

        upstream_model : the LLM that an upstream says it used, for the store.
        is_own : whether the service itself read the confidences, and not a caller.
        """
        if not self.models.served:
            kinds = () if is_own else SOURCES.get(self.settings.confidence_from, ())
            return [self._collected(batch.model, item, upstream_model, kinds) for item in batch.items]
        results: list[dict[str, Any]] = [{}] * len(batch.items)
        groups: dict[Served, list[tuple[int, dict[str, Any]]]] = {}
        for place, item in enumerate(batch.items):
            try:
                self._require_short(item)
                served, record = self.models.choose(batch.model, item)
                record = self._as_fitted(served, record)
                groups.setdefault(served, []).append((place, record))
            except InputError as error:
                results[place] = _error("invalid_record", _for_callers(str(error)))
                self.telemetry.refused("", item if isinstance(item, dict) else {}, str(error))
        began = time.perf_counter()
        for served, mine in groups.items():
            found = await self.worker.explained(served, [record for _, record in mine], why=batch.explain)
            stored = []
            for (place, record), evidence in zip(mine, found, strict=True):
                if not isinstance(evidence, dict):
                    results[place] = _error("invalid_record", _for_callers(str(evidence)))
                    self.telemetry.refused(served.name, record, str(evidence))
                    continue
                id_, cells = token_hex(16), evidence.pop("cells")
                results[place] = {"id": id_, "model": served.name, "model_version": served.version, **evidence}
                self.telemetry.served(served.name, results[place], record.get("response_id"))
                if self.store is not None:
                    kept = batch.items[place] if self.settings.keep_text else None
                    own_id = batch.items[place].get("id")
                    more = {"own_id": own_id, "upstream_model": upstream_model, "cells": cells}
                    stored.append(row_of(id_, served.name, served.version, evidence, kept, **more))
            if self.store is not None:
                self.store.record(stored)
        self.telemetry.calibration.observe(time.perf_counter() - began)
        return results

    def _collected(
        self, name: str | None, record: Any, upstream_model: str | None, kinds: Collection[str]
    ) -> dict[str, Any]:
        """Store a record for the first fit of the model, and return a result without a calibrated confidence.

        kinds : of confidence, one of which a record must have if it names its own; empty for any.
        """
        (own,) = self.models.paths
        try:
            if name not in (None, own):
                raise InputError(f"there is no model {name!r:.80}; this service has {own}.")
            self._require_short(record)
            confidence = record.get("confidence")
            if not is_number(confidence, 0, 1):
                raise InputError("confidence is missing, or not a number from 0 to 1.")
            if not all(isinstance(record.get(column), str) for column in ("question", "answer")):
                raise InputError("question and answer must be texts.")
            if not str(record["question"]).strip():
                raise InputError("question is missing.")
            if not isinstance(record.get("id"), str | int | None):
                raise InputError(f"id is {record['id']!r:.40}; expected a text or a whole number.")
            kind = record.get("confidence_source")
            if kinds and kind is not None and kind not in kinds:
                raise InputError(
                    f"confidence_source is {kind!r:.40}, and this service collects {' or '.join(kinds)} "
                    f"(--confidence-from {self.settings.confidence_from}): a model is for one kind."
                )
        except InputError as error:
            self.telemetry.refused(own, record if isinstance(record, dict) else {}, str(error))
            return _error("invalid_record", str(error))
        self.telemetry.answers.labels(own, "collected").inc()
        missing = dict.fromkeys(("calibrated", "low", "high", "unlike", "decision", "group", "source"))
        result: dict[str, Any] = {
            "id": token_hex(16),
            "model": own,
            "model_version": None,
            "confidence": confidence,
            **missing,
        }
        row = row_of(result["id"], own, "", result, record, own_id=record.get("id"), upstream_model=upstream_model)
        self.required_store().record([row])
        return {**result, "reason": NO_MODEL}

    async def evidences(
        self, records: list[dict[str, Any]], model: str | None = None, upstream_model: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the result of each record of a further route: its evidence, or an error."""
        return await self.calibrate(Batch(items=records, model=model, explain=False), upstream_model, is_own=True)

    async def label(self, labels: Labels) -> list[dict[str, Any]]:
        """Write labels, and return what became of each when they are on disk."""
        store = self.required_store()
        results: list[dict[str, Any]] = [{}] * len(labels.items)
        valid: list[tuple[int, Label]] = []
        for place, item in enumerate(labels.items):
            try:
                read = LabelOf.model_validate(item)
                valid.append((place, Label(read.id, float(read.correct), read.source, read.probability)))
            except ValidationError as error:
                results[place] = _invalid_label(item, error)
            except InputError as error:
                results[place] = _label_error(read.id, error)
        outcomes = await asyncio.wrap_future(store.label([label for _, label in valid])) if valid else []
        for (place, label), problem in zip(valid, outcomes, strict=True):
            results[place] = {"id": label.id, "stored": True} if problem is None else _label_error(label.id, problem)
        for item, result in zip(labels.items, results, strict=True):
            source = "audit" if isinstance(item, dict) and item.get("source") == "audit" else "volunteered"
            self.telemetry.labels.labels(source, "error" if "error" in result else "stored").inc()
        return results

    def required_upstream(self) -> Upstream:
        if self.upstream is None:
            raise RefusedError(409, "no_upstream", "this service has no upstream; start it with --upstream URL.")
        return self.upstream

    def required_store(self) -> Store:
        if self.store is None:
            raise RefusedError(409, "no_store", "this service keeps no store; start it with --store URL.")
        return self.store

    def _as_fitted(self, served: Served, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record without what may differ from the fit; the store has it all the same."""
        allowed = {*self.settings.allow_other_source} - {served.model._by}
        return {name: value for name, value in record.items() if name not in allowed} if allowed else record

    def _require_short(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise InputError("the record is not an object.")
        most = self.settings.max_text
        for name, value in record.items():
            if isinstance(value, str) and len(value) > most:
                raise InputError(f"{name[:40]!r} has {len(value):,} characters; at most {most:,} are accepted.")


class _JsonRoute(APIRoute):
    """A route that takes a JSON object: it checks the body at once.

    FastAPI's general way to the arguments of a route takes a third of the time of a request around the model. Other
    routes take that way; the OpenAPI document and the errors are the same.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        bodies, endpoint = self.dependant.body_params, self.endpoint
        if not bodies or len(signature(endpoint).parameters) > 1:
            return super().get_route_handler()
        model: Any = bodies[0].field_info.annotation

        async def handle(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if not (kind.startswith("application/") and kind.endswith(("/json", "+json"))):
                raise RefusedError(415, "wrong_content_type", NOT_JSON)
            try:
                content = model.model_validate(await request.json())
            except json.JSONDecodeError as error:
                raise RefusedError(422, "invalid_request", _not_json(error.msg, error.pos)) from None
            except UnicodeDecodeError as error:
                raise RefusedError(422, "invalid_request", _not_json("no UTF-8", error.start)) from None
            except ValidationError as error:
                problems = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
                raise RequestValidationError(problems) from None
            return cast(Response, await endpoint(content))

        return handle


def create_app(settings: Settings) -> FastAPI:
    """Return the application; its state has the :class:`Service`, which is closed when the application stops."""
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if service.upstream is not None:
            await service.upstream.close()
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="qacal",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={"4XX": _PROBLEM, "5XX": _PROBLEM},
    )
    app.state.service = service
    app.router.route_class = _JsonRoute
    app.add_middleware(Guard, settings=settings, telemetry=service.telemetry)
    _handle_errors(app)
    _add_routes(app, service)
    proxy.add_routes(app, service)
    decisions.add_routes(app, service)
    guardrail.add_routes(app, service)
    pages.add_routes(app, service, watch.add_routes(app, service))
    return app


def _handle_errors(app: FastAPI) -> None:
    """Answer every error in one form, and never with the text of the request."""

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, UpstreamError):
            return error.response()
        if isinstance(error, RecursionError):
            error = RefusedError(422, "invalid_request", "the request is nested too deeply.")
        found = error if isinstance(error, RefusedError) else RefusedError(503, "store_failed", str(error))
        after = {"Retry-After": "1"} if found.status == 503 else None
        return JSONResponse(found.content(), found.status, headers=after)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if "json" not in request.headers.get("content-type", "").lower():
            return JSONResponse(_error("wrong_content_type", NOT_JSON), 415)
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            problem = _not_json(first["ctx"]["error"], first["loc"][-1])
            return JSONResponse(_error("invalid_request", problem), 422)
        where = ".".join(map(str, first["loc"][1:])) or "the body"
        return JSONResponse(_error("invalid_request", _told(where, first)), 422)

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        # The path is the caller's text, and is not repeated.
        problem = str(error.detail)
        if error.status_code == 404:
            problem = "there is no such route; GET /docs lists them."
        if error.status_code == 405:
            problem = f"this route takes {(error.headers or {}).get('Allow', 'other methods')}; GET /docs lists all."
        return JSONResponse(_error("http_error", problem), error.status_code, headers=error.headers)

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(RecursionError, refused)
    app.add_exception_handler(StoreError, refused)
    app.add_exception_handler(UpstreamError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, failed)


def _add_routes(app: FastAPI, service: Service) -> None:
    most = service.settings.max_items

    def require_few(items: list[Any]) -> None:
        if len(items) > most:
            raise RefusedError(
                413, "too_many_items", f"items has {len(items):,} entries; at most {most:,} are accepted."
            )

    @app.post("/v1/calibrate", summary="Calibrate records", responses=_described("results", "Evidence of each record"))
    async def calibrate(batch: Batch) -> Response:
        """Return a result for each record, in their order.

        A result has the id by which to send the label later, the model and its version, and the evidence: `confidence`,
        `calibrated`, `low`, `high`, `group`, `source`, `rows`, `group_low`, `group_high`, `group_rows`, `alpha`,
        `unlike`, `decision`, `threshold`, and `lacking` if the record lacks columns that the model reads. A record
        that cannot be calibrated has an `error` instead; others are not affected.
        """
        require_few(batch.items)
        return _json({"results": await service.calibrate(batch)})

    @app.post("/v1/feedback", summary="Send labels", responses=_described("results", "What became of each label"))
    async def feedback(labels: Labels) -> Response:
        """Store labels of served answers, and return a result for each, in their order.

        A label is on disk when its result says that it is stored. One that is refused has an `error` instead; others
        are not affected.
        """
        require_few(labels.items)
        return _json({"results": await service.label(labels)})

    @app.delete("/v1/answers/{id}", summary="Delete a served answer")
    async def delete(id: str) -> Response:  # noqa: A002
        """Delete what the store has of an answer, its label included."""
        try:
            require_id(id)
        except UnknownAnswerError as error:
            raise RefusedError(404, "unknown_id", str(error)) from None
        if not await asyncio.wrap_future(service.required_store().delete([id])):
            raise RefusedError(404, "unknown_id", "there is no served answer with this id.")
        return _json({"id": id, "deleted": True})

    @app.get("/v1/model", summary="The served models")
    async def model() -> Response:
        """Return each model with its version, and the columns that it reads."""
        return _json({"models": [_about(served) for served in service.models.served.values()]})

    @app.get("/v1/groups", summary="The groups of the models")
    async def groups() -> Response:
        """Return the kinds of questions that each model tells apart, without their examples."""
        return _json({"models": [_groups(served) for served in service.models.served.values()]})

    @app.get("/healthz", summary="Whether the process lives")
    async def healthz() -> Response:
        return _json({"status": "ok"})

    @app.get("/readyz", summary="Whether requests are answered")
    async def readyz() -> Response:
        """Return whether the store can be written, too, and how many answers it lost; answers are given without it."""
        state, lost = "none", 0
        if service.store is not None:
            try:
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(service.store.check())), _CHECK_SECONDS)
                state = "ok"
            except (StoreError, TimeoutError):
                state = "failed"
            lost = service.store.counts.lost
        return _json({"status": "ok", "store": state, "lost": lost, "models": [*service.models.served]})

    @app.get("/metrics", summary="Numbers for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(service.telemetry.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_page(app.openapi()))


def _about(served: Served) -> dict[str, Any]:
    models = served.model._models
    return {
        "name": served.name,
        "version": served.version,
        "loaded": served.since,
        "by": served.model._by,
        "parts": [
            {
                "value": value,
                "rows": model.rows_,
                "columns": model.pipeline_.columns,
                "needs_text": model.pipeline_.needs_text,
                "fitted_on": model.origins_,
                "threshold": None if (rule := model.decision_rule_) is None else rule.threshold,
            }
            for value, model in models.items()
        ],
    }


def _groups(served: Served) -> dict[str, Any]:
    groups = [
        {
            **({} if served.model._by is None else {served.model._by: value}),
            "group": group.group,
            "rows": group.rows,
            "accuracy": group.accuracy,
            "confidence": group.confidence,
            "words": list(group.words),
        }
        for value, model in served.model._models.items()
        for group in model.describe_groups()
    ]
    return {"name": served.name, "version": served.version, "groups": groups}


_encoded = json.JSONEncoder(allow_nan=False).encode


def _json(content: dict[str, Any]) -> Response:
    return Response(_encoded(content), media_type="application/json")


def _for_callers(message: str) -> str:
    """Return what is wrong without advice that is about the command line, Python or whole files.

    >>> _for_callers("confidence is 85; expected 0 to 1. For percents, pass --percent (in Python: percent=True).")
    'confidence is 85; expected 0 to 1.'
    >>> _for_callers("confidence is 1.5; expected 0 to 1. No value here is above 1.5, as on a scale from 0 to 10.")
    'confidence is 1.5; expected 0 to 1.'
    """
    message = message.removeprefix("records: ").replace("records has no column", "the record has no field", 1)
    first, *others = message.split(". ")
    about_files = (" --", "(in Python", "No value here is above")
    kept = [first, *(part for part in others if not any(text in part for text in about_files))]
    return f"{'. '.join(kept).rstrip('.')}."


def _not_json(problem: str, place: int) -> str:
    return f"the body is not JSON: {problem} at character {place}."


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _invalid_label(item: Any, error: ValidationError) -> dict[str, Any]:
    """Return what is wrong with an item that is no label; the first problem alone."""
    id_ = item.get("id") if isinstance(item, dict) else None
    first = error.errors(include_input=False, include_url=False)[0]
    where = str(first["loc"][0]) if first["loc"] else "the item"
    # Of the possible types of `correct`, each has a complaint of its own.
    problem = _told(where, first)
    if where == "correct":
        found = "missing or null" if isinstance(item, dict) and item.get("correct") is None else "no label"
        problem = f"correct is {found}; expected 0 or 1, or a number in between."
    return {"id": id_ if isinstance(id_, str) else None, **_error("invalid_label", problem)}


_TOLD = {
    "extra_forbidden": "there is no field {where!r:.80}; GET /docs lists the fields.",
    "model_attributes_type": "{where} is not a JSON object.",
    "model_type": "{where} is not a JSON object.",
    "too_short": "{where} is too short: expected at least {min_length}, found {actual_length}.",
}


def _told(where: str, problem: Mapping[str, Any]) -> str:
    """Return a problem of pydantic in a sentence; some of its own are about Python."""
    sentence = _TOLD.get(problem["type"], "{where}: {msg}.")
    return sentence.format(where=where, msg=problem["msg"], **problem.get("ctx", {}))


def _label_error(id_: str, error: InputError) -> dict[str, Any]:
    code = "unknown_id" if isinstance(error, UnknownAnswerError) else "refused"
    return {"id": id_, **_error(code, str(error))}


def _described(name: str, what: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of a reply for the OpenAPI document."""
    schema = {
        "type": "object",
        "required": [name],
        "properties": {name: {"type": "array", "items": {"type": "object"}, "description": what}},
    }
    return {200: {"content": {"application/json": {"schema": schema}}}}


def _page(document: dict[str, Any]) -> str:
    """Return the OpenAPI document as a page that needs nothing from elsewhere."""

    def shown(text: str) -> str:
        return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))

    routes = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p><b>{shown(about.get('summary', ''))}.</b> "
        f"{shown(about.get('description', ''))}</p>"
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    ]
    schemas = escape(json.dumps(document.get("components", {}).get("schemas", {}), indent=2))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>qacal</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        "<style>body{font-family:sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}pre{overflow:auto}</style>"
        f"<h1>qacal {escape(document['info']['version'])}</h1><p>{shown(document['info']['description'])}</p>"
        f'{"".join(routes)}<h2>Schemas</h2><pre>{schemas}</pre><p><a href="openapi.json">openapi.json</a></p></html>'
    )
