r"""The threshold that costs least, if a wrong answer and an abstention have a price.

A correct answer costs nothing, a wrong one :math:`c_w`, an abstention :math:`c_a`. An answer that is correct with
probability :math:`p` costs :math:`(1 - p)\,c_w` on average, so it is cheaper to answer if and only if

.. math:: p \ge 1 - c_a / c_w .

This rule needs calibrated confidences, but no labels. With labels we can find the cheapest threshold on these rows.
Neither is certified: the first relies on the calibration, the second is chosen and measured on the same rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.guarantee import check_alpha
from qacal.metrics.selective import accepted_sums
from qacal.parameters import is_number, shown
from qacal.tally.arrays import ArrayLike, Floats
from qacal.tally.tally import Tally
from qacal.thresholds.certified import one_row_per_question
from qacal.thresholds.decisions import DecisionRule

# Squares of costs are summed.
_LARGEST = 1e100


@dataclass(frozen=True)
class Policy:
    """A threshold and its cost.

    threshold : None never answers.
    cost : the mean cost of a row.
    coverage, accuracy : the share of the rows that is answered, and their accuracy; None if there are none.
    withheld : number of correct answers that are not given.
    """

    threshold: float | None
    cost: float
    coverage: float
    accuracy: float | None
    withheld: float


@dataclass(frozen=True)
class CheapestThreshold:
    """Two thresholds, and which of them to use.

    rule_policy : answers if p >= 1 - abstain / wrong, which is best for calibrated confidences.
    seen_policy : the cheapest threshold on these rows; its cost is optimistic, since the same rows chose it.
    difference, low, high : how much more a row costs under the rule than under the cheapest threshold, with an
        approximate interval of confidence 1 - alpha. Each half of the questions is measured with the threshold that is
        cheapest on the other half.
    always, never : the cost of always and of never answering.
    """

    wrong: float
    abstain: float
    alpha: float
    rows: int
    dropped: int
    rule_policy: Policy
    seen_policy: Policy
    difference: float
    low: float
    high: float
    always: float
    never: float

    @property
    def is_rule_good(self) -> bool:
        """False if these rows show that the rule costs more: then the confidences are not calibrated."""
        return self.low <= 0

    @property
    def threshold(self) -> float | None:
        """The threshold of the rule, or the cheapest one if these rows show that the rule costs more."""
        return (self.rule_policy if self.is_rule_good else self.seen_policy).threshold

    def rule(self) -> DecisionRule:
        about = {"kind": "cheapest", "wrong": self.wrong, "abstain": self.abstain, "rows": self.rows}
        return DecisionRule(self.threshold, None, about)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"threshold": self.threshold, "is_rule_good": self.is_rule_good}


def cheapest_threshold(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    wrong: float,
    abstain: float,
    ids: ArrayLike | None = None,
    alpha: float = 0.1,
) -> CheapestThreshold:
    """Return the threshold that minimises the expected cost.

    Only the ratio of the costs matters. If a wrong answer does five times the harm of no answer, they are 5 and 1, and
    calibrated answers below 0.8 are better not given.

    ids : the question's id; one row of each question is kept.
    alpha : of the interval for the difference.

    Examples
    --------
    Answers at 0.9 are correct only half of the time, so the rule costs more than the cheapest threshold:

    >>> stated, correct = np.repeat([0.9, 0.99], 100), np.repeat([1, 0, 1, 0], [50, 50, 97, 3])
    >>> cheapest = cheapest_threshold(correct, stated, wrong=5, abstain=1)
    >>> cheapest.rule_policy.threshold, cheapest.rule_policy.cost
    (0.8, 1.325)
    >>> cheapest.threshold, cheapest.seen_policy.cost, cheapest.is_rule_good
    (0.99, 0.575, False)
    """
    for name, value in (("wrong", wrong), ("abstain", abstain)):
        if not is_number(value, 0, _LARGEST) or (name == "wrong" and value == 0):
            raise InputError(f"{name} is {shown(value)}; expected its cost, a number above 0, such as 1.")
    check_alpha(alpha)
    h, t, _, hashes, dropped = one_row_per_question(y_true, y_prob, None, ids)
    tally = Tally.of(h, t, ids=hashes, n_blocks=2)
    parts = (tally, tally.fold(0, 2), tally.fold(1, 2))
    costs, *halves = (_Costs.of(part, float(wrong), float(abstain)) for part in parts)
    rule_policy = costs.policy(max(0.0, 1 - abstain / wrong))
    difference, half = _difference(rule_policy.threshold, halves, alpha)
    return CheapestThreshold(
        wrong=float(wrong),
        abstain=float(abstain),
        alpha=alpha,
        rows=costs.tally.n,
        dropped=dropped,
        rule_policy=rule_policy,
        seen_policy=costs.policy(costs.cheapest()),
        difference=difference,
        low=difference - half,
        high=difference + half,
        always=costs.policy(0.0).cost,
        never=float(abstain),
    )


@dataclass(frozen=True)
class _Costs:
    """Cells of rows, and the extra cost of answering each cell instead of abstaining."""

    tally: Tally
    wrong: float
    abstain: float
    extra: Floats

    @staticmethod
    def of(tally: Tally, wrong: float, abstain: float) -> _Costs:
        tally = tally.without_blocks()
        return _Costs(tally, wrong, abstain, wrong * (tally.w - tally.wt) - abstain * tally.w)

    def policy(self, threshold: float | None) -> Policy:
        tally = self.tally
        at = np.array([np.inf if threshold is None else threshold])
        accepted, right, extra = (
            float(total[0]) for total in accepted_sums(tally.confidence, at, tally.w, tally.wt, self.extra)
        )
        return Policy(
            threshold=threshold,
            cost=self.abstain + extra / tally.n,
            coverage=accepted / tally.n,
            accuracy=right / accepted if accepted else None,
            withheld=max(float(tally.wt.sum()) - right, 0.0),
        )

    def cheapest(self) -> float | None:
        """Return the cheapest threshold among the scores, the strictest of equals; None never answers."""
        from_here = np.append(np.cumsum(self.extra[::-1])[::-1], 0.0)
        best = int(np.flatnonzero(from_here <= from_here.min() + 1e-12)[-1])
        return None if best == len(self.extra) else float(self.tally.confidence[best])

    def compared(self, first: float | None, second: float | None) -> tuple[float, float]:
        """Return how much more the rows cost under the first threshold, and the sum of the squares of that."""
        tally = self.tally
        one, two = (tally.confidence >= (np.inf if value is None else value) for value in (first, second))
        sign = one.astype(float) - two
        # For a row with label t that only one of them answers, the difference is wrong (1 - t) - abstain.
        squared = self.wrong**2 * (tally.w - 2 * tally.wt + tally.wtt) + self.abstain**2 * tally.w
        squared = squared - 2 * self.wrong * self.abstain * (tally.w - tally.wt)
        return float(sign @ self.extra), float(np.abs(sign) @ squared)


def _difference(rule: float | None, halves: list[_Costs], alpha: float) -> tuple[float, float]:
    """Return the mean extra cost of the rule over the cheapest threshold of the other half, and half its interval."""
    from scipy import special

    first, second = halves
    rows = first.tally.n + second.tally.n
    if not (first.tally.n and second.tally.n):
        return 0.0, max(first.wrong, first.abstain)  # nothing to compare, so anything is possible
    sums = np.add(first.compared(rule, second.cheapest()), second.compared(rule, first.cheapest()))
    mean, square = sums / rows
    return float(mean), float(special.ndtri(1 - alpha / 2) * np.sqrt(max(square - mean**2, 0.0) / rows))
