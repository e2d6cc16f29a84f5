"""Your own table: Parquet, CSV or JSON lines, with columns of any names; also for RAGAS and LangSmith."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.columns import expression_key, require_expressions
from qacal.sources.importers.base import TABLES, Item, Log, Outcome, Question, UnusableRowError, first_item
from qacal.sources.importers.confidences import Confidence, Scored
from qacal.sources.importers.texts import text_of, truths_of
from qacal.tally.arrays import is_missing

_NEEDED = ("question", "answer")
_KNOWN = (
    *("id", "question", "answer", "confidence", "confidence_source", "correct", "ground_truth"),
    *("model", "prompt", "task", "judge"),
)


def read(log: Log) -> Iterator[Outcome]:
    """Yield the rows of tables, with their other columns."""
    expressions = log.selection.expressions
    require_expressions(expressions)
    words = {expression_key(expression): number for expression, number in expressions.items()}
    for path in log.files(*TABLES):
        _require_columns(path, log.selection.columns)
        yield from log.rows(path, partial(_outcome, log, words))


def _outcome(log: Log, words: Mapping[str, float], item: Item) -> Outcome:
    row = _by_record_names(item.value, log.selection.columns)
    columns = {name: log.selection.columns.get(name, name) for name in _KNOWN}
    for name in _NEEDED:
        if text_of(row.get(name)) is None:
            raise UnusableRowError(f"{columns[name]} is {row.get(name)!r}; expected text.")
    present = {name: value for name, value in row.items() if not is_missing(value)}
    confidence = present.get("confidence")
    source = text_of(row.get("confidence_source")) or columns["confidence"]
    if isinstance(confidence, str) and expression_key(confidence) in words:
        offer: Confidence = Scored(words[expression_key(confidence)], source)
    else:
        offer = log.confidence(confidence, source, f"the column {columns['confidence']!r}")
    return log.row(
        Question(str(row["question"])),
        str(row["answer"]),
        log.grade(present.get("correct"), f"the column {columns['correct']!r}"),
        {source: offer},
        identity=text_of(row.get("id")),
        model=text_of(row.get("model")),
        key=(item.origin, item.place),
        ground_truth=truths_of(row.get("ground_truth")),
        prompt=text_of(row.get("prompt")),
        task=text_of(row.get("task")),
        judge=text_of(row.get("judge")),
        columns={name: value for name, value in present.items() if name not in _KNOWN},
    )


def _by_record_names(values: dict[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a row by the names of records; another column with one of these names becomes ``table_NAME``."""
    others = {name: value for name, value in values.items() if name not in columns.values()}
    renamed = {f"table_{name}" if name in columns else name: value for name, value in others.items()}
    return renamed | {name: values.get(column) for name, column in columns.items()}


def _require_columns(path: Path, columns: Mapping[str, str]) -> None:
    first = first_item(path)
    for name in dict.fromkeys((*_NEEDED, *columns)) if first else ():
        column = columns.get(name, name)
        if column not in first:
            have = ", ".join(first)
            raise InputError(f"{path} has no column {column!r}; it has {have}. Pass --column {name}=ITS_NAME.")
