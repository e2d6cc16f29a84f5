"""What a format needs: its rows from files, and one builder of rows.

A format is a module with a function ``read(log)``. It reads each row of its files with :meth:`Log.rows`, which turns it
into a row of records (:meth:`Log.row`) or drops it with a reason (:class:`Dropped`). A row that does not follow the
format raises :class:`UnusableRowError`. `deepeval.py` is a short example. `texts.py` finds values and replies in nested
objects, `confidences.py` finds confidences in replies, and `formats.py` lists the formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from qacal.errors import InputError
from qacal.records.columns import KNOWN, LABELS, USERS, chat_of, chat_text
from qacal.records.files import OnFault, open_file
from qacal.records.table import Fault
from qacal.records.text_files import JsonDocument, opened_text
from qacal.sources.elicitation.agreement import COLUMNS as AGREEMENT_COLUMNS
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.importers.confidences import METADATA, Confidence, Scored, Unscored, bare_number, choose_confidence
from qacal.sources.importers.formats import Selection
from qacal.sources.importers.texts import asked_text, digest, members, unpacked
from qacal.tally.arrays import is_missing

TABLES = ("*.parquet", "*.csv", "*.csv.gz", "*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz")
# Raw rows are large, and not kept.
_BATCH_ROWS = 256
# Columns that `qacal apply` adds; a log's column of that name would collide with them.
_ADDED = ("low", "high", "group", "source", "rows", "alpha", "unlike", "decision", "threshold")
_CONFIDENCES = tuple(f"confidence_{source}" for source in ("metadata", "stated", "tokens"))
_RESERVED = frozenset((*KNOWN, *_ADDED, *_CONFIDENCES, *AGREEMENT_COLUMNS, "ground_truth", "task", "filter", "epoch"))
# The letters are inspect's.
_GRADES = LABELS | {"c": 1.0, "i": 0.0, "noanswer": 0.0, "p": 0.5, "partial": 0.5}
_SPEAKERS = (*USERS, "assistant", "ai", "model")


@dataclass(frozen=True, slots=True)
class Item:
    """A row of a log as it was written, and its place."""

    origin: str
    place: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `turns` is the number of the user's messages in it."""

    text: str
    turns: int = 1


@dataclass(frozen=True, slots=True)
class LogRow:
    """A question and its answer in a log.

    record : the columns of the row.
    key : unique for each row of a log.
    turns : as in :class:`Question`.
    """

    record: dict[str, Any]
    confidence: Confidence
    key: tuple[Hashable, ...]
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Dropped:
    """A valid row that is not selected or cannot be used. Reasons are counted, so they name no details of the row."""

    why: str


Outcome: TypeAlias = LogRow | Dropped


class UnusableRowError(Exception):
    """A row that does not follow its format; the message says what was expected."""


