"""QA binning: uniform-mass bins within every group ("QAB" in the paper's tables)."""

from __future__ import annotations

from qacal.calibrators.base import Properties
from qacal.calibrators.bin_maps import CertificateKind, Ties
from qacal.calibrators.binning import BinningCalibrator
from qacal.tally.tally import Tally


class QABinning(BinningCalibrator):
    r"""Answer with the share of correct rows among those of the same group and a similar confidence.

    Each group :math:`s` with :math:`n_s \ge b` rows gets :math:`\lfloor n_s / b \rfloor` uniform-mass bins of its own,
    or fewer where ties do not divide (:class:`UniformMassBinning` says how a bin closes). A smaller group reads the map
    of its nearest ancestor with :math:`b` rows or more; unknown groups read the root's, which is made of all rows.

    How to choose: with about 1,000 labelled rows a group it needs no assumption at all and its intervals are useful.
    With less, :class:`ScalingQABinning` or :class:`HierarchicalScaling` are closer to the truth.

    Parameters
    ----------
    points_per_bin : :math:`b`. Use :func:`qacal.points_per_bin` to pick it from the error you can accept.
    max_depth : of the groups of a tree, use those at this depth. The uniform certificate covers every depth of the
        tree, so this may be chosen on the same rows; a tree cut off before fitting may not.
    ties : "merge" or "jitter" (the paper's; needs `ids` where confidences are equal).
    certificate : "uniform", intervals that stay valid whatever else is chosen on the same rows; "conditional", tighter,
        for a `points_per_bin` that was fixed before. With "jitter" it is always the theorem's.
    alpha : how often the certificate may fail, over all groups and bins at once.
    resolution : snap confidences to the grid 0, resolution, ..., 1.

    Examples
    --------
    An LLM says 0.8 to everything. On average it is right to; in each subject it is wrong:

    >>> import numpy as np
    >>> right = np.repeat([1, 0, 1, 0], [65, 35, 95, 5])
    >>> subject = np.repeat(["law", "physics"], 100)
    >>> model = QABinning(points_per_bin=50).fit(np.full(200, 0.8), right, groups=subject)
    >>> model.predict([0.8, 0.8, 0.8], groups=["law", "physics", "chess"])
    array([0.65, 0.95, 0.8 ])
    >>> model.explain([0.8, 0.8], groups=["law", "chess"]).source
    array(['group', 'root'], dtype='<U8')
    """

    def __init__(
        self,
        *,
        points_per_bin: int = 50,
        max_depth: int | None = None,
        ties: Ties = "merge",
        certificate: CertificateKind = "uniform",
        alpha: float = 0.1,
        resolution: float | None = None,
    ) -> None:
        self.points_per_bin = points_per_bin
        self.max_depth = max_depth
        self.ties = ties
        self.certificate = certificate
        self.alpha = alpha
        self.resolution = resolution

    @property
    def properties(self) -> Properties:
        """Means of bins; Algorithm UMD leaves the edge rows out of them."""
        return Properties(keeps_mean=self.ties == "merge", is_discrete=True, is_certified=True, uses_groups=True)

    def targets(self, tally: Tally) -> tuple[Tally, Tally]:
        """Return all rows with their labels: a bin answers with its share of right ones."""
        return tally, tally
