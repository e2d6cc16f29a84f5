"""Step binning: bins that were fixed beforehand, to certify a score that is good already."""

from __future__ import annotations

import numpy as np

from qacal.calibrators.ancestry import flat_levels, groups_with_rows, lineage, sums_between
from qacal.calibrators.base import Calibrator, Properties
from qacal.calibrators.bin_maps import BinMaps
from qacal.errors import InputError
from qacal.guarantee import check_alpha, fixed_certificate
from qacal.parameters import is_number, is_whole, shown
from qacal.storage import require
from qacal.tally.arrays import Floats
from qacal.tally.tally import Tally

# A score that its rows bear out is worth as many rows as there may be.
_LEAST_TRUST, _MOST_TRUST = 1.0, 1e6


def fit_step_bins(
    tally: Tally,
    *,
    step: float,
    rows_per_map: int = 250,
    max_depth: int | None = None,
    alpha: float = 0.1,
    recalibrate: bool = False,
) -> BinMaps:
    """Return a map of the same bins for every group that has the rows for it, each bin with its interval."""
    check_alpha(alpha)
    _check_rows_per_map(rows_per_map)
    tops = step_tops(step)
    levels = flat_levels(tally, max_depth)
    ancestry = lineage(levels, tally.grouping, rows_per_map)
    promise = fixed_certificate(alpha, [_occupied(level, tops, rows_per_map) for level in levels])
    names = ("rows", "w", "wt", "wtt", "ww")
    sums = {name: table.ravel() for name, table in sums_between(tops, levels, ancestry, names).items()}
    low, high = promise.intervals(*(sums[name] for name in names))
    scores = [level.with_targets(level.confidence) for level in levels]
    value = _means(sums_between(tops, scores, ancestry, ("wt",))["wt"], sums["w"])
    if recalibrate:
        value = corrected(value, sums["wt"], sums["w"])
    return BinMaps(
        top=np.tile(tops, len(ancestry.depth)),
        tie=np.zeros(len(value), dtype=np.uint64),
        # If the certificate is right, an answer outside of its interval is wrong.
        value=np.clip(value, low, high),
        low=low,
        high=high,
        rows=sums["rows"].astype(np.int64),
        offset=np.arange(len(ancestry.depth) + 1) * len(tops),
        lineage=ancestry,
        grouping=None if tally.grouping is None else tally.grouping.distinct(),
        max_depth=max_depth,
        certificate=promise,
        is_jittered=False,
        resolution=tally.resolution,
    )


def corrected(score: Floats, right: Floats, weight: Floats) -> Floats:
    r"""Return what bins are right, from their rows and their score, which counts as :math:`k` rows more.

    .. math:: p = \frac{k h + \sum w y}{k + \sum w}

    The shares of right answers scatter around the score as a beta distribution of :math:`k` rows would have it; the
    :math:`k` that makes the counts most likely is taken, those of a group and of its ancestors alike, as if they were
    of different rows. If they scatter no more than chance has it, the score stands.

    >>> score, rows = np.array([0.2, 0.4, 0.6, 0.8]), np.full(4, 100.0)
    >>> corrected(score, 100 * score, rows).round(2)
    array([0.2, 0.4, 0.6, 0.8])
    >>> corrected(score, np.array([50.0, 10.0, 90.0, 55.0]), rows).round(2)
    array([0.49, 0.11, 0.89, 0.56])
    """
    from scipy import optimize, special

    p, wrong = np.clip(score, 1e-3, 1 - 1e-3), np.maximum(weight - right, 0.0)

    def loss(log_trust: float) -> float:
        a, b = np.exp(log_trust) * p, np.exp(log_trust) * (1 - p)
        return -float((special.betaln(a + right, b + wrong) - special.betaln(a, b)).sum())

    bounds = (np.log(_LEAST_TRUST), np.log(_MOST_TRUST))
    trust = np.exp(optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x)
    found: Floats = (trust * p + right) / (trust + weight)
    return np.where(weight > 0, found, score)