@dataclass(frozen=True)
class Log:
    """The files of a log, and what the user selected in it.

    paths : files or folders.
    on_fault : called with each row that does not follow its format.
    """

    paths: Sequence[Path]
    selection: Selection
    on_fault: OnFault

    def files(self, *patterns: str) -> list[Path]:
        """Return the files among the paths, and of folders the files that match a pattern, sorted by name."""
        files: list[Path] = []
        for path in self.paths:
            if not path.exists():
                raise InputError(f"{path} does not exist.")
            inner = sorted({file for pattern in patterns for file in path.rglob(pattern)}) if path.is_dir() else [path]
            if not inner:
                raise InputError(f"{path} holds no file like {' or '.join(patterns)}.")
            files.extend(inner)
        return files

    def rows(self, source: Path | Iterator[Item], read: Callable[[Item], Outcome], *inside: str) -> Iterator[Outcome]:
        """Yield what `read` makes of each row of a file; rows that it cannot use go to `on_fault`.

        source : a file, see :func:`items_of`; or its rows, if the format has another kind of file.
        """
        for item in items_of(source, self.on_fault, *inside) if isinstance(source, Path) else source:
            try:
                outcome = read(item)
            except UnusableRowError as error:
                self.on_fault(Fault(item.origin, item.place, str(error), item.value))
            except RecursionError:
                self.on_fault(Fault(item.origin, item.place, "its values are nested too deeply."))
            except InputError as error:
                raise InputError(f"{item.origin} {item.place}: {error}") from None
            else:
                yield outcome

    def question(self, asked: Any) -> Question | None:
        """Return the question in the input of an LLM: text, a chat, or an object with either.

        The question in a chat is the user's message, without the system message. If the user has several messages, it
        is the whole chat, because the last message is seldom a question by itself; ``selection.last_turn`` takes it
        alone.

        >>> log = Log([], Selection(question_after="The question is:"), print)
        >>> chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The question is: 2+2?"}]
        >>> log.question(chat).text
        '2+2?'
        """
        value = unpacked(asked)
        chat = chat_of(value)
        turns = sum(role in USERS for role, _ in chat)
        if turns > 1 and not self.selection.last_turn:
            text: str | None = chat_text([(role, part) for role, part in chat if role in _SPEAKERS])
        else:
            turns, text = 1, asked_text(value)
        if text is None:
            if not isinstance(asked, str):
                return None
            text = asked
        after = self.selection.question_after
        if after is not None and after in text:
            text = text.rpartition(after)[2].strip()
        return Question(text, turns)

    def grade(self, value: Any, source: str = "the score") -> float | Dropped | None:
        """Return the correctness that a score means: 0, 1, or a share in between; None if there is no score.

        Without ``selection.correct_at``, a score outside 0 to 1 is an error.

        source : the name of the score in messages.

        >>> log = Log([], Selection(), print)
        >>> log.grade("C"), log.grade(True), log.grade(0.4), Log([], Selection(correct_at=5), print).grade(7)
        (1.0, 1.0, 0.4, 1.0)
        >>> log.grade({"accuracy": 1})
        Dropped(why='the score is an object, not one value')
        """
        if value is None:
            return None
        if isinstance(value, bool):
            return float(value)
        if isinstance(value, str):
            value = value.strip().lower()
            if value in _GRADES:
                return _GRADES[value]
        elif not isinstance(value, int | float):
            return Dropped(f"the score is {'an object' if isinstance(value, dict) else 'a list'}, not one value")
        number = bare_number(value)
        if not math.isfinite(number):
            return Dropped("the score is neither a number nor a word for correct or wrong")
        if self.selection.correct_at is not None:
            return float(number >= self.selection.correct_at)
        return _unit(number, number, source, "Pass the lowest score of a correct answer: --correct-at SCORE.")

    def confidence(self, value: Any) -> Confidence:
        """Return the confidence in a log's metadata: a number, or text with one; none if another source was chosen.

        Text follows the rules for replies, so "0.95%" is not read. A number without a percent sign is a fraction, so
        "95" is an error.

        >>> log = Log([], Selection(), print)
        >>> log.confidence("95%"), Log([], Selection(percent=True), print).confidence(95).value
        (Scored(value=0.95, source='metadata'), 0.95)
        >>> log.confidence(95)
        Traceback (most recent call last):
        qacal.errors.InputError: the confidence in the metadata is 95; expected 0 to 1. ...
        """
        percent = self.selection.percent
        if self.selection.confidence_from not in (None, METADATA):
            return Unscored("the metadata was not chosen")
        if is_missing(value):
            return Unscored("none in the metadata")
        number = bare_number(value)
        if isinstance(value, str) and (math.isnan(number) or (_is_unit(number) and not percent)):
            reading = read_probability(value)
            return Scored(reading, METADATA) if isinstance(reading, float) else Unscored(f"the metadata: {reading.why}")
        if not math.isfinite(number):
            return Unscored("what is in the metadata is not a number")
        remedy = "It is not a percent either." if percent else "If these are percents, pass --percent."
        if 1 < number <= 10:
            remedy = "If these are grades, as from 0 to 10 or 1 to 5, convert them to 0 to 1 first. " + remedy
        remedy += " Another source is chosen with --confidence-from."
        share = _unit(number / 100 if percent else number, number, "the confidence in the metadata", remedy)
        return Scored(share, METADATA, percent)

    def row(
        self,
        question: Question,
        answer: str,
        correct: float | Dropped | None,
        offers: Mapping[str, Confidence],
        *,
        key: tuple[Hashable, ...],
        identity: str | None = None,
        ground_truth: tuple[str, ...] = (),
        model: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        judge: str | None = None,
        columns: Mapping[str, Any] | None = None,
        objects: Sequence[tuple[str, Any]] = (),
        used: Collection[str] = (),
    ) -> Outcome:
        """Return a row of records, or why it is dropped, if its score cannot be graded.

        correct : as :meth:`grade` returns it.
        offers : the confidences by source, the preferred source first.
        identity : the id of the question, which all its rows share; by default a digest of its text.
        ground_truth : the spellings of the correct answer.
        model : the name in the log, used if the user gave none.
        columns : further columns.
        objects : names and objects; their plain values become columns too, except those that were `used`.

        >>> row = Log([], Selection(), print).row(Question("2 + 2?"), "4", 1.0, {"stated": Scored(0.9, "stated")},
        ...                                       key=(1,), objects=[("metadata", {"topic": "sums"})])
        >>> row.record["confidence"], row.record["topic"]
        (0.9, 'sums')
        """
        if isinstance(correct, Dropped):
            return correct
        confidence, confidences = choose_confidence(offers, self.selection.confidence_from)
        record = {
            "id": identity or digest(question.text),
            "question": question.text,
            "answer": answer,
            "confidence": confidence.value if isinstance(confidence, Scored) else None,
            "confidence_source": confidence.source if isinstance(confidence, Scored) else None,
            "correct": correct,
            "ground_truth": list(ground_truth) if len(ground_truth) > 1 else next(iter(ground_truth), None),
            "model": self.selection.model or model,
            "prompt": None if prompt == question.text else prompt,
            "task": task,
            "judge": judge,
            **(columns or {}),
            **confidences,
            **plain_columns(*objects, used=used),
        }
        return LogRow(record, confidence, key, question.turns)


