"""The groups of the test rows, as the page shows them: measures, characteristic words and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qacal.calibrators.margins import MarginMaps
from qacal.metrics.evaluation import Evaluation, GroupScores
from qacal.metrics.words import error_seen, percent
from qacal.report.data import Gathered
from qacal.tally.tally import Tally

# With fewer test rows the error of a group is mostly noise, and it is shown last.
FEW_ROWS = 50
# Characters of all texts of a block together; with hundreds of groups each text is cut shorter.
_TEXT_BUDGET = 400_000


@dataclass(frozen=True, eq=False)
class Group(GroupScores):
    """One group of test rows, with its measures and what else the page shows of it.

    certified : the interval of the group's accuracy; None if it has none.
    words, examples : characteristic words, and some rows; empty if the records have no texts.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    certified: tuple[float, float] | None = None
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
    certified, maps = dict[Any, tuple[float, float]](), gathered.model.calibrator_._fitted_maps()
    if isinstance(maps, MarginMaps) and gathered.has_own_groups:
        certified = maps.group_intervals()
    tallies = {name: dict(iter(tally.without_blocks())) for name, tally in evaluation.tallies.items()}
    groups = [
        Group(
            **vars(scores),
            tallies={name: of_group[scores.group] for name, of_group in tallies.items()},
            certified=certified.get(scores.group),
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


def group_numbers(group: Group, *, has_intervals: bool) -> dict[str, str]:
    """Return the numbers of a group as text, by the titles of their columns."""
    ends = "none" if group.certified is None else "–".join(f"{100 * end:.0f}" for end in group.certified) + "%"
    errors = {f"error {'one for all' if name == 'pooled' else name}": error for name, error in group.errors.items()}
    return {
        "rows": f"{group.rows:,}",
        "accuracy": percent(group.accuracy),
        **({"certified": ends} if has_intervals else {}),
        "stated": percent(group.before),
        "calibrated": percent(group.after or 0.0),
        **{name: error_seen(error, 2) for name, error in errors.items()},
    }


def longest_text(groups: Sequence[Group]) -> int:
    """Return how many characters to show of a text of an example."""
    texts = 2 * sum(len(group.examples) for group in groups)
    return min(max(_TEXT_BUDGET // max(texts, 1), 280), 2_000)
