"""The groups of the test rows: what each score claims, where it is wrong beyond chance, and the table of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics.calibration import calibration_error
from qacal.metrics.evaluation import BINS
from qacal.report.data import Gathered
from qacal.report.promise import judged
from qacal.report.words import error_seen, percent
from qacal.tally.ids import one_of_each
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from qacal.report.content import Content

# Below this many test rows the error of a group is mostly noise, and it is shown after those that have more.
FEW_ROWS = 50
# All texts of a block together; with hundreds of groups each text is cut shorter.
_TEXT_BUDGET = 400_000
_SHORT = 140
_SHORT_NAMES = {"pooled": "one for all"}


@dataclass(frozen=True, eq=False)
class Group:
    """One group of test rows: how often it is right, what each score claims, and how far each is off.

    is_off : the mean calibrated confidence is further from the share of right answers than chance explains. Of no
        group where some questions have more rows than others: the test is of questions, and the means are of rows.
    words, examples : what sets it apart, and some of its rows; empty where the records have no texts.
    """

    label: Any
    rows: int
    accuracy: float
    confidence: dict[str, float]
    errors: dict[str, float]
    tallies: dict[str, Tally]
    is_off: bool = False
    words: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def gap(self) -> float:
        """How far the mean calibrated confidence is from the share of right answers."""
        return abs(self.confidence["calibrated"] - self.accuracy)

    @property
    def gain(self) -> float:
        """By how much the debiased error falls; what is below noise counts as none."""
        before, after = (np.nan_to_num(max(self.errors[name], 0.0)) for name in ("stated", "calibrated"))
        return float(before - after)


def groups_of(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> tuple[Group, ...]:
    """Return the groups that gain most first, and those with few rows last."""
    groups = _groups(gathered, tallies, examples)
    return tuple(sorted(groups, key=lambda group: (group.rows < FEW_ROWS, -group.gain, str(group.label))))


def _groups(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> Iterator[Group]:
    if not gathered.labels:
        return
    labels = {code: label for label, code in gathered.labels.items()}
    off = set() if gathered.is_uneven else _codes_that_are_off(gathered)
    words, pairs = gathered.sampler.words(), gathered.sampler.examples(examples)
    columns = {name: dict(iter(tally)) for name, tally in tallies.items()}
    for code, first in columns["stated"].items():
        mine = {name: column[code] for name, column in columns.items()}
        yield Group(
            label=labels.get(code),
            rows=first.n,
            accuracy=first.mean,
            confidence={name: float(tally.w @ tally.confidence / tally.w.sum()) for name, tally in mine.items()},
            errors={
                name: calibration_error(tally, bins=BINS) if tally.n > 1 else float("nan")
                for name, tally in mine.items()
            },
            tallies={name: tally.without_blocks() for name, tally in mine.items()},
            is_off=(-1 if code is None else code) in off,
            words=words.get(code, ()) if examples else (),
            examples=pairs.get(code, ()),
        )


def _codes_that_are_off(gathered: Gathered) -> set[int]:
    """Return the groups whose mean calibrated confidence chance does not explain, one row of each question counted.

    If the calibrated confidences are right within every group, some group is here with probability 0.05 at most.
    """
    correct, claimed, codes, ids = (gathered.column(name) for name in ("correct", "calibrated", "groups", "ids"))
    kept = slice(None) if ids is None else one_of_each(ids, correct, claimed, codes)
    known, where = np.unique(codes[kept], return_inverse=True)
    t, p = correct[kept], claimed[kept]
    columns = (np.ones(len(t)), t, t * t, p)
    rows, right, squares, total = (np.bincount(where, column).astype(np.float64) for column in columns)
    found = judged(rows, right, squares, (total / rows, total / rows))
    return set(known[found.is_contradicted].tolist())


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
    right = {1.0: "correct", 0.0: "wrong"}.get(example["correct"], f"{example['correct']:.2g} correct")
    return Pair(
        question=Cut.of(str(example["question"]), longest),
        answer=Cut.of(str(example["answer"]), longest),
        stated=percent(example["confidence"]),
        calibrated=percent(example["calibrated"]),
        verdict=right,
    )
