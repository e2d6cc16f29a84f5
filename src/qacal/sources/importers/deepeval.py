"""DeepEval: test runs as one ``.json``, a test case for each row.

In a conversation, the last reply is the answer and all before it is the question; the metrics judge the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from qacal.errors import InputError
from qacal.sources.importers.base import Dropped, Item, Log, Outcome, UnusableRowError, first_item
from qacal.sources.importers.confidences import METADATA, STATED, stated_reply
from qacal.sources.importers.texts import inside, listed, members, text_of, texts_of

_LISTS = [(*outer, name) for outer in ((), ("testRunData",)) for name in ("testCases", "conversationalTestCases")]


def read(log: Log) -> Iterator[Outcome]:
    """Yield the test cases of runs; the latest run lies one level deeper in its file than others."""
    if log.selection.correct_at is not None and log.selection.metric is None:
        raise InputError("a case of DeepEval has a score for each metric; --correct-at needs --metric.")
    for path in log.files("test_run_*.json", ".latest_test_run.json"):
        count = 0
        for inner in [()] if first_item(path) else _LISTS:
            if count and len(inner) > 1:
                break
            for outcome in log.rows(path, partial(_outcome, log), *inner):
                count += 1
                yield outcome
        if not count:
            raise InputError(f"{path} has no testCases; expected a test run of DeepEval.")


def _outcome(log: Log, item: Item) -> Outcome:
    case = item.value
    chat, output = case.get("input"), text_of(case.get("actualOutput"))
    if "turns" in case:
        turns = [members(turn) for turn in listed(case["turns"])]
        is_answered = bool(turns) and turns[-1].get("role") == "assistant"
        chat, output = turns[:-1], text_of(turns[-1].get("content")) if is_answered else None
    asked = log.question(chat)
    if asked is None and output is not None:
        raise UnusableRowError("there is no input and no turn of a user; expected a test case of DeepEval.")
    if asked is None or output is None:
        return Dropped("there is no reply")
    metadata = members(case.get("metadata")) or members(case.get("additionalMetadata"))
    # The expected outcome of a conversation is a description, not a spelling of the answer.
    planned = {"scenario": case.get("scenario"), "expected_outcome": case.get("expectedOutcome")}
    answer, stated = stated_reply(output)
    number = log.confidence(inside(metadata, "confidence"))
    return log.row(
        asked,
        answer,
        _correct(log, case),
        {METADATA: number, STATED: stated},
        key=(f"{item.origin} {'conversation' if 'turns' in case else 'case'}, {item.place}",),
        ground_truth=texts_of(case.get("expectedOutput")),
        objects=[("metadata", metadata), ("case", planned)],
        used=("confidence",),
    )


def _correct(log: Log, case: dict[str, Any]) -> float | Dropped | None:
    metrics = [members(metric) for metric in listed(case.get("metricsData"))]
    wanted = log.selection.metric
    if wanted is None:
        return log.grade(case.get("success")) if metrics else None
    metric = next((metric for metric in metrics if metric.get("name") == wanted), None)
    if metric is None:
        return Dropped(f"it has no metric {wanted}")
    value = metric.get("success") if log.selection.correct_at is None else metric.get("score")
    if value is None:
        return Dropped("the metric gave nothing")
    return log.grade(value, f"the metric {wanted}")
