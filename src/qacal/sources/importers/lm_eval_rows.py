"""A row of lm-evaluation-harness in parts, whichever version wrote it.

Before version 0.4.3 numbers were numbers and not text, `arguments` was a list, and there was no `filter` or `metrics`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qacal.sources.importers.base import Confidence, inside, texts_of

_FIELDS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash"),
    )
)
# Longer texts are answers, not lists of answers.
_LONGEST_LIST = 10_000


@dataclass(frozen=True, slots=True)
class Judged:
    """What a row says: an answer with its confidence, and how it was judged."""

    answer: str
    confidence: Confidence
    correct: float | None
    ground_truth: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """A row.

    arguments : what the LLM was asked, request by request: a context, and what should follow it or how to generate.
    metrics : the names of those that have a number.
    steps : what the row's filter does to a reply, if the results say it.
    """

    row: dict[str, Any]
    doc: dict[str, Any]
    arguments: list[list[Any]]
    metrics: tuple[str, ...]
    steps: Sequence[Mapping[str, Any]] | None = None

    @staticmethod
    def of(row: dict[str, Any], steps: Sequence[Mapping[str, Any]] | None = None) -> Sample:
        """Return a row in parts."""
        doc, names = row.get("doc"), row.get("metrics")
        candidates = names if isinstance(names, list) else [name for name in row if name not in _FIELDS]
        numeric = tuple(name for name in candidates if isinstance(name, str) and _is_number(row.get(name)))
        return Sample(row, doc if isinstance(doc, dict) else {}, _arguments(row.get("arguments")), numeric, steps)

    @property
    def has_likelihoods(self) -> bool:
        """True where choices were compared, false where text was generated."""
        response = inside(self.row, "resps", 0, 0)
        if response is None:
            response = inside(self.row, "filtered_resps", 0)
        return isinstance(response, list) and len(response) == 2 and str(response[1]) in ("True", "False")

    @property
    def prompt(self) -> Any:
        """What the LLM was asked first: text, or the messages of a chat."""
        context = self.arguments[0][0] if self.arguments else None
        return context[0] if isinstance(context, list) and len(context) == 1 else context

    @property
    def targets(self) -> tuple[str, ...]:
        """What would be right; the log has a list as text. Numbers in it are places of choices, or part of the text."""
        target = self.row.get("target")
        if isinstance(target, str) and target[:1] == "[" and len(target) <= _LONGEST_LIST:
            try:
                parts = ast.literal_eval(target)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return (target,)
            return texts_of(parts if self.has_likelihoods or _are_texts(parts) else target)
        return texts_of(target)


def _are_texts(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(part, str) for part in parts)


def as_number(value: Any) -> float:
    """Return a number, or text that is one; NaN for anything else.

    >>> as_number("-0.109"), as_number(-0.5), as_number("inf?")
    (-0.109, -0.5, nan)
    """
    try:
        return float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _arguments(given: Any) -> list[list[Any]]:
    if isinstance(given, dict):
        given = [list(request.values()) if isinstance(request, dict) else request for request in given.values()]
    requests = given if isinstance(given, list) else []
    return [request for request in requests if isinstance(request, list) and request]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(as_number(value))