def step_tops(step: float) -> Floats:
    """Return where the bins of a map end; the last has no end.

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
    """Return how many bins have rows, over all groups of a level that have the rows for a map; the root always has."""
    bins = np.searchsorted(tops, level.confidence)
    if level.grouping is None:
        return len(np.unique(bins))
    code = level.grouping.code
    mine = np.isin(code, groups_with_rows(level, rows_per_map))
    code, bins = code[mine], bins[mine]
    # Cells are sorted by group and confidence, so each bin's are a run.
    return min(len(code), 1) + int(np.count_nonzero((code[1:] != code[:-1]) | (bins[1:] != bins[:-1])))


def _means(scores: Floats, weight: Floats) -> Floats:
    """Return the mean score of each bin, and the middle of one that has no rows."""
    n_maps, n_bins = scores.shape
    middle = np.tile((np.arange(n_bins) + 0.5) / n_bins, n_maps)
    return np.where(weight > 0, scores.ravel() / np.where(weight > 0, weight, 1.0), middle)


def _check_rows_per_map(rows: int) -> None:
    if not is_whole(rows, 1):
        raise InputError(f"rows_per_map is {shown(rows)}; expected a whole number of 1 or more, such as 250.")


class StepBinning(Calibrator):
    r"""Leave a good score as it is, in steps, and certify each step within each group.

    The bins are :math:`(k\delta, (k+1)\delta]`, the first with its lower end, the same in every map. A bin answers with
    the mean score of its rows,

    .. math:: p = \frac{\sum_{i \in \text{bin}} w_i h_i}{\sum_{i \in \text{bin}} w_i},

    or with its middle if it has none, moved to the nearest end of its interval if that excludes it. Labels serve the
    intervals alone, unless it `learns`. Neither bins nor groups have looked at the calibration rows, so an interval
    speaks of :math:`\mathrm{E}[Y \mid \text{bin}, \text{group}]`, the share of right answers among all answers of the
    group whose score falls in the bin, past and to come. :func:`qacal.guarantee.fixed_certificate` says why, and how
    alpha is shared among the maps of all depths, which hold at once.

    A group with fewer than `rows_per_map` rows reads the map of its nearest ancestor that has as many; the root always
    has one.

    How to choose: only for a score that was learned on *other* rows, or a stated confidence that is good. Unless
    told to, it learns nothing: what is wrong with a score stays wrong within its interval. A score that was learned on
    these rows, or groups made of them, void the certificate, and so does choosing `step`, `rows_per_map` or `max_depth`
    on them. For a stated confidence that has to be corrected, take :class:`TreeBinning`.

    Parameters
    ----------
    step : :math:`\delta`, one over a whole number. Wider steps have more rows and narrower intervals.
    rows_per_map : how many rows a group needs to have a map of its own.
    max_depth : go no deeper into a tree of groups than this.
    alpha : how often the certificate may fail, over all groups and bins at once.
    recalibrate : also correct the score where labels disagree with it (:func:`corrected`). For a score that was
        learned from other labels than these, a judge's say. Intervals stay what they are: the bins were fixed before.

    Notes
    -----
    With weights, an interval speaks of all answers only if the weight of a row says nothing of its label beyond what
    bin and group do; else, of the weighted calibration rows.

    Examples
    --------
    A score of 0.9 that is right about law; of physics, 0.7 were right. There the answer goes down to the end of its
    interval, as far as the rows compel it and no further, since nothing is learned. No row of law had a score near 0.3:

    >>> right = np.repeat([1, 0, 1, 0], [450, 50, 350, 150])
    >>> model = StepBinning().fit(np.full(1000, 0.9), right, groups=np.repeat(["law", "physics"], 500))
    >>> found = model.explain([0.9, 0.9, 0.3], groups=["law", "physics", "law"])
    >>> found.calibrated.round(3), found.rows
    (array([0.9  , 0.745, 0.275]), array([500, 500,   0]))
    >>> found.low.round(3), found.high.round(3)
    (array([0.866, 0.652, 0.   ]), array([0.928, 0.745, 1.   ]))
    """

    maps_: BinMaps

    def __init__(
        self,
        *,
        step: float = 0.05,
        rows_per_map: int = 250,
        max_depth: int | None = None,
        alpha: float = 0.1,
        recalibrate: bool = False,
    ) -> None:
        self.step = step
        self.rows_per_map = rows_per_map
        self.max_depth = max_depth
        self.alpha = alpha
        self.recalibrate = recalibrate

    def validate(self) -> None:
        """Refuse maps of another calibrator."""
        super().validate()
        require(self.maps_.certificate.kind == "fixed", "the bins of StepBinning are fixed; these are not. Fit again.")

    @property
    def properties(self) -> Properties:
        """Steps that rise with the score, until one is drawn into its interval and its neighbour is not."""
        return Properties(is_discrete=True, is_certified=True, uses_groups=True)

    def _fit_tally(self, tally: Tally) -> BinMaps:
        """Return the bins of every group."""
        return fit_step_bins(
            tally,
            step=self.step,
            rows_per_map=self.rows_per_map,
            max_depth=self.max_depth,
            alpha=self.alpha,
            recalibrate=self.recalibrate,
        )
