"""Langfuse: observations and scores, from an export or from the public API, as Parquet, CSV, JSON or JSON lines.

Exports have names like ``trace_id``; the API and the SDK have ``traceId``, rows under ``data``, and for each score a
``subject``, which the API gives if it is asked for it (``fields=subject``).

A score belongs to an observation or to a trace. The score of a trace counts for its generation if there is only one; of
several, the export does not say which one was judged. A record has the id of its question, because users ask the same
question again; the ids of the observation and the trace are columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.files import OnFault
from qacal.sources.importers.base import (
    TABLES,
    Dropped,
    Item,
    Log,
    Outcome,
    UnusableRowError,
    first_item,
    items_of,
    judgement_rank,
)
from qacal.sources.importers.confidences import METADATA, STATED, ParsedReply, is_cut_off
from qacal.sources.importers.formats import OnlyName, Selection
from qacal.sources.importers.texts import TRUTHS, inside, named_text, prompt_of, reply_of, text_of, texts_of, unpacked

_CONFIDENCE = "confidence"
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
# What else a score may belong to: a session, or a whole run over a data set.
_OTHERS = {"subject", "session_id", "dataset_run_id"}
# Scores that are texts and grade nothing.
_TEXTS = ("TEXT", "CORRECTION")
# People before programs, programs before judges.
_SOURCES = ("ANNOTATION", "API", "EVAL")
_JUDGES = {"ANNOTATION": "human"}


def read(log: Log) -> Iterator[Outcome]:
    """Yield the generations among observations, with the score that judges them."""
    files = log.files(*TABLES)
    kinds = {file: _kind(file) for file in files}
    observations = [file for file in files if kinds[file] == "observations"]
    if not observations:
        raise InputError(
            f"there are no observations among {', '.join(map(str, files))}; expected rows with type and output."
        )
    scores = _Scores(OnlyName("score", log.selection.score))
    for file in files:
        if kinds[file] == "scores":
            scores.gather(file, log.on_fault)
    scores.names.check()
    generations: Counter[str | None] = Counter()
    for file in observations if scores.of_traces else ():
        rows = (item.value for item in _rows(file, lambda fault: None))
        generations.update(text_of(row.get("trace_id")) for row in rows if _is_wanted(row, log.selection))
    reader = _Observations(log, scores, generations)
    for file in observations:
        yield from log.rows(_rows(file, log.on_fault), reader.outcome)


def _rows(file: Path, on_fault: OnFault) -> Iterator[Item]:
    """Yield the rows of a file by the names of exports."""
    for item in items_of(file, on_fault, "data"):
        yield replace(item, value=_by_export(item.value))


def _by_export(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the API by the names that it has in exports.

    >>> _by_export({"name": "correct", "dataType": "BOOLEAN", "subject": {"kind": "trace", "id": "t1"}})
    {'name': 'correct', 'data_type': 'BOOLEAN', 'subject': {'kind': 'trace', 'id': 't1'}, 'trace_id': 't1'}
    """
    named = {_HUMP.sub(r"_\1", name).lower(): value for name, value in row.items()}
    subject = unpacked(named.get("subject"))
    kind, id_ = inside(subject, "kind"), inside(subject, "id")
    if kind == "observation":
        return named | {"observation_id": id_, "trace_id": inside(subject, "traceId") or inside(subject, "trace_id")}
    return named | {"trace_id": id_} if kind == "trace" else named


def _kind(file: Path) -> str:
    row = _by_export(first_item(file, "data"))
    if "data_type" in row or {"observation_id", "name", "value"} <= row.keys():
        return "scores"
    return "observations" if "type" in row else "neither"


@dataclass(frozen=True, slots=True)
class _Score:
    name: str
    value: Any
    source: str
    time: str

    @property
    def rank(self) -> tuple[int, str]:
        return judgement_rank(self.source, _SOURCES, self.time)


@dataclass(frozen=True)
class _Scores:
    names: OnlyName
    of_observations: dict[str, _Score] = field(default_factory=dict)
    of_traces: dict[str, _Score] = field(default_factory=dict)
    confidences: dict[str, Any] = field(default_factory=dict)

    def gather(self, file: Path, on_fault: OnFault) -> None:
        are_of_something = True
        for item in _rows(file, on_fault):
            row = item.value
            observation, trace = text_of(row.get("observation_id")), text_of(row.get("trace_id"))
            name, value, kind = text_of(row.get("name")), row.get("value"), row.get("data_type")
            are_of_something &= bool(observation or trace or _OTHERS & row.keys())
            if name == _CONFIDENCE and (observation or trace):
                self.confidences[observation or trace or ""] = value
            elif name is not None and kind not in _TEXTS and self.names.takes(name):
                category = row.get("string_value") if kind in ("CATEGORICAL", "BOOLEAN") else None
                time = row.get("updated_at") or row.get("timestamp")
                score = _Score(name, category or value, str(row.get("source")), str(time))
                scores, id_ = (self.of_observations, observation) if observation else (self.of_traces, trace)
                if id_ and (id_ not in scores or scores[id_].rank < score.rank):
                    scores[id_] = score
        if not are_of_something:
            raise InputError(
                f"{file} has scores that do not say which observation or trace they judge. Get them from the API with "
                'fields="subject".'
            )


@dataclass(frozen=True)
class _Observations:
    log: Log
    scores: _Scores
    generations: Counter[str | None]

    def outcome(self, item: Item) -> Outcome:
        row = item.value
        id_ = text_of(row.get("id"))
        if id_ is None or "type" not in row:
            raise UnusableRowError("there are no id and type; expected an observation of Langfuse.")
        if not _is_wanted(row, self.log.selection):
            return Dropped("it is not a generation, or has another name")
        output, question = reply_of(row.get("output")), self.log.question(row.get("input"))
        if not output or question is None:
            return Dropped("there is no input" if output else "there is no output")
        trace = text_of(row.get("trace_id"))
        score = self.scores.of_observations.get(id_)
        if score is None and trace in self.scores.of_traces:
            if self.generations[trace] > 1:
                return Dropped("the score is of a trace with several generations (--observation chooses one)")
            score = self.scores.of_traces[trace]
        correct = None if score is None else self.log.grade(score.value, f"the score {score.name}")
        metadata = unpacked(row.get("metadata"))
        number, truth = inside(metadata, _CONFIDENCE), named_text(metadata, TRUTHS)
        if number is None:
            number = self.scores.confidences.get(id_, self.scores.confidences.get(trace or ""))
        reply = ParsedReply.of(output, is_cut=is_cut_off(row.get("output")))
        return self.log.row(
            question,
            reply.answer,
            correct,
            {METADATA: self.log.confidence(number), STATED: reply.stated},
            model=text_of(row.get("provided_model_name")) or text_of(row.get("model")),
            key=(id_,),
            ground_truth=texts_of(truth[1]) if truth else (),
            prompt=prompt_of(row.get("input")),
            judge=None if score is None or correct is None else _JUDGES.get(score.source, score.source.lower()),
            objects=[
                ("langfuse", {"observation_id": id_, "trace_id": trace}),
                ("metadata", metadata),
                ("observation", {name: row.get(name) for name in ("name", "environment", "trace_name")}),
            ],
            used=(_CONFIDENCE, *(truth or ())[:1]),
        )


def _is_wanted(row: dict[str, Any], selection: Selection) -> bool:
    is_generation = str(row.get("type")).upper() == "GENERATION"
    return is_generation and selection.observation in (None, row.get("name"))
