"""The paper's binning calibrators: bins of equal count, pooled or within groups, of labels or of a fitted curve.

======================  =======  ==========================================  ===============
class                   paper    the value of a bin                          bins
======================  =======  ==========================================  ===============
UniformMassBinning      B        its accuracy                                of all rows
QABinning               QAB      its accuracy                                in every group
ScalingBinning          S-B      the mean of one curve                       of all rows
ScalingQABinning        S-QAB,   the mean of one curve, or of curves per     in every group
                        HS-QAB   group
======================  =======  ==========================================  ===============

A curve is fitted on one half of the rows, and its mean over a bin of the other half is the value of the bin. Halves are
blocks of the tally, so all rows of a question are in the same half. The labels of the binned rows are used for the
intervals only: a bin's interval covers its accuracy, however wrong the curve is.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from qacal.calibrators.base import Calibrator, Feature, Maps, Properties, Rows
from qacal.calibrators.curves import fit_platt
from qacal.calibrators.hierarchical import fit_curves
from qacal.calibrators.maps import BinMaps, distinct_values, flat_levels, groups_with_rows, lineage
from qacal.errors import InputError
from qacal.guarantee import Certificate, check_alpha, jittered_certificate, uniform_certificate
from qacal.tally.arrays import Bools
from qacal.tally.bins import Bins, check_points_per_bin, equal_bins, mass_bins, rank_bins
from qacal.tally.tally import Tally

Ties: TypeAlias = Literal["merge", "jitter"]
CertificateKind: TypeAlias = Literal["uniform", "conditional"]


@dataclass(kw_only=True, eq=False, repr=False)
class BinningCalibrator(Calibrator):
    """Base of the calibrators with bins: their common parameters, and the fit."""

    points_per_bin: int = 50
    ties: Ties = "merge"
    certificate: CertificateKind = "uniform"
    alpha: float = 0.1
    resolution: float | None = None
    maps_: BinMaps = field(init=False)

    def _targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return the rows to bin with their labels, and with the targets whose mean is the value of a bin."""
        return tally, tally

    def _tally_options(self) -> dict[str, Any]:
        return {"ties": self.ties == "jitter", "resolution": self.resolution}

    def _fit_tally(self, tally: Tally) -> BinMaps:
        labels, targets = self._targets(tally)
        # Only pooled calibrators have n_bins, and only those with groups have max_depth.
        return fit_bins(
            labels,
            targets,
            points_per_bin=self.points_per_bin,
            n_bins=getattr(self, "n_bins", None),
            max_depth=getattr(self, "max_depth", None),
            ties=self.ties,
            certificate=self.certificate,
            alpha=self.alpha,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class ScaledBinning(BinningCalibrator):
    """Base of the calibrators that bin the values of a curve."""

    cross_fit: bool = False
    feature: Feature = "confidence"
    seed: int = 0

    @abstractmethod
    def _scaler(self, tally: Tally) -> Maps:
        """Return the curve, or the curves per group, of some rows."""

    def _tally_options(self) -> dict[str, Any]:
        return {"n_blocks": 2, "seed": self.seed, **super()._tally_options()}

    def _targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return the rows to bin with their labels, and with the values of a curve that was fitted on other rows.

        Without cross-fitting, the curve is fitted on half 0, and half 1 is binned. With cross-fitting, each half gets
        its targets from the curve of the other, and both are binned together. If all rows are in one half, that half is
        used for both.
        """
        if tally.block is None or len(np.unique(tally.block % 2)) < 2:
            everything = tally.without_blocks()
            return everything, _with_fitted(everything, self._scaler(everything))
        halves = [tally.fold(k, of=2) for k in (0, 1)]
        second = _with_fitted(halves[1], self._scaler(halves[0]))
        if not self.cross_fit:
            return halves[1], second
        first = _with_fitted(halves[0], self._scaler(halves[1]))
        return halves[0] + halves[1], first + second


def _with_fitted(tally: Tally, maps: Maps) -> Tally:
    return tally.with_targets(maps.apply(Rows(tally.confidence, tally.grouping, None)))


@dataclass(kw_only=True, eq=False, repr=False)
class UniformMassBinning(BinningCalibrator):
    r"""Cut confidences into bins of equal count; the value of a bin is its share of correct rows.

    Going up, a bin closes at the first confidence where it holds :math:`b` rows or more; equal confidences share a bin,
    and a short rest joins the last bin. ``ties="jitter"`` is exactly Algorithm UMD: :math:`B = \lfloor n/b \rfloor`
    bins between the ranks :math:`\lceil k(n+1)/B \rceil`, edge rows left out of the means, equal confidences ordered by
    the hash of their id.

    Parameters
    ----------
    points_per_bin : :math:`b`. Use :func:`qacal.planning.points_per_bin` to pick it from the error you can accept.
    n_bins : :math:`B`, instead of points per bin: this many bins of equal count, or fewer because of ties.
    ties : "merge" or "jitter" (the paper's; needs `ids` where confidences are equal).
    certificate : "uniform" (valid even if bins and depth were chosen on the same rows) or "conditional" (tighter, for a
        `points_per_bin` that was fixed before the fit). With "jitter" it is always the theorem's.
    alpha : the probability that at least one interval is wrong.
    resolution : round confidences to the grid 0, resolution, ..., 1.

    Examples
    --------
    An LLM that is right less often than it claims:

    >>> stated  = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    >>> correct = [0, 0, 1, 0, 1, 1]
    >>> UniformMassBinning(points_per_bin=3).fit(stated, correct).predict([0.55, 1.0])
    array([0.33333333, 0.66666667])
    """

    n_bins: int | None = None

    @property
    def properties(self) -> Properties:
        # Algorithm UMD leaves the edge rows out of the means.
        return Properties(keeps_mean=self.ties == "merge", is_discrete=True, is_certified=True)


@dataclass(kw_only=True, eq=False, repr=False)
class QABinning(BinningCalibrator):
    r"""Return the share of correct rows among those of the same group and a similar confidence.

    Each group :math:`g` with :math:`n_g \ge b` rows gets :math:`\lfloor n_g / b \rfloor` uniform-mass bins of its own,
    or fewer because of ties (:class:`UniformMassBinning` says how a bin closes). A smaller group uses the map of its
    nearest ancestor with :math:`b` rows or more; unknown groups use the root's, which is made of all rows.

    How to choose: with about 1,000 labelled rows per group, it assumes no shape and its intervals are useful. With
    fewer, :class:`ScalingQABinning` or :class:`HierarchicalScaling` are more accurate.

    Parameters
    ----------
    max_depth : use the groups of a tree at this depth. The uniform certificate covers every depth of the tree, so the
        depth may be chosen on the same rows, unless the tree was cut before the fit.
    points_per_bin, ties, certificate, alpha, resolution : as in :class:`UniformMassBinning`; `alpha` covers all groups
        and bins at once.

    Examples
    --------
    An LLM states 0.8 for every answer. That is right on average, and wrong in each subject:

    >>> correct = np.repeat([1, 0, 1, 0], [65, 35, 95, 5])
    >>> subject = np.repeat(["law", "physics"], 100)
    >>> model = QABinning(points_per_bin=50).fit(np.full(200, 0.8), correct, groups=subject)
    >>> model.predict([0.8, 0.8, 0.8], groups=["law", "physics", "chess"])
    array([0.65, 0.95, 0.8 ])
    >>> model.explain([0.8, 0.8], groups=["law", "chess"]).source
    array(['group', 'root'], dtype='<U8')
    """

    max_depth: int | None = None

    @property
    def properties(self) -> Properties:
        return Properties(keeps_mean=self.ties == "merge", is_discrete=True, is_certified=True, uses_groups=True)


@dataclass(kw_only=True, eq=False, repr=False)
class ScalingBinning(ScaledBinning):
    """Fit a Platt curve on half of the rows, and take its mean over uniform-mass bins of the other half.

    The values vary less than those of :class:`UniformMassBinning`, at the price of the curve's bias.

    Parameters
    ----------
    points_per_bin, n_bins, ties, certificate, alpha, resolution : as in :class:`UniformMassBinning`; they count the
        rows that are binned.
    cross_fit : scale each half by the other's curve and bin all rows, instead of half of them.
    feature : as in :class:`PlattScaling`.
    seed : of the split into halves.

    Examples
    --------
    >>> stated  = [0.5, 0.9] * 200
    >>> correct = [0, 1, 0, 1, 0, 1, 1, 0] * 50
    >>> ScalingBinning(points_per_bin=20).fit(stated, correct, ids=range(400)).predict([0.5, 0.9]).round(2)
    array([0.24, 0.77])
    """

    n_bins: int | None = None

    @property
    def properties(self) -> Properties:
        # The means of one curve rise with the bins; those of two curves need not.
        return Properties(is_monotone=not self.cross_fit, is_discrete=True, is_certified=True)

    def _scaler(self, tally: Tally) -> Maps:
        return fit_platt(tally, self.feature)


@dataclass(kw_only=True, eq=False, repr=False)
class ScalingQABinning(ScaledBinning):
    r"""Fit a scaler on half of the rows, and take its mean over the bins of each group on the other half.

    With ``pooling="partial"`` the scaler is the hierarchical model (HS-QAB), with ``"full"`` one Platt curve for all
    groups (S-QAB). The bins, their ancestors and the root are those of :class:`QABinning`.

    How to choose: for groups with tens of rows, where the bins of QA binning are noise. The intervals come from true
    labels, so they need no bound :math:`\nu` on the error of the curves. A value may lie outside of its interval; its
    error is at most the distance to the far end.

    Parameters
    ----------
    pooling : "partial" (curves per group, shrunk towards each other) or "full" (one curve).
    points_per_bin, max_depth, ties, certificate, alpha, resolution : as in :class:`QABinning`; they count the rows
        that are binned.
    cross_fit, feature, seed : as in :class:`ScalingBinning`.

    Examples
    --------
    >>> correct = np.repeat([1, 0, 1, 0], [650, 350, 950, 50])
    >>> subject = np.repeat(["law", "physics"], 1000)
    >>> model = ScalingQABinning(pooling="partial", cross_fit=True)
    >>> model = model.fit(np.full(2000, 0.8), correct, groups=subject, ids=range(2000))
    >>> model.predict([0.8, 0.8, 0.8], groups=["law", "physics", "chess"]).round(2)
    array([0.65, 0.95, 0.8 ])
    """

    pooling: Literal["full", "partial"] = "partial"
    max_depth: int | None = None

    @property
    def properties(self) -> Properties:
        # One curve rises in every group; an ancestor's bins mix the curves of its groups and need not.
        is_monotone = self.pooling == "full" and not self.cross_fit
        return Properties(is_monotone=is_monotone, is_discrete=True, is_certified=True, uses_groups=True)

    def _scaler(self, tally: Tally) -> Maps:
        if self.pooling == "partial":
            return fit_curves(tally, self.feature, self.max_depth)
        if self.pooling == "full":
            return fit_platt(tally, self.feature)
        raise InputError(f'pooling is {self.pooling!r}; expected "full" or "partial".')


# How bins are fitted


def fit_bins(
    labels: Tally,
    targets: Tally,
    *,
    points_per_bin: int,
    n_bins: int | None = None,
    max_depth: int | None = None,
    ties: Ties = "merge",
    certificate: CertificateKind = "uniform",
    alpha: float = 0.1,
) -> BinMaps:
    """Return the maps for a tally.

    labels : the rows with their true labels, for bins and intervals.
    targets : the same rows with the targets for the values of bins, which may be the labels.
    n_bins : instead of points per bin, for tallies without groups.
    max_depth : use the groups of a tree at this depth. The uniform certificate covers all depths of the tree, so the
        depth may be chosen on the same rows.
    """
    check_alpha(alpha)
    for name, choice, kind in (("ties", ties, Ties), ("certificate", certificate, CertificateKind)):
        if choice not in get_args(kind):
            raise InputError(f"{name} is {choice!r}; expected one of {', '.join(map(repr, get_args(kind)))}.")
    check_points_per_bin(points_per_bin)
    if ties == "jitter" and points_per_bin < 2:
        raise InputError(f'points_per_bin is {points_per_bin}; ties="jitter" needs 2 or more, an edge row and another.')
    if ties == "jitter" and labels.n != len(labels):
        raise InputError(
            'some rows have the same id and the same confidence; ties="jitter" needs an id for every row, '
            "for example one of question and answer."
        )
    levels = flat_levels(labels, max_depth)
    levels_of_targets = levels if targets is labels else flat_levels(targets, max_depth)
    ancestry = lineage(levels, labels.grouping, points_per_bin)
    bins = [_bins(level, points_per_bin, n_bins, ties) for level in levels]
    has_map = [np.isin(of.group, ancestry.owner[ancestry.depth == depth]) for depth, of in enumerate(bins)]
    if ties == "jitter":
        counts = [_bins_with_rows(of, level, points_per_bin) for of, level in zip(bins, levels, strict=True)]
        guarantee = jittered_certificate(alpha, counts)
    elif certificate == "conditional":
        guarantee = Certificate("conditional", alpha, sum(int(which.sum()) for which in has_map))
    else:
        distinct = distinct_values(levels if max_depth is None else flat_levels(labels))
        guarantee = uniform_certificate(alpha, distinct, labels.resolution)
    parts = [_columns(*level, ties, guarantee) for level in zip(bins, levels_of_targets, has_map, strict=True)]
    sizes = [np.unique(of.group[which], return_counts=True)[1] for of, which in zip(bins, has_map, strict=True)]
    return BinMaps(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        offset=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
        lineage=ancestry,
        grouping=None if labels.grouping is None else labels.grouping.distinct(),
        max_depth=max_depth,
        certificate=guarantee,
        is_jittered=ties == "jitter",
        resolution=labels.resolution,
    )


def _bins(level: Tally, points_per_bin: int, n_bins: int | None, ties: Ties) -> Bins:
    if ties == "jitter":
        return rank_bins(level, points_per_bin, n_bins)
    return mass_bins(level, points_per_bin) if n_bins is None else equal_bins(level, n_bins)


def _bins_with_rows(bins: Bins, level: Tally, least: int) -> int:
    """Return the number of bins of a level in groups with `least` rows or more; the root always counts."""
    if level.grouping is None:
        return len(bins.group)
    return int(np.isin(bins.group, groups_with_rows(level, least)).sum())


def _columns(bins: Bins, targets: Tally, has_map: Bools, ties: Ties, guarantee: Certificate) -> dict[str, Any]:
    """Return the columns of those bins of a level whose group has a map."""
    labels = bins.tally
    sums = [bins.sum(column)[has_map] for column in (labels.rows, labels.w, labels.wt, labels.wtt, labels.ww)]
    low, high = guarantee.intervals(*sums)
    targets_w, targets_wt = (bins.sum(column)[has_map] for column in (targets.w, targets.wt))
    is_last = np.append(bins.group[1:] != bins.group[:-1], True)
    # Where a bin ends: at its highest confidence, or, in Algorithm UMD, just below the edge row that follows it.
    end = np.minimum(bins.stop - (1 if ties == "merge" else 0), len(labels) - 1)
    tie = np.zeros(len(labels), dtype=np.uint64) if labels.tie is None else labels.tie
    return {
        "top": np.where(is_last, np.inf, labels.confidence[end])[has_map],
        "tie": tie[end][has_map],
        "value": np.clip(targets_wt / targets_w, 0.0, 1.0),
        "low": low,
        "high": high,
        "rows": sums[0].astype(np.int64),
    }
