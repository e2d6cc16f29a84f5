"""Labels by people: how a judge agrees with them, and which rows are theirs to certify.

A certificate from a judge's labels speaks of what the judge would say. People's labels are fewer, and true: the rows
that have them are kept apart, so that what is learned from the judge can be certified by people alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.intervals import binomial_interval

BY_PEOPLE = "people"
_LABELS = {"1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "1.0": 1.0, "0.0": 0.0}


@dataclass(frozen=True)
class People:
    """The column in which people have labelled some of the rows.

    >>> rows = [{"id": "a", "by_hand": "yes"}, {"id": "b", "by_hand": None}]
    >>> list(People("by_hand").theirs(rows))
    [{'id': 'a', 'by_hand': 'yes', 'correct': 1.0, 'judge': 'people'}]
    """

    column: str

    def label(self, row: Mapping[str, Any]) -> float | None:
        """Return what people say of a row; None if they have not looked at it."""
        if self.column not in row:
            raise InputError(f"there is no column {self.column!r} with labels by people; there are {', '.join(row)}.")
        value = row[self.column]
        if value is None or str(value).strip() == "" or value != value:
            return None
        label = _LABELS.get(str(value).strip().lower())
        if label is None:
            raise InputError(f"{self.column} is {value!r}; expected 1 or 0, true or false, yes or no, or nothing.")
        return label

    def questions(self, rows: Iterable[Mapping[str, Any]]) -> set[str]:
        """Return the questions of which people have labelled at least one answer."""
        return {_question(row) for row in rows if self.label(row) is not None}

    def theirs(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the rows that people have labelled, with their labels."""
        for row in rows:
            label = self.label(row)
            if label is not None:
                yield {**row, "correct": label, "judge": BY_PEOPLE}


def without(rows: Iterable[dict[str, Any]], questions: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of other questions: rows that certify share none with rows that teach."""
    return (row for row in rows if _question(row) not in questions)


def _question(row: Mapping[str, Any]) -> str:
    return str(row["question"] if row.get("id") is None else row["id"])


@dataclass(frozen=True)
class Agreement:
    r"""How a judge agrees with people, on rows that both have labelled.

    agreement : the share of rows with the same label.
    sensitivity : the share of right answers (to people) that the judge calls right.
    specificity : the share of wrong answers that the judge calls wrong.

    Each is (share, low, high, rows): an exact interval at level 1 - alpha for that share alone; None without rows.
    """

    agreement: Share | None
    sensitivity: Share | None
    specificity: Share | None


@dataclass(frozen=True)
class Share:
    """A share of some rows, with its exact interval."""

    share: float
    low: float
    high: float
    rows: int

    def __str__(self) -> str:
        return f"{self.share:.3f} [{self.low:.3f}, {self.high:.3f}] of {self.rows:,} rows"


def agreement(judged: Sequence[float | None], human: Sequence[float | None], alpha: float = 0.05) -> Agreement:
    """Compare a judge's labels with people's; rows that lack one of them are left out.

    >>> found = agreement([1, 1, 0, 0, None], [1, 0, 0, 0, 1])
    >>> print(found.specificity)
    0.667 [0.094, 0.992] of 3 rows
    """
    if len(judged) != len(human):
        raise InputError(f"there are {len(judged)} labels of the judge and {len(human)} of people; expected as many.")
    both = [(bool(a), bool(b)) for a, b in zip(judged, human, strict=True) if a is not None and b is not None]
    return Agreement(
        _share([a == b for a, b in both], alpha),
        _share([a for a, b in both if b], alpha),
        _share([not a for a, b in both if not b], alpha),
    )


def _share(hits: list[bool], alpha: float) -> Share | None:
    if not hits:
        return None
    right, rows = (np.array([number], dtype=np.float64) for number in (sum(hits), len(hits)))
    low, high = binomial_interval(right, rows, alpha / 2)
    return Share(sum(hits) / len(hits), float(low[0]), float(high[0]), len(hits))
