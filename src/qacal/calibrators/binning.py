"""What calibrators with bins share: the rows that are binned, what a bin answers the mean of, and the certificate."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from qacal.calibrators.base import Calibrator
from qacal.calibrators.bin_maps import BinMaps, CertificateKind, Ties, fit_bins
from qacal.tally.tally import Tally


class BinningCalibrator(Calibrator):
    """Base of the calibrators whose maps are bins.

    They differ in what a bin answers the mean of: true labels, or the values of a model that was fitted on other rows.
    """

    maps_: BinMaps

    points_per_bin: int
    ties: Ties
    certificate: CertificateKind
    alpha: float
    resolution: float | None

    @abstractmethod
    def targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return the rows that are binned with their labels, and with what a bin should answer the mean of."""

    @property
    def bins_half(self) -> bool:
        """True if a model is fitted on one half of the rows, and only the other half is binned."""
        return False

    def tally_options(self) -> dict[str, Any]:
        """Return whether ties are kept apart, and the grid."""
        return {"ties": self.ties == "jitter", "resolution": self.resolution}

    def _fit_tally(self, tally: Tally) -> BinMaps:
        """Return the bins of every group."""
        labels, targets = self.targets(tally)
        # Pooled maps have no depth, and maps of groups no common number of bins.
        n_bins, max_depth = getattr(self, "n_bins", None), getattr(self, "max_depth", None)
        return fit_bins(
            labels,
            targets,
            points_per_bin=self.points_per_bin,
            n_bins=n_bins,
            max_depth=max_depth,
            ties=self.ties,
            certificate=self.certificate,
            alpha=self.alpha,
        )
