"""Read records: question-answer pairs with a confidence, validated column by column.

A record has a `question` (text, or the messages of a chat), an `answer` and a `confidence` in [0, 1]; `correct` if it
is labelled (0, 1, or a number in between); optionally the `id` of the question, and its provenance (`model`, `prompt`,
`confidence_source`, `judge`). All other columns pass through. A bad row is never dropped silently or repaired: its
fault names file, line, column, value and remedy, and the caller decides whether it is an error, or is left out. A row
without a label is not bad: where labels are needed it is left out, and a warning counts such rows.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from qacal.errors import BadRowsError, InputError, QacalWarning, some_of
from qacal.parameters import is_number, require_kind, shown
from qacal.records.columns import KNOWN, PROVENANCE, Checks, Percents, expression_key, listed, require_expressions
from qacal.records.files import File, OnFault, open_file, refuse
from qacal.records.table import Fault, Table, as_table
from qacal.tally.arrays import Bools, Floats, Hashes, Ints, is_forked, is_missing
from qacal.tally.ids import combined, id_hashes

if TYPE_CHECKING:
    import polars as pl

MAX_BAD = 0.2
"""Reading stops if a larger share of the rows is bad; the default."""
_NAMES = 'names of columns, such as {"confidence": "score"}'
LABEL_SOME = "Label some answers: qacal judge, or by hand."


class Source(Protocol):
    """Rows that can be read several times, in batches."""

    def batches(self, on_fault: OnFault = refuse) -> Iterator[Table]: ...


def _stop(fault: Fault) -> None:
    raise InputError(str(fault))


def as_source(records: Any) -> Source:
    """Return a source of records: a path, a frame of pandas, polars or Arrow, a list of objects, or columns."""
    if isinstance(records, str | Path):
        return open_file(records)
    source: Source = records if hasattr(records, "batches") else as_table(records)
    return source


def is_records(records: Any) -> bool:
    """Return whether a value is records (a path, a frame, a list of objects, columns) and not an array of numbers.

    >>> is_records([{"confidence": 0.9}]), is_records("rows.csv"), is_records([0.9, 0.8]), is_records(0.9)
    (True, True, False, False)
    """
    if isinstance(records, list | tuple):
        return bool(records) and isinstance(records[0], Mapping)
    # Of the type: asking a lazy frame itself for its columns starts its query.
    return isinstance(records, str | Path | Mapping | Table) or any(
        hasattr(type(records), name) for name in ("columns", "column_names", "batches")
    )


@dataclass(frozen=True)
class Reading:
    """How to read records.

    columns : names of columns in the rows, if they differ from the standard names: ``{"confidence": "score"}``.
    percent : confidences are percents.
    on_fault : called with each bad row; by default it raises an error.
    max_bad : the largest accepted share of bad rows; more are an error that counts them by reason.
    expressions : the numbers for confidences in words: ``{"high": 0.85}``.
    assumes_percent : `percent` comes from the fit of the model, not from the caller.
    prefix : opens warnings about the rows, such as "model gpt-4: ".
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    percent: bool = False
    on_fault: OnFault = refuse
    max_bad: float = MAX_BAD
    expressions: Mapping[str, float] = field(default_factory=dict)
    assumes_percent: bool = False
    prefix: str = ""

    def __post_init__(self) -> None:
        require_kind(self.columns, Mapping, "columns", _NAMES)
        unknown = sorted(set(self.columns) - set(KNOWN))
        if unknown:
            raise InputError(f"there is no column {unknown[0]!r} to map; expected one of {', '.join(KNOWN)}.")
        require_expressions(self.expressions)
        if not is_number(self.max_bad, 0, 1):
            raise InputError(f"max_bad is {shown(self.max_bad)}; expected a share from 0 to 1, such as 0.5.")

    def name(self, column: str) -> str:
        """Return the name of a column in the rows."""
        return self.columns.get(column, column)

    def has(self, column: str, names: Sequence[str]) -> bool:
        """Return whether `names` has a column; with question=prompt, the column `prompt` is not the prompt."""
        is_mapped = column not in self.columns and column in self.columns.values()
        return self.name(column) in names and not is_mapped


