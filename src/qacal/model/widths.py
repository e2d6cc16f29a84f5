"""How wide the intervals of a fit are with fewer and more labelled rows: what `qacal fit` prints as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qacal.calibrators.cells import Cells
from qacal.calibrators.margins import MarginBinning, MarginMaps
from qacal.model.samples import PARTS, CalibrationRows
from qacal.tally.tally import Tally


@dataclass(frozen=True)
class Widths:
    """How wide the intervals are with so many labelled rows; after a refit, with so many labels of audits.

    is_measured : on rows of a fit, or on equal parts of them, as the mean over the parts; else expected for more rows.
    band_width, group_width : of half of the answers, as in :class:`~qacal.planning.MarginPlan`.
    """

    labels: int
    is_measured: bool
    bands: int
    band_width: float
    groups: int
    group_width: float | None

    @classmethod
    def measured(cls, labels: float, maps: Sequence[MarginMaps]) -> Widths:
        bands, groups = (max(getattr(one, name) for one in maps) for name in ("n_bands", "n_groups"))
        of_groups = [width for one in maps if (width := one.median_group_width()) is not None]
        return cls(
            labels=round(labels),
            is_measured=True,
            bands=bands,
            band_width=float(np.mean([one.median_error_bound() for one in maps])),
            groups=groups,
            group_width=float(np.mean(of_groups)) if of_groups else None,
        )

    def expected(self, times: int, now: Cells, then: Cells) -> Widths:
        """Return the widths for `times` as many rows, which change as those of the planned cells do."""
        groups, group_width = self.groups, self.group_width
        if then.depth is None and group_width is not None:  # the same groups
            group_width /= np.sqrt(times)
        elif then.depth and then.group_width is not None:
            groups = 2**then.depth
            if group_width is None or now.group_width is None:
                group_width = then.group_width
            else:
                group_width *= then.group_width / now.group_width
        # A fit of few rows may be lucky or unlucky; one of more rows will hardly be so by as much.
        luck = float(np.clip(self.band_width / now.band_width, 0.8, 1.25))
        band_width = min(luck * then.band_width, 1.0)
        return Widths(times * self.labels, False, len(then.tops), band_width, groups, group_width)


def widths_by_labels(
    calibrator: MarginBinning, rows: CalibrationRows, tally: Tally, labels: int, plan: Callable[[float], Cells]
) -> tuple[Widths, ...]:
    """Return how wide intervals are with fewer and more labels.

    Measured on quarters, halves and all of the certifying rows, with cells planned for their number and the scores of
    this fit; expected for twice and four times as many.

    labels : the number of labelled rows; of a refit, of labels of audits.
    plan : returns the cells for a number of these.
    """
    has_curves = calibrator.maps_.curves is not None
    measured = []
    for of in (PARTS, PARTS // 2):
        fewer = plan(labels / of)
        maps = [calibrator._fitted_to(fewer, *part, has_curves=has_curves) for part in rows.parts(of, tally)]
        measured += [Widths.measured(labels / of, maps)] if maps else []
    now, cells = Widths.measured(labels, [calibrator.maps_]), plan(labels)
    return (*measured, now, *(now.expected(times, cells, plan(times * labels)) for times in (2, 4)))
