"""MLflow: the result of ``search_traces`` as Parquet, CSV, JSON or JSON lines; nested values may be text.

``search_traces().to_json("traces.jsonl", orient="records", lines=True)`` writes everything. CSV has nested values in
Python's notation, so the column `trace`, which is always JSON, is preferred.

Assessments by people are preferred to those by programs, and these to those by LLMs. A record has the id of its
question, because users ask the same question again; the id of the trace is a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qacal.sources.importers.base import TABLES, Dropped, Item, Log, Outcome, UnusableRowError, judgement_rank
from qacal.sources.importers.confidences import METADATA, STATED, ParsedReply, is_cut_off
from qacal.sources.importers.formats import OnlyName
from qacal.sources.importers.texts import (
    TRUTHS,
    first,
    inside,
    listed,
    members,
    prompt_of,
    reply_of,
    text_of,
    truths_of,
    unpacked,
)

_CONFIDENCE = "confidence"
_SOURCES = ("HUMAN", "CODE", "LLM_JUDGE")


def read(log: Log) -> Iterator[Outcome]:
    """Yield the traces, with the assessment that judges them."""
    reader = _Traces(log, OnlyName("assessment", log.selection.assessment))
    for path in log.files(*TABLES):
        yield from log.rows(path, reader.outcome, "traces")
    reader.names.check()


@dataclass(frozen=True)
class _Trace:
    """A trace, from columns of a frame or from an object with `info` and `data`."""

    id: str
    state: str
    request: Any
    response: Any
    is_cut: bool
    assessments: list[dict[str, Any]]
    metadata: dict[str, Any]
    tags: dict[str, Any]

    @staticmethod
    def of(row: dict[str, Any]) -> _Trace | None:
        trace = _object(row.get("trace"))
        whole = trace or row
        columns = {name: value for name, value in row.items() if value is not None}
        info = _object(inside(whole, "info"))
        info = columns | info if trace else info | columns
        id_ = text_of(info.get("trace_id")) or text_of(info.get("request_id"))
        if id_ is None or not {"request", "response", "info", "trace", "spans"} & row.keys():
            return None
        spans = _objects(inside(whole, "data", "spans") or row.get("spans"))
        roots = (span for span in spans if not (span.get("parent_id") or span.get("parent_span_id")))
        root = _object(next(roots, {}).get("attributes"))
        inputs, outputs = root.get("mlflow.spanInputs"), root.get("mlflow.spanOutputs")
        # Previews are cut off, so they are used last.
        has_spans = bool(trace and root)
        request = first(None if has_spans else row.get("request"), inputs, info.get("request_preview"))
        response = first(None if has_spans else row.get("response"), outputs, info.get("response_preview"))
        is_preview = isinstance(response, str) and response is info.get("response_preview")
        is_cut = is_cut_off(response) or (is_preview and response.endswith(("...", "…")))
        assessments = _objects(info.get("assessments"))
        metadata = _object(info.get("trace_metadata") or info.get("request_metadata"))
        state = str(info.get("state") or info.get("status"))
        return _Trace(id_, state, request, response, is_cut, assessments, metadata, _object(info.get("tags")))


@dataclass(frozen=True)
class _Traces:
    log: Log
    names: OnlyName

    def outcome(self, item: Item) -> Outcome:
        trace = _Trace.of(item.value)
        if trace is None:
            raise UnusableRowError("there are no trace_id, request and response; expected a trace of MLflow.")
        if trace.state.endswith("ERROR"):
            return Dropped("the trace ended with an error")
        question, output = self.log.question(trace.request), reply_of(trace.response)
        if question is None or not output:
            return Dropped("there is no question in the request" if output else "there is no text in the response")
        judgement = self._judgement(trace)
        source = f"the assessment {_name(judgement)}"
        correct = self.log.grade(inside(judgement, "feedback", "value"), source)
        reply = ParsedReply.of(output, is_cut=trace.is_cut)
        assessed = [inside(part, "feedback", "value") for part in trace.assessments if _name(part) == _CONFIDENCE]
        number = first(*assessed, trace.tags.get(_CONFIDENCE), trace.metadata.get(_CONFIDENCE))
        tags = {**trace.metadata, **trace.tags}
        users_tags = {name: value for name, value in tags.items() if not name.startswith("mlflow.")}
        expected = {_name(part): inside(part, "expectation", "value") for part in trace.assessments}
        truths = next((truths_of(expected[name]) for name in TRUTHS if expected.get(name)), ())
        return self.log.row(
            question,
            reply.answer,
            correct,
            {METADATA: self.log.confidence(number), STATED: reply.stated},
            model=text_of(users_tags.get("model")) or text_of(inside(unpacked(trace.request), "model")),
            key=(trace.id,),
            ground_truth=truths,
            prompt=prompt_of(trace.request),
            judge=None if correct is None else _judge(judgement),
            objects=[("mlflow", {"trace_id": trace.id}), ("tag", users_tags)],
            used=(_CONFIDENCE, "model"),
        )

    def _judgement(self, trace: _Trace) -> dict[str, Any]:
        """Return the preferred assessment: by its source, then the latest; empty if there is none."""
        feedback = [part for part in trace.assessments if part.get("feedback") and part.get("valid") is not False]
        named = [part for part in feedback if _name(part) != _CONFIDENCE]
        return max((part for part in named if self.names.takes(_name(part))), key=_rank, default={})


def _judge(judgement: dict[str, Any]) -> str:
    """Return who judged: "human" for any person, or the name of a program or LLM."""
    kind = str(inside(judgement, "source", "source_type"))
    return "human" if kind == "HUMAN" else text_of(inside(judgement, "source", "source_id")) or kind.lower()


def _rank(part: dict[str, Any]) -> tuple[int, str]:
    kind = str(inside(part, "source", "source_type"))
    time = part.get("last_update_time") or part.get("last_update_time_ms") or part.get("create_time")
    return judgement_rank(kind, _SOURCES, time)


def _name(part: dict[str, Any]) -> str:
    return str(part.get("assessment_name") or part.get("name"))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [part for part in map(unpacked, listed(unpacked(value))) if isinstance(part, dict)]


def _object(value: Any) -> dict[str, Any]:
    return members(unpacked(value))
