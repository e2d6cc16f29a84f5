"""promptfoo: results as ``.json`` or ``.jsonl``, one row for each test, prompt and provider."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from qacal.sources.importers.base import Dropped, Item, Log, Outcome, Question, UnusableRowError
from qacal.sources.importers.confidences import METADATA, STATED, TOKENS, by_logprobs, is_cut_off, stated_reply
from qacal.sources.importers.texts import QUESTIONS, TRUTHS, as_text, digest, inside, members, named_text, text_of

_FAILED = 2


def read(log: Log) -> Iterator[Outcome]:
    """Yield the results of evaluations; errors of providers are dropped, failed assertions are wrong answers."""
    for path in log.files("*.json", "*.jsonl"):
        yield from log.rows(path, partial(_outcome, log), "results", "results")


def _outcome(log: Log, item: Item) -> Outcome:
    row = item.value
    if "success" not in row or not ("vars" in row or "testCase" in row):
        raise UnusableRowError("there are no success and vars; expected a result of promptfoo.")
    output = inside(row, "response", "output")
    if row.get("failureReason") == _FAILED or output is None:
        return Dropped("the provider failed")
    variables = members(row.get("vars")) or members(inside(row, "testCase", "vars"))
    metadata, text = members(row.get("metadata")), as_text(output)
    answer, stated = stated_reply(text, is_cut=is_cut_off(row["response"]))
    tokens = by_logprobs(inside(row, "response", "logProbs"), is_answer=answer == text.strip())
    number = log.confidence(inside(metadata, "confidence"))
    asked, truth = named_text(variables, QUESTIONS), named_text(variables, TRUTHS)
    raw = inside(row, "prompt", "raw")
    question = Question(asked[1]) if asked else log.question(raw) or Question("")
    names = (text_of(inside(row, "provider", name)) for name in ("label", "id"))
    return log.row(
        question,
        answer,
        _correct(log, row),
        {METADATA: number, STATED: stated, TOKENS: tokens},
        # Variables stay the same under every prompt; without them, the prompt is the question.
        identity=digest(variables if variables and not asked else question.text or raw),
        model=next(filter(None, names), None),
        key=("result", text_of(row.get("id")) or f"{item.origin} {item.place}"),
        ground_truth=(truth[1],) if truth else (),
        prompt=text_of(inside(row, "prompt", "label")),
        objects=[("vars", variables), ("metadata", metadata)],
        used=("confidence", *(asked or ())[:1], *(truth or ())[:1]),
    )


def _correct(log: Log, row: dict[str, Any]) -> float | Dropped | None:
    metric = log.selection.metric
    if metric is not None:
        score = log.grade(inside(row, "namedScores", metric), f"the metric {metric}")
        return Dropped(f"it has no metric {metric}") if score is None else score
    if not inside(row, "gradingResult", "componentResults"):
        # Without assertions every output is a success; nothing was judged.
        return None
    has_threshold = log.selection.correct_at is not None
    return log.grade(row.get("score", row["success"]) if has_threshold else row["success"])
