"""From the rows of an importer to records: counted, without duplicates, and with the same columns for every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from qacal.errors import InputError
from qacal.records.bad_rows import MAX_BAD, BadRows
from qacal.records.columns import Percents
from qacal.records.files import OnFault, refuse
from qacal.sources.importers.base import LogRow, Outcome, Scored, Selection
from qacal.sources.importers.confidences import Scales
from qacal.sources.importers.row_buffer import RowBuffer

if TYPE_CHECKING:
    import polars as pl

    from qacal.records.table import Fault, FrameTable

ALWAYS = ("id", "question", "answer", "confidence", "confidence_source", "correct")

Importer: TypeAlias = Callable[[Sequence[Path], Selection, OnFault], Iterator[Outcome]]
Progress: TypeAlias = Callable[[str, int], None]


@dataclass(frozen=True)
class Account:
    """What became of the rows of a log.

    read : the number of rows; `kept` and those `dropped` add up to it.
    dropped : the number of dropped rows by reason.
    sources : the number of kept rows with a confidence, by its source.
    labelled : how many of the kept rows have `correct`.
    columns_left_out : how many columns were left out because there were more than 500.
    chats : how many of the kept rows have a question that is a chat of several turns.
    off_scale : further columns that were left out because they are not on a scale from 0 to 1.
    """

    read: int
    kept: int
    dropped: dict[str, int]
    sources: dict[str, int]
    labelled: int
    columns_left_out: int = 0
    off_scale: tuple[str, ...] = ()
    chats: int = 0

    @property
    def reasons(self) -> list[str]:
        """One line for each reason why rows were dropped, the most frequent first."""
        return [f"  {count:,}: {why}" for why, count in _by_count(self.dropped)]

    def __str__(self) -> str:
        left = self.read - self.kept
        rows = "row" if self.read == 1 else "rows"
        lines = [f"{self.read:,} {rows} read, {self.kept:,} kept, {left:,} dropped{':' if left else '.'}"]
        lines += self.reasons
        sources = ", ".join(f"{count:,} {source}" for source, count in _by_count(self.sources)) or "none"
        lines.append(f"Confidence: {sources}. Labelled: {self.labelled:,} of {self.kept:,}.")
        if self.columns_left_out:
            lines.append(f"{self.columns_left_out:,} columns left out: the log's metadata has too many names.")
        if self.chats:
            lines.append(
                f"Questions that are a whole chat of several turns: {self.chats:,}. --last-turn (last_turn=True) takes "
                "the user's last message alone."
            )
        lines += [f"{column} is left out: it is not on a scale from 0 to 1." for column in self.off_scale]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Imported:
    """The records of a log in memory, and the account of them."""

    frame: pl.DataFrame
    account: Account

    @property
    def read(self) -> int:
        """How many rows the log has."""
        return self.account.read

    @property
    def kept(self) -> int:
        """How many of them are in the frame."""
        return self.account.kept

    @property
    def dropped(self) -> dict[str, int]:
        """How many are not, by reason."""
        return self.account.dropped


@dataclass(frozen=True, eq=False)
class Gathered:
    """The records of a log in a temporary file, and the account of them."""

    account: Account
    buffer: RowBuffer

    def tables(self) -> Iterator[FrameTable]:
        """Yield the records, batch after batch, as often as asked."""
        return self.buffer.tables()


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
) -> Iterator[Gathered]:
    """Yield the records of a log, in a temporary file that is removed afterwards.

    on_fault : called with each row that does not follow its format; by default the first is an error.
    max_bad : the largest share of such rows.
    keep_unscored : keep rows without a confidence; they cannot be calibrated, but judged, counted and asked again.
    """
    with RowBuffer(ALWAYS) as buffer:
        count = _Count(buffer, keep_unscored)

        bad = BadRows(on_fault)

        def counting(fault: Fault) -> None:
            bad(fault)
            count.drop("the row is faulty")

        for outcome in importer(paths, selection, counting):
            count.take(outcome)
            if progress is not None and count.read % 1000 == 0:
                progress("importing", count.read)
        bad.add_rows("log", count.read)
        if isinstance(on_fault, BadRows):
            on_fault.take_rows(bad)
        bad.require(max_bad)
        account = count.account()
        if not account.read:
            raise InputError("the files hold no rows.")
        if not account.kept:
            remedy = [] if keep_unscored else ["Rows that only lack a confidence are kept with --keep-unscored."]
            raise InputError("\n".join([f"no row is left of {account.read:,}:", *account.reasons, *remedy]))
        yield Gathered(account, buffer)


class _Count:
    def __init__(self, buffer: RowBuffer, keep_unscored: bool) -> None:
        self._buffer = buffer
        self._keep_unscored = keep_unscored
        self._dropped: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self._keys: set[Any] = set()
        self._labelled = 0
        self._chats = 0
        self._scales = Scales()
        self._percents = Percents()

    @property
    def read(self) -> int:
        return self._buffer.count + self._dropped.total()

    def take(self, outcome: Outcome) -> None:
        if outcome.off_scale is not None:
            self._scales.note(outcome.off_scale)
        if not isinstance(outcome, LogRow):
            return self.drop(outcome.why)
        self._require_new(outcome)
        if not outcome.question.strip():
            return self.drop("there is no question")
        if isinstance(outcome.confidence, Scored):
            self._sources[outcome.confidence.source] += 1
            if outcome.confidence.is_percent:
                self._percents.add(outcome.confidence.value)
        elif not self._keep_unscored:
            return self.drop(outcome.confidence.why)
        self._labelled += outcome.correct is not None
        self._chats += outcome.turns > 1
        return self._buffer.add(_record(outcome))

    def drop(self, why: str) -> None:
        self._dropped[why] += 1

    def account(self) -> Account:
        """Return the account, after all rows were read: only then is the scale of each source known."""
        self._scales.require()
        self._percents.require()
        buffer, off_scale = self._buffer, tuple(self._scales.unused_columns)
        for column in off_scale:
            buffer.leave_out(column)
        return Account(
            self.read,
            buffer.count,
            dict(self._dropped),
            dict(self._sources),
            self._labelled,
            columns_left_out=len(buffer.left_out),
            off_scale=off_scale,
            chats=self._chats,
        )

    def _require_new(self, found: LogRow) -> None:
        if found.key in self._keys:
            said = ", ".join(str(part) for part in found.key if part is not None)
            raise InputError(
                f"there are two rows of {said}. Are two runs of the same task among the files, or one file twice? "
                "Import them one by one."
            )
        self._keys.add(found.key)


def _record(found: LogRow) -> dict[str, Any]:
    scored = found.confidence if isinstance(found.confidence, Scored) else None
    record: dict[str, Any] = {
        "id": found.id,
        "question": found.question,
        "answer": found.answer,
        "confidence": None if scored is None else float(scored.value),
        "confidence_source": None if scored is None else scored.source,
        "correct": None if found.correct is None else float(found.correct),
    }
    truths = found.ground_truth
    further = {
        "ground_truth": None if not truths else truths[0] if len(truths) == 1 else list(truths),
        "model": found.model,
        "prompt": None if found.prompt == found.question else found.prompt,
        "task": found.task,
        "judge": found.judge,
    }
    record |= {name: value for name, value in further.items() if value is not None}
    return record | dict(found.columns)


def _by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
