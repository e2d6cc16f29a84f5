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
from qacal.records.text_files import opened_text
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
from qacal.sources.importers.confidences import METADATA, STATED, is_cut_off, stated_reply
from qacal.sources.importers.formats import OnlyName
from qacal.sources.importers.texts import TRUTHS, inside, named_text, prompt_of, reply_of, text_of, texts_of, unpacked

_CONFIDENCE = "confidence"
# Scores that are texts and grade nothing.
_TEXTS = ("TEXT", "CORRECTION")
# People before programs, programs before judges.
_SOURCES = ("ANNOTATION", "API", "EVAL")


def read(log: Log) -> Iterator[Outcome]:
    """Yield the generations among observations, with the score that judges them."""
    files = log.files("*.json", "*.jsonl")
    first_rows = {file: first_item(file, "data") for file in files}
    for file, row in first_rows.items():
        is_observation = "type" in row and "traceId" in row
        if not is_observation and "dataType" not in row and (row or not _is_empty_page(file)):
            raise InputError(
                f"{file} has neither observations (type and traceId) nor scores (dataType) of the API. Exports are not "
                "read; get pages of the API."
            )
    observations = [file for file in files if "type" in first_rows[file]]
    if not observations:
        raise InputError(
            f"there are no observations among {', '.join(map(str, files))}; expected rows with type and output."
        )
    reader = _Reader(log, OnlyName("score", log.selection.metric))
    for file in files:
        if "dataType" in first_rows[file]:
            reader.gather_scores(file)
    reader.names.check()
    for file in observations:
        rows = (item.value for item in items_of(file, lambda fault: None, "data"))
        reader.generations.update(text_of(row.get("traceId")) for row in rows if reader.is_wanted(row))
    for file in observations:
        yield from log.rows(file, reader.outcome, "data")


def _is_empty_page(file: Path) -> bool:
    """Return whether a file without rows is a page of the API, such as the one after the last row."""
    with opened_text(file) as stream:
        start = stream.read(1000).strip()
    return start in ("", "[]") or '"data"' in start


@dataclass(frozen=True)
class _Reader:
    """Reads observations.

    scores, confidences : by the id of an observation or a trace; of several scores, the preferred one.
    generations : the number of generations in each trace.
    """

    log: Log
    names: OnlyName
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)
    confidences: dict[str, Any] = field(default_factory=dict)
    generations: Counter[str | None] = field(default_factory=Counter)

    def gather_scores(self, file: Path) -> None:
        for item in items_of(file, self.log.on_fault, "data"):
            row = item.value
            if "subject" not in row:
                raise InputError(
                    f"{file} has scores that do not say which observation or trace they judge. Get them from the API "
                    'with fields="subject".'
                )
            name, id_ = text_of(row.get("name")), text_of(inside(row, "subject", "id"))
            # Others belong to a session, or to a whole run over a data set.
            is_ours = inside(row, "subject", "kind") in ("observation", "trace")
            if name is None or id_ is None or not is_ours:
                continue
            if name == _CONFIDENCE:
                self.confidences[id_] = row.get("value")
            elif row.get("dataType") not in _TEXTS and self.names.takes(name):
                self.scores[id_] = max(self.scores.get(id_, row), row, key=_rank)

    def is_wanted(self, row: dict[str, Any]) -> bool:
        is_generation = str(row.get("type")).upper() == "GENERATION"
        return is_generation and self.log.selection.observation in (None, row.get("name"))

    def outcome(self, item: Item) -> Outcome:
        row = item.value
        id_ = text_of(row.get("id"))
        if id_ is None or "type" not in row:
            raise UnusableRowError("there are no id and type; expected an observation of Langfuse.")
        if not self.is_wanted(row):
            return Dropped("it is not a generation, or has another name")
        output, question = reply_of(row.get("output")), self.log.question(row.get("input"))
        if not output or question is None:
            return Dropped("there is no input" if output else "there is no output")
        trace = text_of(row.get("traceId"))
        score = self.scores.get(id_)
        if score is None and trace in self.scores:
            if self.generations[trace] > 1:
                return Dropped("the score is of a trace with several generations (--observation chooses one)")
            score = self.scores[trace]
        score = score or {}
        correct = self.log.grade(score.get("stringValue") or score.get("value"), f"the score {score.get('name')}")
        judge = str(score.get("source"))
        metadata = unpacked(row.get("metadata"))
        number, truth = inside(metadata, _CONFIDENCE), named_text(metadata, TRUTHS)
        if number is None:
            number = self.confidences.get(id_, self.confidences.get(trace or ""))
        answer, stated = stated_reply(output, is_cut=is_cut_off(row.get("output")))
        return self.log.row(
            question,
            answer,
            correct,
            {METADATA: self.log.confidence(number), STATED: stated},
            model=text_of(row.get("providedModelName")) or text_of(row.get("model")),
            key=(id_,),
            ground_truth=texts_of(truth[1]) if truth else (),
            prompt=prompt_of(row.get("input")),
            judge=None if correct is None else "human" if judge == "ANNOTATION" else judge.lower(),
            objects=[
                ("langfuse", {"observation_id": id_, "trace_id": trace}),
                ("metadata", metadata),
                ("observation", {"name": row.get("name"), "environment": row.get("environment")}),
                ("trace", {"trace_name": row.get("traceName")}),
            ],
            used=(_CONFIDENCE, *(truth or ())[:1]),
        )


def _rank(score: dict[str, Any]) -> tuple[int, str]:
    return judgement_rank(str(score.get("source")), _SOURCES, score.get("updatedAt"))
