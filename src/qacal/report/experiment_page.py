"""The page of an experiment: tables of all methods, and figures of the method that was best on the tuning rows."""

from __future__ import annotations

from typing import Any

from qacal.experiment import Experiment
from qacal.experiment.protocol import MEANING
from qacal.experiment.runner import called, times
from qacal.experiment.showcase import showcase
from qacal.experiment.tables import Table as Results
from qacal.model.base import Progress
from qacal.report.content import read_contents
from qacal.report.page import Block, render
from qacal.report.tables import Cell, Table

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
    betas = len(run.names) - len(run.by)
    over_all = [_table(table, "All blocks", range(betas)) for table in run.overview()] if len(blocks) > 1 else []
    return render(title, blocks, intro=" ".join([_ABOUT.format(splits=times(run.seeds)), *run.notes]), tables=over_all)


def _block(run: Experiment, name: tuple[Any, ...], results: list[Results]) -> Block:
    shown = showcase(run, name)
    content = read_contents(shown.model, shown.test, groups=run.protocol.label)[""]
    intro = _INTRO.format(method=shown.method, meaning=MEANING[shown.method])
    of_block = [table for table in results if table.lines[0].names[: len(name)] == tuple(map(str, name))]
    betas = range(len(run.by), len(run.names))
    tables = [_table(table, "All methods", betas, "" if at else _TABLE) for at, table in enumerate(of_block)]
    return Block(called(name, run.by), content, f"{run.ranges[name]} {intro}", tables)


def _table(results: Results, title: str, betas: range, intro: str = _TABLE) -> Table:
    """Return results as a table of the page, without the names of the block.

    betas : the names of a line that describe the groups; they are in the title.
    """
    rows: list[list[str | Cell]] = []
    for line in results.lines:
        parts = [(*cell.text.partition(" ± "), cell.is_best) for cell in line.cells]
        cells = [Cell(mean, f"±{spread}" if spread else "", is_best) for mean, _, spread, is_best in parts]
        # Names of methods must not break at their hyphen.
        name = line.names[-1].replace("-", "\N{NON-BREAKING HYPHEN}")
        rows.append([name, *cells, *(Cell(text) for text in line.chosen)])
    beta = ", ".join(results.lines[0].names[betas.start : betas.stop])
    return Table(f"{title}: {beta}" if beta else title, ["", *results.titles[betas.stop + 1 :]], rows, intro)
