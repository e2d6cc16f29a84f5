"""Fitted without one data set and applied to it: how much the default loses, and whether it says so.

    python -m benchmarks.left_out DATA [--only dev|judge|all] [--peers] [--cache DIR]

For every LLM and every value of the label (subject, dataset), models are fitted on the rows with other values and
measured on those with this value. What is measured:

- Log loss cut at 0.001, of the default and of one pooled isotonic map; with `--peers`, of a practitioner's two models.
- The share of rows in broken intervals: by an exact test at 1%, the accuracy of the left-out rows of a band is outside
  of the mean of their intervals. Far rows have none. "of these not noted": no note said that the file is unlike the
  fit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import polars as pl
from scipy import stats
from threadpoolctl import threadpool_limits

import qacal
from benchmarks.combinations import LABELS, Combination, combinations
from benchmarks.contenders import CONTENDERS
from qacal.calibrators.score.likeness import FAR

_PEERS = ("tfidf", "boosted-form")
_SEEN = ("id", "model", "question", "answer", "confidence", "embedding")
_loss = partial(qacal.metrics.log_loss, cut=0.001)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.left_out", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("data", type=Path, help="the folder with the two files")
    parser.add_argument("--only", choices=["dev", "judge", "all"], default="dev")
    parser.add_argument("--peers", action="store_true", help="also measure the models of a practitioner")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "qacal-quality")
    asked = parser.parse_args()
    asked.cache.mkdir(parents=True, exist_ok=True)
    lines = []
    with threadpool_limits(1):
        for combination in combinations(asked.data, "static", asked.cache):
            if asked.only == "all" or combination.is_for_judging == (asked.only == "judge"):
                for value in combination.rows["label"].unique().sort():
                    lines.append(measured(combination, value, _PEERS if asked.peers else ()))
                    print(lines[-1], file=sys.stderr, flush=True)
    if not lines:
        sys.exit(f"{asked.data} holds none of {', '.join(LABELS)}.")
    table = pl.DataFrame(lines).with_columns(more=pl.col("default") - pl.col("pooled"))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=4, tbl_width_chars=200, tbl_formatting="MARKDOWN"):
        print(table.group_by("set").agg(pl.len().alias("LLMs"), pl.exclude("llm").mean()).sort("more", descending=True))
        print(table.select(pl.exclude("llm", "set").mean()))
        print(f"Sets: {len(table)}; worse than the pooled map by more than 0.01: {(table['more'] > 0.01).sum()}.")


def measured(combination: Combination, value: str, peers: Sequence[str]) -> dict[str, object]:
    """Return the numbers of one LLM and one left-out set."""
    rows = combination.rows
    rest, left = rows.filter(pl.col("label") != value), rows.filter(pl.col("label") == value)
    fitting, testing, correct = rest.select(*_SEEN, "correct"), left.select(_SEEN), left["correct"].to_numpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = qacal.QACalibrator("column:embedding").fit(fitting).calibrate(testing)
    is_noted = any("of these rows are farther" in str(one.message) for one in caught)
    is_noted |= any("these rows are unlike" in str(one.message) for one in caught)
    pooled = qacal.calibrators.IsotonicCalibration().fit(rest["confidence"], rest["correct"])
    cells = out.with_columns(correct=pl.Series(correct), far=pl.col("unlike") >= FAR)
    # The rows of a band have the same number of certifying rows, and are off by the same distances on average at most.
    near = cells.filter(~pl.col("far")).with_columns(
        pl.mean("low").over("rows"),
        pl.mean("high").over("rows"),
        n=pl.len().over("rows"),
        right=pl.col("correct").sum().over("rows"),
    )
    broken = pl.Series(
        [_is_broken(*row) for row in near.select("low", "high", "n", "right").iter_rows()], dtype=pl.Boolean
    )
    share = float(broken.sum()) / len(cells)
    return {
        "llm": combination.name,
        "set": value,
        "rows": len(left),
        "default": _loss(correct, out["calibrated"].to_numpy()),
        "pooled": _loss(correct, pooled.predict(left["confidence"])),
        **{name: _loss(correct, CONTENDERS[name](fitting, testing)) for name in peers},
        "far": float(cells["far"].mean()),
        "noted": float(is_noted),
        "in broken intervals": share,
        "of these not noted": 0.0 if is_noted else share,
    }


def _is_broken(low: float, high: float, n: int, right: int) -> bool:
    """Return whether an accuracy within the interval would hardly ever give such counts."""
    above, below = stats.binom.sf(right - 1, n, high), stats.binom.cdf(right, n, low)
    return bool(min(above, below) < 0.01 / 2)


if __name__ == "__main__":
    main()
