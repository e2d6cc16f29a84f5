"""The formats that can be imported, and what a user can select in a log."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qacal.errors import InputError
from qacal.sources.importers.confidences import AGREEMENT, LIKELIHOOD, METADATA, STATED, TOKENS

if TYPE_CHECKING:
    from qacal.sources.importers.base import Log, Outcome


# The options of all formats.
_EVERYWHERE = ("correct_at", "model", "confidence_from", "question_after", "last_turn")


@dataclass(frozen=True)
class Selection:
    """What to take from a log that has several filters, scores or sources of confidence.

    metric : what decides correctness: a metric, a scorer of inspect (``NAME:PART`` if its value is an object), a score
        of Langfuse, or an assessment of MLflow.
    filter : of lm-eval. observation : the name of generations of Langfuse.
    confidence_from : the only source of confidence to use; by default the first that a row has.
    correct_at : the lowest score of a correct answer; by default a score from 0 to 1 is the label.
    percent : confidences in metadata are percents.
    labels : a table with an id, and correct, ground_truth or further columns, for batches.
    question_after : the question is what follows this text in a prompt.
    last_turn : the question in a chat of several turns is the user's last message; otherwise it is the whole chat.
    model : the LLM's name; by default the one in the log.
    """

    metric: str | None = None
    filter: str | None = None
    observation: str | None = None
    confidence_from: str | None = None
    correct_at: float | None = None
    percent: bool = False
    labels: Path | None = None
    question_after: str | None = None
    last_turn: bool = False
    model: str | None = None


@dataclass(frozen=True)
class Format:
    """A format.

    module : the module that reads the format; it is loaded on first use.
    sources : the sources of confidence, in the order of preference.
    own_options : the fields of :class:`Selection` that the format uses besides those of all formats.
    """

    name: str
    module: str
    sources: tuple[str, ...]
    own_options: tuple[str, ...]

    def read(self, log: Log) -> Iterator[Outcome]:
        """Return the rows of a log, and the reasons why others were dropped."""
        outcomes: Iterator[Outcome] = importlib.import_module(f"qacal.sources.importers.{self.module}").read(log)
        return outcomes

    def require(self, selection: Selection) -> None:
        """Refuse a selection with options that the format does not use.

        >>> FORMATS["mlflow"].require(Selection(filter="strict"))
        Traceback (most recent call last):
        qacal.errors.InputError: mlflow has no filter to choose (--filter); it takes confidence-from, ...
        """
        options = sorted((*_EVERYWHERE, *self.own_options))
        for name, default in vars(Selection()).items():
            if getattr(selection, name) != default and name not in options:
                option, taken = name.replace("_", "-"), ", ".join(options).replace("_", "-")
                raise InputError(f"{self.name} has no {option} to choose (--{option}); it takes {taken}.")
        if selection.confidence_from not in (None, *self.sources):
            raise InputError(
                f"{self.name} has no confidence from {selection.confidence_from!r}; it has {', '.join(self.sources)}."
            )


FORMATS = {
    log_format.name: log_format
    for log_format in (
        Format("lm-eval", "lm_eval", (LIKELIHOOD, AGREEMENT, STATED), ("metric", "filter")),
        Format("inspect", "inspect_ai", (METADATA, STATED, TOKENS, AGREEMENT), ("metric", "percent")),
        Format("openai-batch", "openai_batch", (STATED, TOKENS), ("labels",)),
        Format("promptfoo", "promptfoo", (METADATA, STATED, TOKENS), ("metric", "percent")),
        Format("langfuse", "langfuse", (METADATA, STATED), ("metric", "observation", "percent")),
        Format("mlflow", "mlflow", (METADATA, STATED), ("metric", "percent")),
        Format("deepeval", "deepeval", (METADATA, STATED), ("metric", "percent")),
    )
}


class OnlyName:
    """The one name to use of all names in a log: the one that the user chose, or the only one.

    >>> scores = OnlyName("score", None)
    >>> [scores.takes(name) for name in ("correct", "correct", "tone")]
    [True, True, False]
    >>> scores.check()
    Traceback (most recent call last):
    qacal.errors.InputError: there are several scores: correct, tone. Choose one with --metric.
    """

    def __init__(self, what: str, wanted: str | None, option: str = "--metric", where: str = "") -> None:
        self._what = what
        self._option = option
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
            raise InputError(f"{self._where}there is no {self._what} {self._wanted!r}; the log has {names}.")
        if self._wanted is None and len(self._seen) > 1:
            raise InputError(f"{self._where}there are several {self._what}s: {names}. Choose one with {self._option}.")
