r"""Records: question-answer pairs with a confidence, checked column by column.

A record has a `question`, an `answer` and a `confidence` in [0, 1]; `correct` where it is known (0/1, or a soft
target); optionally an `id` of the question, and what tells where it comes from (`model`, `prompt`, `confidence_source`,
`judge`). All other columns pass through. A row that cannot be used is never dropped in silence and never guessed: the
fault names file, line, column, value and remedy, and the caller decides whether it is an error, or is left out and
counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from qacal.errors import InputError, QacalWarning
from qacal.parameters import is_number, require_kind, shown
from qacal.records.bad_rows import MAX_BAD, BadRows
from qacal.records.columns import (
    KNOWN,
    Checks,
    Percents,
    distinct_values,
    expression_key,
    listed,
    require_expressions,
    shares,
)
from qacal.records.files import OnFault, open_file, refuse
from qacal.records.table import Table, as_table
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.ids import combined, id_hashes, surplus

if TYPE_CHECKING:
    import polars as pl

PROVENANCE = ("model", "prompt", "confidence_source", "judge")

COPIED = "the same question, answer, confidence and label, by the same LLM"
"""What makes a row an exact copy of another."""
REMOVE_COPIES = "Remove the copies if rows were stored twice; keep them if the LLM was asked several times."
"""What to do about such rows."""

_NO_ROWS = "there is no row to work on: the records are empty, or every row was left out."


class Source(Protocol):
    """Rows that can be read again and again, batch after batch."""

    def batches(self, on_fault: OnFault = refuse) -> Iterator[Table]:
        """Yield the rows."""
        ...


@dataclass(frozen=True)
class _Memory:
    table: Table

    def batches(self, on_fault: OnFault = refuse) -> Iterator[Table]:
        yield self.table


def as_source(records: Any) -> Source:
    """Return where to read records from: a path, a frame of pandas, polars or Arrow, a list of objects, or columns."""
    if isinstance(records, str | Path):
        return open_file(records)
    if hasattr(records, "batches") and not isinstance(records, Table):
        source: Source = records
        return source
    return _Memory(as_table(records))


def is_records(records: Any) -> bool:
    """Return whether these are records: a path, a frame, a list of objects or columns; and no array of numbers.

    >>> is_records([{"confidence": 0.9}]), is_records("rows.csv"), is_records([0.9, 0.8]), is_records(0.9)
    (True, True, False, False)
    """
    if isinstance(records, list | tuple):
        return bool(records) and isinstance(records[0], Mapping)
    # Of the type: asking a lazy frame itself for its columns starts its query.
    return isinstance(records, str | Path | Mapping | Table) or any(
        hasattr(type(records), name) for name in ("columns", "column_names", "batches")
    )


def require_names(columns: Any) -> None:
    """Refuse what is no mapping of columns to their names."""
    require_kind(columns, Mapping, "columns", 'what columns are called, such as {"confidence": "score"}')


@dataclass(frozen=True)
class Reading:
    """How to read records.

    columns : what a column is called in the rows, if not by its own name: ``{"confidence": "score"}``.
    percent : confidences are percents.
    on_fault : what to do with a row that cannot be used; it is an error by default.
    max_bad : the largest share of such rows; if there are more, it is an error that counts them by reason.
    expressions : what a confidence in words stands for: ``{"high": 0.85}``.
    assumes_percent : nobody said that these confidences are percents; those of the model's fit were.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    percent: bool = False
    on_fault: OnFault = refuse
    max_bad: float = MAX_BAD
    expressions: Mapping[str, float] = field(default_factory=dict)
    assumes_percent: bool = False

    def __post_init__(self) -> None:
        require_names(self.columns)
        unknown = sorted(set(self.columns) - set(KNOWN))
        if unknown:
            raise InputError(f"there is no column {unknown[0]!r} to map; those that can be are {', '.join(KNOWN)}.")
        require_expressions(self.expressions)
        if not is_number(self.max_bad, 0, 1):
            raise InputError(f"max_bad is {shown(self.max_bad)}; expected a share from 0 to 1, such as 0.5.")

    def name(self, column: str) -> str:
        """Return what a column is called in the rows."""
        return self.columns.get(column, column)

    def has(self, column: str, names: Sequence[str]) -> bool:
        """Return whether rows with these columns have one; a column `prompt` that is the question is no prompt."""
        is_another = column not in self.columns and column in self.columns.values()
        return self.name(column) in names and not is_another


