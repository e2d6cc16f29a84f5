"""From the rows of an importer to records: counted, without duplicates, and with the same columns for every format.

Rows wait in a temporary file until all are read, because only then are the columns and their types known: each task of
a log has other columns, and a column with numbers in 50,000 rows may have text in the next. Memory holds one batch.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from qacal.errors import InputError, counted
from qacal.records.columns import Percents
from qacal.records.files import OnFault, refuse
from qacal.records.reading import MAX_BAD, BadRows
from qacal.records.table import Fault, FrameTable, column_type, json_or_text, value_kind
from qacal.sources.importers.base import Dropped, Log, LogRow
from qacal.sources.importers.confidences import Scored
from qacal.sources.importers.formats import FORMATS, Selection

if TYPE_CHECKING:
    import polars as pl

# Columns that always exist, and the kinds of their values.
_ALWAYS = {
    "id": "str",
    "question": "str",
    "answer": "str",
    "confidence": "float",
    "confidence_source": "str",
    "correct": "float",
}
_BATCH_ROWS = 8_192
_MOST_COLUMNS = 500

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

    def drop(self, why: str) -> None:
        self.read += 1
        self.dropped[why] += 1

    def keep(self, row: LogRow, keep_unscored: bool) -> bool:
        """Count a row, and return whether it is kept."""
        if not row.record["question"].strip():
            self.drop("there is no question")
            return False
        if isinstance(row.confidence, Scored):
            self.sources[row.confidence.source] += 1
        elif not keep_unscored:
            self.drop(row.confidence.why)
            return False
        self.read += 1
        self.kept += 1
        self.labelled += row.record["correct"] is not None
        self.chats += row.turns > 1
        return True

    @property
    def reasons(self) -> list[str]:
        """One line for each reason why rows were dropped, the most frequent first."""
        return [f"  {count:,}: {why}" for why, count in self.dropped.most_common()]

    def __str__(self) -> str:
        left = self.read - self.kept
        lines = [f"{counted(self.read, 'row')} read, {self.kept:,} kept, {left:,} dropped{':' if left else '.'}"]
        lines += self.reasons
        sources = ", ".join(f"{count:,} {source}" for source, count in self.sources.most_common()) or "none"
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
    format_name: str,
    paths: Sequence[Path],
    selection: Selection,
    *,
    keep_unscored: bool = False,
    on_fault: OnFault = refuse,
    max_bad: float = MAX_BAD,
    progress: Progress | None = None,
) -> Iterator[tuple[RowBuffer, Account]]:
    """Yield the records of a log, in a temporary file that is removed afterwards, and the account of them.

    See :func:`qacal.sources.importers.import_log` for the parameters.
    """
    if format_name not in FORMATS:
        raise InputError(f"there is no format {format_name!r}; there are {', '.join(FORMATS)}.")
    log_format = FORMATS[format_name]
    log_format.require(selection)
    account, bad, percents, keys = Account(), BadRows(on_fault), Percents(), set[Any]()

    def count_fault(fault: Fault) -> None:
        bad(fault)
        account.drop("the row is faulty")

    with RowBuffer() as buffer:
        for outcome in log_format.read(Log(paths, selection, count_fault)):
            if isinstance(outcome, Dropped):
                account.drop(outcome.why)
            else:
                _require_new(outcome.key, keys)
                if account.keep(outcome, keep_unscored):
                    buffer.add(outcome.record)
                    if isinstance(outcome.confidence, Scored) and outcome.confidence.is_percent:
                        percents.add(outcome.confidence.value)
            if progress is not None and account.read % 1000 == 0:
                progress("importing", account.read)
        bad.add_rows("log", account.read)
        if isinstance(on_fault, BadRows):
            on_fault.take_rows(bad)
        bad.require(max_bad)
        percents.require()
        account.columns_left_out = len(buffer.left_out)
        if not account.read:
            raise InputError("the files hold no rows.")
        if not account.kept:
            remedy = [] if keep_unscored else ["Rows that only lack a confidence are kept with --keep-unscored."]
            raise InputError("\n".join([f"no row is left of {account.read:,}:", *account.reasons, *remedy]))
        yield buffer, account


def _require_new(key: tuple[Hashable, ...], keys: set[Any]) -> None:
    if key in keys:
        name = ", ".join(str(part) for part in key if part is not None)
        raise InputError(
            f"there are two rows of {name}. Are two runs of the same task among the files, or one file twice? "
            "Import them one by one."
        )
    keys.add(key)


class RowBuffer:
    """Takes rows one by one and returns them as tables of one schema.

    left_out : names of columns beyond the first 500: some logs have metadata with a name for each row.

    >>> with RowBuffer() as rows:
    ...     rows.add({"id": "1", "year": 1999})
    ...     rows.add({"id": "2", "year": "unknown", "aliases": ["two", "II"]})
    ...     rows.frame().select("id", "year", "aliases").rows()
    [('1', '1999', None), ('2', 'unknown', ['two', 'II'])]
    """

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self._kinds = {name: {kind} for name, kind in _ALWAYS.items()}
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115

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
        self._file.write(json.dumps(row, default=str) + "\n")

    def tables(self) -> Iterator[FrameTable]:
        self._file.seek(0)
        count = 0
        while lines := list(islice(self._file, _BATCH_ROWS)):
            rows = self._frame([json.loads(line) for line in lines])
            yield FrameTable("records", "row", np.arange(count + 1, count + len(rows) + 1), rows)
            count += len(rows)

    def frame(self) -> pl.DataFrame:
        import polars as pl

        whole: pl.DataFrame = pl.concat([table.data for table in self.tables()])
        return whole

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
