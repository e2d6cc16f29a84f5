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
    calibrated : the probability that the answer is right.
    low, high : the certificate: with probability 1 - alpha all such intervals contain the truth at once. NaN where
        the calibrator certifies nothing.
    group : the row's group, None if it has none that the calibrator knows.
    source : whose map answered: the group's own, an ancestor's, or the root's. An interval from an ancestor or the root
        speaks of that larger set, not of this group.
    rows : how many calibration rows the answer rests on.
    alpha : the failure probability of the certificate; NaN without one.
    decision, threshold : "answer" or "abstain", once a threshold has been chosen; None and NaN before.
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
        """Fill in what a calibrator has nothing to say about."""
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
        """Return the evidence as a table, one row each; what is not known is null."""
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
