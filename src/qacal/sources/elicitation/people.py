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
from qacal.guarantee import binomial_interval

BY_PEOPLE = "people"
_LABELS = {"1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "1.0": 1.0, "0.0": 0.0}


@dataclass(frozen=True)
class HumanLabels:
    """The column in which people have labelled some of the rows.

    >>> rows = [{"id": "a", "by_hand": "yes"}, {"id": "b", "by_hand": None}]
    >>> list(People("by_hand").theirs(rows))
    [{'id': 'a', 'by_hand': 'yes', 'correct': 1.0, 'judge': 'people'}]
    """

    column: str

    def label(self, row: Mapping[str, Any]) -> float | None:
        """Return what people say of a row; None if they have not looked at it."""
        value = row.get(self.column)
        if value is None or str(value).strip() == "" or value != value:
            return None
        label = _LABELS.get(str(value).strip().lower())
        if label is None:
            raise InputError(f"{self.column} is {value!r}; expected 1 or 0, true or false, yes or no, or nothing.")
        return label

    def questions(self, rows: Iterable[Mapping[str, Any]]) -> set[str]:
        """Return the questions of which people have labelled at least one answer."""
        return {question_of(row) for row in rows if self.label(row) is not None}

    def theirs(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the rows that people have labelled, with their labels."""
        for row in rows:
            label = self.label(row)
            if label is not None:
                yield {**row, "correct": label, "judge": BY_PEOPLE}


def without(rows: Iterable[dict[str, Any]], questions: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of other questions: rows that certify share none with rows that teach."""
    return (row for row in rows if question_of(row) not in questions)


def question_of(row: Mapping[str, Any]) -> str:
    """Return what the rows of one question share: its id, or its text where there is none."""
    return str(row["question"] if row.get("id") in (None, "") else row["id"])


@dataclass(frozen=True)
class Agreement:
    r"""How a judge agrees with people, on rows that both have labelled.

    agreement : the share of rows with the same label.
    sensitivity : the share of right answers (to people) that the judge calls right.
    specificity : the share of wrong answers that the judge calls wrong.

    Each has an exact (Clopper-Pearson) interval at level 1 - alpha for that share alone; None without rows. Rows of one
    question are no independent trials: several answers to it are judged alike. The interval is that of as many trials
    as there are questions, which is exact where each has one row, and errs to the wide side otherwise.
    """

    agreement: Share | None
    sensitivity: Share | None
    specificity: Share | None


@dataclass(frozen=True)
class Share:
    """A share of some rows, with its interval."""

    share: float
    low: float
    high: float
    rows: int
    questions: int

    def __str__(self) -> str:
        of = f"{self.rows:,} rows" + (f", {self.questions:,} questions" if self.questions < self.rows else "")
        return f"{self.share:.3f} [{self.low:.3f}, {self.high:.3f}] of {of}"


def agreement(
    judged: Sequence[float | None],
    human: Sequence[float | None],
    questions: Sequence[str] | None = None,
    alpha: float = 0.05,
) -> Agreement:
    """Compare a judge's labels with people's; rows that lack one of them are left out.

    questions : what the rows of one question share; by default each row has one of its own.

    >>> found = agreement([1, 1, 0, 0, None], [1, 0, 0, 0, 1])
    >>> print(found.specificity)
    0.667 [0.094, 0.992] of 3 rows
    """
    if len(judged) != len(human):
        raise InputError(f"there are {len(judged)} labels of the judge and {len(human)} of people; expected as many.")
    asked = [str(place) for place in range(len(judged))] if questions is None else questions
    both = [
        (bool(a), bool(b), question)
        for a, b, question in zip(judged, human, asked, strict=True)
        if a is not None and b is not None
    ]
    return Agreement(
        _share([(a == b, question) for a, b, question in both], alpha),
        _share([(a, question) for a, b, question in both if b], alpha),
        _share([(not a, question) for a, b, question in both if not b], alpha),
    )


def _share(hits: list[tuple[bool, str]], alpha: float) -> Share | None:
    if not hits:
        return None
    questions = len({question for _, question in hits})
    share = sum(hit for hit, _ in hits) / len(hits)
    low, high = binomial_interval(np.array([share * questions]), np.array([float(questions)]), alpha / 2)
    return Share(share, float(low[0]), float(high[0]), len(hits), questions)
