"""Langfuse: pages of observations and scores from the public API, as JSON.

A score belongs to an observation or to a trace, which is its ``subject``; the API gives it if it is asked for it
(``fields=subject``). The score of a trace counts for its generation if there is only one; of several, the log does not
say which one was judged. A record has the id of its question, because users ask the same question again; the ids of
the observation and the trace are columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.files import OnFault
from qacal.sources.importers.base import (
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
# Scores that are texts and grade nothing.
_TEXTS = ("TEXT", "CORRECTION")
# People before programs, programs before judges.
_SOURCES = ("ANNOTATION", "API", "EVAL")
_JUDGES = {"ANNOTATION": "human"}


def read(log: Log) -> Iterator[Outcome]:
    """Yield the generations among observations, with the score that judges them."""
    files = log.files("*.json", "*.jsonl")
    first_rows = {file: first_item(file, "data") for file in files}
    observations = [file for file in files if "type" in first_rows[file]]
    if not observations:
        raise InputError(
            f"there are no observations among {', '.join(map(str, files))}; expected rows with type and output."
        )
    scores = _Scores(OnlyName("score", log.selection.metric))
    for file in files:
        if "dataType" in first_rows[file]:
            scores.gather(file, log.on_fault)
    scores.names.check()
    generations: Counter[str | None] = Counter()
    for file in observations if scores.of_traces else ():
        rows = (item.value for item in items_of(file, lambda fault: None, "data"))
        generations.update(text_of(row.get("traceId")) for row in rows if _is_wanted(row, log.selection))
    reader = _Observations(log, scores, generations)
    for file in observations:
        yield from log.rows(file, reader.outcome, "data")


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
        for item in items_of(file, on_fault, "data"):
            row = item.value
            if "subject" not in row:
                raise InputError(
                    f"{file} has scores that do not say which observation or trace they judge. Get them from the API "
                    'with fields="subject".'
                )
            name, id_ = text_of(row.get("name")), text_of(inside(row, "subject", "id"))
            # Others belong to a session, or to a whole run over a data set.
            scores = {"observation": self.of_observations, "trace": self.of_traces}.get(
                str(inside(row, "subject", "kind"))
            )
            if name is None or id_ is None or scores is None:
                continue
            if name == _CONFIDENCE:
                self.confidences[id_] = row.get("value")
            elif row.get("dataType") not in _TEXTS and self.names.takes(name):
                value = row.get("stringValue") or row.get("value")
                score = _Score(name, value, str(row.get("source")), str(row.get("updatedAt")))
                if id_ not in scores or scores[id_].rank < score.rank:
                    scores[id_] = score


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
        trace = text_of(row.get("traceId"))
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
            model=text_of(row.get("providedModelName")) or text_of(row.get("model")),
            key=(id_,),
            ground_truth=texts_of(truth[1]) if truth else (),
            prompt=prompt_of(row.get("input")),
            judge=None if score is None or correct is None else _JUDGES.get(score.source, score.source.lower()),
            objects=[
                ("langfuse", {"observation_id": id_, "trace_id": trace}),
                ("metadata", metadata),
                ("observation", {"name": row.get("name"), "environment": row.get("environment")}),
                ("trace", {"trace_name": row.get("traceName")}),
            ],
            used=(_CONFIDENCE, *(truth or ())[:1]),
        )


def _is_wanted(row: dict[str, Any], selection: Selection) -> bool:
    is_generation = str(row.get("type")).upper() == "GENERATION"
    return is_generation and selection.observation in (None, row.get("name"))
