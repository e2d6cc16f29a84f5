"""No calibration: the confidence as stated, the baseline for every method ("None" in the paper's tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qacal.calibrators.base import Calibrator, Evidence, Properties, Rows
from qacal.tally.arrays import Floats
from qacal.tally.tally import Tally


@dataclass(frozen=True)
class IdentityMap:
    """Return every confidence as stated."""

    def apply(self, rows: Rows) -> Floats:
        return rows.exact.copy()

    def explain(self, rows: Rows) -> Evidence:
        return Evidence.of(rows.exact, rows.exact.copy())

    def parameters(self) -> dict[str, Any]:
        return {}


class Identity(Calibrator):
    """Return the confidence that the LLM stated, to its last digit.

    Examples
    --------
    >>> Identity().fit([0.9, 0.8], [1, 0]).predict([0.9])
    array([0.9])
    """

    maps_: IdentityMap
    properties = Properties(is_monotone=True)

    def _fit_tally(self, tally: Tally) -> IdentityMap:
        return IdentityMap()
