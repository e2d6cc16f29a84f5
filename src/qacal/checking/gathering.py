"""One pass over the rows: what is counted, and what is kept of each row.

Of each row eight numbers of 64 bits are kept, however long its texts are: its place, its confidence and its label, and
hashes of its id, its LLM, its question, of question and answer together, and of all else that exact copies share. Equal
hashes are taken for equal texts: among a million texts two different ones share a hash once in forty million times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from qacal.checking.confidences import has_comma, number_of
from qacal.checking.names import Columns
from qacal.checking.others import OtherColumn
from qacal.records.bad_rows import BadRows
from qacal.records.columns import Checks, listed
from qacal.records.reading import PROVENANCE
from qacal.records.table import Table
from qacal.tally.arrays import Bools, Floats, Hashes, is_missing
from qacal.tally.ids import combined, id_hashes, mix

# More columns than this are not looked at one by one, nor more LLMs or prompts than this counted.
_COLUMNS = 200
_ORIGINS = 1_000


class Gathering:
    """What was seen of the rows so far.

    columns : which column is which.
    most : the confidence that stands for certain.
    bad : counts bad rows by reason.
    expressions : what a confidence in words stands for, by :func:`expression_key`.
    """

    def __init__(self, columns: Columns, most: float, bad: BadRows, expressions: Mapping[str, float]) -> None:
        self.columns = columns
        self.bad = bad
        self.rows = self.commas = 0
        self.has_utf8 = False
        self.names: dict[str, None] = {}
        self.words: Counter[str] = Counter()
        self.origins: dict[str, Counter[Any]] = {}
        self.labelled_by_llm: Counter[Any] = Counter()
        self.llms: dict[int, str] = {}
        self.others: dict[str, OtherColumn] = {}
        self._most = most
        self._expressions = expressions
        self._kept: dict[str, list[Any]] = {}

    def column(self, name: str) -> Any:
        """Return what was kept of all rows under a name; None if nothing was."""
        return np.concatenate(self._kept[name]) if name in self._kept else None

    def unlabelled(self, *, in_words: bool) -> int:
        """Return how many rows lack nothing but a label; if confidences are words, these are no fault."""
        label = self.column("label")
        is_good = self.column("sound" if in_words else "good")
        return 0 if label is None else int(np.count_nonzero(np.isnan(label) & is_good))

    def add(self, table: Table) -> None:
        """Take more rows."""
        self.bad.add_rows(table.origin, len(table))
        self.rows += len(table)
        names = table.names
        self.names.update(dict.fromkeys(names))
        here = {column: own for column, own in self.columns.names.items() if own in names}
        checks = Checks(table, here, self.bad, self._expressions)
        label = self._labels(checks, here, len(table))
        self._texts(checks, here, len(table))
        self._require_columns(table, here, checks)
        # Last, so that where all confidences are words, rows without a question or a label are counted all the same.
        is_sound = checks.is_good.copy()
        stated = self._confidences(table, here, checks)
        self._keep(place=table.places, written=_written(table, here), stated=stated, label=label)
        self._keep(sound=is_sound, good=checks.is_good)
        self._origins(table, here, ~np.isnan(label) & is_sound)
        for name in [name for name in names if name not in here.values()][:_COLUMNS]:
            other = self.others.setdefault(name, OtherColumn(name))
            if not other.is_done:
                other.add(listed(table.column(name)), label)

    def _keep(self, **columns: Any) -> None:
        for name, values in columns.items():
            self._kept.setdefault(name, []).append(values)

    def _confidences(self, table: Table, here: dict[str, str], checks: Checks) -> Floats:
        """Return the numbers that confidences are, on whatever scale; NaN where there is none."""
        if "confidence" not in here:
            return np.full(len(table), np.nan)
        numbers = checks.numbers("confidence", self._most)
        unread = np.flatnonzero(np.isnan(numbers)).tolist()
        values = listed(table.column(here["confidence"])) if unread else []
        for row in unread:
            number = None if is_missing(values[row]) else number_of(values[row])
            if number is not None:
                numbers[row] = number
                self.commas += has_comma(values[row])
            elif isinstance(values[row], str) and values[row].strip():
                self.words[values[row].strip().lower()[:40]] += 1
        return numbers

    def _labels(self, checks: Checks, here: dict[str, str], rows: int) -> Floats:
        if "correct" not in here:
            return np.full(rows, np.nan)
        labels = checks.numbers("correct", 1.0, may_miss=True)
        return np.where((labels >= 0) & (labels <= 1), labels, np.nan)

    def _texts(self, checks: Checks, here: dict[str, str], rows: int) -> None:
        """Keep who the questions and answers are; 0 where a batch does not have the column."""
        nobody: Hashes = np.zeros(rows, dtype=np.uint64)
        questions = checks.texts("question", may_be_empty=False) if "question" in here else [""] * rows
        answers = checks.texts("answer") if "answer" in here else None
        # Of text that is not UTF-8, each byte is a surrogate.
        self.has_utf8 = self.has_utf8 or any(not text.isascii() and text.isprintable() for text in questions)
        if "question" in self.columns.names:
            hashes = id_hashes(questions, rows)
            self._keep(question=hashes, asked=np.array([bool(text) for text in questions], dtype=bool))
            if "answer" in self.columns.names:
                answered = nobody if answers is None else id_hashes(answers, rows)
                self._keep(pair=mix(hashes) ^ mix(answered, 1))
        if "id" in self.columns.names:
            ids = checks.ids() if "id" in here else [None] * rows
            is_id = [isinstance(one, str | int) and not isinstance(one, bool) and one != "" for one in ids]
            known = [one if is_one else 0 for one, is_one in zip(ids, is_id, strict=True)]
            self._keep(id=id_hashes(known, rows), named=np.array(is_id, dtype=bool))

    def _require_columns(self, table: Table, here: dict[str, str], checks: Checks) -> None:
        """Count the rows of a batch in which no row has a column that rows before it had."""
        for column, own in self.columns.names.items():
            if column in ("question", "answer", "confidence", "id") and column not in here:
                for row in np.flatnonzero(checks.is_good).tolist():
                    self.bad(table.fault(row, f"{own} is missing.", f"no {own}"))
                checks.is_good[:] = False

    def _origins(self, table: Table, here: dict[str, str], is_labelled: Bools) -> None:
        for name in PROVENANCE:
            if name not in self.columns.names:
                continue
            values = (
                [_plain(value) for value in listed(table.column(here[name]))] if name in here else [None] * len(table)
            )
            if name == "model":
                names = [str(value) for value in values]
                hashes = id_hashes(names, len(names))
                self.llms.update(zip(hashes.tolist(), names, strict=True))
                self._keep(llm=hashes)
            counts = self.origins.setdefault(name, Counter())
            if len(counts) <= _ORIGINS:
                counts.update(value for value in values if value is not None)
            if name == "model" and len(self.labelled_by_llm) <= _ORIGINS:
                self.labelled_by_llm.update(value for value, is_one in zip(values, is_labelled, strict=True) if is_one)


def _plain(value: Any) -> Any:
    return None if is_missing(value) else value if isinstance(value, str | int | float) else str(value)


def _written(table: Table, here: Mapping[str, str]) -> Hashes:
    """Return a hash of each row's confidence, label and origin as they are written, so that unread ones differ too."""
    hashes: Hashes = np.zeros(len(table), dtype=np.uint64)
    for name in ("confidence", "correct", *PROVENANCE):
        if name in here:
            texts = [repr(value) for value in listed(table.column(here[name]))]
            hashes = combined(hashes, id_hashes(texts, len(table)))
    return hashes
