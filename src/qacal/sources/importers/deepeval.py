"""DeepEval: test runs as one ``.json``, a test case for each row.

In a conversation, the last reply is the answer and all before it is the question; the metrics judge the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.files import OnFault
from qacal.sources.importers.base import Dropped, Outcome, Selection, UnusableRowError
from qacal.sources.importers.confidences import METADATA, STATED, ParsedReply, parse_confidence
from qacal.sources.importers.items import Item, files_in, first_item, items_of, read_each
from qacal.sources.importers.rows import graded, log_row
from qacal.sources.importers.texts import question_of
from qacal.sources.importers.values import inside, listed, members, text_of, texts_of

_LISTS = [(*outer, name) for outer in ((), ("testRunData",)) for name in ("testCases", "conversationalTestCases")]


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the test cases of runs; the latest run lies one level deeper in its file than others."""
    if selection.correct_at is not None and selection.metric is None:
        raise InputError("a case of DeepEval has a score for each metric; --correct-at needs --metric.")
    for path in files_in(paths, "test_run_*.json", ".latest_test_run.json"):
        count = 0
        for inner in [()] if first_item(path) else _LISTS:
            if count and len(inner) > 1:
                break
            for outcome in read_each(items_of(path, on_fault, *inner), partial(_outcome, selection), on_fault):
                count += 1
                yield outcome
        if not count:
            raise InputError(f"{path} has no testCases; expected a test run of DeepEval.")


def _outcome(selection: Selection, item: Item) -> Outcome:
    case = item.value
    chat, output = case.get("input"), text_of(case.get("actualOutput"))
    if "turns" in case:
        turns = [members(turn) for turn in listed(case["turns"])]
        is_answered = bool(turns) and turns[-1].get("role") == "assistant"
        chat, output = turns[:-1], text_of(turns[-1].get("content")) if is_answered else None
    asked = question_of(chat, selection)
    if asked is None and output is not None:
        raise UnusableRowError("there is no input and no turn of a user; expected a test case of DeepEval.")
    if asked is None or output is None:
        return Dropped("there is no reply")
    metadata = members(case.get("metadata")) or members(case.get("additionalMetadata"))
    # The expected outcome of a conversation is a description, not a spelling of the answer.
    planned = {"scenario": case.get("scenario"), "expected_outcome": case.get("expectedOutcome")}
    reply = ParsedReply.of(output)
    number = parse_confidence(inside(metadata, "confidence"), selection)
    return log_row(
        selection,
        asked,
        reply.answer,
        _correct(selection, case),
        {METADATA: number, STATED: reply.stated},
        key=(f"{item.origin} {'conversation' if 'turns' in case else 'case'}, {item.place}",),
        ground_truth=texts_of(case.get("expectedOutput")),
        objects=[("metadata", metadata), ("case", planned)],
        used=("confidence",),
    )


def _correct(selection: Selection, case: dict[str, Any]) -> float | Dropped | None:
    metrics = [members(metric) for metric in listed(case.get("metricsData"))]
    wanted = selection.metric
    if wanted is None:
        return graded(case.get("success")) if metrics else None
    metric = next((metric for metric in metrics if metric.get("name") == wanted), None)
    if metric is None:
        return Dropped(f"it has no metric {wanted}")
    value = metric.get("success") if selection.correct_at is None else metric.get("score")
    if value is None:
        return Dropped("the metric gave nothing")
    return graded(value, selection.correct_at, f"the metric {wanted}")
