"""The evidence behind a calibrated confidence: one schema for arrays, tables, JSON and reports."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.tally.arrays import Floats, Ints

if TYPE_CHECKING:
    import polars as pl

SOURCES = np.array(["group", "ancestor", "root", "far"])
FROM_GROUP, FROM_ANCESTOR, FROM_ROOT, FROM_FAR = range(4)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Each row's probability, and what it rests on.

    confidence : what the LLM stated.
    calibrated : the probability that the answer is correct.
    low, high : the interval: with probability 1 - alpha all such intervals contain the truth at once. NaN if the
        calibrator guarantees nothing.
    group : the row's group; None if the calibrator does not know it.
    source : whose map was used: "group", "ancestor" or "root". An interval from an ancestor or the root is about that
        larger set, not about this group. "far" for a row that is unlike those of the fit, and has no interval.
    rows : the number of calibration rows in the bin that was used; for curves, those that the curve was fitted on.
    alpha : the probability that at least one interval of the fit is wrong; NaN without intervals.
    unlike : the share of the rows of the fit that are nearer to the others than this row; NaN without a score.
    decision, threshold : "answer" or "abstain" after a threshold has been chosen; None and NaN before.
    """

    confidence: Floats
    calibrated: Floats
    low: Floats
    high: Floats
    group: list[Any]
    source: np.ndarray[Any, np.dtype[np.str_]]
    rows: Ints
    alpha: Floats
    unlike: Floats
    decision: list[str | None]
    threshold: Floats

    @staticmethod
    def of(
        confidence: Floats,
        calibrated: Floats,
        *,
        group: list[Any] | None = None,
        source: Ints | int = FROM_ROOT,
        rows: Ints | int = 0,
        low: Floats | float = np.nan,
        high: Floats | float = np.nan,
        alpha: float = np.nan,
    ) -> Evidence:
        """Return evidence from arrays, or from one value for all rows."""
        n = len(confidence)
        return Evidence(
            confidence=confidence,
            calibrated=calibrated,
            low=np.broadcast_to(low, n),
            high=np.broadcast_to(high, n),
            group=[None] * n if group is None else group,
            source=SOURCES[np.broadcast_to(source, n)],
            rows=np.broadcast_to(rows, n),
            alpha=np.broadcast_to(alpha, n),
            unlike=np.full(n, np.nan),
            decision=[None] * n,
            threshold=np.full(n, np.nan),
        )

    def __len__(self) -> int:
        return len(self.calibrated)

    def to_polars(self) -> pl.DataFrame:
        """Return the evidence as a table; missing values are null."""
        import polars as pl

        columns = {}
        for field in fields(self):
            values = getattr(self, field.name)
            if isinstance(values, np.ndarray):
                values = pl.Series(values, nan_to_null=True)
            elif field.name == "decision":
                values = pl.Series(values, dtype=pl.String)
            columns[field.name] = values
        return pl.DataFrame(columns, strict=False)
