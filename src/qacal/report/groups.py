"""The groups of the test rows, as the page shows them: measures, characteristic words and examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics.evaluation import GroupScores, group_error, mean_confidence
from qacal.report.data import Gathered
from qacal.report.words import error_seen, percent
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from qacal.report.content import Content

# With fewer test rows the error of a group is mostly noise, and it is shown last.
FEW_ROWS = 50
# Characters of all texts of a block together; with hundreds of groups each text is cut shorter.
_TEXT_BUDGET = 400_000
_SHORT = 140


@dataclass(frozen=True, eq=False)
class Group(GroupScores):
    """One group of test rows, with its measures and what else the page shows of it.

    pooled, error_pooled : mean confidence and error after one correction for all; None without that score.
    words, examples : characteristic words, and some rows; empty if the records have no texts.
    """

    pooled: float | None = None
    error_pooled: float | None = None
    tallies: dict[str, Tally] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def errors(self) -> dict[str, float]:
        """The error of each score."""
        errors = {"stated": self.error_before, "pooled": self.error_pooled, "calibrated": self.error_after}
        return {name: error for name, error in errors.items() if error is not None}

    @property
    def gain(self) -> float:
        """The decrease of the debiased error; errors below noise count as 0."""
        before, after = (np.nan_to_num(max(self.errors[name], 0.0)) for name in ("stated", "calibrated"))
        return float(before - after)

    def to_dict(self) -> dict[str, Any]:
        names = [*(column.name for column in fields(GroupScores)), "pooled", "error_pooled"]
        return {name: getattr(self, name) for name in names}


def groups_of(
    gathered: Gathered, measured: list[GroupScores], tallies: dict[str, Tally], examples: int
) -> tuple[Group, ...]:
    """Return the groups with the largest gain first, and those with few rows last."""
    groups = _groups(gathered, measured, tallies, examples)
    return tuple(sorted(groups, key=lambda group: (group.rows < FEW_ROWS, -group.gain, str(group.group))))


def _groups(
    gathered: Gathered, measured: list[GroupScores], tallies: dict[str, Tally], examples: int
) -> Iterator[Group]:
    words, pairs = gathered.sampler.words(), gathered.sampler.examples(examples)
    by_code = {name: dict(iter(tally)) for name, tally in tallies.items()} if measured else {}
    for scores in measured:
        code = gathered.labels.get(scores.group)
        own = {name: column[code] for name, column in by_code.items()}
        pooled = own.get("pooled")
        yield Group(
            **vars(scores),
            pooled=None if pooled is None else mean_confidence(pooled),
            error_pooled=None if pooled is None else group_error(pooled),
            tallies={name: tally.without_blocks() for name, tally in own.items()},
            words=words.get(code, ()) if examples else (),
            examples=pairs.get(code, ()),
        )


def group_name(label: Any) -> str:
    """Return the name of a group; groups of a tree or of k-means only have numbers."""
    if label is None:
        return "no group"
    return f"group {label}" if isinstance(label, int) and not isinstance(label, bool) else str(label)


def group_rows(content: Content) -> list[dict[str, Any]]:
    """Return the rows of the table of groups, as the template shows them."""
    texts = 2 * sum(len(group.examples) for group in content.groups)
    longest = min(max(_TEXT_BUDGET // max(texts, 1), 2 * _SHORT), 2_000)
    return [
        {
            "name": group_name(group.group),
            "words": ", ".join(group.words),
            "numbers": _numbers(group),
            "pairs": [_pair(example, longest) for example in group.examples],
            "is_small": group.rows < FEW_ROWS,
        }
        for group in content.groups
    ]


def _numbers(group: Group) -> dict[str, str]:
    errors = {f"error {'one for all' if name == 'pooled' else name}": error for name, error in group.errors.items()}
    return {
        "rows": f"{group.rows:,}",
        "accuracy": percent(group.accuracy),
        "stated": percent(group.before),
        "calibrated": percent(group.after or 0.0),
        **{name: error_seen(error, 2) for name, error in errors.items()},
    }


def _pair(example: dict[str, Any], longest: int) -> dict[str, Any]:
    return {
        "question": _cut(str(example["question"]), longest),
        "answer": _cut(str(example["answer"]), longest),
        "stated": percent(example["confidence"]),
        "calibrated": percent(example["calibrated"]),
        "verdict": {1.0: "correct", 0.0: "wrong"}.get(example["correct"], f"{example['correct']:.2g} correct"),
    }


def _cut(text: str, longest: int) -> dict[str, str]:
    """Return a text for one line, and if that is only its start, more of it."""
    line = " ".join(text.split())
    full = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return {"short": line, "full": ""} if len(line) <= _SHORT else {"short": f"{line[: _SHORT - 1]}…", "full": full}
