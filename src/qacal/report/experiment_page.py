"""The page of an experiment: tables of all methods, and figures of the model that tuning likes best."""

from __future__ import annotations

from typing import Any

from qacal.experiment import Experiment
from qacal.experiment.methods import MEANING
from qacal.experiment.runner import called
from qacal.experiment.showcase import showcase
from qacal.experiment.tables import Table as Results
from qacal.model import Progress
from qacal.report.content import read_contents
from qacal.report.page import Block, render
from qacal.report.tables import Cell, Table

_INTRO = (
    "Figures are of {method} ({meaning}), the method with groups and bins that did best on the tuning rows, on the "
    "test part of the first of {seeds} deals; tables are means over all of them."
)
_TABLE = (
    "Mean over seeds, and under it 1.96 standard deviations / sqrt(seeds). The best of a column is in bold. Plug-in "
    "errors are mostly noise, which the noise floor shows, and reward methods with few outputs: rank by debiased "
    "errors, Brier score and log loss."
)


def experiment_page(run: Experiment, title: str, progress: Progress | None = None) -> str:
    """Return the page: a block for every block of the run, with its results and the figures of one model.

    progress : called with what is being drawn, and on how many rows.
    """
    blocks = []
    for name, sample in run.samples.items():
        if progress is not None:
            progress(f"{called(name, run.by)}: drawing", len(sample))
        blocks.append(_block(run, name))
    return render(title, blocks, intro=" ".join(run.notes))


def _block(run: Experiment, name: tuple[Any, ...]) -> Block:
    shown = showcase(run, name)
    content = read_contents(shown.model, shown.test, groups=run.protocol.label)[""]
    intro = _INTRO.format(method=shown.method, meaning=MEANING[shown.method], seeds=run.seeds)
    tables = [_table(table, run) for table in run.tables() if table.lines[0].names[: len(name)] == _texts(name)]
    return Block(called(name, run.by), content, intro, tables)


def _texts(name: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in name)


def _table(found: Results, run: Experiment) -> Table:
    beta = ", ".join(found.lines[0].names[len(run.by) : -1])
    header = ["", *found.titles[len(run.names) + 1 :]]
    rows: list[list[str | Cell]] = [
        [line.names[-1], *(_cell(cell) for cell in line.cells), *(Cell(text) for text in line.chosen)]
        for line in found.lines
    ]
    return Table(f"All methods{f': {beta}' if beta else ''}", header, rows, _TABLE)


def _cell(cell: Any) -> Cell:
    mean, _, spread = cell.text.partition(" ± ")
    return Cell(mean, f"±{spread}" if spread else "", cell.is_best)
