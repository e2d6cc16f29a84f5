"""What every importer gives: a row that it found in a log, or why it left one out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from qacal.errors import InputError
from qacal.records.columns import KNOWN

# What `qacal apply` adds; a column of that name would stand in its way.
_ADDED = ("low", "high", "group", "source", "rows", "alpha", "decision", "threshold")
_CONFIDENCES = tuple(f"confidence_{source}" for source in ("metadata", "stated", "tokens", "agreement", "max_prob"))
RESERVED = frozenset((*KNOWN, *_ADDED, *_CONFIDENCES, "ground_truth", "task", "filter", "epoch"))


@dataclass(frozen=True, slots=True)
class Scored:
    """A confidence in [0, 1], and where it came from.

    is_percent : whether it was divided by a hundred, because somebody said so.
    """

    value: float
    source: str
    is_percent: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class OffScale:
    """A number outside 0 to 1: its source is on another scale, on which a 1 is neither certain nor right.

    source : what has the number, in words.
    remedy : what to type.
    column : where other numbers of this source stand, if it is none that was asked for.
    """

    source: str
    number: float
    remedy: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Unscored:
    """No confidence, and why. It is never taken for 0."""

    why: str
    off_scale: OffScale | None = field(default=None, repr=False)


Confidence: TypeAlias = Scored | Unscored


@dataclass(frozen=True, slots=True)
class Found:
    """A question and its answer, as a log has them.

    id : the question's; its rows share it.
    correct : from 0 to 1, None where nobody has judged.
    ground_truth : what would be right, in any of these spellings.
    columns : whatever else may tell kinds of questions apart.
    key : no two rows may have the same.
    off_scale : a number of the row that shows a source of confidence to be on another scale.
    turns : how many messages of a user the question is made of.
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
    off_scale: OffScale | None = None
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Dropped:
    """A sound row that is not wanted, or not usable. Reasons are few, for they are counted."""

    why: str
    off_scale: OffScale | None = field(default=None, repr=False)


Outcome: TypeAlias = Found | Dropped


class UnusableRowError(Exception):
    """A row is not what the format says; it is a fault of the file, and names what was expected."""


@dataclass(frozen=True)
class Selection:
    """What to take from a log that holds several things of a kind.

    filter, metric : of lm-eval; `metric` also of HELM, promptfoo and DeepEval.
    scorer : of inspect; ``NAME:PART`` where its value is an object.
    score, observation : of Langfuse. assessment : of MLflow.
    confidence_from : the only source of confidence to look at; by default the first that a row has.
    correct_at : scores from this on are right, those below wrong; by default a score from 0 to 1 stays as it is.
    percent : confidences in metadata and tables are percents.
    expressions : what words in the column of confidences stand for, in tables: ``{"high": 0.85}``.
    labels : a table with an id, and correct, ground_truth or further columns, for batches.
    columns : what a column is called in a table, as in ``{"confidence": "score"}``.
    question_after : the question is what follows this text in a prompt.
    last_turn : of a chat of several turns, the question is the user's last message; otherwise it is the chat.
    model : the LLM's name, where the log does not say it.
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
    """The one name to use of those that a log has: the one asked for, or the only one.

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
        """Return whether to use what has this name; without a wish, the first name is used until the end tells."""
        self._seen.setdefault(name)
        return name == (self._wanted if self._wanted is not None else next(iter(self._seen)))

    def check(self) -> None:
        """Refuse a log in which the choice was not clear, now that all of it was seen."""
        names = ", ".join(self._seen) or "none"
        if self._wanted is not None and self._wanted not in self._seen:
            raise InputError(f"{self._where}there is no {self._what} {self._wanted!r}; there is {names}.")
        if self._wanted is None and len(self._seen) > 1:
            raise InputError(f"{self._where}there are several {self._what}s: {names}. Choose one with --{self._what}.")


def inside(value: Any, *path: str | int) -> Any:
    """Return what lies at a path into nested objects and lists, None where there is nothing.

    >>> inside({"choices": [{"text": "Paris"}]}, "choices", 0, "text")
    'Paris'
    >>> inside({"choices": None}, "choices", 0, "text") is None
    True
    """
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def listed(value: Any) -> list[Any]:
    """Return a list, or nothing where there is something else."""
    return value if isinstance(value, list) else []


def members(value: Any) -> dict[str, Any]:
    """Return an object, or nothing where there is something else."""
    return value if isinstance(value, dict) else {}


def plain_columns(*parts: tuple[str, Any], used: Iterable[str] = ()) -> dict[str, Any]:
    """Return the plain values of objects as columns: text, numbers, and yes or no.

    A name that records give a meaning, or that an earlier object has with another value, is put behind the name of its
    object. What was `used` already is left out.

    >>> plain_columns(("doc", {"subject": "law", "answer": 2, "choices": ["a", "b"], "question": "?"}),
    ...               used=["question"])
    {'subject': 'law', 'doc_answer': 2}
    """
    taken = frozenset(used)
    columns: dict[str, Any] = {}
    for prefix, values in parts:
        for name, value in members(values).items():
            if name not in taken and isinstance(value, str | int | float):
                is_clash = name in RESERVED or columns.get(name, value) != value
                columns[f"{prefix}_{name}" if is_clash else name] = value
    return columns


def text_of(value: Any) -> str | None:
    """Return text, or a number as text; None for anything else, and for nothing."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def texts_of(value: Any) -> tuple[str, ...]:
    """Return one text or a list of them as several; empty and other values are left out.

    >>> texts_of(["Paris", None, 4]), texts_of("")
    (('Paris', '4'), ())
    """
    texts = [text_of(part) for part in (value if isinstance(value, list | tuple) else [value])]
    return tuple(text for text in texts if text)
