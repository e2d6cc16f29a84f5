r"""The accuracy of answers from a sample of labels: by people alone, or with the help of a judge.

*With a judge.* People labelled :math:`n` rows, a judge these and :math:`N` others. With labels :math:`Y` of people and
:math:`J` of the judge,

.. math:: T = \frac{1}{n} \sum_{i=1}^n (Y_i - J_i) + \frac{1}{N} \sum_{i=n+1}^{n+N} J_i

has the mean :math:`\mu = \mathrm{E}[Y]`, however wrong the judge is (a prediction-powered estimate). Data enter as
three counts: :math:`Y > J` in :math:`A` rows, :math:`Y < J` in :math:`B`, and :math:`J = 1` in :math:`K` of the others.
Their distribution depends on :math:`a = P(Y > J)`, :math:`b = P(Y < J)` and :math:`q = P(J = 1)` alone, with
:math:`\mu = a - b + q`. Rank all possible data by an approximate lower end,

.. math:: L = T - z \sqrt{\frac{1}{n} \frac{A + B + 1}{n + 1} + \frac{1}{4 N}},

and compute exactly how probable a value as large as the one observed is. The largest such probability over all
:math:`(a, b, q)` with :math:`\mu = m` is a p-value for :math:`\mu \le m`: it grows with :math:`m`, because :math:`L`
grows with :math:`A` and :math:`K` and falls with :math:`B` (for :math:`z < 2`). It is enough to look at a confidence
set of :math:`(a, b, q)`, if the probability that the set is wrong is added (Berger and Boos, 1994). The lower end of
the interval is the largest :math:`m` with a p-value of at most the tail. This holds for every number of rows; only the
search for the largest probability is over a grid, and a margin covers what a grid may miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from qacal.errors import InputError
from qacal.guarantee import binomial_interval, check_alpha, mean_intervals, mixed_binomial_interval
from qacal.parameters import is_number, shown
from qacal.tally.arrays import ArrayLike, Floats, Ints, require_length, unit_values

# The part of a tail for the confidence set.
_FOR_SET = 0.1
# The steps of the grid on which the largest probability is searched, and its fewest points.
_STEP_OF_B, _STEP_OF_Q, _FEWEST_POINTS = 0.02, 0.01, 6
# z of the approximate lower end: with 2 or more, L could fall as A grows.
_MOST_Z = 1.9
# The ends are moved outwards by this margin: with 20 or more rows, a finer grid moves them by less.
_MARGIN = 1e-3
# At most this probability has a count that is not looked at.
_LEFT_OUT = 1e-9


@dataclass(frozen=True)
class Accuracy:
    """The share of answers that are correct.

    value : the estimate.
    low, high : the interval, wrong with probability alpha at most.
    """

    value: float
    low: float
    high: float


def estimate_accuracy(y_true: ArrayLike, *, alpha: float = 0.1) -> Accuracy:
    """Return the accuracy with an exact interval, for labels of a random sample of answers.

    The sample may be stratified if every answer has the same chance, as in `qacal label-next`: labels are independent
    and may have different probabilities, and Clopper-Pearson covers the average probability (Hoeffding, 1956).

    >>> estimate_accuracy([1] * 150 + [0] * 50)
    Accuracy(value=0.75, low=0.694..., high=0.799...)
    """
    check_alpha(alpha)
    t = unit_values(y_true, "y_true")
    n, total = np.array([float(len(t))]), np.array([t.sum()])
    low, high = mean_intervals(n, n, total, np.array([(t * t).sum()]), n, alpha / 2)
    return Accuracy(float(t.mean()), float(low[0]), float(high[0]))


def estimate_judged_accuracy(
    y_true: ArrayLike, judged: ArrayLike, judged_others: ArrayLike, *, alpha: float = 0.1, alone: float = 0.5
) -> Accuracy:
    """Return the accuracy by people's labels, where a judge has labelled more rows; the judge may be wrong.

    y_true, judged : labels by people and by the judge of the same rows, 0 or 1.
    judged_others : labels by the judge of other rows. All rows are independent draws from the same answers, and the
        judge was fixed without these labels.
    alone : the part of alpha for the interval of :func:`estimate_accuracy`, which does not use the judge. The result is
        the intersection of both, so a bad judge costs little. With 0, only the judge's interval is used: narrower if
        the judge is good. Decide before you look at the labels.

    Examples
    --------
    The judge agrees with people in 19 of 20 answers:

    >>> people, judged = [1] * 210 + [0] * 90, [1] * 203 + [0] * 7 + [1] * 8 + [0] * 82
    >>> estimate_accuracy(people)
    Accuracy(value=0.7, low=0.653..., high=0.743...)
    >>> estimate_judged_accuracy(people, judged, [1] * 2110 + [0] * 890)
    Accuracy(value=0.7..., low=0.665..., high=0.734...)
    """
    check_alpha(alpha)
    if not is_number(alone, 0, 1) or alone == 1:
        raise InputError(f"alone is {shown(alone)}; expected a share of alpha from 0 to below 1, such as 0.5.")
    y, j, others = (
        _labels(values, name)
        for values, name in ((y_true, "y_true"), (judged, "judged"), (judged_others, "judged_others"))
    )
    require_length(j, len(y), "judged")
    above, below, ones = (int(np.count_nonzero(values)) for values in (y > j, y < j, others))
    counts = JudgedCounts(len(y), above, below, len(others), ones)
    return judged_accuracy(counts, int(y.sum()), alpha, alone)


class JudgedCounts(NamedTuple):
    """What people and a judge said of rows.

    n : rows that both labelled.
    above, below : of these, how often people said more than the judge, and less.
    others : rows that the judge labelled alone.
    ones : of these, how often it said "correct".
    """

    n: int
    above: int
    below: int
    others: int
    ones: int


def judged_accuracy(counts: JudgedCounts, right: int, alpha: float, alone: float = 0.5) -> Accuracy:
    """Return what :func:`estimate_judged_accuracy` returns; `right` is how often people said "correct"."""
    n, above, below, others, ones = counts
    tail = (1 - alone) * alpha / 2
    low, high = _judged_low(counts, tail), 1 - _judged_low(JudgedCounts(n, below, above, others, others - ones), tail)
    if alone > 0:
        ends = mixed_binomial_interval(np.array([right]), np.array([n]), min(alone * alpha / 2, 0.25))
        lowest, highest = (float(end[0]) for end in ends)
        # If both intervals hold they overlap. If not, one is wrong, and people's labels are those that count.
        low, high = max(low, lowest), min(high, highest)
        if low > high:
            low, high = lowest, highest
    low, high = min(low, high), max(low, high)
    return Accuracy(float(np.clip((above - below) / n + ones / others, low, high)), low, high)


def _labels(values: ArrayLike, name: str) -> Floats:
    labels = unit_values(values, name)
    if not np.isin(labels, (0, 1)).all():
        raise InputError(f"{name} has the value {labels[~np.isin(labels, (0, 1))][0]:g}; expected labels 0 and 1.")
    if not len(labels):
        raise InputError(f"{name} is empty; expected labels 0 and 1.")
    return labels


def _judged_low(found_counts: JudgedCounts, tail: float) -> float:
    """Return the lower end of the interval from the judge."""
    n, N = found_counts.n, found_counts.others
    counts = [found_counts.above, found_counts.below, found_counts.ones]
    (a_low, a_high), (b_low, b_high), (q_low, q_high) = (
        [float(end[0]) for end in binomial_interval(np.array([count]), np.array([rows]), _FOR_SET * tail / 6)]
        for count, rows in zip(counts, (n, n, N), strict=True)
    )
    above, below = np.meshgrid(_possible(n, a_low, a_high), _possible(n, b_low, b_high))
    above, below = above[above + below <= n], below[above + below <= n]
    pairs = np.stack([above, below, n - above - below]).astype(np.float64)
    ways = special.gammaln(n + 1) - special.gammaln(pairs + 1).sum(axis=0)
    ones = _possible(N, q_low, q_high)
    # How many of the others must be 1, for each pair, so that L is as large as observed.
    spread = np.sqrt((np.append(above + below, counts[0] + counts[1]) + 1) / (n + 1) / n + 0.25 / N)
    found = (counts[0] - counts[1]) / n + counts[2] / N
    needed = N * (found - (above - below) / n + min(_MOST_Z, -special.ndtri(tail)) * (spread[:-1] - spread[-1]))
    needed = np.clip(np.ceil(needed - 1e-9) - ones[0], 0, len(ones)).astype(np.int64)

    def is_rejected(m: float, n_b: int, n_q: int) -> bool:
        # The grid is over the part of the confidence set with the mean m. It may be much narrower than the set.
        lowest, highest = max(q_low, m - a_high + b_low), min(q_high, m - a_low + b_high)
        if lowest > highest:
            return True
        q = np.linspace(lowest, highest, n_q)
        reached = np.where(ones > 0, special.betainc(np.maximum(ones, 1), N + 1 - np.maximum(ones, 1), q[:, None]), 1.0)
        reached = np.hstack([reached, np.zeros((n_q, 1))])[:, needed]
        # All b with a = m - q + b in its range. Close to the ends of its own range, b matters most.
        least = np.maximum(b_low, a_low - m + q)
        most = np.maximum(least, np.minimum(b_high, a_high - m + q))
        b = least + (most - least) * (1 - np.cos(np.linspace(0, np.pi, n_b)[:, None])) / 2
        a = np.maximum(m - q + b, 0.0)
        # A product of matrices is fast; the logarithm of 0 must be finite for it.
        logs = np.log(np.clip(np.stack([a, b, 1 - a - b], axis=-1), 1e-300, 1.0))
        p = np.einsum("bqp,qp->bq", np.exp(logs @ pairs + ways), reached)
        return bool(p.max() + _FOR_SET * tail + _LEFT_OUT <= tail)

    # A few points of the grid say where the end is about; the whole grid, by how much it must be lower.
    n_b = _FEWEST_POINTS + int((b_high - b_low) / _STEP_OF_B)
    n_q = _FEWEST_POINTS + int((q_high - q_low) / _STEP_OF_Q)
    low, high, step = 0.0, float(np.clip(found, 0, 1)), _MARGIN
    while high - low > _MARGIN / 10:
        m = (low + high) / 2
        low, high = (m, high) if is_rejected(m, _FEWEST_POINTS, _FEWEST_POINTS) else (low, m)
    while low > 0 and not is_rejected(low, n_b, n_q):
        low, step = low - step, 2 * step
    return max(0.0, low - _MARGIN)


def _possible(rows: int, low: float, high: float) -> Ints:
    """Return the counts that `rows` labels may have, but for a probability of 1e-10 at most (Bernstein)."""
    variance = rows * max(p * (1 - p) for p in (low, high, min(max(low, 0.5), high)))
    reach = 7 * np.sqrt(variance) + 30
    return np.arange(max(0, int(rows * low - reach)), min(rows, int(rows * high + reach) + 1) + 1)
