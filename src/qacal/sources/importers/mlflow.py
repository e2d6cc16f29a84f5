"""MLflow: the result of ``search_traces`` as Parquet, CSV, JSON or JSON lines, or a JSON list of traces.

``search_traces().to_json("traces.jsonl", orient="records", lines=True)`` writes everything. Only its column `trace` is
read: it is JSON in every kind of file, and has all that the others have.

Assessments by people are preferred to those by programs, and these to those by LLMs. A record has the id of its
question, because users ask the same question again; the id of the trace is a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qacal.sources.importers.base import TABLES, Dropped, Item, Log, Outcome, UnusableRowError, judgement_rank
from qacal.sources.importers.confidences import METADATA, STATED, is_cut_off, stated_reply
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
    reader = _Traces(log, OnlyName("assessment", log.selection.metric))
    for path in log.files(*TABLES):
        yield from log.rows(path, reader.outcome, "traces")
    reader.names.check()


@dataclass(frozen=True)
class _Traces:
    log: Log
    names: OnlyName

    def outcome(self, item: Item) -> Outcome:
        trace = unpacked(item.value["trace"]) if "trace" in item.value else item.value
        info, id_ = members(inside(trace, "info")), text_of(inside(trace, "info", "trace_id"))
        if id_ is None:
            raise UnusableRowError("there is no trace with an info and its trace_id; expected a trace of MLflow 3.")
        if info.get("state") == "ERROR":
            return Dropped("the trace ended with an error")
        root = next((span for span in _objects(inside(trace, "data", "spans")) if not span.get("parent_span_id")), {})
        request, response = (inside(root, "attributes", f"mlflow.span{part}") for part in ("Inputs", "Outputs"))
        question, output = self.log.question(request), reply_of(response)
        if question is None or not output:
            return Dropped("there is no question in the request" if output else "there is no text in the response")
        assessments = _objects(info.get("assessments"))
        judgement = self._judgement(assessments)
        correct = self.log.grade(inside(judgement, "feedback", "value"), f"the assessment {_name(judgement)}")
        answer, stated = stated_reply(output, is_cut=is_cut_off(response))
        tags = members(info.get("trace_metadata")) | members(info.get("tags"))
        users_tags = {name: value for name, value in tags.items() if not name.startswith("mlflow.")}
        assessed = [inside(part, "feedback", "value") for part in assessments if _name(part) == _CONFIDENCE]
        number = first(*assessed, users_tags.get(_CONFIDENCE))
        expected = {_name(part): inside(part, "expectation", "value") for part in assessments}
        truths = next((truths_of(expected[name]) for name in TRUTHS if expected.get(name)), ())
        return self.log.row(
            question,
            answer,
            correct,
            {METADATA: self.log.confidence(number), STATED: stated},
            model=text_of(users_tags.get("model")) or text_of(inside(unpacked(request), "model")),
            key=(id_,),
            ground_truth=truths,
            prompt=prompt_of(request),
            judge=None if correct is None else _judge(judgement),
            objects=[("mlflow", {"trace_id": id_}), ("tag", users_tags)],
            used=(_CONFIDENCE, "model"),
        )

    def _judgement(self, assessments: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the preferred assessment: by its source, then the latest; empty if there is none."""
        feedback = [part for part in assessments if part.get("feedback") and part.get("valid") is not False]
        named = [part for part in feedback if _name(part) != _CONFIDENCE]
        return max((part for part in named if self.names.takes(_name(part))), key=_rank, default={})


def _judge(judgement: dict[str, Any]) -> str:
    """Return who judged: "human" for any person, or the name of a program or LLM."""
    kind = str(inside(judgement, "source", "source_type"))
    return "human" if kind == "HUMAN" else text_of(inside(judgement, "source", "source_id")) or kind.lower()


def _rank(part: dict[str, Any]) -> tuple[int, str]:
    return judgement_rank(str(inside(part, "source", "source_type")), _SOURCES, part.get("last_update_time"))


def _name(part: dict[str, Any]) -> str:
    return str(part.get("assessment_name"))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [part for part in listed(value) if isinstance(part, dict)]
