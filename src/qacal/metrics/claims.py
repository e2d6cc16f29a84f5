r"""Test claims about accuracy: what a model guarantees for its bins, and what calibrated confidences say of groups.

Each cell of rows comes with a claim: its true accuracy lies in :math:`[l, u]` (which may be one number). The
:math:`m` rows of the cell give an exact interval for that accuracy, each end wrong with probability :math:`\tau`. The
claim is *contradicted* if the two intervals do not meet; if all claims are true, this happens in some cell with
probability at most :math:`\gamma = 0.05`.

Rows that are all correct, or all wrong, contradict a claim only if :math:`u^m < \tau` or :math:`(1 - l)^m < \tau`.
Other cells have too few rows to be judged; they cannot raise a false alarm, so the correction for many tests leaves
them out (Tarone 1990): :math:`\tau = \gamma / (2K)` with the smallest :math:`K` for which at most :math:`K` cells can
be judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.guarantee import mean_intervals
from qacal.tally.arrays import Bools, Floats

GAMMA = 0.05
"""Largest probability that some claim is contradicted although all are true."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Claims about cells, tested on rows.

    low, high : an interval for the accuracy of each cell. For cells that can be judged, all hold at once with
        probability 1 - gamma.
    can_be_judged : whether there are enough rows to contradict the claim.
    is_contradicted : whether they contradict it.
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
    """Test claims about the accuracy of cells.

    rows, right, squares : of each cell, the number of rows and the sums of their labels and squared labels.
    claimed : the ends of the claimed intervals.
    is_mixed : rows of a cell may be correct with different probabilities, and the claim is about their average.

    Examples
    --------
    An accuracy of 0.9 is claimed for both cells: one with 60 of 100 rows correct, and one with a single wrong row.

    >>> rows, right, claim = np.array([100.0, 1.0]), np.array([60.0, 0.0]), np.array([0.9, 0.9])
    >>> tested = judged(rows, right, right, (claim, claim))
    >>> tested.can_be_judged, tested.is_contradicted, tested.high.round(2)
    (array([ True, False]), array([ True, False]), array([0.7 , 0.98]))
    """
    low_claim, high_claim = claimed
    least = np.minimum(high_claim**rows, (1 - low_claim) ** rows)
    tail = _tail(least, gamma)
    low, high = mean_intervals(rows, rows, right, squares, rows, tail, is_mixed=is_mixed)
    return Judged(low, high, np.asarray(least < tail), np.asarray((low > high_claim) | (high < low_claim)))


def _tail(least: Floats, gamma: float) -> float:
    """Return the tail probability of each end; `least` is the smallest at which a cell can be judged.

    >>> _tail(np.array([1e-9, 1e-9, 0.3, 0.4]), 0.05)  # two of the four can be judged
    0.0125
    """
    counts = np.arange(1, max(len(least), 1) + 1)
    tails = gamma / (2 * counts)
    can_be_judged = np.searchsorted(np.sort(least), tails)
    return float(tails[np.argmax(can_be_judged <= counts)])
