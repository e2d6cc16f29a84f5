"""The groups of the test rows, as the page shows them: measures, characteristic words and examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics.evaluation import Evaluation, GroupScores
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

    words, examples : characteristic words, and some rows; empty if the records have no texts.
    """

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


def groups_of(gathered: Gathered, evaluation: Evaluation, examples: int) -> tuple[Group, ...]:
    """Return the groups with the largest gain first, and those with few rows last."""
    if not evaluation.groups:
        return ()
    words, pairs = gathered.sampler.words(), gathered.sampler.examples(examples)
    tallies = {name: dict(iter(tally.without_blocks())) for name, tally in evaluation.tallies.items()}
    groups = [
        Group(
            **vars(scores),
            tallies={name: of_group[scores.group] for name, of_group in tallies.items()},
            words=words.get(scores.group, ()) if examples else (),
            examples=pairs.get(scores.group, ()),
        )
        for scores in evaluation.groups
    ]
    return tuple(sorted(groups, key=lambda group: (group.rows < FEW_ROWS, -group.gain, str(group.group))))


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
