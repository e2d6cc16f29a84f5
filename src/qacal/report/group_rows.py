"""The groups as rows of a table: numbers, distinctive words, and a few question-answer pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qacal.report.content import Content
from qacal.report.groups import FEW_ROWS, Group
from qacal.report.words import error_seen, percent

# All texts of a block together; with hundreds of groups each text is cut shorter.
_TEXT_BUDGET = 400_000
_SHORT = 140
_SHORT_NAMES = {"pooled": "one for all"}


@dataclass(frozen=True)
class Pair:
    """A question and an answer, short and (where that cuts something off) long."""

    question: Cut
    answer: Cut
    stated: str
    calibrated: str
    verdict: str


@dataclass(frozen=True)
class Cut:
    """A text for one line, and the rest of it where there is more."""

    short: str
    full: str

    @staticmethod
    def of(text: str, longest: int) -> Cut:
        """Cut a text; its lines become one.

        >>> Cut.of("Why?", 500)
        Cut(short='Why?', full='')
        """
        line = " ".join(text.split())
        full = line if len(line) <= longest else f"{line[: longest - 1]}…"
        return Cut(line, "") if len(line) <= _SHORT else Cut(f"{line[: _SHORT - 1]}…", full)


@dataclass(frozen=True)
class GroupRow:
    """One line of the table of groups, ready to be shown."""

    name: str
    words: str
    numbers: tuple[tuple[str, str], ...]
    pairs: tuple[Pair, ...]
    is_small: bool


def group_name(label: Any) -> str:
    """Return what a group is called: groups of a tree or of k-means have numbers only."""
    if label is None:
        return "no group"
    return f"group {label}" if isinstance(label, int) and not isinstance(label, bool) else str(label)


def group_rows(content: Content) -> list[GroupRow]:
    """Return the table of groups, those that gain most first."""
    texts = 2 * sum(len(group.examples) for group in content.groups)
    longest = min(max(_TEXT_BUDGET // max(texts, 1), 2 * _SHORT), 2_000)
    return [
        GroupRow(
            name=group_name(group.label),
            words=", ".join(group.words),
            numbers=tuple(_numbers(group)),
            pairs=tuple(_pair(example, longest) for example in group.examples),
            is_small=group.rows < FEW_ROWS,
        )
        for group in content.groups
    ]


def _numbers(group: Group) -> Iterator[tuple[str, str]]:
    yield "rows", f"{group.rows:,}"
    yield "right", percent(group.accuracy)
    yield "stated", percent(group.confidence["stated"])
    yield "calibrated", percent(group.confidence["calibrated"])
    for name, error in group.errors.items():
        yield f"error {_SHORT_NAMES.get(name, name)}", error_seen(error, 2)


def _pair(example: dict[str, Any], longest: int) -> Pair:
    right = {1.0: "right", 0.0: "wrong"}.get(example["correct"], f"{example['correct']:.2g} right")
    return Pair(
        question=Cut.of(str(example["question"]), longest),
        answer=Cut.of(str(example["answer"]), longest),
        stated=percent(example["confidence"]),
        calibrated=percent(example["calibrated"]),
        verdict=right,
    )
