r"""What chance explains, and what it does not: claims about many cells of rows, tested at once.

Of each cell it is claimed that its share of right answers, in truth, lies in :math:`[l, u]` (which may be one number).
From the cell's :math:`m` rows alone follows an exact interval for that share, each end wrong with probability
:math:`\tau`. A claim is *contradicted* if the two do not meet; if all claims are true, that happens to some cell with
probability :math:`\gamma` at most, :math:`\gamma = 0.05`.

Rows that are all right, or all wrong, contradict a claim only if :math:`u^m < \tau` or :math:`(1 - l)^m < \tau`. Other
cells have too few rows to be judged; they cannot raise a false alarm, and need not be paid for (Tarone 1990). So
:math:`\tau = \gamma / (2K)` with the smallest :math:`K` for which at most :math:`K` cells can be judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.guarantee import mean_intervals
from qacal.tally.arrays import Bools, Floats

GAMMA = 0.05
"""How often some claim may be contradicted, at most, though all of them are true."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What the rows of some cells say of claims about them.

    low, high : an interval for each cell's share of right answers; those of cells that can be judged are right all at
        once with probability 1 - gamma.
    can_be_judged : whether there are rows enough to contradict the claim.
    is_contradicted : whether they do.
    """

    low: Floats
    high: Floats
    can_be_judged: Bools
    is_contradicted: Bools


def judged(
    rows: Floats,
    right: Floats,
    squares: Floats,
    claimed: tuple[Floats, Floats],
    *,
    gamma: float = GAMMA,
    is_mixed: bool = True,
) -> Judged:
    """Hold cells against what is claimed of them.

    rows, right, squares : how many rows a cell has, and the sums of their labels and of their labels' squares.
    claimed : the ends of the intervals claimed.
    is_mixed : the rows of a cell may differ in how likely they are right; claimed is their average.

    Examples
    --------
    Claimed is 0.9 of both; the first has 100 rows of which 60 are right, and the second has one, which is wrong:

    >>> rows, right, claim = np.array([100.0, 1.0]), np.array([60.0, 0.0]), np.array([0.9, 0.9])
    >>> found = judged(rows, right, right, (claim, claim))
    >>> found.can_be_judged, found.is_contradicted, found.high.round(2)
    (array([ True, False]), array([ True, False]), array([0.7 , 0.98]))
    """
    low_claim, high_claim = claimed
    least = np.minimum(high_claim**rows, (1 - low_claim) ** rows)
    tail = _tail(least, gamma)
    low, high = mean_intervals(rows, rows, right, squares, rows, tail, is_mixed=is_mixed)
    return Judged(low, high, np.asarray(least < tail), np.asarray((low > high_claim) | (high < low_claim)))


def _tail(least: Floats, gamma: float) -> float:
    """Return the tail of each end; `least` is the smallest at which a cell can be judged.

    >>> _tail(np.array([1e-9, 1e-9, 0.3, 0.4]), 0.05)  # two of the four can be
    0.0125
    """
    counts = np.arange(1, max(len(least), 1) + 1)
    tails = gamma / (2 * counts)
    can_be_judged = np.searchsorted(np.sort(least), tails)
    return float(tails[np.argmax(can_be_judged <= counts)])
