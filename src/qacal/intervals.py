"""Intervals for the mean of one bin, each end wrong with a probability of at most `tail`.

Which one is valid depends on what the rows are: 0/1 labels of one probability, of differing ones, soft targets, or
weighted rows. None is an approximation; they hold for every number of rows.
"""

from __future__ import annotations

import numpy as np

from qacal.errors import InputError
from qacal.tally.arrays import Floats


def mean_intervals(
    rows: Floats, w: Floats, wt: Floats, wtt: Floats, ww: Floats, tail: float, *, is_mixed: bool = True
) -> tuple[Floats, Floats]:
    """Return the sharpest valid interval for each bin: binomial, bounded or weighted, by what its rows are.

    is_mixed : the probabilities of a bin's rows may differ (given their confidences), not only their labels.
    """
    n = np.maximum(np.asarray(rows, dtype=np.float64), 1)
    mean = np.clip(wt / np.where(w > 0, w, 1), 0, 1)
    effective = np.where(ww > 0, w * w / np.where(ww > 0, ww, 1), 1)
    has_equal_weights = np.abs(effective - n) <= 1e-9 * n
    is_binary = has_equal_weights & (np.abs(wtt - wt) <= 1e-12 * np.maximum(wt, 1e-300))
    low, high = _count_intervals(np.rint(mean * n), n, tail, is_mixed)
    if not is_binary.all():
        soft_low, soft_high = bounded_interval(mean, n, tail)
        low, high = np.where(is_binary, low, soft_low), np.where(is_binary, high, soft_high)
    if not has_equal_weights.all():
        uneven_low, uneven_high = weighted_interval(mean, effective, tail)
        low = np.where(has_equal_weights, low, uneven_low)
        high = np.where(has_equal_weights, high, uneven_high)
    empty = np.asarray(rows) == 0
    return np.where(empty, 0.0, low), np.where(empty, 1.0, high)


def _count_intervals(right: Floats, rows: Floats, tail: float, is_mixed: bool) -> tuple[Floats, Floats]:
    """Return exact intervals; of bins with the same counts, and uniform mass makes many, only one is computed."""
    counts, which = np.unique(rows + 1j * right, return_inverse=True)
    rows, right = counts.real, counts.imag
    if is_mixed:
        low, high = mixed_binomial_interval(right, rows, min(tail, 0.25))
    else:
        low, high = binomial_interval(right, rows, tail)
    return low[which], high[which]


def binomial_interval(right: Floats, rows: Floats, tail: float) -> tuple[Floats, Floats]:
    r"""Return Clopper-Pearson intervals: each end is wrong with probability at most `tail`.

    For `rows` independent labels of one probability, of which `right` are 1. Exact for every number of rows.

    >>> low, high = binomial_interval(np.array([8.0]), np.array([10.0]), tail=0.025)
    >>> low.round(3), high.round(3)
    (array([0.444]), array([0.975]))
    """
    # Here, not at the top: saved maps apply without scipy, and only fitting needs it.
    from scipy import special

    right, rows = np.asarray(right, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    low = special.betaincinv(np.maximum(right, 1), rows - right + 1, tail)
    high = special.betaincinv(right + 1, np.maximum(rows - right, 1), 1 - tail)
    # At tails below 1e-16, 1 - tail is 1 in floating point; the complement keeps its digits.
    high = np.where(tail < 1e-8, special.betainccinv(right + 1, np.maximum(rows - right, 1), tail), high)
    return np.where(right <= 0, 0.0, low), np.where(right >= rows, 1.0, high)


def mixed_binomial_interval(right: Floats, rows: Floats, tail: float) -> tuple[Floats, Floats]:
    r"""Return intervals for the *average* probability of independent labels whose probabilities differ.

    Hoeffding (1956): beyond the mean plus one, a sum of differing Bernoulli variables has lighter tails than the
    binomial of the same mean. For tails up to 1/4 that covers every end of a Clopper-Pearson interval except those
    of a single right (or single wrong) answer, where Markov's inequality gives the sharp end ``tail / rows``.
    """
    if tail > 0.25:
        raise InputError(f"tail is {tail}; these intervals are valid for tails up to 0.25.")
    right, rows = np.asarray(right, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    low, high = binomial_interval(right, rows, tail)
    low = np.where(right == 1, np.minimum(low, tail / rows), low)
    high = np.where(rows - right == 1, np.maximum(high, 1 - tail / rows), high)
    return low, high


def bounded_interval(mean: Floats, rows: Floats, tail: float) -> tuple[Floats, Floats]:
    r"""Return intervals for the mean of independent values in [0, 1] (Chernoff and Hoeffding).

    All :math:`\mu` with :math:`n \, \mathrm{kl}(\text{mean}, \mu) \le \log(1 / \text{tail})`. For soft targets, whose
    distribution is not binomial.

    >>> low, high = bounded_interval(np.array([0.8]), np.array([10.0]), tail=0.025)
    >>> low.round(3), high.round(3)
    (array([0.38]), array([0.986]))
    """
    mean, rows = np.asarray(mean, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    budget = -np.log(tail) / rows
    low = _solve_kl(mean, budget)
    high = 1 - _solve_kl(1 - mean, budget)
    return low, high


def weighted_interval(mean: Floats, effective_rows: Floats, tail: float) -> tuple[Floats, Floats]:
    r"""Return intervals for a weighted mean of independent values in [0, 1].

    Hoeffding's :math:`\sqrt{\log(1/\text{tail}) / (2 n)}` with :math:`n = (\sum w)^2 / \sum w^2`. The sharper kl form
    does not hold with an effective number of rows: one heavy row among many rare ones breaks it.
    """
    half = np.sqrt(-np.log(tail) / (2 * np.asarray(effective_rows, dtype=np.float64)))
    return np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)


def _solve_kl(mean: Floats, budget: Floats) -> Floats:
    """Return the smallest mu with kl(mean, mu) <= budget, by bisection on [0, mean]."""
    from scipy import special

    low, high = np.zeros_like(mean), mean.copy()
    entropy = special.xlogy(mean, mean) + special.xlogy(1 - mean, 1 - mean)
    for _ in range(60):
        middle = (low + high) / 2
        kl = entropy - special.xlogy(mean, middle) - special.xlog1py(1 - mean, -middle)
        outside = kl > budget
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    # The outer end of the last bracket: rounding must not make the interval shorter.
    return np.where(mean <= 0, 0.0, low)
