"""To answer or to abstain: the rule that a model keeps once a threshold was chosen. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qacal.calibrators.evidence import Evidence
from qacal.errors import InputError
from qacal.storage.frozen import checked
from qacal.storage.plain import require_plain
from qacal.storage.soundness import require

KINDS = ("certified", "cheapest", "given")
"""How a threshold was chosen: with a guarantee, by cost, or by hand."""


@dataclass(frozen=True)
class DecisionRule:
    """Answer where the calibrated confidence reaches a threshold, abstain elsewhere.

    threshold : for all rows; None abstains everywhere. With `groups` it is for rows of none of them.
    groups : a threshold for each group; None abstains. Rows of other groups get `threshold`.
    about : how it was chosen, in plain values: its `kind`, and what is known of it.

    Examples
    --------
    >>> said = Evidence.of(np.array([0.9, 0.9, 0.9]), np.array([0.65, 0.95, 0.8]), group=["law", "physics", "art"])
    >>> DecisionRule(0.8).decide(said).decision
    ['abstain', 'answer', 'answer']
    >>> DecisionRule(None, {"law": 0.6, "physics": None}).decide(said).decision  # nobody vouches for art
    ['answer', 'abstain', 'abstain']
    """

    threshold: float | None
    groups: Mapping[Any, float | None] | None = None
    about: Mapping[str, Any] = field(default_factory=lambda: {"kind": "given"})

    def __post_init__(self) -> None:
        for value in (self.threshold, *(self.groups or {}).values()):
            if value is not None and not (_is_number(value) and 0 <= value <= 1):
                raise InputError(f"threshold is {value!r:.80}; expected a number from 0 to 1, or None to abstain.")

    def decide(self, evidence: Evidence) -> Evidence:
        """Return the evidence with a decision for each row; the threshold is NaN where no answer is ever given."""
        threshold = self._thresholds(evidence)
        # NaN fails the comparison: without a threshold, abstain.
        decision = np.where(evidence.calibrated >= threshold, "answer", "abstain").tolist()
        return replace(evidence, decision=decision, threshold=threshold)

    def _thresholds(self, evidence: Evidence) -> Any:
        if self.groups is None:
            return np.full(len(evidence), _as_float(self.threshold))
        known = {name: _as_float(value) for name, value in self.groups.items()}
        others = _as_float(self.threshold)
        # No group is None, which is no name.
        return np.array([others if name is None else known.get(name, others) for name in evidence.group], dtype=float)

    def to_plain(self) -> dict[str, Any]:
        """Return what JSON can hold. Groups are pairs: JSON would make text of the names that are numbers."""
        groups = None if self.groups is None else [[name, value] for name, value in self.groups.items()]
        return {"threshold": self.threshold, "groups": groups, "about": dict(self.about)}

    @staticmethod
    def from_plain(plain: Any) -> DecisionRule:
        """Return the rule that :meth:`to_plain` gave; refuse any other content."""
        is_rule = isinstance(plain, dict) and set(plain) == {"threshold", "groups", "about"}
        require(is_rule, f"the thresholds are {plain!r:.80}; expected threshold, groups and about.")
        about = plain["about"]
        is_known = isinstance(about, dict) and about.get("kind") in KINDS
        require(is_known, f"the thresholds are about {about!r:.80}; expected a kind, one of {KINDS}.")
        require_plain(about, "thresholds.about")
        threshold = checked(plain["threshold"], float | None, "thresholds.threshold")
        return DecisionRule(threshold, _groups(plain["groups"]), about)


def _groups(plain: Any) -> dict[Any, float | None] | None:
    if plain is None:
        return None
    are_pairs = isinstance(plain, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in plain)
    require(are_pairs, f"the thresholds of groups are {plain!r:.80}; expected pairs of a group and its threshold.")
    names = checked([name for name, _ in plain], tuple[Any, ...], "thresholds.groups")
    require(len(set(names)) == len(names), "a group has two thresholds.")
    return {
        name: checked(value, float | None, f"the threshold of {name!r:.80}")
        for name, (_, value) in zip(names, plain, strict=True)
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _as_float(value: float | None) -> float:
    return np.nan if value is None else float(value)
