"""Step binning: intervals for a good score, in bins that are fixed before the fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from qacal.calibrators.base import Calibrator, Properties
from qacal.calibrators.maps import (
    BinMaps,
    Lineage,
    flat_levels,
    groups_with_rows,
    lineage,
    places_between,
    sums_between,
)
from qacal.errors import InputError
from qacal.guarantee import (
    Certificate,
    check_alpha,
    counted_shares,
    document_certificates,
    document_intervals,
    fixed_certificate,
)
from qacal.parameters import is_number, is_whole, shown
from qacal.tally.arrays import Floats
from qacal.tally.ids import drawn_labels
from qacal.tally.tally import Tally


def fit_step_bins(
    tally: Tally,
    *,
    step: float,
    rows_per_map: int = 250,
    max_depth: int | None = None,
    alpha: float = 0.1,
    recalibrate: bool = False,
) -> BinMaps:
    """Return a map with the same bins for every group that has enough rows, each bin with its interval."""
    check_alpha(alpha)
    if not is_whole(rows_per_map, 1):
        raise InputError(f"rows_per_map is {shown(rows_per_map)}; expected a whole number of 1 or more, such as 250.")
    tops = step_tops(step)
    levels = flat_levels(tally, max_depth)
    if tally.block is not None:
        levels = [by_document(level, tops) for level in levels]
    ancestry = lineage(levels, tally.grouping, rows_per_map)
    names = ("rows", "w", "wt", "wtt", "ww")
    sums = {name: table.ravel() for name, table in sums_between(tops, levels, ancestry, names).items()}
    if tally.block is None:
        guarantee = fixed_certificate(alpha, [_occupied(level, tops, rows_per_map) for level in levels])
        low, high = guarantee.intervals(*(sums[name] for name in names))
    else:
        guarantee, (low, high) = _certified_documents(
            alpha, levels, tops, ancestry, is_tree=tally.grouping is not None and tally.grouping.is_tree
        )
    scores = [level.with_targets(level.confidence) for level in levels]
    total, weight = sums_between(tops, scores, ancestry, ("wt",))["wt"].ravel(), sums["w"]
    # A bin without rows has its middle as value.
    middle = np.tile((np.arange(len(tops)) + 0.5) / len(tops), len(ancestry.depth))
    value = np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), middle)
    if recalibrate:
        value = corrected(value, sums["wt"], sums["w"])
    return BinMaps(
        top=np.tile(tops, len(ancestry.depth)),
        tie=np.zeros(len(value), dtype=np.uint64),
        # If the interval holds, a value outside of it is not the accuracy of the bin.
        value=np.clip(value, low, high),
        low=low,
        high=high,
        rows=sums["rows"].astype(np.int64),
        offset=np.arange(len(ancestry.depth) + 1) * len(tops),
        lineage=ancestry,
        grouping=None if tally.grouping is None else tally.grouping.distinct(),
        max_depth=max_depth,
        certificate=guarantee,
        is_jittered=False,
        resolution=tally.resolution,
    )


def by_document(tally: Tally, tops: Floats) -> Tally:
    """Return a tally in which each document is one row of each bin: its mean score and its share of correct rows.

    >>> from qacal.tally.tally import DOCUMENTS
    >>> rows = Tally.of([0.61, 0.63, 0.9], [1, 0, 1], ids=["d1", "d1", "d1"], n_blocks=DOCUMENTS)
    >>> bins = by_document(rows, step_tops(0.25))
    >>> bins.confidence, bins.wt
    (array([0.62, 0.9 ]), array([0.5, 1. ]))
    """
    bins = np.searchsorted(tops, tally.confidence).astype(np.float64)
    labels, scores = (replace(one, confidence=bins)._merged() for one in (tally, tally.with_targets(tally.confidence)))
    # Rounding must not move a mean score out of its bin.
    score = np.minimum(scores.wt / scores.w, tops[labels.confidence.astype(np.int64)])
    one = np.ones(len(labels))
    return replace(labels, confidence=score, rows=one.astype(np.int64), w=one, ww=one).with_targets(
        labels.wt / labels.w
    )


def _certified_documents(
    alpha: float, levels: list[Tally], tops: Floats, ancestry: Lineage, *, is_tree: bool
) -> tuple[Certificate, tuple[Floats, Floats]]:
    """Return the certificate and the intervals of documents, for tallies of :func:`by_document`."""
    # All nodes of a tree, or the values of a column.
    columns = [level.grouping for level in levels]
    possible = [
        1 if column is None else 2**depth if is_tree else len(np.unique(column.code))
        for depth, column in enumerate(columns)
    ]
    certificates = document_certificates(alpha, [groups * len(tops) for groups in possible])
    tail = np.repeat([certificates[depth].tail for depth in ancestry.depth.tolist()], len(tops))
    found = [
        (level.wt[at], np.asarray(level.block)[at], place)
        for level, at, place in places_between(tops, levels, ancestry)
    ]
    share, document, place = (np.concatenate(columns) for columns in zip(*found, strict=True))
    labels = drawn_labels(share, document.view(np.uint64))
    drawn = np.asarray(np.bincount(place, labels, len(tail)), dtype=np.float64)
    return certificates[-1], document_intervals(*counted_shares(share, place), drawn, tail)


def corrected(score: Floats, right: Floats, weight: Floats) -> Floats:
    r"""Return the accuracy of bins, estimated from their rows and their score, which counts as :math:`k` more rows.

    .. math:: p = \frac{k s + \sum w y}{k + \sum w}

    The model: accuracies scatter around the score by a beta distribution of :math:`k` rows. :math:`k` maximises the
    likelihood of the counts in all bins, as if the rows of a group and of its ancestors were different rows. If the
    accuracies scatter no more than by chance, :math:`k` is large and the score stays.

    >>> score, rows = np.array([0.2, 0.4, 0.6, 0.8]), np.full(4, 100.0)
    >>> corrected(score, 100 * score, rows).round(2)
    array([0.2, 0.4, 0.6, 0.8])
    >>> corrected(score, np.array([50.0, 10.0, 90.0, 55.0]), rows).round(2)
    array([0.49, 0.11, 0.89, 0.56])
    """
    from scipy import optimize, special

    p, wrong = np.clip(score, 1e-3, 1 - 1e-3), np.maximum(weight - right, 0.0)

    def loss(log_k: float) -> float:
        a, b = np.exp(log_k) * p, np.exp(log_k) * (1 - p)
        return -float((special.betaln(a + right, b + wrong) - special.betaln(a, b)).sum())

    k = np.exp(optimize.minimize_scalar(loss, bounds=(0.0, np.log(1e6)), method="bounded").x)
    return np.where(weight > 0, (k * p + right) / (k + weight), score)


def step_tops(step: float) -> Floats:
    """Return the upper ends of the bins; the last has none.

    >>> step_tops(0.25)
    array([0.25, 0.5 , 0.75,  inf])
    """
    is_step = is_number(step, 1e-3, 1)
    if not is_step or abs(round(1 / step) * step - 1) > 1e-9:
        raise InputError(f"step is {shown(step)}; expected 1/k for a whole number k up to 1000, such as 0.05.")
    steps = round(1 / step)
    # Division by a whole number gives the float nearest to the decimal, so that a score of 0.3 is in the bin up to 0.3.
    return np.append(np.arange(1, steps) / steps, np.inf)


def _occupied(level: Tally, tops: Floats, rows_per_map: int) -> int:
    """Return the number of bins with rows, in the root or in all groups of a level that have a map."""
    bins = np.searchsorted(tops, level.confidence)
    if level.grouping is None:
        return len(np.unique(bins))
    code = level.grouping.code
    has_map = np.isin(code, groups_with_rows(level, rows_per_map))
    code, bins = code[has_map], bins[has_map]
    # Cells are sorted by group and confidence, so each bin's are a run.
    return min(len(code), 1) + int(np.count_nonzero((code[1:] != code[:-1]) | (bins[1:] != bins[:-1])))


@dataclass(kw_only=True, eq=False, repr=False)
class StepBinning(Calibrator):
    r"""Keep a good score, rounded to steps, and give each step in each group an interval.

    The bins are :math:`(k\delta, (k+1)\delta]`, the same in every map; the first includes 0. The value of a bin is the
    mean score of its rows,

    .. math:: p = \frac{\sum_{i \in \text{bin}} w_i s_i}{\sum_{i \in \text{bin}} w_i},

    or its middle if it has no rows. A value outside of the bin's interval is moved to the nearest end. Labels are used
    for the intervals only, unless `recalibrate` is set. Neither bins nor groups depend on the calibration rows, so an
    interval is about :math:`\mathrm{E}[Y \mid \text{bin}, \text{group}]`: the accuracy of all answers of the group with
    a score in the bin, past and future. :func:`qacal.guarantee.fixed_certificate` says why, and how alpha is shared
    among the maps of all depths, which hold at once.

    A group with fewer than `rows_per_map` rows uses the map of its nearest ancestor with enough rows; the root always
    has a map.

    How to choose: only for a score that was trained on *other* rows, or a calibrated stated confidence. Without
    `recalibrate`, an error of the score stays, within the interval. The guarantee is void if the score or the groups
    were trained on these rows, or if `step`, `rows_per_map` or `max_depth` were chosen on them. To correct a stated
    confidence, use :class:`TreeBinning`.

    Parameters
    ----------
    step : :math:`\delta`, one over a whole number. Wider steps have more rows and narrower intervals.
    rows_per_map : the rows that a group needs to have a map of its own.
    max_depth : the depth of the groups of a tree to use.
    alpha : the probability that at least one interval is wrong, over all groups and bins.
    recalibrate : also correct the score where labels disagree with it (:func:`corrected`), for a score that was
        trained on labels of another kind, such as a judge's. The intervals stay the same, since the bins are fixed.

    Notes
    -----
    If ids repeat, rows with one id are a document. Documents must be independent; their rows need not be. Then `rows`
    counts documents, a group needs `rows_per_map` of them (counted once for each bin), and an interval is about a
    random row of a random document with rows in the bin.

    With weights, an interval is about all answers only if the weight of a row says nothing about its label beyond what
    bin and group say; else it is about the weighted calibration rows.

    Examples
    --------
    A score of 0.9 that is right for law; in physics the accuracy is 0.7. There the value moves to the end of its
    interval and no further. No row of law had a score near 0.3:

    >>> correct = np.repeat([1, 0, 1, 0], [450, 50, 350, 150])
    >>> model = StepBinning().fit(np.full(1000, 0.9), correct, groups=np.repeat(["law", "physics"], 500))
    >>> evidence = model.explain([0.9, 0.9, 0.3], groups=["law", "physics", "law"])
    >>> evidence.calibrated.round(3), evidence.rows
    (array([0.9  , 0.745, 0.275]), array([500, 500,   0]))
    >>> evidence.low.round(3), evidence.high.round(3)
    (array([0.866, 0.652, 0.   ]), array([0.928, 0.745, 1.   ]))
    """

    step: float = 0.05
    rows_per_map: int = 250
    max_depth: int | None = None
    alpha: float = 0.1
    recalibrate: bool = False
    maps_: BinMaps = field(init=False)
    # Not monotone: one step may be moved into its interval while its neighbour is not.
    properties = Properties(is_discrete=True, is_certified=True, uses_groups=True, counts_documents=True)

    def _fit_tally(self, tally: Tally) -> BinMaps:
        return fit_step_bins(
            tally,
            step=self.step,
            rows_per_map=self.rows_per_map,
            max_depth=self.max_depth,
            alpha=self.alpha,
            recalibrate=self.recalibrate,
        )
