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

from qacal.checking.confidences import number_of
from qacal.checking.names import Columns
from qacal.checking.others import OtherColumn
from qacal.records.bad_rows import BadRows
from qacal.records.columns import PROVENANCE, Checks, listed
from qacal.records.reading import Gathered
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
        self.has_utf8 = False
        self.names: dict[str, None] = {}
        self.words: Counter[str] = Counter()
        self.origins: dict[str, Counter[Any]] = {}
        self.llms: dict[int, str] = {}
        self.others: dict[str, OtherColumn] = {}
        self._most = most
        self._expressions = expressions
        self._kept = Gathered()

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
        names = table.names
        self.names.update(dict.fromkeys(names))
        present = {column: name for column, name in self.columns.names.items() if name in names}
        checks = Checks(table, present, self.bad, self._expressions)
        label = np.full(len(table), np.nan)
        if "correct" in present:
            label = checks.numbers("correct", 1.0, may_miss=True)
            label = np.where((label >= 0) & (label <= 1), label, np.nan)
        self._add_texts(checks, present, len(table))
        self._require_columns(table, present, checks)
        # Last, so that rows without a question or a label are counted even if all confidences are words.
        is_sound = checks.is_good.copy()
        stated = self._confidences(table, present, checks)
        self._kept.add(place=table.places, written=_written(table, present), stated=stated, label=label)
        self._kept.add(sound=is_sound, good=checks.is_good)
        self._add_origins(table, present)
        for name in [name for name in names if name not in present.values()][:_COLUMNS]:
            other = self.others.setdefault(name, OtherColumn(name))
            if not other.is_done:
                other.add(listed(table.column(name)), label)

    def _confidences(self, table: Table, present: dict[str, str], checks: Checks) -> Floats:
        """Return confidences as numbers, on any scale; NaN for others."""
        if "confidence" not in present:
            return np.full(len(table), np.nan)
        numbers = checks.numbers("confidence", self._most)
        unread = np.flatnonzero(np.isnan(numbers)).tolist()
        values = listed(table.column(present["confidence"])) if unread else []
        for row in unread:
            number = None if is_missing(values[row]) else number_of(values[row])
            if number is not None:
                numbers[row] = number
            elif isinstance(values[row], str) and values[row].strip():
                self.words[values[row].strip().lower()[:40]] += 1
        return numbers

    def _add_texts(self, checks: Checks, present: dict[str, str], rows: int) -> None:
        """Keep hashes of questions, answers and ids; a missing column counts as empty texts."""
        questions = checks.texts("question", may_be_empty=False) if "question" in present else [""] * rows
        answers = checks.texts("answer") if "answer" in present else [""] * rows
        # Bytes that are not UTF-8 are surrogates here, which are not printable.
        self.has_utf8 = self.has_utf8 or any(not text.isascii() and text.isprintable() for text in questions)
        if "question" in self.columns.names:
            hashes = id_hashes(questions, rows)
            self._kept.add(question=hashes, asked=np.array([bool(text) for text in questions], dtype=bool))
            if "answer" in self.columns.names:
                self._kept.add(pair=combined(hashes, id_hashes(answers, rows)))
        if "id" in self.columns.names:
            ids = checks.ids() if "id" in present else [None] * rows
            is_id = [isinstance(id_, str | int) and not isinstance(id_, bool) and id_ != "" for id_ in ids]
            valid = [id_ if is_valid else 0 for id_, is_valid in zip(ids, is_id, strict=True)]
            self._kept.add(id=id_hashes(valid, rows), named=np.array(is_id, dtype=bool))

    def _require_columns(self, table: Table, present: dict[str, str], checks: Checks) -> None:
        """Count the rows of a batch without a column that earlier batches have."""
        for column, name in self.columns.names.items():
            if column in ("question", "answer", "confidence", "id") and column not in present:
                for row in np.flatnonzero(checks.is_good).tolist():
                    self.bad(table.fault(row, f"{name} is missing.", f"no {name}"))
                checks.is_good[:] = False

    def _add_origins(self, table: Table, present: dict[str, str]) -> None:
        for name in PROVENANCE:
            if name not in self.columns.names:
                continue
            values = listed(table.column(present[name])) if name in present else [None] * len(table)
            values = [
                None if is_missing(value) else value if isinstance(value, str | int | float) else str(value)
                for value in values
            ]
            counts = self.origins.setdefault(name, Counter())
            if len(counts) <= _ORIGINS:
                counts.update(value for value in values if value is not None)
            if name == "model":
                names = [str(value) for value in values]
                hashes = id_hashes(names, len(names))
                self.llms.update(zip(hashes.tolist(), names, strict=True))
                self._kept.add(llm=hashes)


def _written(table: Table, present: Mapping[str, str]) -> Hashes:
    """Return a hash of each row's confidence, label and provenance as written, so that unreadable values differ too."""
    columns = [
        listed(table.column(present[name])) for name in ("confidence", "correct", *PROVENANCE) if name in present
    ]
    hashes = [id_hashes([repr(value) for value in column], len(table)) for column in columns]
    return combined(np.zeros(len(table), dtype=np.uint64), *hashes)
