"""A table of your own: Parquet, CSV or JSON lines, with columns of any names; also for RAGAS and LangSmith."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from qacal.errors import InputError
from qacal.records.columns import expression_key, require_expressions
from qacal.records.files import OnFault
from qacal.sources.importers.base import Dropped, Outcome, Scored, Selection, UnusableRowError, text_of
from qacal.sources.importers.confidences import parse_confidence
from qacal.sources.importers.correctness import graded
from qacal.sources.importers.items import TABLES, Item, files_in, first_item, items_of, read_each
from qacal.sources.importers.rows import log_row
from qacal.sources.importers.texts import Question, truths_of
from qacal.tally.arrays import is_missing

_NEEDED = ("question", "answer")
_KNOWN = (
    *("id", "question", "answer", "confidence", "confidence_source", "correct", "ground_truth"),
    *("model", "prompt", "task", "judge"),
)


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the rows of tables, with their other columns."""
    rows = _Rows(selection)
    for path in files_in(paths, *TABLES):
        _require_columns(path, selection)
        yield from read_each(items_of(path, on_fault), rows.outcome, on_fault)


@dataclass(frozen=True)
class _Rows:
    selection: Selection

    @cached_property
    def _words(self) -> dict[str, float]:
        require_expressions(self.selection.expressions)
        return {expression_key(words): number for words, number in self.selection.expressions.items()}

    def outcome(self, item: Item) -> Outcome:
        row = self._named(item.value)
        texts = {name: text_of(row.get(name)) for name in _NEEDED}
        for name, text in texts.items():
            if text is None:
                raise UnusableRowError(f"{self._own(name)} is {row.get(name)!r}; expected text.")
        correct = None
        if not is_missing(row.get("correct")):
            correct = graded(row["correct"], self.selection.correct_at, f"the column {self._own('correct')!r}")
        if isinstance(correct, Dropped):
            return correct
        source = text_of(row.get("confidence_source")) or self._own("confidence")
        value = None if is_missing(row.get("confidence")) else row["confidence"]
        number = self._words.get(expression_key(value)) if isinstance(value, str) else None
        offer = parse_confidence(
            value, percent=self.selection.percent, source=source, place=f"the column {self._own('confidence')!r}"
        )
        return log_row(
            self.selection,
            Question(str(row["question"])),
            str(row["answer"]),
            correct,
            {source: offer if number is None else Scored(number, source)},
            identity=text_of(row.get("id")),
            model=text_of(row.get("model")),
            key=(item.origin, item.place),
            ground_truth=truths_of(row.get("ground_truth")),
            prompt=text_of(row.get("prompt")),
            task=text_of(row.get("task")),
            judge=text_of(row.get("judge")),
            columns={name: value for name, value in row.items() if name not in _KNOWN and not is_missing(value)},
        )

    def _own(self, name: str) -> str:
        return self.selection.columns.get(name, name)

    def _named(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a row by the names of records; a column whose name another one has becomes ``table_NAME``."""
        mapped = self.selection.columns
        others = {name: value for name, value in values.items() if name not in mapped.values()}
        renamed = {f"table_{name}" if name in mapped else name: value for name, value in others.items()}
        return renamed | {name: values.get(own) for name, own in mapped.items()}


def _require_columns(path: Path, selection: Selection) -> None:
    first = first_item(path)
    for name in dict.fromkeys((*_NEEDED, *selection.columns)) if first else ():
        own = selection.columns.get(name, name)
        if own not in first:
            have = ", ".join(first)
            raise InputError(f"{path} has no column {own!r}; it has {have}. Say --column {name}=ITS_NAME.")
