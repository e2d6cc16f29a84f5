"""Your own table: Parquet, CSV or JSON lines, with columns of any names; also for RAGAS and LangSmith."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.columns import expression_key, require_expressions
from qacal.records.files import OnFault
from qacal.sources.importers.base import Confidence, Outcome, Scored, Selection, UnusableRowError
from qacal.sources.importers.confidences import parse_confidence
from qacal.sources.importers.items import TABLES, Item, files_in, first_item, items_of, read_each
from qacal.sources.importers.rows import graded, log_row
from qacal.sources.importers.texts import Question
from qacal.sources.importers.values import text_of, truths_of
from qacal.tally.arrays import is_missing

_NEEDED = ("question", "answer")
_KNOWN = (
    *("id", "question", "answer", "confidence", "confidence_source", "correct", "ground_truth"),
    *("model", "prompt", "task", "judge"),
)


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the rows of tables, with their other columns."""
    require_expressions(selection.expressions)
    words = {expression_key(expression): number for expression, number in selection.expressions.items()}
    for path in files_in(paths, *TABLES):
        _require_columns(path, selection)
        yield from read_each(items_of(path, on_fault), partial(_outcome, selection, words), on_fault)


def _outcome(selection: Selection, words: Mapping[str, float], item: Item) -> Outcome:
    row = _by_record_names(item.value, selection.columns)
    columns = {name: selection.columns.get(name, name) for name in _KNOWN}
    for name in _NEEDED:
        if text_of(row.get(name)) is None:
            raise UnusableRowError(f"{columns[name]} is {row.get(name)!r}; expected text.")
    present = {name: value for name, value in row.items() if not is_missing(value)}
    confidence = present.get("confidence")
    source = text_of(row.get("confidence_source")) or columns["confidence"]
    if isinstance(confidence, str) and expression_key(confidence) in words:
        offer: Confidence = Scored(words[expression_key(confidence)], source)
    else:
        place = f"the column {columns['confidence']!r}"
        offer = parse_confidence(confidence, selection, source, place)
    return log_row(
        selection,
        Question(str(row["question"])),
        str(row["answer"]),
        graded(present.get("correct"), selection.correct_at, f"the column {columns['correct']!r}"),
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


def _require_columns(path: Path, selection: Selection) -> None:
    first = first_item(path)
    for name in dict.fromkeys((*_NEEDED, *selection.columns)) if first else ():
        column = selection.columns.get(name, name)
        if column not in first:
            have = ", ".join(first)
            raise InputError(f"{path} has no column {column!r}; it has {have}. Pass --column {name}=ITS_NAME.")