@dataclass(frozen=True)
class ReadAs:
    """How the rows of a fit were read: the default for other rows.

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
        """Return the names of columns, and whether confidences are percents, for rows with columns `names`.

        A name of the fit that these rows lack is ignored. Confidences in another column than in the fit are percents
        only if the caller says so.

        columns, percent : what the caller says; it takes precedence.
        """
        require_kind(columns, Mapping, "columns", _NAMES)
        mapped = {column: name for column, name in self.columns.items() if name in names} | {**(columns or {})}
        is_same = mapped.get("confidence", "confidence") == self.columns.get("confidence", "confidence")
        return mapped, (self.percent and is_same) if percent is None else percent


@dataclass(frozen=True, eq=False)
class Batch:
    """Validated rows. A column that was not requested, or does not exist, is None.

    question, asked : the question, and what identifies it: the same text, or the whole chat of which it is the end.
    whole : the rows as read, including bad ones.
    kept : the places of the validated rows in `whole`.
    """

    table: Table
    confidence: Floats
    correct: Floats | None
    question: list[str] | None
    asked: list[str] | None
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
        columns: dict[str, Any] = {"table": self.table.only(keep)}
        for name in ("confidence", "correct", "question", "asked", "answer", "ids", "kept"):
            values = getattr(self, name)
            is_list = isinstance(values, list)
            columns[name] = None if values is None else list(compress(values, keep)) if is_list else values[keep]
        return replace(self, **columns)

    def question_hashes(self) -> Hashes:
        """Return the hashes of the questions' texts, which identify rows without ids; zeros without texts."""
        if self.asked is None:
            return np.zeros(len(self), dtype=np.uint64)
        if self.ids is not None and self.reading.name("id") not in self.table.names:
            return self.ids
        return id_hashes(self.asked, len(self))

    def row_hashes(self) -> Hashes | None:
        """Return a hash of each whole row, to find exact copies; None if columns are missing for that."""
        if self.question is None or self.answer is None or self.ids is None or self.correct is None:
            return None
        texts = [self.question_hashes(), id_hashes(self.answer, len(self))]
        names = [name for name in PROVENANCE if self.reading.has(name, self.table.names)]
        origins = [id_hashes([repr(value) for value in self.listed(name)], len(self)) for name in names]
        return combined(self.ids, *texts, self.confidence, self.correct, *origins)

    def with_evidence(self, evidence: pl.DataFrame, prefix: str = "") -> Table:
        """Return the rows as read, with the columns of the evidence; these are empty for bad rows."""
        import polars as pl

        if not isinstance(prefix, str):
            raise InputError(f"prefix is {shown(prefix)}; expected a text.")
        # Neither drop nor rename on the frame: these need threads, which a forked child does not have.
        columns = [column.alias(prefix + column.name) for column in evidence if column.name != "confidence"]
        if len(self) < len(self.whole):
            row_of = dict(zip(self.kept.tolist(), range(len(self)), strict=True))
            rows = pl.Series(map(row_of.get, range(len(self.whole))), dtype=pl.UInt32)
            columns = [column.gather(rows) for column in columns]
        taken = [column.name for column in columns if column.name in self.table.names]
        if taken:
            is_calibrated = f"{prefix}calibrated" in taken and len(taken) > 1
            what = f"calibrated confidences ({some_of(taken, 3)})" if is_calibrated else f"a column {taken[0]!r}"
            raise InputError(
                f"{self.table.origin} already has {what}. Pass a prefix for the new columns: "
                '--prefix qacal_ (in Python: prefix="qacal_").'
            )
        most = {self.reading.name("confidence"): 100.0 if self.reading.percent else 1.0}
        return self.whole.extended(pl.DataFrame(columns), most | {self.reading.name("correct"): 1.0})

    def column(self, name: str) -> Any:
        """Return any column, as the table has it."""
        self.table.require(self.reading.name(name))
        return self.table.column(self.reading.name(name))

    def listed(self, name: str) -> list[Any]:
        """Return any column as a list."""
        return listed(self.column(name))

    def calibrated(self) -> Floats | None:
        """Return the column of calibrated confidences; None if the rows have none."""
        if self.reading.name("calibrated") not in self.table.names:
            return None
        return Checks(self.table, self.reading.columns, _stop).numbers("calibrated", 1.0)

    def numbers(self, name: str, most: float = np.inf) -> Floats:
        """Return any column of numbers, on any scale or from 0 to `most`; NaN where there is none."""
        return Checks(self.table, self.reading.columns, _stop).numbers(name, most, may_miss=True)

    def values_of(self, name: str) -> list[Any]:
        """Return the distinct values of a column, without missing ones; an empty list without the column."""
        if not self.reading.has(name, self.table.names):
            return []
        column = self.column(name)
        if str(getattr(column, "dtype", "")) == "String" and not is_forked():  # of polars, which may use threads here
            column = column.unique(maintain_order=True)
        values = listed(column)
        with suppress(TypeError):  # lists and objects have no hash
            values = list(dict.fromkeys(values))
        present = (value for value in values if not is_missing(value))
        return list(dict.fromkeys(value if isinstance(value, str | int | float) else str(value) for value in present))


