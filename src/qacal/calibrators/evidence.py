"""The evidence behind a calibrated confidence: one schema everywhere, in columns, JSON and pages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.tally.arrays import Floats, Ints

if TYPE_CHECKING:
    import polars as pl

SOURCES = np.array(["group", "ancestor", "root"])
FROM_GROUP, FROM_ANCESTOR, FROM_ROOT = range(3)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What stands behind each row's probability.

    confidence : what the LLM stated.
    calibrated : the probability that the answer is correct.
    low, high : the interval: with probability 1 - alpha all such intervals contain the truth at once. NaN if the
        calibrator guarantees nothing.
    group : the row's group, None if it has none that the calibrator knows.
    source : the map that gave the answer: that of the "group", of an "ancestor" or of the "root". An interval from an
        ancestor or the root is about that larger set, not about this group.
    rows : the number of calibration rows behind the answer.
    alpha : how often the intervals may fail; NaN without intervals.
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
        """Return evidence; what is not given gets its default."""
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
            decision=[None] * n,
            threshold=np.full(n, np.nan),
        )

    def __len__(self) -> int:
        return len(self.calibrated)

    def to_polars(self) -> pl.DataFrame:
        """Return the evidence as a table, one row each; missing values are null."""
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
