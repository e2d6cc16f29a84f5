"""One model of a run to look at: the method with the best score on the tuning rows, with the first seed's settings."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from qacal.errors import RepeatedQuestionsWarning
from qacal.experiment.groups import Beta, SearchedTree
from qacal.experiment.protocol import BETA, CALIBRATION, SHARES, TEST, methods
from qacal.experiment.runner import Experiment
from qacal.experiment.sample import Sample
from qacal.model.model import QACalibrator
from qacal.partitions import Column, Partition
from qacal.tally.arrays import Bools
from qacal.tally.ids import split

if TYPE_CHECKING:
    import polars as pl

_VECTORS = "embedding"
_CANDIDATES = ("QAB", "HS-QAB", "S-QAB")


@dataclass(frozen=True, eq=False)
class Showcase:
    """A model that was fitted on the calibration rows of the first seed, and the test rows to measure it on."""

    method: str
    model: QACalibrator
    test: pl.DataFrame


def showcase(run: Experiment, name: tuple[Any, ...]) -> Showcase:
    """Return the model of a block to look at: of the methods with groups and bins, the best on the tuning rows."""
    sample, beta, line = run.samples[name], run.betas[0], _best_line(run, name)
    part = split(sample.ids, SHARES, 0)
    partitions = beta.partitions(int((part == BETA).sum()))
    if isinstance(partitions, dict):
        # If a single group did best, the smallest number of groups shows as much.
        partition: Partition = partitions.get(line["cut"], next(iter(partitions.values())))
    else:
        partition = partitions
    calibrator = methods(run.protocol.ties)[line["method"]]
    calibrator.set_params(points_per_bin=line["points_per_bin"], alpha=run.protocol.alpha)
    if isinstance(partition, SearchedTree):
        calibrator.set_params(max_depth=line["depth"])
    model = QACalibrator(f"column:{_VECTORS}", partition, calibrator, examples=4)
    beta_rows = None if isinstance(partition, Column) else _frame(sample, beta, part == BETA)
    with warnings.catch_warnings():
        # The page says which rows are taken as dependent.
        warnings.simplefilter("ignore", RepeatedQuestionsWarning)
        model.fit(_frame(sample, beta, part == CALIBRATION), group_records=beta_rows)
    return Showcase(line["method"], model, _frame(sample, beta, part == TEST))


def _best_line(run: Experiment, name: tuple[Any, ...]) -> dict[str, Any]:
    """Return the first seed's line of the method with the best mean score on the tuning rows."""
    import polars as pl

    beta = run.betas[0]
    lines = run.results.filter(
        pl.col("method").is_in(_CANDIDATES),
        beta_emb=beta.embedder,
        beta_bin=beta.name,
        **dict(zip(run.by, map(str, name), strict=True)),
    )
    best = lines.group_by("method").agg(pl.col("tuning").mean()).sort("tuning", "method")["method"][0]
    return lines.row(by_predicate=(pl.col("method") == best) & (pl.col("seed") == 0), named=True)


def _frame(sample: Sample, beta: Beta, rows: Bools) -> pl.DataFrame:
    """Return some rows as records, with the vectors that groups are made of."""
    import polars as pl

    texts = {name: column for name in ("question", "answer") if (column := getattr(sample, name)) is not None}
    columns: dict[str, Any] = {
        name: list(compress(values, rows)) for name, values in {**sample.columns, **texts}.items()
    }
    if beta.embedder in sample.vectors:
        vectors = sample.vectors[beta.embedder][rows]
        columns[_VECTORS] = pl.Series(vectors, dtype=pl.Array(pl.Float64, vectors.shape[1]))
    numbers = {"id": sample.ids[rows], "confidence": sample.confidence[rows], "correct": sample.correct[rows]}
    return pl.DataFrame({**columns, **numbers})
