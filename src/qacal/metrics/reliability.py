"""The reliability table: stated against true, bin by bin, in each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.guarantee import check_alpha, mean_intervals
from qacal.metrics.binned import BinChoice, Binned, as_tally
from qacal.tally.arrays import ArrayLike
from qacal.tally.groups import Paths
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    import polars as pl


def reliability_table(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    groups: ArrayLike | Paths | None = None,
    sample_weight: ArrayLike | None = None,
    bins: BinChoice = None,
    alpha: float = 0.05,
) -> pl.DataFrame:
    """Return one row per group and bin.

    Columns: `group`; `from` and `to`, the bin's lowest and highest confidence; `rows`; `confidence`, its mean;
    `accuracy`, with `low` and `high` its (1 - alpha) interval, each bin by itself; `gap`, confidence minus accuracy.

    >>> reliability_table([1, 0, 0, 0], [0.8] * 4, groups=["law"] * 4).select("group", "rows", "accuracy", "gap")
    shape: (1, 4)
    ┌───────┬──────┬──────────┬──────┐
    │ group ┆ rows ┆ accuracy ┆ gap  │
    │ ---   ┆ ---  ┆ ---      ┆ ---  │
    │ str   ┆ i64  ┆ f64      ┆ f64  │
    ╞═══════╪══════╪══════════╪══════╡
    │ law   ┆ 4    ┆ 0.25     ┆ 0.55 │
    └───────┴──────┴──────────┴──────┘
    """
    import polars as pl

    check_alpha(alpha)
    binned = Binned.of(as_tally(y_true, y_prob, groups, sample_weight).without_blocks(), bins)
    cells, of = binned.tally, binned.bins
    rows, w, wt = of.sum(cells.rows), of.sum(cells.w), of.sum(cells.wt)
    low, high = mean_intervals(rows, w, wt, of.sum(cells.wtt), of.sum(cells.ww), alpha / 2)
    stated = of.sum(cells.w * cells.confidence) / w
    accuracy = np.clip(wt / w, 0.0, 1.0)
    columns: dict[str, Any] = {
        "from": cells.confidence[of.start],
        "to": of.top,
        "rows": rows.astype(np.int64),
        "confidence": stated,
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "gap": stated - accuracy,
    }
    if cells.grouping is not None:
        columns = {"group": cells.grouping.decode(of.group), **columns}
    return pl.DataFrame(columns, strict=False)
