"""Batches of the OpenAI API: the files of requests, responses and errors, and labels of your own.

Responses are in any order and lack their questions, so all files are joined on `custom_id`, which is unique for each
request. A record has the id of its question, so a question that was asked twice has one id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.sources.elicitation.reply import Reply
from qacal.sources.importers.base import Dropped, Item, Log, Outcome, Question, UnusableRowError, first_item, items_of
from qacal.sources.importers.confidences import STATED, TOKENS, by_tokens, is_cut_off, stated_reply
from qacal.sources.importers.texts import inside, listed, prompt_of, text_of, truths_of
from qacal.tally.arrays import is_missing

_IDS = ("custom_id", "id")


def read(log: Log) -> Iterator[Outcome]:
    """Yield the responses, and a dropped row for each request without one."""
    files = log.files("*.jsonl")
    are_requests = {file: "body" in first_item(file) for file in files}
    responses = [file for file in files if not are_requests[file]]
    if not responses:
        raise InputError(f"there is no batch output among {', '.join(map(str, files))}; only requests.")
    batch = _Batch(log, {}, {} if log.selection.labels is None else _labels(log.selection.labels), set())
    for file in files:
        if are_requests[file]:
            batch.gather_requests(file)
    for file in responses:
        yield from log.rows(file, batch.outcome)
    for _ in batch.requests.keys() - batch.answered:
        yield Dropped("the request has no response")


@dataclass(frozen=True, slots=True)
class _Request:
    question: Question | None
    prompt: str | None
    model: str | None


@dataclass(frozen=True)
class _Batch:
    log: Log
    requests: dict[str, _Request]
    labels: Mapping[str, dict[str, Any]]
    answered: set[str]

    def gather_requests(self, file: Path) -> None:
        for item in items_of(file, self.log.on_fault):
            id_, body = text_of(item.value.get("custom_id")), item.value.get("body")
            if id_ is None or not isinstance(body, dict):
                raise InputError(f"{item.origin} {item.place}: there are no custom_id and body; expected a request.")
            if id_ in self.requests:
                raise InputError(
                    f"{item.origin} {item.place}: custom_id {id_!r} belongs to two requests. Import batches one by one."
                )
            asked = body.get("messages") or body.get("input") or body.get("prompt")
            question = self.log.question(asked)
            self.requests[id_] = _Request(question, prompt_of(asked), text_of(body.get("model")))

    def outcome(self, item: Item) -> Outcome:
        row = item.value
        id_ = text_of(row.get("custom_id"))
        if id_ is None or "response" not in row:
            raise UnusableRowError("there are no custom_id and response; expected a line of a batch's output.")
        self.answered.add(id_)
        status = inside(row, "response", "status_code")
        if row.get("error") or not row["response"] or status not in (None, 200):
            return Dropped(f"the request failed ({inside(row, 'error', 'code') or f'status {status}'})")
        return self._row(id_, inside(row, "response", "body"))

    def _row(self, id_: str, body: Any) -> Outcome:
        request = self.requests.get(id_, _Request(None, None, None))
        label = {name: value for name, value in self.labels.get(id_, {}).items() if not is_missing(value)}
        named = text_of(label.get("question"))
        question = Question(named) if named else request.question
        if question is None:
            return Dropped("the question is not known: neither the requests nor the labels have its custom_id")
        try:
            reply = Reply.from_body(_completion(body))
        except InputError as error:
            raise UnusableRowError(str(error)) from None
        if reply.refusal or not reply.text.strip():
            return Dropped("the LLM refused" if reply.refusal else "there is no reply")
        answer, stated = stated_reply(reply.text, is_cut=reply.is_cut)
        model = text_of(inside(body, "model")) or request.model
        return self.log.row(
            question,
            answer,
            self.log.grade(label.get("correct"), "the column 'correct' of the labels"),
            {STATED: stated, TOKENS: by_tokens(reply, answer)},
            model=model,
            key=(self.log.selection.model or model, id_),
            ground_truth=truths_of(label.get("ground_truth")),
            prompt=request.prompt,
            judge=text_of(label.get("judge")),
            columns={"custom_id": id_},
            objects=[("label", label)],
            used=(*_IDS, "question", "correct", "ground_truth", "judge"),
        )


def _completion(body: Any) -> Any:
    """Return a body of the Responses API as a chat completion; others as they are."""
    if not isinstance(body, dict) or "output" not in body or "choices" in body:
        return body
    parts = [part for message in listed(body["output"]) for part in listed(inside(message, "content"))]
    texts = [text_of(inside(part, "text")) for part in parts if inside(part, "type") == "output_text"]
    finish = "length" if is_cut_off(body) else "stop"
    return {"choices": [{"message": {"content": "".join(filter(None, texts))}, "finish_reason": finish}]}


def _labels(path: Path) -> dict[str, dict[str, Any]]:
    labels: dict[str, dict[str, Any]] = {}
    for item in items_of(path, _refuse):
        id_ = next((text_of(item.value[name]) for name in _IDS if name in item.value), None)
        if id_ is None:
            raise InputError(f"{path} {item.place}: labels need a column custom_id, or id.")
        if id_ in labels:
            raise InputError(f"{path} {item.place}: {id_!r} is labelled twice.")
        labels[id_] = item.value
    return labels


def _refuse(fault: object) -> None:
    # Rows of the log may be skipped, but not those of the labels.
    raise InputError(str(fault))
