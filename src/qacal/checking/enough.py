"""What labelled rows are enough for, and how many more the next goal needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf, isnan

from qacal.calibrators.step_binning import StepBinning
from qacal.model.defaults import DEPTH_WITH_SCORE, SHARE_WITH_SCORE
from qacal.planning import labels_for_group, rounded_up
from qacal.tally.arrays import Floats
from qacal.thresholds.curve import CANDIDATES, threshold_curve
from qacal.thresholds.outlook import rows_needed

# Measured on five LLMs: with this many labelled rows, half of the fits use the text, and nearly all.
_TEXT_HELPS_HALF, _TEXT_HELPS = 300, 1_000

# `qacal split` holds out this share of the questions, to choose a threshold on.
_KEPT = 0.3
_TARGETS = (0.9, 0.95, 0.99)
_ALPHA = 0.1


@dataclass(frozen=True)
class Goal:
    """Something to do with labelled rows.

    kind : "text", "threshold" or "groups", for programs.
    labels : how many it takes; None if the stated confidence gets there with no number of them.
    more : how many are missing.
    """

    kind: str
    what: str
    labels: int | None
    more: int | None

    @property
    def is_met(self) -> bool:
        """Whether there are enough."""
        return self.more == 0


def _goal(kind: str, what: str, labels: int | None, labelled: int) -> Goal:
    return Goal(kind, what, labels, None if labels is None else max(0, labels - labelled))


def goals(labelled: int, confidence: Floats, correct: Floats) -> tuple[Goal, ...]:
    """Return what so many labelled rows are enough for, what needs the fewest first.

    confidence, correct : of all labelled rows, with confidences from 0 to 1; empty if they are on no such scale.
    """
    kinds = (_of_text(labelled), _of_groups(labelled), _of_thresholds(labelled, confidence, correct))
    found: list[Goal] = []
    for steps in map(list, kinds):
        # The last step that there are labels for, and the first that there are not.
        found += [goal for goal in steps if goal.is_met][-1:] + [goal for goal in steps if not goal.is_met][:1]
    return tuple(sorted(found, key=lambda goal: (goal.labels is None, goal.labels or 0)))


def _of_text(labelled: int) -> Iterator[Goal]:
    for labels, often in ((_TEXT_HELPS_HALF, "half of the fits"), (_TEXT_HELPS, "nearly all fits")):
        yield _goal("text", f"probabilities that use the text, in {often}", labels, labelled)


def _of_groups(labelled: int) -> Iterator[Goal]:
    certifying, groups = int(StepBinning().get_params()["rows_per_map"]), 2**DEPTH_WITH_SCORE
    labels = labels_for_group(certifying, 1 / groups, SHARE_WITH_SCORE)
    what = f"separate intervals for each of {groups} groups of texts, if equally large"
    yield _goal("groups", what, labels, labelled)


def _of_thresholds(labelled: int, confidence: Floats, correct: Floats) -> Iterator[Goal]:
    if not len(correct) or not 0 < correct.mean() < 1:
        return
    target = next((target for target in _TARGETS if correct.mean() < target), None)
    if target is None:
        return
    needed = rows_needed(threshold_curve(correct, confidence, thresholds=CANDIDATES, alpha=_ALPHA), target)
    if isnan(needed):
        return
    labels = None if isinf(needed) else rounded_up(needed / _KEPT)
    what = f"a certified threshold on the stated confidence with {target:.0%} accuracy above it"
    yield _goal("threshold", what, labels, labelled)
