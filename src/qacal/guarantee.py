r"""Guarantees: the interval of every bin, and the certificate that covers all intervals at once.

A certificate is made during the fit, from the certifying rows: an interval for the accuracy of each bin, all of them
correct at once with probability :math:`1 - \alpha`. It holds for tied scores, soft targets and weights. It assumes
that rows are independent (one per question), that the groups were fixed without them, and that labels are true. If
ids repeat (the fields of a document), :class:`~qacal.MarginBinning` and :class:`~qacal.StepBinning` count documents
instead, which must be independent. :mod:`qacal.planning` predicts the width before any row is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from qacal.errors import InputError
from qacal.parameters import Between, is_number, shown
from qacal.tally.arrays import ArrayLike, Floats, Ints

# A smaller alpha, divided among many statements and inverted, would underflow.
_SMALLEST_ALPHA = 1e-100


def check_alpha(alpha: float) -> None:
    """Raise if a failure probability is outside (0, 1), or below 1e-100."""
    if not is_number(alpha, _SMALLEST_ALPHA, 1) or alpha == 1:
        raise InputError(f"alpha is {shown(alpha)}; expected a probability between 0 and 1, such as 0.1.")


@dataclass(frozen=True)
class Certificate:
    """A guarantee about every bin at once, wrong with probability at most `alpha`.

    kind : "uniform" holds for every interval of confidences in every group and ancestor, so it survives any choice of
        points per bin, depth or shape made on the same rows. "conditional" is tighter and holds only for the bins of
        this fit, whose edges do not depend on labels. "distinct" is the theorem's, for ``ties="jitter"``. "fixed" is
        for bins and groups that do not depend on any calibration row, and "margins" for such bins over all groups,
        and such groups over all scores.
    statements : the number of two-sided statements that share alpha.
    grid : the number of declared confidence values; None if the observed values are the grid.
    is_by_document : rows of one id may depend on each other, and the accuracy is that of a random row of a random
        document, among the documents with rows in the bin.
    """

    kind: Literal["uniform", "conditional", "distinct", "fixed", "margins"]
    alpha: Annotated[float, Between(_SMALLEST_ALPHA, 1)]
    statements: Annotated[float, Between(1, np.inf)]
    grid: int | None = None
    is_by_document: bool = False

    @property
    def tail(self) -> float:
        """The failure probability of one end of one interval."""
        return self.alpha / (2 * self.statements)

    @property
    def is_about_all(self) -> bool:
        """Whether intervals cover the accuracy of all answers, future ones included.

        Otherwise they cover the expected accuracy of the calibration rows in a bin.
        """
        return self.kind in ("distinct", "fixed", "margins") or self.grid is not None

    def intervals(self, rows: Floats, w: Floats, wt: Floats, wtt: Floats, ww: Floats) -> tuple[Floats, Floats]:
        """Return (low, high) for bins with these sums; a bin without rows gets (0, 1)."""
        return mean_intervals(rows, w, wt, wtt, ww, self.tail, is_mixed=not self.is_about_all)


def uniform_certificate(alpha: float, distinct: Sequence[ArrayLike], resolution: float | None) -> Certificate:
    r"""Return the certificate over all intervals of confidences in all nodes.

    distinct : the number of distinct confidences in each node, level by level from the root.

    With a declared `resolution` there are :math:`m = 1/\text{resolution} + 1` confidence values and
    :math:`m (m + 1) / 2` intervals in a node. With :math:`S_d` nodes that have rows in level :math:`d` of :math:`D`,
    statements cover :math:`D \max_d S_d` nodes; :func:`fixed_certificate` says why.

    Without a resolution, the observed values of each node are its grid. The statement is then conditional on the
    observed confidences, so the intervals of all nodes can be counted one by one.
    """
    check_alpha(alpha)
    m_s = [np.asarray(level, dtype=np.float64) for level in distinct]
    if resolution is not None:
        m = round(1 / resolution) + 1
        nodes = len(m_s) * max(len(level) for level in m_s)
        return Certificate("uniform", alpha, nodes * m * (m + 1) / 2, grid=m)
    return Certificate("uniform", alpha, float(sum((level * (level + 1) / 2).sum() for level in m_s)))


def jittered_certificate(alpha: float, bins: Sequence[int]) -> Certificate:
    r"""Return the theorem's certificate for maps at several levels.

    bins : the number of bins of each level.

    The theorem covers one level. With :math:`D` levels, each has :math:`\alpha / D`. Which maps of a level answer
    depends on the levels below, so all maps with enough rows are counted.
    """
    check_alpha(alpha)
    return Certificate("distinct", alpha, float(len(bins) * max(bins)))


def fixed_certificate(alpha: float, occupied: list[int]) -> Certificate:
    r"""Return the certificate for bins and groups that were fixed before any calibration row was seen.

    With :math:`D` levels of groups, the root's among them, and :math:`M_d` bins with rows in the maps of level
    :math:`d` (`occupied`), there are :math:`D \max_d M_d` statements.

    Why it holds: condition on each row's bin and its group of level :math:`d`, and on nothing else.
    Then the labels of a bin are independent draws of one probability, :math:`\mathrm{E}[Y \mid \text{bin},
    \text{group}]`. Which groups of the level have a map, and :math:`M_d`, are then fixed too, so intervals at
    :math:`\alpha / (D M_d)` fail with probability :math:`\alpha / D` at most, and intervals of a smaller tail contain
    them.

    Dividing by the number of all bins with rows would be a little tighter, and wrong: the child group of a row carries
    information about its label, so counts in the children must not narrow the interval of the group.
    """
    check_alpha(alpha)
    return Certificate("fixed", alpha, float(len(occupied) * max(occupied)))


def document_certificates(alpha: float, possible: list[int]) -> list[Certificate]:
    r"""Return the certificate of each level for documents: independent of each other, with rows that may not be.

    possible : for each level of groups, the number of its bins, with or without rows.

    With :math:`D` levels and :math:`M_d` bins in level :math:`d`, an interval of that level is one of :math:`D M_d`
    statements. All bins count here, not only those with rows: given the bins of all rows of a document, its rows in one
    of them are no longer a draw from that bin, so the number of bins with rows must not narrow an interval.
    """
    check_alpha(alpha)
    return [Certificate("fixed", alpha, float(len(possible) * bins), is_by_document=True) for bins in possible]


# Intervals for the mean of one bin, each end wrong with a probability of at most `tail`. Which one is valid depends on
# the rows: 0/1 labels of one probability, of differing probabilities, soft targets, or weighted rows. All hold for
# every number of rows, without approximation.


def mean_intervals(
    rows: Floats, w: Floats, wt: Floats, wtt: Floats, ww: Floats, tail: float, *, is_mixed: bool = True
) -> tuple[Floats, Floats]:
    """Return the sharpest valid interval for each bin: binomial, bounded or weighted, depending on its rows.

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
    """Return exact intervals, computed once for bins with the same counts; uniform mass makes many such bins."""
    counts, which = np.unique(rows + 1j * right, return_inverse=True)
    rows, right = counts.real, counts.imag
    if is_mixed:
        low, high = mixed_binomial_interval(right, rows, min(tail, 0.25))
    else:
        low, high = binomial_interval(right, rows, tail)
    return low[which], high[which]


