r"""The threshold that costs least, if a wrong answer and an abstention have a price.

A correct answer costs nothing, a wrong one :math:`c_w`, an abstention :math:`c_a`. An answer that is correct with
probability :math:`p` costs :math:`(1 - p)\,c_w` on average, so it is cheaper to answer if and only if

.. math:: p \ge 1 - c_a / c_w .

This rule needs calibrated confidences, but no labels. Labels show what it costs on some rows, and which threshold would
have been cheapest on them. If that one is much cheaper, the confidences are not calibrated. Nothing is certified.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.metrics.scores import ordered
from qacal.metrics.selective import accepted_sums
from qacal.parameters import is_number, shown
from qacal.tally.arrays import ArrayLike
from qacal.tally.ids import id_hashes, one_of_each
from qacal.tally.tally import Tally
from qacal.thresholds.decisions import DecisionRule

# Costs are summed over all rows.
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
    """The threshold of the rule, compared with others on some rows.

    rule_policy : answers if p >= 1 - abstain / wrong, which is best for calibrated confidences.
    seen_policy : the cheapest threshold on these rows; its cost is optimistic, since the same rows chose it.
    always, never : the cost of always and of never answering.
    """

    wrong: float
    abstain: float
    rows: int
    dropped: int
    rule_policy: Policy
    seen_policy: Policy
    always: float
    never: float

    @property
    def threshold(self) -> float | None:
        """The threshold of the rule."""
        return self.rule_policy.threshold

    def rule(self) -> DecisionRule:
        about = {"kind": "cheapest", "wrong": self.wrong, "abstain": self.abstain, "rows": self.rows}
        return DecisionRule(self.threshold, None, about)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"threshold": self.threshold}


def cheapest_threshold(
    y_true: ArrayLike, y_prob: ArrayLike, *, wrong: float, abstain: float, ids: ArrayLike | None = None
) -> CheapestThreshold:
    """Return the threshold that minimises the expected cost.

    Only the ratio of the costs matters. If a wrong answer does five times the harm of no answer, they are 5 and 1, and
    calibrated answers below 0.8 are better not given.

    ids : the question's id; one row of each question is kept.

    Examples
    --------
    Answers at 0.9 are correct only half of the time, so another threshold is much cheaper than the rule:

    >>> stated, correct = np.repeat([0.9, 0.99], 100), np.repeat([1, 0, 1, 0], [50, 50, 97, 3])
    >>> cheapest = cheapest_threshold(correct, stated, wrong=5, abstain=1)
    >>> cheapest.rule_policy.threshold, cheapest.rule_policy.cost
    (0.8, 1.325)
    >>> cheapest.seen_policy.threshold, cheapest.seen_policy.cost
    (0.99, 0.575)
    """
    for name, value in (("wrong", wrong), ("abstain", abstain)):
        if not is_number(value, 0, _LARGEST) or (name == "wrong" and value == 0):
            raise InputError(f"{name} is {shown(value)}; expected its cost, a number above 0, such as 1.")
    t, h = ordered(y_true, y_prob)
    kept = np.ones(len(h), dtype=bool) if ids is None else one_of_each(id_hashes(ids, len(h)), h, t)
    tally = Tally.of(h[kept], t[kept])
    # The extra cost of answering the rows of each cell, instead of abstaining.
    extra = wrong * (tally.w - tally.wt) - abstain * tally.w

    def policy(threshold: float | None) -> Policy:
        at = np.array([np.inf if threshold is None else threshold])
        sums = accepted_sums(tally.confidence, at, tally.w, tally.wt, extra)
        accepted, right, more = (float(total[0]) for total in sums)
        return Policy(
            threshold=threshold,
            cost=float(abstain + more / tally.n),
            coverage=accepted / tally.n,
            accuracy=right / accepted if accepted else None,
            withheld=max(float(tally.wt.sum()) - right, 0.0),
        )

    # The cost of each score as a threshold, and last of never answering; the strictest of equals is the cheapest.
    costs = np.append(np.cumsum(extra[::-1])[::-1], 0.0)
    best = int(np.flatnonzero(costs <= costs.min() + 1e-12)[-1])
    return CheapestThreshold(
        wrong=float(wrong),
        abstain=float(abstain),
        rows=tally.n,
        dropped=int((~kept).sum()),
        rule_policy=policy(max(0.0, 1 - abstain / wrong)),
        seen_policy=policy(None if best == len(extra) else float(tally.confidence[best])),
        always=policy(0.0).cost,
        never=float(abstain),
    )
