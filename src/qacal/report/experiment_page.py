"""The page of an experiment: tables of all methods, and figures of the model that tuning likes best."""

from __future__ import annotations

from typing import Any

from qacal.experiment import Experiment
from qacal.experiment.protocol import MEANING
from qacal.experiment.runner import called
from qacal.experiment.showcase import showcase
from qacal.experiment.tables import Table as Results
from qacal.model.answering import Progress
from qacal.report.content import read_contents
from qacal.report.page import Block, render
from qacal.report.tables import Cell, Table

_ABOUT = (
    "The questions were dealt {seeds} times into four parts: 20% made the groups, 60% fitted the methods, 10% chose "
    "groups and points per bin, 10% tested."
)
_INTRO = (
    "Figures are of {method} ({meaning}), the method with groups and bins that did best on the tuning rows, on the "
    "test part of the first deal."
)
_TABLE = (
    "Means over deals, with 1.96 standard deviations / sqrt(deals). The best of a column is in bold. Plug-in errors "
    "are mostly noise, which the noise floor shows, and reward methods with few outputs: rank by debiased errors, "
    "Brier score and log loss."
)


def experiment_page(run: Experiment, title: str, progress: Progress | None = None) -> str:
    """Return the page: a block for every block of the run, with its results and the figures of one model.

    progress : called with what is being drawn, and on how many rows.
    """
    blocks, tables = [], run.tables()
    for name, sample in run.samples.items():
        if progress is not None:
            progress(f"{called(name, run.by)}: drawing", len(sample))
        blocks.append(_block(run, name, tables))
    over_all = [_over_all(table, run) for table in run.overview()] if len(blocks) > 1 else []
    return render(title, blocks, intro=" ".join([_ABOUT.format(seeds=run.seeds), *run.notes]), tables=over_all)


def _block(run: Experiment, name: tuple[Any, ...], results: list[Results]) -> Block:
    shown = showcase(run, name)
    content = read_contents(shown.model, shown.test, groups=run.protocol.label)[""]
    intro = _INTRO.format(method=shown.method, meaning=MEANING[shown.method])
    mine = [table for table in results if table.lines[0].names[: len(name)] == _texts(name)]
    intros = [_TABLE, *[""] * len(mine)]
    named = zip(mine, intros, strict=False)
    tables = [_table(table, _beta(table, run), names=len(run.names), intro=text) for table, text in named]
    return Block(called(name, run.by), content, f"{run.ranges[name]} {intro}", tables)


def _texts(name: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in name)


def _over_all(table: Results, run: Experiment) -> Table:
    betas = len(run.names) - len(run.by)
    beta = ", ".join(table.lines[0].names[:betas])
    return _table(table, f"All blocks: {beta}" if beta else "All blocks", names=betas)


def _beta(found: Results, run: Experiment) -> str:
    beta = ", ".join(found.lines[0].names[len(run.by) : -1])
    return f"All methods: {beta}" if beta else "All methods"


def _table(found: Results, title: str, names: int, intro: str = _TABLE) -> Table:
    """Return results as a table of the page, without the names of the block."""
    rows: list[list[str | Cell]] = [
        [_unbroken(line.names[-1]), *(_cell(cell) for cell in line.cells), *(Cell(text) for text in line.chosen)]
        for line in found.lines
    ]
    return Table(title, ["", *found.titles[names + 1 :]], rows, intro)


def _unbroken(name: str) -> str:
    """Return a name that is not broken at its hyphen in a narrow column."""
    return name.replace("-", "\N{NON-BREAKING HYPHEN}")


def _cell(cell: Any) -> Cell:
    mean, _, spread = cell.text.partition(" ± ")
    return Cell(mean, f"±{spread}" if spread else "", cell.is_best)
