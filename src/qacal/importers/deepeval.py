"""DeepEval: test runs as one ``.json``, a test case for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.files import OnFault
from qacal.importers.base import (
    Dropped,
    Found,
    Outcome,
    Selection,
    UnusableRowError,
    inside,
    listed,
    members,
    plain_columns,
    text_of,
    texts_of,
)
from qacal.importers.confidences import METADATA, STATED, answer_in, parsed, stated, weighed, written
from qacal.importers.grades import graded
from qacal.importers.items import Item, files_in, items_of, read_each
from qacal.importers.texts import digest, question_of


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the test cases of runs; the latest run lies one level deeper in its file than others."""
    if selection.correct_at is not None and selection.metric is None:
        raise InputError("a case of DeepEval has a score for each metric; --correct-at needs --metric.")
    for path in files_in(paths, "test_run_*.json", ".latest_test_run.json"):
        cases = _Cases(selection)
        count = 0
        for inner in (("testCases",), ("testRunData", "testCases")):
            for outcome in read_each(items_of(path, on_fault, *inner), cases.outcome, on_fault):
                count += 1
                yield outcome
            if count:
                break
        else:
            raise InputError(f"{path} has no testCases; expected a test run of DeepEval.")


@dataclass(frozen=True)
class _Cases:
    selection: Selection

    def outcome(self, item: Item) -> Outcome:
        case = item.value
        asked, output = question_of(case.get("input"), self.selection.question_after), text_of(case.get("actualOutput"))
        if asked is None:
            raise UnusableRowError("there is no input; expected a test case of DeepEval.")
        if output is None:
            return Dropped("there is no reply")
        correct = self._correct(case)
        return correct if isinstance(correct, Dropped) else self._found(item, case, asked, output, correct)

    def _correct(self, case: dict[str, Any]) -> float | Dropped | None:
        metrics = [members(metric) for metric in listed(case.get("metricsData"))]
        wanted = self.selection.metric
        if wanted is None:
            success = case.get("success")
            return graded(success) if metrics and success is not None else None
        metric = next((metric for metric in metrics if metric.get("name") == wanted), None)
        if metric is None:
            return Dropped(f"it has no metric {wanted}")
        value = metric.get("success") if self.selection.correct_at is None else metric.get("score")
        if value is None:
            return Dropped("the metric gave nothing")
        return graded(value, self.selection.correct_at, f"the metric {wanted}")

    def _found(self, item: Item, case: dict[str, Any], asked: str, output: str, correct: float | None) -> Found:
        metadata = members(case.get("metadata")) or members(case.get("additionalMetadata"))
        outcome = parsed(output)
        confidence = weighed(
            {
                METADATA: written(inside(metadata, "confidence"), percent=self.selection.percent),
                STATED: stated(outcome),
            },
            self.selection.confidence_from,
        )
        return Found(
            id=digest(asked),
            question=asked,
            answer=answer_in(outcome, output),
            confidence=confidence.confidence,
            correct=correct,
            key=(f"{item.origin} {item.place}",),
            ground_truth=texts_of(case.get("expectedOutput")),
            model=self.selection.model,
            columns={**confidence.columns, **plain_columns(("metadata", metadata), used=("confidence",))},
            off_scale=confidence.off_scale,
        )
