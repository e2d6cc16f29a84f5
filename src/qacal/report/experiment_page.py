"""The page of an experiment: tables of all methods, and figures of the method that was best on the tuning rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import compress
from typing import Any

import polars as pl

from qacal.errors import RepeatedQuestionsWarning, counted
from qacal.experiment import Experiment
from qacal.experiment.groups import Beta, SearchedTree
from qacal.experiment.protocol import BETA, CALIBRATION, MEANING, SHARES, TEST, methods
from qacal.experiment.runner import called
from qacal.experiment.sample import Sample
from qacal.experiment.tables import Table as Results
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.partitions import Column, Partition
from qacal.report.content import read_contents
from qacal.report.page import Block, render
from qacal.report.tables import Cell, Table
from qacal.tally.arrays import Bools
from qacal.tally.ids import split

_VECTORS = "embedding"
_CANDIDATES = ("QAB", "HS-QAB", "S-QAB")

_ABOUT = (
    "The questions were split {splits} into four parts: 20% made the groups, 60% fitted the methods, 10% chose groups "
    "and points per bin, and 10% measured the result."
)
_INTRO = (
    "The figures show {method} ({meaning}) on the test rows of the first split. Of the methods with groups and bins it "
    "was the best on the tuning rows."
)
_TABLE = (
    "Means over splits, ± 1.96 standard deviations / sqrt(splits). The best of a column is in bold. Compare methods by "
    "debiased errors, Brier score and log loss. Plug-in errors are mostly noise, as the noise floor shows, and favour "
    "methods with few outputs."
)


def experiment_page(run: Experiment, title: str, progress: Progress | None = None) -> str:
    """Return the page: a block for every block of the run, with its results and the figures of one model."""
    blocks, tables = [], run.tables()
    for name, sample in run.samples.items():
        if progress is not None:
            progress(f"{called(name, run.by)}: drawing", len(sample))
        blocks.append(_block(run, name, tables))
    over_all = [_table(table, "All blocks", table.names) for table in run.overview()]
    about = _ABOUT.format(splits=counted(run.protocol.seeds, "time"))
    return render(title, blocks, intro=" ".join([about, *run.notes]), tables=over_all)


def _block(run: Experiment, name: tuple[Any, ...], results: list[Results]) -> Block:
    method, model, test = showcase(run, name)
    content = read_contents(model, test, groups=run.protocol.label)[""]
    intro = _INTRO.format(method=method, meaning=MEANING[method])
    by = len(name)
    of_block = [table for table in results if table.names[:by] == tuple(map(str, name))]
    tables = [_table(one, "All methods", one.names[by:], "" if at else _TABLE) for at, one in enumerate(of_block)]
    return Block(called(name, run.by), content, f"{run.ranges[name]} {intro}", tables)


def _table(results: Results, title: str, beta: Sequence[str], intro: str = _TABLE) -> Table:
    """Return results as a table of the page; only its title names the groups (`beta`)."""
    rows: list[list[str | Cell]] = []
    for line in results.lines:
        parts = [(*cell.text.partition(" ± "), cell.is_best) for cell in line.cells]
        cells = [Cell(mean, f"±{spread}" if spread else "", is_best) for mean, _, spread, is_best in parts]
        # Names of methods must not break at their hyphen.
        rows.append([line.method.replace("-", "\N{NON-BREAKING HYPHEN}"), *cells, *line.chosen])
    header = ["", *results.titles[len(results.names) + 1 :]]
    return Table(": ".join([title, ", ".join(beta)] if beta else [title]), header, rows, intro)


def showcase(run: Experiment, name: tuple[Any, ...]) -> tuple[str, QACalibrator, pl.DataFrame]:
    """Return a method of a block to look at, its model on the calibration rows of the first seed, and the test rows.

    Of the methods with groups and bins, it is the best on the tuning rows.
    """
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
    return line["method"], model, _frame(sample, beta, part == TEST)


def _best_line(run: Experiment, name: tuple[Any, ...]) -> dict[str, Any]:
    """Return the first seed's line of the method with the best mean score on the tuning rows."""
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
    texts = {name: column for name in ("question", "answer") if (column := getattr(sample, name)) is not None}
    columns: dict[str, Any] = {
        name: list(compress(values, rows)) for name, values in {**sample.columns, **texts}.items()
    }
    if beta.embedder in sample.vectors:
        vectors = sample.vectors[beta.embedder][rows]
        columns[_VECTORS] = pl.Series(vectors, dtype=pl.Array(pl.Float64, vectors.shape[1]))
    numbers = {"id": sample.ids[rows], "confidence": sample.confidence[rows], "correct": sample.correct[rows]}
    return pl.DataFrame({**columns, **numbers})