@dataclass(frozen=True)
class ReadAs:
    """How the rows of a fit were read, which is how other rows are read unless the caller says otherwise.

    columns, percent, expressions : as in :class:`Reading`.

    >>> fit = ReadAs({"confidence": "score"}, percent=True)
    >>> fit.for_rows(["score", "question"])
    ({'confidence': 'score'}, True)
    >>> fit.for_rows(["confidence", "question"])
    ({}, False)
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    percent: bool = False
    expressions: Mapping[str, float] = field(default_factory=dict)

    def for_rows(
        self, names: Sequence[str], columns: Mapping[str, str] | None = None, percent: bool | None = None
    ) -> tuple[dict[str, str], bool]:
        """Return the columns, and whether confidences are percents, for rows that have columns of these names.

        A column that these rows lack has its own name here. Confidences of another column than that of the fit are
        percents only if that is said.

        columns, percent : what was said; it goes before.
        """
        require_names(columns)
        there = {column: name for column, name in self.columns.items() if name in names}
        found = {**there, **(columns or {})}
        is_same = found.get("confidence", "confidence") == self.columns.get("confidence", "confidence")
        return found, (self.percent and is_same) if percent is None else percent

    def validate(self) -> None:
        """Refuse what rows cannot be read by; it may come from a file."""
        Reading(self.columns, self.percent, expressions=self.expressions)


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked rows. What was not asked for, or is not there, is None.

    whole : the rows as they came, bad ones among them.
    kept : which of them are here.
    """

    table: Table
    confidence: Floats
    correct: Floats | None
    question: list[str] | None
    answer: list[str] | None
    ids: Hashes | None
    reading: Reading
    whole: Table
    kept: Ints

    def __len__(self) -> int:
        return len(self.confidence)

    def only(self, keep: Bools) -> Batch:
        """Return some of the rows."""
        if keep.all():
            return self
        rows = np.flatnonzero(keep).tolist()
        return replace(
            self,
            table=self.table.only(keep),
            confidence=self.confidence[keep],
            correct=None if self.correct is None else self.correct[keep],
            question=None if self.question is None else [self.question[row] for row in rows],
            answer=None if self.answer is None else [self.answer[row] for row in rows],
            ids=None if self.ids is None else self.ids[keep],
            kept=self.kept[keep],
        )

    def question_hashes(self) -> Hashes:
        """Return the hashes of the questions' texts, by which rows without ids are known; zeros without texts."""
        if self.question is None:
            return np.zeros(len(self), dtype=np.uint64)
        if self.ids is not None and self.reading.name("id") not in self.table.names:
            return self.ids
        return id_hashes(self.question, len(self))

    def row_hashes(self) -> Hashes | None:
        """Return a hash of all that makes a row, which its exact copies share; None if the texts are not known."""
        if self.question is None or self.answer is None or self.ids is None or self.correct is None:
            return None
        texts = [self.question_hashes(), id_hashes(self.answer, len(self))]
        there = [name for name in PROVENANCE if self.reading.has(name, self.table.names)]
        origins = [id_hashes([repr(value) for value in self.listed(name)], len(self)) for name in there]
        return combined(self.ids, *texts, self.confidence, self.correct, *origins)

    def with_evidence(self, evidence: pl.DataFrame, prefix: str = "") -> Table:
        """Return the rows as they came, with the columns of the evidence, which are empty for rows that are bad."""
        import polars as pl

        if not isinstance(prefix, str):
            raise InputError(f"prefix is {shown(prefix)}; expected a text.")
        # Neither drop nor rename: these wait for threads, which a forked child does not have.
        added = [column.alias(prefix + column.name) for column in evidence if column.name != "confidence"]
        columns = self._for_whole(pl.DataFrame(added))
        taken = sorted(set(columns.columns) & set(self.table.names))
        if taken:
            raise InputError(
                f"{self.table.origin} already has a column {taken[0]!r}. Pass a prefix for the new columns: "
                '--prefix qacal_ (in Python: prefix="qacal_").'
            )
        most = {self.reading.name("confidence"): 100.0 if self.reading.percent else 1.0}
        return self.whole.with_numbers(most | {self.reading.name("correct"): 1.0}).extended(columns)

    def _for_whole(self, columns: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        if len(self) == len(self.whole):
            return columns
        places, wide = self.kept.tolist(), []
        for column in columns:
            values: list[Any] = [None] * len(self.whole)
            for place, value in zip(places, column.to_list(), strict=True):
                values[place] = value
            wide.append(pl.Series(column.name, values, column.dtype))
        return pl.DataFrame(wide)

    def column(self, name: str) -> Any:
        """Return another column."""
        self.table.require(self.reading.name(name))
        return self.table.column(self.reading.name(name))

    def listed(self, name: str) -> list[Any]:
        """Return another column as a list."""
        return listed(self.column(name))

    def calibrated(self) -> Floats | None:
        """Return the calibrated confidences that the rows already carry, if they do."""
        if self.reading.name("calibrated") not in self.table.names:
            return None
        return shares(self.table, self.reading.name("calibrated"), may_miss=False)

    def partial(self, name: str) -> Floats:
        """Return another column of numbers in [0, 1]; NaN where there is none."""
        self.table.require(self.reading.name(name))
        return shares(self.table, self.reading.name(name), may_miss=True)

    def values_of(self, name: str) -> list[Any]:
        """Return the distinct values of a column, None left out; nothing where there is no such column."""
        if not self.reading.has(name, self.table.names):
            return []
        return distinct_values(self.column(name))


class Gathered:
    """Columns gathered batch by batch, and read whole at the end.

    >>> columns = Gathered()
    >>> columns.add(confidence=np.array([0.5]), group=["law"], ids=None)
    >>> columns.add(confidence=np.array([0.9]), group=["art"], ids=None)
    >>> columns["confidence"], columns["group"], columns.get("ids")
    (array([0.5, 0.9]), ['law', 'art'], None)
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}

    def add(self, **columns: Any) -> None:
        """Take the columns of more rows: arrays or lists; None for a column that these rows do not have."""
        for name, values in columns.items():
            if values is not None:
                self._parts.setdefault(name, []).append(values)

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def __getitem__(self, name: str) -> Any:
        parts = self._parts[name]
        if isinstance(parts[0], list):
            return [value for part in parts for value in part]
        return np.concatenate(parts)

    def get(self, name: str) -> Any:
        """Return a column, None if no row has it."""
        return self[name] if name in self._parts else None


def read(
    records: Any,
    reading: Reading | None = None,
    *,
    needs_labels: bool,
    needs_text: bool = True,
    needs_confidence: bool = True,
    reads_labels: bool = False,
    confidences: Sequence[str] = (),
    keeps_bad: bool = False,
) -> Iterator[Batch]:
    """Yield the records batch after batch, checked.

    needs_labels : whether rows without `correct` are faults; if not, `correct` may hold anything.
    needs_text : whether rows without `question` and `answer` are.
    needs_confidence : whether rows without `confidence` are; it is 0 where a table has none.
    reads_labels : read `correct` where rows have it, though they may lack it; what they have must be a label.
    confidences : columns of further confidences; rows may lack them, but what they have must be one.
    keeps_bad : also yield batches in which all rows are bad, for callers who want all rows as given.
    """
    reading = reading or Reading()
    seen, percents = 0, Percents()
    has_id: bool | None = None
    for table, counting in tables_of(records, reading):
        # The first batch tells what the others must have: ids in some rows only would part the rows of a question.
        has_id = _has_id(table, reading, has_id)
        needs = _Needs(needs_labels, reads_labels, needs_text, needs_confidence, has_id, tuple(confidences))
        batch = _checked(table, counting, needs)
        if len(batch) or keeps_bad:
            seen += len(batch)
            percents.add(batch.confidence)
            yield batch
    if not seen:
        raise InputError(_NO_ROWS)
    if reading.percent:
        percents.require(is_assumed=reading.assumes_percent)


def tables_of(records: Any, reading: Reading) -> Iterator[tuple[Table, Reading]]:
    """Yield the tables of records, each with a reading that counts bad rows; too many are an error at the end."""
    bad = BadRows(reading.on_fault)
    counting = replace(reading, on_fault=bad)
    for table in as_source(records).batches(bad.add_unread):
        bad.add_rows(table.origin, len(table))
        yield table, counting
    if isinstance(reading.on_fault, BadRows):
        reading.on_fault.take_rows(bad)
    bad.require(reading.max_bad)


def read_again(records: Any, reading: Reading, **needs: Any) -> Iterable[Batch]:
    """Return checked records that can be gone through several times: a file is read again, a table is checked once.

    needs : as in :func:`read`.
    """
    source = as_source(records)
    again = _Again(source, reading, needs)
    return list(again) if isinstance(source, _Memory) else again


@dataclass(frozen=True)
class _Again:
    source: Source
    reading: Reading
    needs: Mapping[str, Any]

    def __iter__(self) -> Iterator[Batch]:
        return read(self.source, self.reading, **self.needs)


def distinct(source: Source, reading: Reading, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Return the distinct values of some columns, None left out; nothing where there is no such column."""
    found: dict[str, dict[Any, None]] = {column: {} for column in columns}
    for table in source.batches(reading.on_fault):
        there = table.names
        for column, values in found.items():
            if reading.has(column, there):
                values.update(dict.fromkeys(distinct_values(table.column(reading.name(column)))))
    return {column: list(values) for column, values in found.items()}


def copies_among(rows: Sequence[Hashes | None]) -> str:
    """Return how many rows are exact copies of earlier ones, and what to do about them; empty if none are.

    rows : :meth:`Batch.row_hashes` of all batches.
    """
    known = [hashes for hashes in rows if hashes is not None]
    copies = surplus(np.concatenate(known)) if known else 0
    if not copies:
        return ""
    are = "is an exact copy of an earlier row" if copies == 1 else "are exact copies of earlier rows"
    total = f"{sum(map(len, known)):,}"
    return f"{copies:,} of {total} rows {are} ({COPIED}) and count as further rows of one question. {REMOVE_COPIES}"


def warn_of_copies(rows: Sequence[Hashes | None], prefix: str = "") -> None:
    """Warn (:class:`~qacal.QacalWarning`) of rows that are exact copies of earlier ones; see :func:`copies_among`.

    prefix : stands before the warning, such as "model gpt-4: ".
    """
    found = copies_among(rows)
    if found:
        warnings.warn(f"{prefix}{found}", QacalWarning, stacklevel=2)


def texts_of(records: Any, reading: Reading) -> Iterator[tuple[Table, list[str], list[str]]]:
    """Yield tables with the questions and answers of their rows, and look at nothing else."""
    seen = 0
    for table, counting in tables_of(records, reading):
        checked = Checks(table, reading.columns, counting.on_fault)
        question, answer = checked.texts("question"), checked.texts("answer")
        rows = np.flatnonzero(checked.is_good).tolist()
        if rows:
            seen += len(rows)
            yield table.only(checked.is_good), [question[row] for row in rows], [answer[row] for row in rows]
    if not seen:
        raise InputError(_NO_ROWS)


@dataclass(frozen=True)
class _Needs:
    labels: bool
    reads_labels: bool
    text: bool
    confidence: bool
    ids: bool
    confidences: tuple[str, ...]


def _has_id(table: Table, reading: Reading, before: bool | None) -> bool:
    here = reading.name("id") in table.names
    if before is False and here:
        raise InputError(f"{table.origin}: only some rows have an id; give all of them one, or none.")
    return here if before is None else before


def _checked(table: Table, reading: Reading, needs: _Needs) -> Batch:
    """Return the rows of a table that can be used; the others go to ``reading.on_fault``, each with its reason."""
    for column, name in reading.columns.items():
        table.require(name, f"It is what --column {column}={name} (in Python: columns) asks for.")
    words = {expression_key(words): worth for words, worth in reading.expressions.items()}
    checked = Checks(table, reading.columns, reading.on_fault, words)

    def has(column: str) -> bool:  # may read the whole file: only asked where it matters
        return table.has(reading.name(column))

    confidence = np.zeros(len(table))
    if needs.confidence or has("confidence"):
        confidence = checked.numbers("confidence", 100.0 if reading.percent else 1.0, may_miss=not needs.confidence)
    correct = None
    if needs.labels or (needs.reads_labels and has("correct")):
        correct = checked.numbers("correct", 1.0, may_miss=not needs.labels)
    for column in needs.confidences:
        checked.numbers(column, 1.0, may_miss=True)
    # What somebody asked gets an answer, whatever it is; but nothing is to be learned from a question that is lost.
    may_be_empty = not needs.labels or (not needs.text and needs.ids)
    question = checked.texts("question", may_be_empty=may_be_empty) if needs.text or has("question") else None
    answer = checked.texts("answer") if needs.text or has("answer") else None
    ids = checked.ids() if needs.ids else question
    keep = checked.is_good
    if ids is not None and not keep.all():
        # What is no id cannot be hashed; its row is left out below.
        ids = [value if is_kept else 0 for value, is_kept in zip(ids, keep.tolist(), strict=True)]
    hashes = None if ids is None or not len(table) else id_hashes(ids, len(table))
    scale = 100.0 if reading.percent else 1.0
    rows = np.arange(len(table))
    return Batch(table, confidence / scale, correct, question, answer, hashes, reading, table, rows).only(keep)
