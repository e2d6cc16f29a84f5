"""Scale, then bin: the step that scaling-binning methods share.

A scaler is fitted on one half of the rows; its values on the other half are what that half's bins answer the mean of.
Halves are blocks of the tally, so all rows of a question are in the same one. The true labels of the binned rows are
used for the intervals only: a bin's interval speaks of the truth, whatever the scaler says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qacal.calibrators.base import Maps, Rows
from qacal.tally.tally import Tally

Scaler = Callable[[Tally], Maps]


def scaled_halves(tally: Tally, scaler: Scaler, *, cross_fit: bool) -> tuple[Tally, Tally]:
    """Return (labels, targets) of the rows to bin.

    Without cross-fitting: half 0 is scaled on, half 1 is binned. With it: each half gets its targets from the model of
    the other, and both are binned together in one map. If all rows are in one half, it serves for both.
    """
    if tally.block is None or len(np.unique(tally.block % 2)) < 2:
        everything = tally.without_blocks()
        return everything, _with_fitted(everything, scaler(everything))
    halves = [tally.fold(k, of=2) for k in (0, 1)]
    second = _with_fitted(halves[1], scaler(halves[0]))
    if not cross_fit:
        return halves[1], second
    first = _with_fitted(halves[0], scaler(halves[1]))
    return halves[0] + halves[1], first + second


def _with_fitted(tally: Tally, maps: Maps) -> Tally:
    return tally.with_targets(maps.apply(Rows(tally.confidence, tally.grouping, None)))