def items_of(path: Path, on_fault: OnFault, *inside: str) -> Iterator[Item]:
    """Yield the rows of a file; those of a JSON document are the items of the list at `inside`, or of the top.

    Only one batch of rows is in memory: even the list in a JSON document is read item by item.
    """
    if not path.is_file():
        raise InputError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; expected a file.")
    if path.suffixes[-1:] == [".json"] or path.suffixes[-2:] == [".json", ".gz"]:
        with opened_text(path) as stream:
            yield from checked_items(path, JsonDocument(stream, str(path)).items(*inside), on_fault)
        return
    file = open_file(path)
    sizes = {} if file.format == "parquet" else {"batch_rows": _BATCH_ROWS}
    for table in file.batches(on_fault, **sizes):
        for place, row in zip(table.places.tolist(), table.rows(), strict=True):
            yield Item(str(path), f"{table.unit} {place}", row)


def checked_items(path: Path, values: Iterator[Any], on_fault: OnFault) -> Iterator[Item]:
    """Yield the objects among the items of a document; others go to `on_fault`."""
    for number, value in enumerate(values, 1):
        if isinstance(value, dict):
            yield Item(str(path), f"item {number}", value)
        else:
            on_fault(Fault(str(path), f"item {number}", f"it is {type(value).__name__}, not an object.", value))


def first_item(path: Path, *inside: str) -> dict[str, Any]:
    """Return the first row of a file; empty if there is none."""
    return next((item.value for item in items_of(path, lambda fault: None, *inside)), {})


def plain_columns(*parts: tuple[str, Any], used: Collection[str] = ()) -> dict[str, Any]:
    """Return the plain values of objects as columns: text, numbers, and yes or no.

    A name with a meaning in records, or with another value in an earlier object, gets the name of its object as a
    prefix. Names that were `used` are left out.

    >>> plain_columns(("doc", {"subject": "law", "answer": 2, "choices": ["a", "b"], "question": "?"}),
    ...               used=["question"])
    {'subject': 'law', 'doc_answer': 2}
    """
    columns: dict[str, Any] = {}
    for prefix, values in parts:
        for name, value in members(values).items():
            if name not in used and isinstance(value, str | int | float):
                is_clash = name in _RESERVED or columns.get(name, value) != value
                columns[f"{prefix}_{name}" if is_clash else name] = value
    return columns


def judgement_rank(kind: str, kinds: Sequence[str], time: Any) -> tuple[int, str]:
    """Return the rank of a judgement, the highest for the first of the kinds of judges and the latest time."""
    return (-kinds.index(kind) if kind in kinds else -len(kinds), str(time))


def _is_unit(number: float) -> bool:
    # A softmax in single precision may give 1.0000001; no other scale ends there.
    return -1e-6 <= number <= 1 + 1e-6


def _unit(number: float, written: float, source: str, remedy: str) -> float:
    """Return a number in 0 to 1; refuse the whole log if it lies outside.

    Then its source is on another scale, on which a 1 is one percent, or the worst of five grades. Dropping only this
    row would keep the rows that are misread.
    """
    if not _is_unit(number):
        missing = " If -1 or the like means no value, leave it empty." if number < 0 else ""
        raise InputError(
            f"{source} is {written:g}; expected 0 to 1. On another scale a 1 may mean anything, so nothing is "
            f"imported. {remedy}{missing}"
        )
    return min(max(number + 0.0, 0.0), 1.0)
