"""lm-evaluation-harness: the files ``samples_<task>_<time>.jsonl`` that ``--log_samples`` writes, one row per question.

A task with several filters has a row for each of them, with another answer and another score. One filter is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.records.files import OnFault
from qacal.sources.importers import lm_eval_choices, lm_eval_replies
from qacal.sources.importers.base import (
    Dropped,
    Found,
    OnlyName,
    Outcome,
    Selection,
    UnusableRowError,
    inside,
    listed,
    plain_columns,
    text_of,
)
from qacal.sources.importers.items import Item, document, files_in, items_of, read_each
from qacal.sources.importers.lm_eval_rows import Judged, Sample
from qacal.sources.importers.texts import Question, named_question, prompt_of, question_of

_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl(?:\.gz)?")
_QUESTIONS = ("question", "question_stem", "query", "problem", "goal", "input", "inputs")


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the rows of sample files, or of all of them in folders."""
    metrics = OnlyName("metric", selection.metric)
    filters = OnlyName("filter", selection.filter)
    for path in files_in(paths, "samples_*.jsonl", "samples_*.jsonl.gz"):
        if selection.filter is None:
            filters = OnlyName("filter", None, f"{path}: ")
        results, task = results_of(path), task_of(path)
        model = selection.model or model_of(path, results)
        log = _Log(task, model, selection, filters, metrics, _steps(results, task))
        yield from read_each(items_of(path, on_fault), log.outcome, on_fault)
        if selection.filter is None:
            filters.check()
    filters.check()
    if selection.metric is not None:
        metrics.check()


@dataclass(frozen=True)
class _Log:
    task: str
    model: str
    selection: Selection
    filters: OnlyName
    metrics: OnlyName
    steps: Mapping[str, list[dict[str, Any]]]

    def outcome(self, item: Item) -> Outcome:
        row = item.value
        if "doc_id" not in row or not isinstance(row.get("filtered_resps"), list) or not row["filtered_resps"]:
            raise UnusableRowError("there are no doc_id and filtered_resps; expected a row of lm-eval's samples.")
        filter_ = str(row.get("filter", "none"))
        if not self.filters.takes(filter_):
            return Dropped("it is of another filter")
        sample = Sample.of(row, self.steps.get(filter_))
        for name in sample.metrics:
            self.metrics.takes(name)
        if self.selection.metric not in (None, *sample.metrics):
            return Dropped(f"it has no metric {self.selection.metric}")
        judge = lm_eval_choices.judged if sample.has_likelihoods else lm_eval_replies.judged
        judged = judge(sample, self.selection)
        return judged if isinstance(judged, Dropped) else self._found(sample, judged, filter_)

    def _found(self, sample: Sample, judged: Judged, filter_: str) -> Found:
        id_ = f"{self.task}:{sample.row['doc_id']}"
        prompt = prompt_of(sample.prompt)
        named = named_question(sample.doc, _QUESTIONS)
        question = Question(named[1]) if named else question_of(sample.prompt, self.selection) or Question("")
        return Found(
            id=id_,
            question=question.text,
            answer=judged.answer,
            confidence=judged.confidence,
            correct=judged.correct,
            key=(self.model, id_, filter_),
            ground_truth=judged.ground_truth,
            model=self.model,
            prompt=prompt,
            task=self.task,
            columns={
                **({"filter": filter_} if "filter" in sample.row else {}),
                **plain_columns(("doc", sample.doc), used=named[:1] if named else ()),
            },
            turns=question.turns,
        )


def task_of(path: Path) -> str:
    """Return the task that a file of samples is named after.

    >>> task_of(Path("samples_mmlu_law_2026-11-15T19-20-00.263815.jsonl")), task_of(Path("old_run.jsonl"))
    ('mmlu_law', 'old_run')
    """
    name = _NAME.fullmatch(path.name)
    return name["task"] if name else path.name.removesuffix(".gz").removesuffix(".jsonl")


def results_of(path: Path) -> Any:
    """Return what the run of a file of samples has in ``results_*.json`` beside it, None if there is no such file."""
    name = _NAME.fullmatch(path.name)
    results = sorted(path.absolute().parent.glob("results_*.json"))
    of_run = [file for file in results if name and name["time"] and name["time"] in file.name] or results[-1:]
    return document(of_run[0]) if of_run else None


def model_of(path: Path, results: Any) -> str:
    """Return the LLM's name: from the results of the same run, else from the folder, which lm-eval names after it."""
    said = inside(results, "model_name")
    return said if isinstance(said, str) and said else path.absolute().parent.name.replace("__", "/")


def _steps(results: Any, task: str) -> dict[str, list[dict[str, Any]]]:
    """Return the steps of each filter of a task."""
    filters = listed(inside(results, "configs", task, "filter_list"))
    steps = {text_of(inside(one, "name")): inside(one, "filter") for one in filters}
    return {
        name: parts
        for name, parts in steps.items()
        if name and isinstance(parts, list) and all(isinstance(part, dict) for part in parts)
    }
