r"""How often several samples of one answer agree: a confidence that needs neither a stated one nor token probabilities.

Answers are compared as judges of exact matches compare them (`matching.py`), so "Paris" and "paris." are one answer.
With :math:`n_a` of :math:`n` samples that give the answer :math:`a`, the agreement is :math:`n_a / n` for the most
frequent answer, and the entropy of the answers is :math:`-\sum_a (n_a / n) \log (n_a / n)`, in nats.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from qacal.errors import InputError, counted
from qacal.records.columns import Checks, listed
from qacal.records.reading import Reading, as_source, tables_of
from qacal.records.table import Table
from qacal.sources.elicitation.matching import normalise_answer
from qacal.storage import digest
from qacal.tally.arrays import is_missing

COLUMNS = ("agreement", "answers_entropy", "samples")
# Samples of one answer share these: answers of two LLMs, or two guesses in one reply, are no samples.
_SHARED = ("model", "guess")


class Votes:
    """The number of samples with each answer.

    >>> votes = Votes(["Paris", "Lyon", "paris."])
    >>> votes.majority == Votes.key("PARIS"), votes.columns_of(votes.majority)["agreement"]
    (True, 0.6666666666666666)
    """

    def __init__(self, answers: Iterable[str] = ()) -> None:
        self.counts = Counter(map(self.key, answers))

    @staticmethod
    @lru_cache(maxsize=1024)  # samples repeat, and normalising is most of the work
    def key(answer: str) -> str:
        """Return a digest that is equal for answers that match; answers may be long."""
        return digest({"answer": normalise_answer(answer)})[:32]

    def add(self, answer: str) -> str:
        """Count an answer, and return its key."""
        key = self.key(answer)
        self.counts[key] += 1
        return key

    @property
    def samples(self) -> int:
        return self.counts.total()

    @property
    def majority(self) -> str:
        """The key of the most frequent answer; of several, the smallest key, which prefers no place and no letter."""
        return min(self.counts, key=lambda key: (-self.counts[key], key))

    @property
    def entropy(self) -> float:
        # Positive terms: -1 * log(1) would be -0.0. fsum rounds once, so the order of the samples changes no digit.
        return math.fsum(count / self.samples * math.log(self.samples / count) for count in self.counts.values())

    def columns_of(self, key: str) -> dict[str, Any]:
        """Return the columns of a row with the answer of a key: its share of the samples, entropy and their number."""
        return dict(zip(COLUMNS, (self.counts[key] / self.samples, self.entropy, self.samples), strict=True))


def agree(records: Any, by: str | Sequence[str] = "id", *, columns: Mapping[str, str] | None = None) -> Any:
    """Return one row for each question that was answered several times, with the share of answers that agree.

    The row is one with the most frequent answer; the order of the records does not matter. It gets the columns
    `agreement` (the share of the rows with that answer), `answers_entropy` (in nats) and `samples` (their number).

    records : a path, a frame of pandas, polars or Arrow, or a list of objects; the result is of the same type (of a
        path, a polars frame).
    by : the column, or columns, that the samples of one question share.
    columns : ``{"answer": "output"}`` if the rows use other names.

    >>> answers = ["Paris", "paris.", "Lyon"]
    >>> (row,) = agree([{"id": "q1", "answer": answer} for answer in answers])
    >>> round(row["agreement"], 3), round(row["answers_entropy"], 3), row["samples"]
    (0.667, 0.637, 3)
    """
    tables = list(Samples.of(records, by, Reading(columns or {})).majority_rows())
    if not isinstance(records, str | Path) and len(tables) == 1:
        return tables[0].native
    import polars as pl

    return pl.concat([table.frame() for table in tables], how="diagonal_relaxed")


@dataclass
class _Answers:
    """The samples of one question.

    rows : by the key of an answer, the digest and the number of the row that stands for it.
    shared : the values that all samples must have in common.
    """

    votes: Votes = field(default_factory=Votes)
    rows: dict[str, tuple[str, int]] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)


@dataclass
class Samples:
    """The samples in a file or a table, by question; see :func:`agree`."""

    records: Any
    by: Sequence[str]
    groups: dict[tuple[str, ...], _Answers] = field(default_factory=dict)

    @staticmethod
    def of(records: Any, by: str | Sequence[str], reading: Reading) -> Samples:
        names = [by] if isinstance(by, str) else list(by)
        samples = Samples(as_source(records), [reading.name(name) for name in names])
        if not names:
            raise InputError("by is empty; name the column that the samples of one question share, such as id.")
        numbers, origin = count(), "records"
        for table, counting in tables_of(samples.records, reading):
            samples._add(table, counting, numbers)
            origin = table.origin
        if not samples.groups:
            raise InputError(f"there are no rows in {origin}.")
        if max(samples.sizes) == 1:
            raise InputError(
                f"{origin}: each of the {len(samples.groups):,} values of {samples.name} has one row, so there are no "
                "samples to compare. Name the column that the samples of one question share (--by question), or ask "
                "for samples: qacal elicit --samples 5 --temperature 0.7."
            )
        return samples

    @property
    def name(self) -> str:
        return " and ".join(self.by)

    @property
    def sizes(self) -> list[int]:
        return [group.votes.samples for group in self.groups.values()]

    def __str__(self) -> str:
        sizes = self.sizes
        each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        shares = [max(group.votes.counts.values()) / group.votes.samples for group in self.groups.values()]
        unanimous = sum(share == 1 and size > 1 for share, size in zip(shares, sizes, strict=True))
        return (
            f"{sum(sizes):,} rows of {counted(len(sizes), 'question')} (by {self.name}), {each} samples each.\n"
            f"Agreement: {np.mean(shares):.2f} on average; all samples agree for {counted(unanimous, 'question')}."
        )

    def majority_rows(self) -> Iterator[Table]:
        """Yield the rows of the most frequent answers with their columns, in the order of the records."""
        import polars as pl

        chosen = {}
        for group in self.groups.values():
            _, number = group.rows[group.votes.majority]
            chosen[number] = group.votes.columns_of(group.votes.majority)
        numbers = count()
        for table in self.records.batches(lambda fault: None):  # faults were reported by the first reading
            places = [next(numbers) for _ in range(len(table))]
            is_chosen = np.array([place in chosen for place in places], dtype=bool)
            if is_chosen.any():
                new = [chosen[place] for place in places if place in chosen]
                yield table.only(is_chosen).extended(pl.DataFrame(new))

    def _add(self, table: Table, reading: Reading, numbers: Iterator[int]) -> None:
        checks = Checks(table, reading.columns, reading.on_fault)
        answers = checks.texts("answer")
        for name in self.by:
            table.require(
                name, "The samples of one question share it; for another one, pass --by NAME (in Python: by)."
            )
        keys = list(zip(*(listed(table.column(name)) for name in self.by), strict=True))
        shared = {name: listed(table.column(name)) for name in _SHARED if name in table.names and name not in self.by}
        for at, (row, key, number) in enumerate(zip(table.rows(), keys, numbers, strict=False)):
            if not checks.is_good[at]:
                continue
            if any(map(is_missing, key)):
                problem = f"{self.name} is missing; the samples of one question share it."
                reading.on_fault(table.fault(at, problem, f"no {self.name}"))
                continue
            group = self.groups.setdefault(tuple(map(str, key)), _Answers())
            for name, values in shared.items():
                if (first := group.shared.setdefault(name, values[at])) != values[at]:
                    options = " ".join(f"--by {name}" for name in (*self.by, name))
                    raise InputError(
                        f"{table.origin}: {name} is {first!r} and {values[at]!r} in the rows of {self.name} "
                        f"{key[0]!r}; samples of one answer share it. If each has its own samples, pass {options}."
                    )
            answer = group.votes.add(answers[at])
            text = json.dumps(row, sort_keys=True, default=str)
            this = sha256(text.encode()).hexdigest(), number
            group.rows[answer] = min(group.rows.get(answer, this), this)
