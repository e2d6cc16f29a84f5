r"""What is guaranteed: epsilon, points per bin, and the interval behind every printed probability.

Two kinds of statement live here.

*Planning*, before any row is seen (the paper's Theorem "main" and its form for one pooled map): with
probability :math:`1 - \alpha` over the calibration rows, every bin of every group misses the truth by at most
:math:`\epsilon`, for scores that are distinct (``ties="jitter"``).

*Certificates*, after fitting: an interval for the truth of each bin, all of them right at once with
probability :math:`1 - \alpha`. They hold for tied scores, soft targets and weights, and are tighter since they
use the counts that were seen.

Both assume that rows are independent (one per question), that the partition was fixed without them, and that
labels are true.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qacal.errors import InputError, UnreachableError
from qacal.intervals import bounded_interval, mean_intervals
from qacal.parameters import is_number, is_whole, shown
from qacal.storage.soundness import require
from qacal.tally.arrays import ArrayLike, Floats, require_length, unit_values
from qacal.tally.bins import mass_bins
from qacal.tally.groups import Paths
from qacal.tally.tally import Tally

# What is less is taken for 0: shared by many statements, and inverted, it would be.
_SMALLEST_ALPHA = 1e-100

# Planning: epsilon for points per bin, and back.


def epsilon(points_per_bin: int, n: int, alpha: float, nu: float = 0.0, *, levels: int = 1) -> float:
    r"""Return the error that :math:`b` points per bin guarantee for `n` calibration rows.

    .. math:: \epsilon = \sqrt{\frac{\log(2 L n / (b \alpha))}{2 (b - 1)}} + \nu

    With natural logarithm; :math:`n/b` bounds the number of bins of one level, and :math:`L` counts the levels
    of maps that may answer: 1 for groups that all have their own map, 2 with the root's map, depth + 1 if
    groups may borrow from any ancestor. For scaling methods `n` is the half of the rows that is binned.

    nu : :math:`\nu`, what proxy labels may be off by *in every group and bin*. An average over groups is not
        enough: a pooled scaler can be right on average and miss every group. See :func:`nu_bound`.

    Examples
    --------
    >>> round(epsilon(226, n=1000, alpha=0.1), 4)
    0.0998

    See Also
    --------
    points_per_bin : the other way round.
    """
    _check_planning(n, alpha, nu, levels)
    if not is_whole(points_per_bin, 2, n):
        raise InputError(f"points_per_bin is {shown(points_per_bin)}; expected a whole number from 2 to n={n}.")
    bins = levels * n / points_per_bin
    return float(np.sqrt(np.log(2 * bins / alpha) / (2 * (points_per_bin - 1))) + nu)


def points_per_bin(epsilon: float, n: int, alpha: float, nu: float = 0.0, *, levels: int = 1) -> int:
    r"""Return the smallest number of points per bin that guarantees `epsilon`; see :func:`qacal.epsilon`.

    How to choose: say by how much a printed probability may be wrong (0.1, say), and how often the whole table
    of maps may break that promise (alpha 0.1, say). With fewer rows than that takes, the error says what the
    rows can give.

    Examples
    --------
    >>> [points_per_bin(0.1, n=n, alpha=0.1) for n in (1000, 5000, 20000)]
    [226, 293, 353]
    >>> points_per_bin(0.1, n=1000, alpha=0.1, nu=0.1)
    Traceback (most recent call last):
    ...
    qacal.errors.UnreachableError: epsilon is 0.1 and nu is 0.1: labels that may be off by nu cannot give an error
    below nu. Ask for an epsilon above nu, or measure better labels.
    """
    _check_planning(n, alpha, nu, levels)
    _check_reachable(epsilon, nu)
    reach = _epsilon_of(n, alpha, nu, levels)
    # Epsilon falls as b grows: fewer bins to be right about, and more rows in each.
    b = 2 + bisect_left(range(2, n + 1), True, key=lambda b: reach(b) <= epsilon)
    if b > n:
        raise UnreachableError(
            f"{n} rows cannot guarantee epsilon={epsilon}: one bin of all of them gives {reach(n):.3f}. "
            "Ask for a larger epsilon or alpha, or label more rows."
        )
    return b


def epsilon_of_bins(n_bins: int, n: int, alpha: float, nu: float = 0.0) -> float:
    r"""Return the error that one pooled map of `n_bins` uniform-mass bins guarantees (plain UMD).

    .. math:: \epsilon = \sqrt{\frac{\log(2B/\alpha)}{2(\lfloor n/B \rfloor - 1)}} + \nu

    >>> round(epsilon_of_bins(4, n=1000, alpha=0.1), 4)
    0.0938
    """
    _check_planning(n, alpha, nu)
    if not is_whole(n_bins, 1, n // 2):
        raise InputError(
            f"n_bins is {shown(n_bins)}; expected a whole number from 1 to n/2={n // 2}, so that a bin has two rows or "
            "more."
        )
    return float(np.sqrt(np.log(2 * n_bins / alpha) / (2 * (n // n_bins - 1))) + nu)


def n_bins(epsilon: float, n: int, alpha: float, nu: float = 0.0) -> int:
    """Return the largest number of bins with which plain UMD still guarantees `epsilon`.

    >>> n_bins(0.1, n=1000, alpha=0.1)
    4
    """
    _check_planning(n, alpha, nu)
    _check_reachable(epsilon, nu)
    too_many = bisect_left(range(1, n // 2 + 1), True, key=lambda b: epsilon_of_bins(b, n, alpha, nu) > epsilon)
    if too_many == 0:
        raise UnreachableError(
            f"{n} rows cannot guarantee epsilon={epsilon}, not even in one bin. "
            "Ask for a larger epsilon or alpha, or label more rows."
        )
    return too_many


def _epsilon_of(n: int, alpha: float, nu: float, levels: int) -> Callable[[int], float]:
    return lambda b: epsilon(b, n, alpha, nu, levels=levels)


def _check_planning(n: int, alpha: float, nu: float, levels: int = 1) -> None:
    if not is_whole(n, 2):
        raise InputError(f"n is {shown(n)}; a guarantee needs a whole number of 2 calibration rows or more.")
    if not is_whole(levels, 1):
        raise InputError(f"levels is {shown(levels)}; expected a whole number of 1 or more.")
    check_alpha(alpha)
    if not is_number(nu, 0, 1):
        raise InputError(f"nu is {shown(nu)}; expected 0 to 1.")


def _check_reachable(epsilon: float, nu: float) -> None:
    if not is_number(epsilon, 0, 1) or epsilon in (0, 1):
        raise InputError(f"epsilon is {shown(epsilon)}; expected a number between 0 and 1, such as 0.1.")
    if nu >= epsilon:
        raise UnreachableError(
            f"epsilon is {epsilon} and nu is {nu}: labels that may be off by nu cannot give an error below nu. "
            "Ask for an epsilon above nu, or measure better labels."
        )


def check_alpha(alpha: float) -> None:
    """Refuse a failure probability outside (0, 1), or so small that its logarithm is lost."""
    if not is_number(alpha, _SMALLEST_ALPHA, 1) or alpha == 1:
        raise InputError(f"alpha is {shown(alpha)}; expected a probability between 0 and 1, such as 0.1.")


# Certificates.


@dataclass(frozen=True)
class Certificate:
    """A promise about every bin at once, broken with probability at most `alpha`.

    kind : "uniform" holds for every interval of confidences in every group and ancestor, so it survives any
        choice of points per bin, depth or shape made on the same rows. "conditional" holds for the bins of this fit
        only, whose edges have not looked at labels, and is tighter. "distinct" is the theorem's, for ``ties="jitter"``.
        "fixed" is for bins and groups that have not looked at any calibration row.
    tail : the failure probability of one end of one interval.
    statements : how many two-sided statements share alpha.
    grid : the number of declared confidence values, or None if the values that were seen are the grid.
    """

    kind: str
    alpha: float
    statements: float
    grid: int | None = None

    def require_sound(self) -> None:
        """Refuse what cannot be a promise."""
        kinds = ("uniform", "conditional", "distinct", "fixed")
        require(self.kind in kinds, f"the certificate is {self.kind!r}; expected one of {kinds}.")
        check_alpha(self.alpha)
        require(1 <= self.statements < np.inf, f"statements is {self.statements}; expected 1 or more.")

    @property
    def tail(self) -> float:
        """The failure probability of one end of one interval."""
        return self.alpha / (2 * self.statements)

    @property
    def is_about_all(self) -> bool:
        """Whether intervals speak of all answers, past and to come, and not of the calibration rows alone."""
        return self.kind in ("distinct", "fixed") or self.grid is not None

    @property
    def about(self) -> str:
        """What the intervals contain, in words."""
        if self.is_about_all:
            what = "score" if self.kind == "fixed" else "confidence"
            return f"the share of right answers among all answers of the group whose {what} falls in the bin"
        return "the share of right answers to expect of the calibration rows of the group in the bin"

    def intervals(self, rows: Floats, w: Floats, wt: Floats, wtt: Floats, ww: Floats) -> tuple[Floats, Floats]:
        """Return (low, high) for bins with these sums; a bin without rows gets (0, 1)."""
        return mean_intervals(rows, w, wt, wtt, ww, self.tail, is_mixed=not self.is_about_all)


def uniform_certificate(alpha: float, distinct: Sequence[ArrayLike], resolution: float | None) -> Certificate:
    r"""Return the certificate over all intervals of confidences in all nodes.

    distinct : how many confidences were seen in each node, level by level, the root's first.

    With a declared `resolution` there are :math:`m = 1/\text{resolution} + 1` confidence values and
    :math:`m (m + 1) / 2` intervals in a node. With :math:`S_d` nodes that have rows in level :math:`d` of :math:`D`,
    statements are made of :math:`D \max_d S_d` nodes: as with :func:`fixed_certificate`, only what is known of a level
    may count for it.

    Without one, the values seen in each node are its grid: the statement is then made given the confidences that were
    seen, and speaks of them, so the intervals of all nodes can be counted one by one.
    """
    check_alpha(alpha)
    m_s = [np.asarray(level, dtype=np.float64) for level in distinct]
    if resolution is not None:
        m = round(1 / resolution) + 1
        nodes = len(m_s) * max(len(level) for level in m_s)
        return Certificate("uniform", alpha, nodes * m * (m + 1) / 2, grid=m)
    return Certificate("uniform", alpha, float(sum((level * (level + 1) / 2).sum() for level in m_s)))


def jittered_certificate(alpha: float, bins: Sequence[int]) -> Certificate:
    r"""Return the theorem's certificate for maps at several levels, with so many bins each.

    The theorem speaks of one level. With :math:`D` of them each has :math:`\alpha / D`; which maps of a level are read
    depends on the levels below, so all that have the rows are counted.
    """
    check_alpha(alpha)
    return Certificate("distinct", alpha, float(len(bins) * max(bins)))


def fixed_certificate(alpha: float, occupied: list[int]) -> Certificate:
    r"""Return the certificate for bins and groups that were fixed before any calibration row was seen.

    With :math:`D` levels of groups, the root's among them, and :math:`M_d` bins with rows in the maps of level
    :math:`d` (`occupied`), there are :math:`D \max_d M_d` statements.

    Why it holds: be it known of every row in which bin and in which group of level :math:`d` it is, and nothing else.
    Then the labels of a bin are independent draws of one probability, :math:`\mathrm{E}[Y \mid \text{bin},
    \text{group}]`. Which groups of the level have rows for a map, and :math:`M_d`, are known as well, so intervals at
    :math:`\alpha / (D M_d)` fail with probability :math:`\alpha / D` at most, and those of a smaller tail contain them.

    Dividing by the number of all bins with rows would be a little tighter, and wrong: in which child of a group its
    rows are says something of their labels, so what is found in the children must not narrow the group's own interval.
    """
    check_alpha(alpha)
    return Certificate("fixed", alpha, float(len(occupied) * max(occupied)))


# nu: how far proxy labels are from the truth.


@dataclass(frozen=True)
class NuBound:
    """How far proxy labels are off, in the worst bin of the worst group.

    estimate : the largest average difference that was seen.
    bound : nu is at most this with probability 1 - alpha, for all bins and groups that `rows` came from.
    marginal : the difference averaged over all groups, per bin. It may be 0 while every group is off; never use
        it as nu.
    rows : how many rows carried both a proxy and a true label.
    """

    estimate: float
    bound: float
    marginal: float
    rows: int
    alpha: float


def nu_bound(
    proxy: ArrayLike,
    truth: ArrayLike,
    confidence: ArrayLike,
    *,
    groups: ArrayLike | Paths | None = None,
    points_per_bin: int = 50,
    alpha: float = 0.1,
) -> NuBound:
    r"""Measure nu on rows that have both a proxy label (a judge's, or fitted values) and the truth.

    The theorem needs :math:`|\mathrm{E}[\tilde Y - Y \mid \text{bin}, \text{group}]| \le \nu` for every bin and group.
    The paper asks for it only averaged over groups, and then the theorem is false.

    points_per_bin : of the bins made here of these rows. The bound holds for them and for every union of them, so a map
        whose bins are finer than these is not covered: take few points per bin, 1 for a bin per stated confidence.

    Examples
    --------
    A pooled scaler that is right on average and 0.1 off in each of two groups:

    >>> truth = np.repeat([1, 0, 1, 0], [700, 300, 500, 500])
    >>> bound = nu_bound(np.full(2000, 0.6), truth, np.full(2000, 0.8), groups=np.repeat([0, 1], 1000))
    >>> round(bound.estimate, 3), round(bound.marginal, 3), round(bound.bound, 3)
    (0.1, 0.0, 0.185)
    """
    check_alpha(alpha)
    h = unit_values(confidence, "confidence")
    judged, true = unit_values(proxy, "proxy"), unit_values(truth, "truth")
    require_length(judged, len(h), "proxy")
    require_length(true, len(h), "truth")
    difference = judged - true
    # Differences live in [-1, 1]; halved and lifted they are soft targets in [0, 1].
    tally = Tally.of(h, (difference + 1) / 2, groups=groups)
    by_group = tally.flat() if groups is not None else tally
    bins = mass_bins(by_group, points_per_bin)
    low, high = bounded_interval(bins.mean, bins.rows, alpha / (2 * len(bins.rows)))
    pooled = mass_bins(tally.pooled(), points_per_bin)
    return NuBound(
        estimate=float(np.abs(2 * bins.mean - 1).max()),
        bound=float(np.maximum(np.abs(2 * low - 1), np.abs(2 * high - 1)).max()),
        marginal=float(np.abs(2 * pooled.mean - 1).max()),
        rows=tally.n,
        alpha=alpha,
    )
