"""From the rows of an importer to records: counted, without duplicates, and with the same columns for every format.

Rows wait in a temporary file until all are read, because only then are the columns and their types known: each task of
a log has other columns, and a column with numbers in 50,000 rows may have text in the next. Memory holds one batch.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from qacal.errors import InputError, counted
from qacal.records.bad_rows import MAX_BAD, BadRows
from qacal.records.columns import Percents
from qacal.records.files import OnFault, refuse
from qacal.records.table import Fault, FrameTable, column_type, json_or_text, value_kind
from qacal.sources.importers.base import LogRow, Outcome, Scored, Selection

if TYPE_CHECKING:
    import polars as pl

_ALWAYS = ("id", "question", "answer", "confidence", "confidence_source", "correct")
_BATCH_ROWS = 8_192
_MOST_COLUMNS = 500

Importer: TypeAlias = Callable[[Sequence[Path], Selection, OnFault], Iterator[Outcome]]
Progress: TypeAlias = Callable[[str, int], None]


@dataclass
class Account:
    """What became of the rows of a log.

    read : the number of rows; `kept` and those `dropped` add up to it.
    dropped : the number of dropped rows by reason.
    sources : the number of kept rows with a confidence, by its source.
    labelled : the number of kept rows with `correct`.
    columns_left_out : the number of columns beyond the first 500, which were left out.
    chats : the number of kept rows whose question is a chat of several turns.
    """

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    labelled: int = 0
    columns_left_out: int = 0
    chats: int = 0

    @property
    def reasons(self) -> list[str]:
        """One line for each reason why rows were dropped, the most frequent first."""
        return [f"  {count:,}: {why}" for why, count in _by_count(self.dropped)]

    def __str__(self) -> str:
        left = self.read - self.kept
        lines = [f"{counted(self.read, 'row')} read, {self.kept:,} kept, {left:,} dropped{':' if left else '.'}"]
        lines += self.reasons
        sources = ", ".join(f"{count:,} {source}" for source, count in _by_count(self.sources)) or "none"
        lines.append(f"Confidence: {sources}. Labelled: {self.labelled:,} of {self.kept:,}.")
        if self.columns_left_out:
            lines.append(f"{self.columns_left_out:,} columns left out: the log's metadata has too many names.")
        if self.chats:
            lines.append(
                f"Questions that are a whole chat of several turns: {self.chats:,}. --last-turn (in Python: "
                "last_turn=True) takes only the user's last message."
            )
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Imported:
    """The records of a log in memory, and the account of them."""

    frame: pl.DataFrame
    account: Account


@contextmanager
def gathered(
    importer: Importer,
    paths: Sequence[Path],
    selection: Selection,
    *,
    on_fault: OnFault = refuse,
    max_bad: float = MAX_BAD,
    keep_unscored: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[RowBuffer, Account]]:
    """Yield the records of a log, in a temporary file that is removed afterwards, and the account of them.

    on_fault : called with each row that does not follow its format; by default the first is an error.
    max_bad : the largest share of such rows.
    keep_unscored : keep rows without a confidence; these can be judged, counted and asked again, but not calibrated.
    """
    with RowBuffer(_ALWAYS) as buffer:
        rows = _Rows(buffer, keep_unscored)
        account, bad = rows.account, BadRows(on_fault)

        def counting(fault: Fault) -> None:
            bad(fault)
            rows.drop("the row is faulty")

        for outcome in importer(paths, selection, counting):
            rows.take(outcome)
            if progress is not None and account.read % 1000 == 0:
                progress("importing", account.read)
        bad.add_rows("log", account.read)
        if isinstance(on_fault, BadRows):
            on_fault.take_rows(bad)
        bad.require(max_bad)
        rows.percents.require()
        account.columns_left_out = len(buffer.left_out)
        if not account.read:
            raise InputError("the files hold no rows.")
        if not account.kept:
            remedy = [] if keep_unscored else ["Rows that only lack a confidence are kept with --keep-unscored."]
            raise InputError("\n".join([f"no row is left of {account.read:,}:", *account.reasons, *remedy]))
        yield buffer, account


@dataclass
class _Rows:
    """Puts rows into the buffer, or counts why they are dropped."""

    buffer: RowBuffer
    keep_unscored: bool
    account: Account = field(default_factory=Account)
    keys: set[Any] = field(default_factory=set)
    percents: Percents = field(default_factory=Percents)

    def drop(self, why: str) -> None:
        self.account.read += 1
        self.account.dropped[why] += 1

    def take(self, outcome: Outcome) -> None:
        if not isinstance(outcome, LogRow):
            return self.drop(outcome.why)
        if outcome.key in self.keys:
            name = ", ".join(str(part) for part in outcome.key if part is not None)
            raise InputError(
                f"there are two rows of {name}. Are two runs of the same task among the files, or one file twice? "
                "Import them one by one."
            )
        self.keys.add(outcome.key)
        if not outcome.question.strip():
            return self.drop("there is no question")
        if isinstance(outcome.confidence, Scored):
            self.account.sources[outcome.confidence.source] += 1
            if outcome.confidence.is_percent:
                self.percents.add(outcome.confidence.value)
        elif not self.keep_unscored:
            return self.drop(outcome.confidence.why)
        self.account.read += 1
        self.account.kept += 1
        self.account.labelled += outcome.correct is not None
        self.account.chats += outcome.turns > 1
        return self.buffer.add(_record(outcome))


def _record(row: LogRow) -> dict[str, Any]:
    scored = row.confidence if isinstance(row.confidence, Scored) else None
    truths = row.ground_truth
    return {
        "id": row.id,
        "question": row.question,
        "answer": row.answer,
        "confidence": None if scored is None else float(scored.value),
        "confidence_source": None if scored is None else scored.source,
        "correct": None if row.correct is None else float(row.correct),
        "ground_truth": None if not truths else truths[0] if len(truths) == 1 else list(truths),
        "model": row.model,
        "prompt": None if row.prompt == row.question else row.prompt,
        "task": row.task,
        "judge": row.judge,
        **row.columns,
    }


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@dataclass
class RowBuffer:
    """Takes rows one by one and returns them as tables of one schema.

    first : columns that come first and always exist.
    left_out : names of columns beyond the first 500: some logs have metadata with a name for each row.

    >>> with RowBuffer(("id",)) as rows:
    ...     rows.add({"id": "1", "year": 1999})
    ...     rows.add({"id": "2", "year": "unknown", "aliases": ["two", "II"]})
    ...     rows.frame().to_dict(as_series=False)
    {'id': ['1', '2'], 'year': ['1999', 'unknown'], 'aliases': [None, ['two', 'II']]}
    """

    first: tuple[str, ...]
    left_out: set[str] = field(default_factory=set)
    _kinds: dict[str, set[str]] = field(default_factory=dict)
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    _file: IO[str] = field(default_factory=lambda: tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115

    def __post_init__(self) -> None:
        self._kinds |= {name: set() for name in self.first}

    def __enter__(self) -> RowBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; None is the same as no value."""
        for name, value in row.items():
            if value is None:
                continue
            if name in self._kinds or len(self._kinds) < _MOST_COLUMNS:
                self._kinds.setdefault(name, set()).add(value_kind(value))
            else:
                self.left_out.add(name)
        self._waiting.append(row)
        if len(self._waiting) == _BATCH_ROWS:
            self._flush()

    def tables(self) -> Iterator[FrameTable]:
        self._flush()
        self._file.seek(0)
        count = 0
        for line in self._file:
            rows = json.loads(line)
            yield FrameTable("records", "row", np.arange(count + 1, count + len(rows) + 1), self._frame(rows))
            count += len(rows)

    def frame(self) -> pl.DataFrame:
        import polars as pl

        frames = [table.data for table in self.tables()]
        return pl.concat(frames) if frames else self._frame([])

    def _flush(self) -> None:
        if self._waiting:
            self._file.write(json.dumps(self._waiting, default=str) + "\n")
            self._waiting = []

    def _frame(self, rows: list[dict[str, Any]]) -> pl.DataFrame:
        import polars as pl

        columns: dict[str, pl.Series] = {}
        for name, kinds in self._kinds.items():
            # One answer is a text, several are a list.
            is_mixed = "str" in kinds and "texts" in kinds and kinds <= {"str", "texts", "empty"}
            dtype, convert = column_type(kinds - {"str"} if is_mixed else kinds)
            values = [row.get(name) for row in rows]
            if is_mixed:
                values = [[value] if isinstance(value, str) else value for value in values]
            column = json_or_text(name)
            columns[column] = pl.Series(column, [None if value is None else convert(value) for value in values], dtype)
        return pl.DataFrame(list(columns.values()))
