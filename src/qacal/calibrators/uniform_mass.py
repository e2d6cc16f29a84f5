"""Uniform-mass binning: one map for all rows ("B" in the paper's tables, Algorithm UMD)."""

from __future__ import annotations

from qacal.calibrators.base import Properties
from qacal.calibrators.bin_maps import CertificateKind, Ties
from qacal.calibrators.binning import BinningCalibrator
from qacal.tally.tally import Tally


class UniformMassBinning(BinningCalibrator):
    r"""Cut confidences into bins of equal count; answer with each bin's share of correct rows.

    Going up, a bin closes at the first confidence where it holds :math:`b` rows or more; equal confidences share a bin,
    and a short rest joins the last. With ``ties="jitter"`` it is Algorithm UMD to the letter: :math:`B = \lfloor n/b
    \rfloor` bins between the ranks :math:`\lceil k(n+1)/B \rceil`, edge rows left out of the means, equal confidences
    ordered by the hash of their id.

    Parameters
    ----------
    points_per_bin : :math:`b`. Use :func:`qacal.points_per_bin` to pick it from the error you can accept.
    n_bins : :math:`B`, instead: so many bins of equal count. Ties may leave fewer.
    ties : "merge" or "jitter" (the paper's; needs `ids` where confidences are equal).
    certificate : "uniform", intervals that stay valid whatever else is chosen on the same rows; "conditional", tighter,
        for a `points_per_bin` that was fixed before. With "jitter" it is always the theorem's.
    alpha : how often the certificate may fail.
    resolution : snap confidences to the grid 0, resolution, ..., 1.

    Examples
    --------
    A model that is right less often than it claims:

    >>> said  = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    >>> right = [0, 0, 1, 0, 1, 1]
    >>> UniformMassBinning(points_per_bin=3).fit(said, right).predict([0.55, 1.0])
    array([0.33333333, 0.66666667])

    Percents are refused, not guessed at:

    >>> UniformMassBinning().fit([50, 90], [0, 1])
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: confidence[0] is 50.0 (and 1 more); expected 0 to 1. If these are percents, divide by 100.
    """

    def __init__(
        self,
        *,
        points_per_bin: int = 50,
        n_bins: int | None = None,
        ties: Ties = "merge",
        certificate: CertificateKind = "uniform",
        alpha: float = 0.1,
        resolution: float | None = None,
    ) -> None:
        self.points_per_bin = points_per_bin
        self.n_bins = n_bins
        self.ties = ties
        self.certificate = certificate
        self.alpha = alpha
        self.resolution = resolution

    @property
    def properties(self) -> Properties:
        """Means of bins; Algorithm UMD leaves the edge rows out of them."""
        return Properties(keeps_mean=self.ties == "merge", is_discrete=True, is_certified=True)

    def targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return all rows with their labels: a bin answers with its share of right ones."""
        return tally, tally
