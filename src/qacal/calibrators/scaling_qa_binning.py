"""Scaling QA binning: curves, then bins within every group ("S-QAB" and "HS-QAB" in the paper's tables)."""

from __future__ import annotations

from typing import Any, Literal

from qacal.calibrators.base import Maps, Properties
from qacal.calibrators.bin_maps import CertificateKind, Ties
from qacal.calibrators.binning import BinningCalibrator
from qacal.calibrators.hierarchical import fit_curves
from qacal.calibrators.logistic import Feature
from qacal.calibrators.platt import fit_platt
from qacal.calibrators.scaling import scaled_halves
from qacal.errors import InputError
from qacal.tally.tally import Tally


class ScalingQABinning(BinningCalibrator):
    r"""Fit a scaler on half of the rows, and answer with its mean over the bins of each group on the other half.

    With ``pooling="partial"`` the scaler is the hierarchical model (HS-QAB), with ``"full"`` one Platt curve for all
    groups (S-QAB). The bins, their ancestors and the root are those of :class:`QABinning`.

    How to choose: for groups with tens of rows, where the bins of QA binning are noise. The intervals come from true
    labels, so they need no bound :math:`\nu` on what the curves get wrong; an answer may lie outside of its interval,
    and its error is at most the distance to the far end.

    Parameters
    ----------
    pooling : "partial" (curves per group, drawn together) or "full" (one curve).
    points_per_bin, max_depth, ties, certificate, alpha, resolution : as in :class:`QABinning`; they count the rows
        that are binned.
    cross_fit : let each half be scaled by the other's model and bin all rows, instead of half of them.
    feature : what the curves see, as in :class:`PlattScaling`.
    seed : another seed deals other halves.

    Examples
    --------
    >>> import numpy as np
    >>> right = np.repeat([1, 0, 1, 0], [650, 350, 950, 50])
    >>> subject = np.repeat(["law", "physics"], 1000)
    >>> model = ScalingQABinning(pooling="partial", cross_fit=True)
    >>> model = model.fit(np.full(2000, 0.8), right, groups=subject, ids=range(2000))
    >>> model.predict([0.8, 0.8, 0.8], groups=["law", "physics", "chess"]).round(2)
    array([0.65, 0.95, 0.8 ])
    """

    def __init__(
        self,
        *,
        pooling: Literal["full", "partial"] = "partial",
        points_per_bin: int = 50,
        max_depth: int | None = None,
        cross_fit: bool = False,
        feature: Feature = "confidence",
        ties: Ties = "merge",
        certificate: CertificateKind = "uniform",
        alpha: float = 0.1,
        resolution: float | None = None,
        seed: int = 0,
    ) -> None:
        self.pooling = pooling
        self.points_per_bin = points_per_bin
        self.max_depth = max_depth
        self.cross_fit = cross_fit
        self.feature = feature
        self.ties = ties
        self.certificate = certificate
        self.alpha = alpha
        self.resolution = resolution
        self.seed = seed

    @property
    def properties(self) -> Properties:
        """One curve rises in every group; an ancestor's bins mix the curves of its groups and need not."""
        is_monotone = self.pooling == "full" and not self.cross_fit
        return Properties(is_monotone=is_monotone, is_discrete=True, is_certified=True, uses_groups=True)

    def tally_options(self) -> dict[str, Any]:
        """Return the deal into halves, whether ties are kept apart, and the grid."""
        return {"n_blocks": 2, "seed": self.seed, **super().tally_options()}

    @property
    def bins_half(self) -> bool:
        """Cross-fitting bins all rows."""
        return not self.cross_fit

    def targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return the rows that the curves were not fitted on, with their labels and with their values."""
        return scaled_halves(tally, self._scaler, cross_fit=self.cross_fit)

    def _scaler(self, tally: Tally) -> Maps:
        if self.pooling == "partial":
            return fit_curves(tally, self.feature, self.max_depth)
        if self.pooling == "full":
            return fit_platt(tally, self.feature)
        raise InputError(f'pooling is {self.pooling!r}; expected "full" or "partial".')