def binomial_interval(right: Floats, rows: Floats, tail: float | Floats) -> tuple[Floats, Floats]:
    r"""Return Clopper-Pearson intervals: each end is wrong with probability at most `tail`.

    For `rows` independent labels of one probability; `right` of them are 1. Exact for every number of rows.

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


def mixed_binomial_interval(right: Floats, rows: Floats, tail: float | Floats) -> tuple[Floats, Floats]:
    r"""Return intervals for the *average* probability of independent labels whose probabilities differ.

    Hoeffding (1956): beyond the mean plus one, a sum of differing Bernoulli variables has lighter tails than the
    binomial of the same mean. For tails up to 1/4 that covers every end of a Clopper-Pearson interval except those
    of a single right (or single wrong) answer, where Markov's inequality gives the sharp end ``tail / rows``.
    """
    if np.any(np.asarray(tail) > 0.25):
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


# Documents: rows with one id, which may depend on each other in any way. In a bin, a document counts once, with the
# share s_d of its rows that are correct. Shares of different documents are independent draws, and their mean is the
# accuracy of a random row of a random document. Two bounds for this mean share the tail, 4 to 1:
#
# - One row of each document, drawn by a hash: 0/1 labels, so Clopper-Pearson. Best if the rows of a document agree.
# - A bet on the shares: best if they vary less than labels do. Under the mean mu, a capital that is multiplied by
#   1 + c (s_d / mu - 1) for each document has expectation 1, so it reaches 1/tail with probability tail at most
#   (Markov). An average of such capitals over several c has expectation 1, too.

# The stakes c, as powers of two times sqrt(2 log(1/tail) / n), the best stake if the shares have a variance of mu^2.
_STAKES = 2.0 ** np.arange(-2, 5)
_LARGEST_STAKE = 0.98
# Documents often have one row in a bin. Then the bet gains nothing, so it gets the smaller part.
FOR_ONE_ROW, FOR_BET = 0.8, 0.2


def document_intervals(
    share: Floats, count: Floats, place: Ints, drawn: Floats, tail: Floats, *, is_mixed: bool = False
) -> tuple[Floats, Floats]:
    """Return intervals for the mean share of each bin; a bin without documents gets (0, 1).

    share, count, place : a share of correct rows, and how many documents of which bin have it (:func:`counted_shares`).
    drawn, tail : of each bin: how many of its documents are correct in one row that was drawn, and the failure
        probability of each end.
    is_mixed : expected shares may differ among the documents of a bin, and the interval is for their mean. The bet
        holds as it is: the mean of logarithms is at most the logarithm of the mean.

    >>> share, count, place = np.array([0.6, 0.8, 1.0]), np.array([100.0, 100.0, 100.0]), np.zeros(3, dtype=int)
    >>> low, high = document_intervals(share, count, place, np.array([240.0]), np.array([0.025]))
    >>> low.round(3), high.round(3)
    (array([0.767]), array([0.836]))
    """
    n = np.asarray(np.bincount(place, count, len(tail)), dtype=np.float64)
    if is_mixed:
        low, high = mixed_binomial_interval(drawn, np.maximum(n, 1), np.minimum(FOR_ONE_ROW * tail, 0.25))
    else:
        low, high = binomial_interval(drawn, np.maximum(n, 1), FOR_ONE_ROW * tail)
    low = np.maximum(low, _bet_low(share, count, place, n, FOR_BET * tail))
    high = np.minimum(high, 1 - _bet_low(1 - share, count, place, n, FOR_BET * tail))
    # If both bounds hold, low <= high; if not, the interval is wrong in either order.
    low, high = np.minimum(low, high), np.maximum(low, high)
    return np.where(n == 0, 0.0, low), np.where(n == 0, 1.0, high)


def counted_shares(share: Floats, place: Ints) -> tuple[Floats, Floats, Ints]:
    """Return the distinct shares of each bin, how many documents have them, and the bins: few shares are distinct."""
    pairs, count = np.unique(place + 1j * share, return_counts=True)
    return pairs.imag, count.astype(np.float64), pairs.real.astype(np.int64)


def document_p_values(share: Floats, count: Floats, place: Ints, drawn: Floats, mean: float, alpha: float) -> Floats:
    """Return the p-value, for each bin, of the hypothesis that its mean share is at most `mean`.

    alpha : the level of the test, which chooses the stakes. The other arguments are as in :func:`document_intervals`.
    """
    from scipy import special

    n = np.asarray(np.bincount(place, count, len(drawn)), dtype=np.float64)
    one_row = np.where(drawn > 0, special.betainc(np.maximum(drawn, 1), n - drawn + 1, mean), 1.0)
    stakes = _stakes(n, np.full(len(n), FOR_BET * alpha))
    bet = np.exp(-_log_capital(share, count, place, np.full(len(n), mean), stakes))
    return np.asarray(np.minimum(1.0, np.minimum(one_row / FOR_ONE_ROW, bet / FOR_BET)))


def _stakes(n: Floats, tail: Floats) -> Floats:
    return np.asarray(np.minimum(_STAKES[:, None] * np.sqrt(-2 * np.log(tail) / np.maximum(n, 1)), _LARGEST_STAKE))


def _log_capital(share: Floats, count: Floats, place: Ints, mean: Floats, stakes: Floats) -> Floats:
    """Return the logarithm of the average capital of each bin, if its mean share is `mean`."""
    gain = share / mean[place] - 1
    logs = np.stack([np.bincount(place, count * np.log1p(stake[place] * gain), len(mean)) for stake in stakes])
    return np.asarray(np.logaddexp.reduce(logs) - np.log(len(stakes)))


def _bet_low(share: Floats, count: Floats, place: Ints, n: Floats, tail: Floats) -> Floats:
    """Return the largest mean share that is rejected, for which the capital is 1/tail; it falls with the mean."""
    low, high = np.zeros(len(n)), np.bincount(place, count * share, len(n)) / np.maximum(n, 1)
    stakes, has_some = _stakes(n, tail), high > 0
    for _ in range(50):
        middle = np.where(has_some, (low + high) / 2, 0.5)
        is_rejected = _log_capital(share, count, place, middle, stakes) >= -np.log(tail)
        low, high = np.where(is_rejected, middle, low), np.where(is_rejected, high, middle)
    return np.where(has_some, low, 0.0)