class Gathered:
    """Columns gathered from batches.

    >>> columns = Gathered()
    >>> columns.add(confidence=np.array([0.5]), group=["law"], ids=None)
    >>> columns.add(confidence=np.array([0.9]), group=["art"], ids=None)
    >>> columns["confidence"], columns["group"], columns.get("ids")
    (array([0.5, 0.9]), ['law', 'art'], None)
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}

    def add(self, **columns: Any) -> None:
        """Add rows, as arrays or lists; None for a column that they lack."""
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
        """Return a column; None if no row has it."""
        return self[name] if name in self._parts else None


def read(
    records: Any,
    reading: Reading | None = None,
    *,
    needs_labels: bool,
    needs_text: bool = True,
    needs_confidence: bool = True,
    numbers: Mapping[str, float] | None = None,
    uses_ids: bool = True,
    hashes_ids: bool = True,
    keeps_bad: bool = False,
    warns: bool = True,
    uses_text: bool = True,
) -> Iterator[Batch]:
    """Yield the records in validated batches.

    needs_labels : rows without `correct` are left out, with a warning; if False, `correct` is ignored.
    needs_text : rows without `question` or `answer` are bad; an answer may be empty, a question may not.
    needs_confidence : rows without `confidence` are bad; if False, `confidence` is ignored, and a batch has zeros.
    numbers : further columns of numbers with their largest values: 1 for confidences, infinity for any scale. Rows and
        files may lack them; other values are bad.
    uses_ids : if False, the column `id` is ignored.
    hashes_ids : if False, ids are validated only, and a batch has none.
    keeps_bad : also yield batches in which all rows are bad, for callers who return all rows.
    warns : if False, rows without a label are left out without a warning.
    uses_text : if False, `answer` is ignored, and so is `question` if rows have ids.
    """
    reading = reading or Reading()
    words = {expression_key(words): worth for words, worth in reading.expressions.items()}
    top = 100.0 if reading.percent else 1.0
    n_rows, read_rows, unlabelled, percents = 0, 0, 0, Percents()
    needs_ids: bool | None = None
    source, origins = as_source(records), set[str]()
    for table, counting in tables_of(source, reading):
        origins.add(table.origin)
        # All rows have ids or none: otherwise rows of one question would count as several questions.
        has_ids = uses_ids and reading.name("id") in table.names
        if needs_ids is False and has_ids:
            raise InputError(f"{table.origin}: only some rows have an id; give all of them one, or none.")
        needs_ids = has_ids if needs_ids is None else needs_ids
        for column, name in reading.columns.items():
            table.require(name, f"--column {column}={name} (in Python: columns) asks for it.")
        checks = Checks(table, reading.columns, counting.on_fault, words)
        correct = question = asked = answer = None
        if needs_labels:
            correct = checks.numbers("correct", 1.0, may_miss=True)
            has_no_label = np.isnan(correct) & checks.is_good
            checks.is_good &= ~has_no_label
            unlabelled += int(has_no_label.sum())
            if isinstance(counting.on_fault, BadRows):
                counting.on_fault.add_unlabelled(table.origin, int(has_no_label.sum()))
            read_rows += len(table)
        confidence = checks.numbers("confidence", top) if needs_confidence else np.zeros(len(table))
        for column, most in (numbers or {}).items():
            if reading.has(column, table.names):
                checks.numbers(column, most, may_miss=True)
        # To ask for a column may read the whole file, so it comes last.
        if needs_text or ((uses_text or not needs_ids) and table.has(reading.name("question"))):
            # An empty question has no kind, and tells rows apart only if ids do. An empty answer is one: an abstention.
            may_be_empty = not needs_text and (needs_ids or not needs_labels)
            question, asked = checks.questions(may_be_empty=may_be_empty)
        if needs_text or (uses_text and table.has(reading.name("answer"))):
            answer = checks.texts("answer")
        ids = checks.ids() if needs_ids else asked
        hashes = None
        if hashes_ids and ids is not None and len(table):
            # An invalid id cannot be hashed; its row is left out below.
            is_good = checks.is_good.tolist()
            valid = ids if all(is_good) else [id_ if good else 0 for id_, good in zip(ids, is_good, strict=True)]
            hashes = id_hashes(valid, len(table))
        rows = np.arange(len(table))
        whole = Batch(table, confidence / top, correct, question, asked, answer, hashes, counting, table, rows)
        batch = whole.only(checks.is_good)
        if len(batch) or keeps_bad:
            n_rows += len(batch)
            if reading.percent:
                percents.add(batch.confidence)
            yield batch
    if unlabelled and unlabelled == read_rows:
        raise InputError(f"{table.origin}: no row has a label ({reading.name('correct')}). {LABEL_SOME}")
    if not n_rows:
        named = f"{source.name}: " if isinstance(source, File) else ""
        raise InputError(f"{named}there are no rows to use: the records are empty, or every row was left out.")
    if reading.percent and needs_confidence:
        percents.require(is_assumed=reading.assumes_percent)
    if warns:
        warn_of_unlabelled(unlabelled, read_rows, reading.prefix or (f"{table.origin}: " if len(origins) == 1 else ""))


def warn_of_unlabelled(unlabelled: int, of: int, prefix: str) -> None:
    """Warn that rows without a label are not used, if there are any."""
    if unlabelled:
        have = "has no label and is" if unlabelled == 1 else "have no label and are"
        warnings.warn(f"{prefix}{unlabelled:,} of {of:,} rows {have} not used.", QacalWarning, stacklevel=3)


def tables_of(records: Any, reading: Reading) -> Iterator[tuple[Table, Reading]]:
    """Yield the tables of records, each with a reading that counts bad rows; raise at the end if there are too many."""
    bad = BadRows(reading.on_fault)
    counting = replace(reading, on_fault=bad)
    for table in as_source(records).batches(bad.add_unread):
        bad.add_rows(table.origin, len(table))
        yield table, counting
    if isinstance(reading.on_fault, BadRows):
        reading.on_fault.take_rows(bad)
    bad.require(reading.max_bad)


def rereadable(records: Any, reading: Reading, **needs: Any) -> Iterable[Batch]:
    """Return validated records to iterate over several times: a file is read again, a table is validated once.

    needs : as in :func:`read`.
    """
    source = as_source(records)
    return list(read(source, reading, **needs)) if isinstance(source, Table) else _Rereadable(source, reading, needs)


@dataclass
class _Rereadable:
    source: Source
    reading: Reading
    needs: Mapping[str, Any]
    is_read: bool = False

    def __iter__(self) -> Iterator[Batch]:
        yield from read(self.source, self.reading, **self.needs, warns=not self.is_read)
        self.is_read = True


@dataclass(frozen=True)
class Reason:
    """One kind of bad row: its count and the first example."""

    kind: str
    count: int
    example: Fault


@dataclass(eq=False)
class BadRows:
    """Counts bad rows by reason. Pass one as `on_fault`; a row that is read again counts once.

    on_fault : called once with each bad row.

    >>> bad = BadRows()
    >>> for line, value in enumerate((85, 90, "high"), 1):
    ...     kind = "confidence in words" if isinstance(value, str) else "confidence above 1"
    ...     bad(Fault("a.csv", f"line {line}", f"confidence is {value!r}.", kind=kind))
    >>> bad.add_rows("a.csv", 10)
    >>> print(bad)
    3 of 10 rows (30%)
      2: confidence above 1, such as a.csv line 1: confidence is 85.
      1: confidence in words, such as a.csv line 3: confidence is 'high'.
    """

    on_fault: OnFault | None = None
    _places: set[tuple[str, str]] = field(default_factory=set, init=False, repr=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _examples: dict[str, Fault] = field(default_factory=dict, init=False, repr=False)
    _rows: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _unlabelled: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def __call__(self, fault: Fault) -> None:
        if (fault.origin, fault.place) in self._places:
            return
        if self.on_fault is not None:
            self.on_fault(fault)
        self._places.add((fault.origin, fault.place))
        self._counts[fault.kind] += 1
        self._examples.setdefault(fault.kind, fault)

    def add_unread(self, fault: Fault) -> None:
        """Count a bad row that is in no table, such as a line that is not JSON."""
        self.add_rows(fault.origin, 1)
        self(fault)

    def add_rows(self, origin: str, count: int) -> None:
        """Count rows, good and bad."""
        self._rows[origin] += count

    def add_unlabelled(self, origin: str, count: int) -> None:
        """Count rows, among those of :meth:`add_rows`, that are not used since they have no label; they are not bad."""
        self._unlabelled[origin] += count

    def take_rows(self, other: BadRows) -> None:
        """Take over the row counts of one pass over the rows; a file may be read several times."""
        self._rows |= other._rows
        self._unlabelled |= other._unlabelled

    @property
    def count(self) -> int:
        return len(self._places)

    @property
    def rows(self) -> int:
        """The number of rows, good and bad, in all that was read to the end."""
        return self._rows.total()

    @property
    def _counted(self) -> int:
        """The number of rows without those that have no label: `max_bad` is a share of these."""
        return self.rows - self._unlabelled.total()

    @property
    def reasons(self) -> list[Reason]:
        """The kinds of bad rows, the most frequent first."""
        return [Reason(kind, count, self._examples[kind]) for kind, count in self._counts.most_common()]

    def require(self, max_bad: float) -> None:
        """Raise if more than this share of the rows is bad, or all of them."""
        if not self._places:
            return
        if self.count >= self._counted:
            raise BadRowsError(f"No row can be used: {self}")
        if self.count > max_bad * self._counted + 1e-6:
            enough = ceil(100 * self.count / self._counted) / 100
            raise BadRowsError(
                f"Too many rows cannot be used: {self}\nFix them, or go on without them: --max-bad {enough:g} "
                f"(in Python: max_bad={enough:g}). Up to {max_bad:.0%} may be bad now."
            )

    def __str__(self) -> str:
        share = self.count / max(self._counted, 1)
        percent = "under 1%" if 0 < share < 0.005 else f"{share:.0%}"
        unlabelled = self.rows - self._counted
        others = f"; {unlabelled:,} more without a label do not count" if unlabelled else ""
        lines = [f"{self.count:,} of {self._counted:,} rows ({percent}{others})"]
        return "\n".join(lines + [f"  {one.count:,}: {one.kind}, such as {one.example}" for one in self.reasons])
