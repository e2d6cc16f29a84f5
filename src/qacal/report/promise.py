"""What the bins of a fit promise, and whether the rows at hand can tell if it was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.bin_maps import BinMaps
from qacal.planning import epsilon
from qacal.report.gathering import Gathered
from qacal.report.realised import Realised, realised_errors


@dataclass(frozen=True)
class Promise:
    """What the fit's bins promise: by the theorem before a row was seen, and by their certificates after.

    certified : half of the test rows are in bins that are certified to be off by this much at most.
    """

    points_per_bin: int
    rows: int
    alpha: float
    levels: int
    epsilon: float
    certified: float
    largest: float
    kind: str


def promise_of(gathered: Gathered, maps: BinMaps) -> Promise:
    """Return what the bins that answered these rows promise."""
    chosen = gathered.model.calibrator_.get_params()
    rows = max(_binned_rows(maps), 2)
    levels, alpha = len(np.unique(maps.lineage.depth)), float(maps.certificate.alpha)
    # The bins of groups, where there are groups: the root's hold the same rows once more.
    first = int(maps.offset[1]) if len(maps.offset) > 2 else 0
    bounds, behind = maps.error_bounds()[first:], maps.rows[first:]
    n_bins = chosen.get("n_bins")
    # Bins that follow curves were asked for no number of points; half of the rows are in bins of the middle one.
    points = rows // n_bins if n_bins else int(chosen.get("points_per_bin", _middle(behind, behind)))
    points = min(max(points, 2), rows)
    return Promise(
        points_per_bin=points,
        rows=rows,
        alpha=alpha,
        levels=levels,
        epsilon=epsilon(points, rows, alpha, levels=levels),
        certified=float(np.median(maps.error_bounds()[gathered.column("bins")])),
        # Of bins without rows nothing is known, and nobody has asked.
        largest=float(bounds[behind > 0].max(initial=0.0)),
        kind=maps.certificate.kind,
    )


def _middle(values: Any, rows: Any) -> float:
    """Return the median of a value of bins over their rows."""
    order = np.argsort(values)
    through = np.cumsum(rows[order])
    return float(values[order][np.searchsorted(through, through[-1] / 2)])


def _binned_rows(maps: BinMaps) -> int:
    """Return N: the rows of the root's bins, and the edge rows between them that Algorithm UMD keeps out of them."""
    root = int(maps.offset[1])
    return int(maps.rows[:root].sum()) + (root - 1 if maps.is_jittered else 0)


def realised_of(gathered: Gathered, maps: BinMaps) -> Realised | None:
    """Return what these rows say of the intervals; None if they are not the rows to ask."""
    if why_not_judged(gathered):
        return None
    return realised_errors(maps, *(gathered.column(name) for name in ("bins", "levels", "correct", "ids")))


def why_not_judged(gathered: Gathered) -> str:
    """Return why a promise cannot be held against these rows; nothing if it can."""
    if gathered.is_familiar:
        return "the model was fitted on some of these questions, and its promise is about others. Use rows kept aside."
    if not gathered.has_ids:
        return (
            "the promise is about other rows than those of the fit, and whether these are others is not known: that "
            "takes an id or a question here and in the rows of the fit."
        )
    if gathered.is_part:
        return "these are a part of the rows, and the promise is about all kinds of them together. Report them in one."
    if gathered.is_uneven:
        return (
            "some questions have more rows here than others. The promise is about the average over rows, and only "
            "questions can be tested, since rows of one question are no independent evidence; the two averages differ. "
            "Use rows of which every question has as many."
        )
    return ""
