"""promptfoo: results as ``.json`` or ``.jsonl``, one row for each test, prompt and provider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qacal.records.files import OnFault
from qacal.sources.importers.base import Dropped, Outcome, Selection, UnusableRowError
from qacal.sources.importers.confidences import (
    METADATA,
    STATED,
    TOKENS,
    ParsedReply,
    by_logprobs,
    is_cut_off,
    parse_confidence,
)
from qacal.sources.importers.items import Item, files_in, items_of, read_each
from qacal.sources.importers.rows import graded, log_row
from qacal.sources.importers.texts import QUESTIONS, TRUTHS, Question, as_text, digest, named_text, question_of
from qacal.sources.importers.values import inside, members, text_of

_FAILED = 2


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the results of evaluations; errors of providers are dropped, failed assertions are wrong answers."""
    for path in files_in(paths, "*.json", "*.jsonl"):
        items = items_of(path, on_fault, "results", "results")
        yield from read_each(items, partial(_outcome, selection), on_fault)


def _outcome(selection: Selection, item: Item) -> Outcome:
    row = item.value
    if "success" not in row or not ("vars" in row or "testCase" in row):
        raise UnusableRowError("there are no success and vars; expected a result of promptfoo.")
    output = inside(row, "response", "output")
    if row.get("failureReason") == _FAILED or output is None:
        return Dropped("the provider failed")
    variables = members(row.get("vars")) or members(inside(row, "testCase", "vars"))
    metadata, text = members(row.get("metadata")), as_text(output)
    reply = ParsedReply.of(text, is_cut=is_cut_off(row["response"]))
    tokens = by_logprobs(inside(row, "response", "logProbs"), is_answer=reply.answer == text.strip())
    number = parse_confidence(inside(metadata, "confidence"), selection)
    asked, truth = named_text(variables, QUESTIONS), named_text(variables, TRUTHS)
    raw = inside(row, "prompt", "raw")
    question = Question(asked[1]) if asked else question_of(raw, selection) or Question("")
    names = (text_of(inside(row, "provider", name)) for name in ("label", "id"))
    return log_row(
        selection,
        question,
        reply.answer,
        _correct(selection, row),
        {METADATA: number, STATED: reply.stated, TOKENS: tokens},
        # Variables stay the same under every prompt; without them, the prompt is the question.
        identity=digest(variables if variables and not asked else question.text or raw),
        model=next(filter(None, names), None),
        key=("result", text_of(row.get("id")) or f"{item.origin} {item.place}"),
        ground_truth=(truth[1],) if truth else (),
        prompt=text_of(inside(row, "prompt", "label")),
        objects=[("vars", variables), ("metadata", metadata)],
        used=("confidence", *(asked or ())[:1], *(truth or ())[:1]),
    )


def _correct(selection: Selection, row: dict[str, Any]) -> float | Dropped | None:
    metric, threshold = selection.metric, selection.correct_at
    if metric is not None:
        score = graded(inside(row, "namedScores", metric), threshold, f"the metric {metric}")
        return Dropped(f"it has no metric {metric}") if score is None else score
    if not inside(row, "gradingResult", "componentResults"):
        # Without assertions every output is a success; nothing was judged.
        return None
    return graded(row["success"] if threshold is None else row.get("score", row["success"]), threshold)
