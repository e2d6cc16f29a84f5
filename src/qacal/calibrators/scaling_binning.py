"""Scaling-binning: a pooled curve, then one binned map ("S-B" in the paper's tables)."""

from __future__ import annotations

from typing import Any

from qacal.calibrators.base import Properties
from qacal.calibrators.bin_maps import CertificateKind, Ties
from qacal.calibrators.binning import BinningCalibrator
from qacal.calibrators.logistic import Feature
from qacal.calibrators.platt import fit_platt
from qacal.calibrators.scaling import scaled_halves
from qacal.tally.tally import Tally


class ScalingBinning(BinningCalibrator):
    """Fit a Platt curve on half of the rows, and answer with its mean over uniform-mass bins of the other half.

    The answers vary less than those of :class:`UniformMassBinning`, at the price of the curve's bias.

    Parameters
    ----------
    points_per_bin, n_bins, ties, certificate, alpha, resolution : as in :class:`UniformMassBinning`; they count the
        rows that are binned.
    cross_fit : let each half be scaled by the other's curve and bin all rows, instead of half of them.
    feature : what the curve sees, as in :class:`PlattScaling`.
    seed : another seed deals other halves.

    Examples
    --------
    >>> said  = [0.5, 0.9] * 200
    >>> right = [0, 1, 0, 1, 0, 1, 1, 0] * 50
    >>> ScalingBinning(points_per_bin=20).fit(said, right, ids=range(400)).predict([0.5, 0.9]).round(2)
    array([0.24, 0.77])
    """

    def __init__(
        self,
        *,
        points_per_bin: int = 50,
        n_bins: int | None = None,
        cross_fit: bool = False,
        feature: Feature = "confidence",
        ties: Ties = "merge",
        certificate: CertificateKind = "uniform",
        alpha: float = 0.1,
        resolution: float | None = None,
        seed: int = 0,
    ) -> None:
        self.points_per_bin = points_per_bin
        self.n_bins = n_bins
        self.cross_fit = cross_fit
        self.feature = feature
        self.ties = ties
        self.certificate = certificate
        self.alpha = alpha
        self.resolution = resolution
        self.seed = seed

    @property
    def properties(self) -> Properties:
        """Means of one curve over rising bins; two curves mixed need not rise."""
        return Properties(is_monotone=not self.cross_fit, is_discrete=True, is_certified=True)

    def tally_options(self) -> dict[str, Any]:
        """Return the deal into halves, whether ties are kept apart, and the grid."""
        return {"n_blocks": 2, "seed": self.seed, **super().tally_options()}

    @property
    def bins_half(self) -> bool:
        """Cross-fitting bins all rows."""
        return not self.cross_fit

    def targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return the rows that the curve was not fitted on, with their labels and with its values."""
        return scaled_halves(tally, lambda t: fit_platt(t, self.feature), cross_fit=self.cross_fit)
