"""To answer or to abstain: the rule that a model stores with its threshold. Needs only numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qacal.calibrators.base import Evidence
from qacal.errors import InputError
from qacal.parameters import is_number, require
from qacal.tally.groups import as_labels, kinds_of, require_common_kind

KINDS = ("certified", "cheapest", "given")
"""How a threshold was chosen: with a guarantee, by cost, or by hand."""


@dataclass(frozen=True)
class DecisionRule:
    """Answer if the calibrated confidence reaches a threshold, else abstain.

    threshold : for all rows; None always abstains. With `groups` it is for rows of other groups.
    groups : a threshold for each group; None always abstains.
    about : how it was chosen, in plain values: its `kind`, and its parameters.
    column : the column of the records that has the groups; None for the groups of the model.

    Examples
    --------
    >>> rows = Evidence.of(np.array([0.9, 0.9, 0.9]), np.array([0.65, 0.95, 0.8]), group=["law", "physics", "art"])
    >>> DecisionRule(0.8).decide(rows).decision
    ['abstain', 'answer', 'answer']
    >>> DecisionRule(None, {"law": 0.6, "physics": None}).decide(rows).decision
    ['answer', 'abstain', 'abstain']
    """

    threshold: float | None
    groups: Mapping[Any, float | None] | None = None
    about: Mapping[str, Any] = field(default_factory=lambda: {"kind": "given"})
    column: str | None = None

    def __post_init__(self) -> None:
        for value in (self.threshold, *(self.groups or {}).values()):
            if value is not None and not is_number(value, 0, 1):
                raise InputError(f"threshold is {value!r:.80}; expected a number from 0 to 1, or None to abstain.")

    def decide(self, evidence: Evidence, values: list[Any] | None = None) -> Evidence:
        """Return the evidence with a decision for each row; the threshold is NaN for rows that always abstain.

        values : of the column, if the rule has one.
        """
        default = np.nan if self.threshold is None else float(self.threshold)
        threshold = np.full(len(evidence), default)
        if self.groups is not None:
            by_group = {name: np.nan if value is None else float(value) for name, value in self.groups.items()}
            # None means no group, even if there is a group of that name.
            names = evidence.group if self.column is None else self._labels(values, len(evidence))
            groups = [default if name is None else by_group.get(name, default) for name in names]
            threshold = np.array(groups, dtype=float)
        # NaN fails the comparison: without a threshold, abstain.
        decision = np.where(evidence.calibrated >= threshold, "answer", "abstain").tolist()
        return replace(evidence, decision=decision, threshold=threshold)

    def _labels(self, values: list[Any] | None, length: int) -> list[Any]:
        """Return the groups of rows by their values of the column; raise if these are of another kind."""
        if values is None:
            return [None] * length
        labels: list[Any] = as_labels(values, str(self.column)).tolist()
        require_common_kind(kinds_of(labels), kinds_of(self.groups or {}), str(self.column))
        return labels

    def _validate(self) -> None:
        """Raise an error for a rule of an unknown kind; it may come from a file."""
        require(
            self.about.get("kind") in KINDS, f"the threshold is about {self.about!r:.80}; expected a kind of {KINDS}."
        )
