"""What importers yield (a row of a log, or the reason why a row was dropped), and what users can select."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from qacal.errors import InputError


@dataclass(frozen=True, slots=True)
class Scored:
    """A confidence in [0, 1], and where it came from; `is_percent` if it was a percent."""

    value: float
    source: str
    is_percent: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unscored:
    """The reason why there is no confidence, which is not the same as a confidence of 0."""

    why: str


Confidence: TypeAlias = Scored | Unscored


@dataclass(frozen=True, slots=True)
class LogRow:
    """A question and its answer in a log.

    id : the id of the question, which all its rows share.
    correct : from 0 to 1; None if the answer was not judged.
    ground_truth : the spellings of the correct answer.
    columns : further values, which may distinguish kinds of questions.
    key : unique for each row.
    turns : the number of the user's messages in the question.
    """

    id: str
    question: str
    answer: str
    confidence: Confidence
    correct: float | None
    key: tuple[Hashable, ...]
    ground_truth: tuple[str, ...] = ()
    model: str | None = None
    prompt: str | None = None
    task: str | None = None
    judge: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Dropped:
    """A valid row that is not selected or cannot be used. Reasons are counted, so they name no details of the row."""

    why: str


Outcome: TypeAlias = LogRow | Dropped


class UnusableRowError(Exception):
    """A row that does not follow its format; the message says what was expected."""


@dataclass(frozen=True)
class Selection:
    """What to take from a log that has several filters, scores or sources of confidence.

    filter, metric : of lm-eval; `metric` also of promptfoo and DeepEval.
    scorer : of inspect; ``NAME:PART`` if its value is an object.
    score, observation : of Langfuse. assessment : of MLflow.
    confidence_from : the only source of confidence to use; by default the first that a row has.
    correct_at : the lowest score of a correct answer; by default a score from 0 to 1 is the label.
    percent : confidences in metadata and tables are percents.
    expressions : numbers for words in a table's column of confidences: ``{"high": 0.85}``.
    labels : a table with an id, and correct, ground_truth or further columns, for batches.
    columns : the names of columns in a table, such as ``{"confidence": "score"}``.
    question_after : the question is what follows this text in a prompt.
    last_turn : the question in a chat of several turns is the user's last message; otherwise it is the whole chat.
    model : the LLM's name; by default the one in the log.
    """

    filter: str | None = None
    metric: str | None = None
    scorer: str | None = None
    score: str | None = None
    observation: str | None = None
    assessment: str | None = None
    confidence_from: str | None = None
    correct_at: float | None = None
    percent: bool = False
    expressions: Mapping[str, float] = field(default_factory=dict)
    labels: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    question_after: str | None = None
    last_turn: bool = False
    model: str | None = None


class OnlyName:
    """The one name to use of all names in a log: the one that the user chose, or the only one.

    >>> filters = OnlyName("filter", None)
    >>> [filters.takes(name) for name in ("strict", "strict", "none")]
    [True, True, False]
    >>> filters.check()
    Traceback (most recent call last):
    qacal.errors.InputError: there are several filters: strict, none. Choose one with --filter.
    """

    def __init__(self, what: str, wanted: str | None, where: str = "") -> None:
        self._what = what
        self._where = where
        self._wanted = wanted
        self._seen: dict[str, None] = {}

    def takes(self, name: str) -> bool:
        """Return whether to use this name: the chosen one or, without a choice, the first; `check` refuses others."""
        self._seen.setdefault(name)
        return name == (self._wanted if self._wanted is not None else next(iter(self._seen)))

    def check(self) -> None:
        """Refuse several names without a choice; call it after all rows are read."""
        names = ", ".join(self._seen) or "none"
        if self._wanted is not None and self._wanted not in self._seen:
            raise InputError(f"{self._where}there is no {self._what} {self._wanted!r}; there is {names}.")
        if self._wanted is None and len(self._seen) > 1:
            raise InputError(f"{self._where}there are several {self._what}s: {names}. Choose one with --{self._what}.")
