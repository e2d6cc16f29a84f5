"""To answer or to abstain: the rule that a model keeps once a threshold was chosen. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qacal.calibrators.evidence import Evidence
from qacal.errors import InputError
from qacal.storage import require

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

    def validate(self) -> None:
        """Refuse a rule that was chosen in no known way; it may come from a file."""
        require(
            self.about.get("kind") in KINDS, f"the threshold is about {self.about!r:.80}; expected a kind of {KINDS}."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _as_float(value: float | None) -> float:
    return np.nan if value is None else float(value)
