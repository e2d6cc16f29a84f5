"""How many labelled rows it takes: the quality of the default and of simpler methods by the number of rows.

    python -m benchmarks.learning_curve DATA [--embedder static|minilm] [--splits 3] [--only dev|judge|all]
                                             [--remeasure NAME ...] [--cache DIR]

DATA, splits and test questions are those of `benchmarks.quality`. Of the 80% to learn from, methods are given the first
100, 300, 1,000, 3,000 and 5,000 rows, and all, in an order drawn by a hash of the id; few rows are drawn several times,
since which rows they are matters more than anything else. All methods have the same rows, and do with them as they need
to. The last columns are those of the default's intervals: how far off the answers of a band are on average at most, and
how far the accuracy of a group is at most from the mean of its answers, each the median over test rows; and how many of
its statements the test rows contradict.

Lines are kept in the cache, as those of the quality benchmark are. Develop with `--only dev`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

import qacal
from benchmarks.combinations import Combination, Split, combinations
from benchmarks.ledger import Key, Ledger
from benchmarks.verdict import interval, table
from qacal.calibrators.base import Calibrator
from qacal.tally.ids import id_hashes, mix

DRAWS = {100: 6, 300: 4, 1_000: 2, 3_000: 1, 5_000: 1, None: 1}
"""How many times each number of rows is drawn; None for all rows."""

MEASURES = ("log_loss_cut", "brier", "aurc", "reads_text", "bound", "bands", "group_bound", "groups", "broken")

# Draws must have nothing to do with the parts that questions are dealt into.
_SEED = 1_000

Measures: TypeAlias = dict[str, float]
Method: TypeAlias = Callable[[pl.DataFrame, pl.DataFrame, pl.Series], tuple[np.ndarray, Measures]]


def _whole_model(make: Callable[[], qacal.QACalibrator]) -> Method:
    def answers(fitting: pl.DataFrame, testing: pl.DataFrame, correct: pl.Series) -> tuple[np.ndarray, Measures]:
        model = make().fit(fitting)
        found = model.calibrate(testing)
        further = {} if model.learned_score_ is None else {"reads_text": float(model.learned_score_.reads_text)}
        if model.calibrator_.properties.is_certified:
            further |= _certificate(found, correct)
        return found["calibrated"].to_numpy(), further

    return answers


def _certificate(found: pl.DataFrame, correct: pl.Series) -> Measures:
    """Return how far off half of the answers can be at most, by probability and group, and what test rows contradict.

    Far rows have no interval. A cell is contradicted if its mean error (of a band) or accuracy (of a group) is outside
    by 2.58 standard errors of the test rows.
    """
    rows = found.with_columns(correct=correct.cast(pl.Float64)).filter(pl.col("low").is_not_null())
    rows = rows.with_columns(
        # Answers near 0 and 1 have their interval cut off there.
        below=(pl.col("calibrated") - pl.col("low")).max().over("rows"),
        above=(pl.col("high") - pl.col("calibrated")).max().over("rows"),
        error=pl.col("correct") - pl.col("calibrated"),
    )
    spread = 2.58 / pl.len().sqrt()
    error, accuracy = pl.col("error").mean(), pl.col("correct").mean()
    bands = rows.group_by("rows").agg(
        broken=(error < -pl.col("below").first() - spread * pl.col("error").std())
        | (error > pl.col("above").first() + spread * pl.col("error").std())
    )
    grouped = rows.filter(pl.col("group_low").is_not_null()).with_columns(
        mean=pl.col("calibrated").mean().over("group")
    )
    groups = grouped.group_by("group").agg(
        broken=(accuracy < pl.col("group_low").first() - spread * pl.col("correct").std())
        | (accuracy > pl.col("group_high").first() + spread * pl.col("correct").std())
    )
    reach = grouped.select(
        pl.max_horizontal(pl.col("mean") - pl.col("group_low"), pl.col("group_high") - pl.col("mean"))
    )
    bound = rows.select(pl.max_horizontal("below", "above")).to_series().median()
    return {
        "bound": float(str(bound)),
        "bands": float(len(bands)),
        "group_bound": float(reach.to_series().median()) if len(grouped) else np.nan,  # type: ignore[arg-type]
        "groups": float(len(groups)),
        "broken": float(pl.concat([bands["broken"], groups["broken"]]).fill_null(value=False).mean()),  # type: ignore[arg-type]
    }


def _pooled(make: Callable[[], Calibrator]) -> Method:
    def answers(fitting: pl.DataFrame, testing: pl.DataFrame, correct: pl.Series) -> tuple[np.ndarray, Measures]:
        return make().fit(fitting["confidence"], fitting["correct"]).predict(testing["confidence"]), {}

    return answers


BESIDE = "Platt"
"""What the default must not be worse than."""

METHODS: dict[str, Method] = {
    "default": _whole_model(lambda: qacal.QACalibrator("column:embedding")),
    "continuous": _whole_model(lambda: qacal.QACalibrator("column:embedding", output="continuous")),
    BESIDE: _pooled(lambda: qacal.calibrators.PlattScaling(feature="logit")),
    "isotonic": _pooled(qacal.calibrators.IsotonicCalibration),
    "raw": _pooled(qacal.calibrators.Identity),
}


@dataclass(frozen=True)
class Draw:
    """The first rows of a deal, in one order; None for all rows."""

    deal: Split
    rows: int | None
    number: int

    @property
    def fitting(self) -> pl.DataFrame:
        """What methods learn from."""
        rows = self.deal.fitting.drop("part")
        order = np.argsort(mix(id_hashes(rows["id"], len(rows)), _SEED + self.number), kind="stable")
        return rows[order[: self.rows]]

    def key(self, embedder: str, method: str) -> Key:
        """Return what the line of a method on this draw goes by."""
        return Key(embedder, self.deal.combination, self.deal.seed, _name(method, self.rows, self.number))


def main() -> None:
    asked = _arguments()
    asked.cache.mkdir(parents=True, exist_ok=True)
    remeasure = [_name(method, rows, number) for method in asked.remeasure for rows, number in _numbered()]
    ledger = Ledger(asked.cache / "curve.jsonl", remeasure)
    keys: list[Key] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", qacal.RepeatedQuestionsWarning)
        for combination in combinations(asked.data, asked.embedder, asked.cache):
            if asked.only == "all" or combination.is_for_judging == (asked.only == "judge"):
                keys += run(combination, asked.embedder, asked.splits, ledger)
    if not keys:
        sys.exit(f"{asked.data} holds none of the files; see the top of benchmarks/quality.py.")
    print(curve(ledger.table(keys)))


def run(combination: Combination, embedder: str, splits: int, ledger: Ledger) -> Iterator[Key]:
    """Measure what is missing, and yield the keys of all lines that belong to the run."""
    for deal in map(combination.deal, range(splits)):
        for rows, number in _numbered():
            draw = Draw(deal, rows, number)
            keys = {method: draw.key(embedder, method) for method in METHODS}
            missing = [method for method, key in keys.items() if key not in ledger]
            for method in missing:
                answers, further = METHODS[method](draw.fitting, deal.testing.drop("part"), deal.tested["correct"])
                ledger.add(keys[method], measured(deal, answers, further))
            yield from keys.values()
        print(f"{combination.name}, split {deal.seed}", file=sys.stderr, flush=True)


def measured(deal: Split, answers: np.ndarray, further: Measures) -> Measures:
    """Return what the answers are worth, and what else is known of them."""
    correct = deal.tested["correct"].to_numpy()
    return {
        "log_loss_cut": qacal.metrics.log_loss(correct, answers, cut=0.001),
        "brier": qacal.metrics.brier_score(correct, answers),
        "aurc": qacal.metrics.aurc(correct, answers),
    } | {name: further.get(name, np.nan) for name in MEASURES[3:]}


def curve(lines: pl.DataFrame) -> str:
    """Return the table, as Markdown: means over combinations by rows, and the default beside the pooled line."""
    parts = pl.col("method").str.split(" ")
    lines = lines.with_columns(method=parts.list.get(0), rows=parts.list.get(1), draw=parts.list.get(2))
    counts = (lines[name].n_unique() for name in ("combination", "split"))
    title = (
        "Log loss, cut at 0.001 (Brier score): means over {} combinations, {} splits each. "
        f"Then the default minus {BESIDE}, x 1000, with 95% intervals over combinations."
    ).format(*counts)
    gaps = ["log loss", "worst combination", "draws lost", "Brier", "AURC"]
    of_default = [
        "default reads text",
        "reach by probability",
        "bands",
        "reach by group",
        "groups",
        "cells contradicted",
    ]
    sizes = [_rows_name(rows) for rows in DRAWS]
    cells = [[rows, *_cells(lines.filter(rows=rows))] for rows in sizes]
    return f"{title}\n\n{table(['rows', *METHODS, *gaps, *of_default], cells)}"


def _cells(lines: pl.DataFrame) -> Iterator[str]:
    """Yield what the lines of one number of rows say."""
    # Draws and splits are of the same rows, so they are no new evidence; what is averaged over are combinations.
    means = lines.group_by("method", "combination").agg(pl.mean(*MEASURES))
    for method in METHODS:
        yield "{:.4f} ({:.4f})".format(*(_of(means, method, name).mean() for name in ("log_loss_cut", "brier")))
    ours, theirs = (_of(lines, method, "log_loss_cut") for method in ("default", BESIDE))
    gaps = {name: _of(means, "default", name) - _of(means, BESIDE, name) for name in ("log_loss_cut", "brier", "aurc")}
    yield interval(gaps["log_loss_cut"].tolist())
    yield f"{1000 * gaps['log_loss_cut'].max():+.1f}"
    yield f"{(ours > theirs).mean():.0%}"
    yield interval(gaps["brier"].tolist())
    yield interval(gaps["aurc"].tolist())
    yield f"{_of(means, 'default', 'reads_text').mean():.0%}"
    yield f"{_of(means, 'default', 'bound').mean():.3f}"
    yield f"{_of(means, 'default', 'bands').mean():.1f}"
    yield f"{np.nanmean(_of(means, 'default', 'group_bound')):.3f}"
    yield f"{_of(means, 'default', 'groups').mean():.1f}"
    yield f"{_of(means, 'default', 'broken').mean():.2%}"


def _of(lines: pl.DataFrame, method: str, measure: str) -> np.ndarray:
    """Return a measure of one method, in an order that methods share."""
    order = [name for name in ("combination", "split", "draw") if name in lines.columns]
    return lines.filter(method=method).sort(order)[measure].to_numpy()


def _numbered() -> Iterator[tuple[int | None, int]]:
    """Yield every draw: how many rows, and its number."""
    return ((rows, number) for rows, draws in DRAWS.items() for number in range(draws))


def _rows_name(rows: int | None) -> str:
    return "all" if rows is None else str(rows)


def _name(method: str, rows: int | None, number: int) -> str:
    return f"{method} {_rows_name(rows)} {number}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning_curve", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("data", type=Path, help="the folder with the two files")
    parser.add_argument("--embedder", default="static", help="static or minilm")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", choices=["dev", "judge", "all"], default="dev")
    parser.add_argument(
        "--remeasure", nargs="+", choices=METHODS, default=[], metavar="NAME", help="measure these again"
    )
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "qacal-quality")
    return parser.parse_args()


if __name__ == "__main__":
    main()
