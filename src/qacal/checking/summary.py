"""One pass over the rows: counts, and a few numbers of each row.

Each row takes eight numbers of 64 bits, however long its texts are: its place, confidence and label, and hashes of its
id, its LLM, its question, of question and answer together, and of the rest of the row. Equal hashes stand for equal
texts; among a million texts, a collision has a probability of one in forty million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from qacal.checking.confidences import number_of
from qacal.checking.names import Columns
from qacal.checking.others import OtherColumn
from qacal.records.columns import PROVENANCE, Checks, listed
from qacal.records.reading import BadRows, Gathered
from qacal.records.table import Table
from qacal.tally.arrays import Floats, Hashes, is_missing
from qacal.tally.ids import combined, id_hashes

# At most this many other columns, and values of each provenance column, are counted.
_COLUMNS = 200
_ORIGINS = 1_000


class Summary:
    """Counts and columns of the rows so far.

    columns : the names of the standard columns.
    most : the confidence for certain.
    bad : counts bad rows by reason.
    expressions : the numbers of confidences in words, by :func:`expression_key`.
    """

    def __init__(self, columns: Columns, most: float, bad: BadRows, expressions: Mapping[str, float]) -> None:
        self.columns = columns
        self.bad = bad
        self.rows = 0
        self.unit = "row"
        self.names: dict[str, None] = {}
        self.words: Counter[str] = Counter()
        self.origins: dict[str, Counter[Any]] = {}
        self.llms: dict[int, str] = {}
        self.others: dict[str, OtherColumn] = {}
        self._most = most
        self._expressions = expressions
        self._kept = Gathered()
        # The columns that all rows have, for an empty file.
        nothing, nobody = np.empty(0), np.empty(0, dtype=bool)
        self._kept.add(stated=nothing, label=nothing, sound=nobody, good=nobody)

    def column(self, name: str) -> Any:
        """Return a column of numbers that was kept of all rows; None if the rows lack it."""
        return self._kept.get(name)

    @property
    def has_no_label(self) -> bool:
        """Whether there is a column of labels, but no row has a readable label."""
        return "correct" in self.columns.names and self.rows > 0 and bool(np.isnan(self.column("label")).all())

    def add(self, table: Table) -> None:
        self.bad.add_rows(table.origin, len(table))
        self.rows += len(table)
        self.unit = table.unit
        self.names.update(dict.fromkeys(table.names))
        names = self.columns.names
        # In JSON lines, later rows may lack columns that earlier rows have.
        absent = [name for name in names.values() if name not in table.names]
        if absent:
            table = table.extended(pl.DataFrame({name: [None] * len(table) for name in absent}))
        checks = Checks(table, names, self.bad, self._expressions)
        label = np.full(len(table), np.nan)
        if "correct" in names:
            label = checks.numbers("correct", 1.0, may_miss=True)
            label = np.where((label >= 0) & (label <= 1), label, np.nan)
        self._add_texts(checks, len(table))
        # Last, so that rows without a question or a label are counted even if all confidences are words.
        is_sound = checks.is_good.copy()
        stated = self._confidences(table, checks)
        self._kept.add(place=table.places, written=_written(table, names), stated=stated, label=label)
        self._kept.add(sound=is_sound, good=checks.is_good)
        self._add_origins(table)
        for name in [name for name in table.names if name not in names.values()][:_COLUMNS]:
            other = self.others.setdefault(name, OtherColumn(name))
            if not other.is_done:
                other.add(listed(table.column(name)), label)

    def _confidences(self, table: Table, checks: Checks) -> Floats:
        """Return confidences as numbers, on any scale; NaN for others."""
        if "confidence" not in self.columns.names:
            return np.full(len(table), np.nan)
        numbers = checks.numbers("confidence", self._most)
        unread = np.flatnonzero(np.isnan(numbers)).tolist()
        values = listed(table.column(self.columns.names["confidence"])) if unread else []
        for row in unread:
            number = None if is_missing(values[row]) else number_of(values[row])
            if number is not None:
                numbers[row] = number
            elif isinstance(values[row], str) and values[row].strip():
                self.words[values[row].strip().lower()[:40]] += 1
        return numbers

    def _add_texts(self, checks: Checks, rows: int) -> None:
        """Keep hashes of questions, answers and ids."""
        names = self.columns.names
        if "question" in names:
            _, questions = checks.questions(may_be_empty=False)
            hashes = id_hashes(questions, rows)
            self._kept.add(question=hashes, asked=np.array([bool(text) for text in questions], dtype=bool))
        if "answer" in names:
            answers = checks.texts("answer")
            if "question" in names:
                self._kept.add(pair=combined(hashes, id_hashes(answers, rows)))
        if "id" in names:
            ids = checks.ids()
            is_id = [isinstance(id_, str | int) and not isinstance(id_, bool) and id_ != "" for id_ in ids]
            valid = [id_ if is_valid else 0 for id_, is_valid in zip(ids, is_id, strict=True)]
            self._kept.add(id=id_hashes(valid, rows), named=np.array(is_id, dtype=bool))

    def _add_origins(self, table: Table) -> None:
        for name in PROVENANCE:
            if name not in self.columns.names:
                continue
            values = [
                None if is_missing(value) else value if isinstance(value, str | int | float) else str(value)
                for value in listed(table.column(self.columns.names[name]))
            ]
            counts = self.origins.setdefault(name, Counter())
            if len(counts) <= _ORIGINS:
                counts.update(value for value in values if value is not None)
            if name == "model":
                llms = [str(value) for value in values]
                hashes = id_hashes(llms, len(llms))
                self.llms.update(zip(hashes.tolist(), llms, strict=True))
                self._kept.add(llm=hashes)


def _written(table: Table, names: Mapping[str, str]) -> Hashes:
    """Return a hash of each row's confidence, label and provenance as written, so that unreadable values differ too."""
    columns = [listed(table.column(names[name])) for name in ("confidence", "correct", *PROVENANCE) if name in names]
    hashes = [id_hashes([repr(value) for value in column], len(table)) for column in columns]
    return combined(np.zeros(len(table), dtype=np.uint64), *hashes)
