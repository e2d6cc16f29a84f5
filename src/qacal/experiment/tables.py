"""Results as the paper lays them out: a line per method, mean and 1.96 sd / sqrt(seeds), the best in bold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from qacal.experiment.measures import COLUMNS, LABEL_COLUMNS, Column
from qacal.tally.arrays import Floats

if TYPE_CHECKING:
    import polars as pl

_TITLES = {
    "dataset": "Dataset",
    "prompt": "Prompt",
    "model": "LLM",
    "method": "Calibrator",
    "beta_emb": "β_emb",
    "beta_bin": "β_bin",
}


@dataclass(frozen=True)
class Cell:
    """A measured number: its mean over seeds, how far to trust it, and whether it is the best of its block."""

    mean: float
    half_width: float
    is_best: bool = False

    @property
    def text(self) -> str:
        """As the paper prints it."""
        if np.isnan(self.mean):
            return "–"
        spread = "" if np.isnan(self.half_width) else f" ± {self.half_width:.3f}"
        return f"{self.mean:.3f}{spread}"


@dataclass(frozen=True)
class Line:
    """One method in one block: what it is, what it measured, what was chosen."""

    names: tuple[str, ...]
    cells: tuple[Cell, ...]
    chosen: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The lines of one block, a line per method.

    titles : of all columns: names, measures, and what was chosen.
    columns : the measures.
    """

    titles: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: list[Line]

    def markdown(self) -> str:
        """Return the table for a Markdown page."""
        rows = [self.titles, tuple(["---"] * len(self.titles))]
        rows += [
            (*line.names, *(f"**{cell.text}**" if cell.is_best else cell.text for cell in line.cells), *line.chosen)
            for line in self.lines
        ]
        return "\n".join(f"| {' | '.join(map(escaped, row))} |" for row in rows)


def escaped(text: str) -> str:
    r"""Return a text that cannot break out of a cell of a Markdown table.

    >>> print(escaped("a|b <i>"))
    a\|b &lt;i>
    """
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def tables(results: pl.DataFrame, names: Sequence[str], label: str | None) -> Iterator[Table]:
    """Yield a table for every block of the results; `names` are the columns that tell blocks apart."""
    columns = [*COLUMNS, *(LABEL_COLUMNS if label is not None else [])]
    titles = [_TITLES.get(name, name) for name in (*names, "method")]
    measured = [column.title.format(label=label) for column in columns]
    for block in results.partition_by(list(names), maintain_order=True) if names else [results]:
        yield Table((*titles, *measured, "groups", "b"), tuple(columns), list(_lines(block, names, columns)))


def overview(results: pl.DataFrame, betas: Sequence[str], label: str | None) -> list[Table]:
    """Return tables over all blocks: each method's mean. How much blocks differ is not in them.

    betas : the columns that tell betas apart, if there are several; each beta has a table, and groups, of its own.
    """
    over_all = list(tables(results, betas, label))
    for table in over_all:
        table.lines[:] = [
            replace(line, cells=tuple(replace(cell, half_width=float("nan")) for cell in line.cells))
            for line in table.lines
        ]
    return over_all


def _lines(block: pl.DataFrame, names: Sequence[str], columns: Sequence[Column]) -> Iterator[Line]:
    methods = block.partition_by("method", maintain_order=True)
    cells = [[_cell(method[column.name].to_numpy(), column) for column in columns] for method in methods]
    best = [
        min((_goodness(row[place], column) for row in cells if not np.isnan(row[place].mean)), default=None)
        for place, column in enumerate(columns)
    ]
    for method, row in zip(methods, cells, strict=True):
        marked = [
            replace(cell, is_best=column.is_better is not None and _goodness(cell, column) == top)
            for cell, top, column in zip(row, best, columns, strict=True)
        ]
        heading = (*(str(method[name][0]) for name in names), str(method["method"][0]))
        yield Line(heading, tuple(marked), (_median(method, "groups"), _median(method, "points_per_bin")))


def _cell(values: Floats, column: Column) -> Cell:
    """Return mean and half width. Debiased errors are averaged as squares, in which they have no bias."""
    values = values[~np.isnan(values)].astype(np.float64)
    if not len(values):
        return Cell(float("nan"), float("nan"))
    squares = np.sign(values) * values**2 if column.is_root else values
    mean = float(squares.mean())
    half_width = float(1.96 * squares.std(ddof=1) / np.sqrt(len(squares))) if len(squares) > 1 else float("nan")
    if not column.is_root:
        return Cell(mean, half_width)
    return Cell(_root(mean), (_root(mean + half_width) - _root(mean - half_width)) / 2)


def _root(square: float) -> float:
    return float(np.sign(square) * np.sqrt(abs(square)))


def _goodness(cell: Cell, column: Column) -> float:
    """Return a number that is smaller if the cell is better. Debiased errors below 0 are all equally good."""
    if column.is_root:
        return max(cell.mean, 0.0)
    return -cell.mean if column.is_better == "high" else cell.mean


def _median(method: pl.DataFrame, name: str) -> str:
    values = method[name].drop_nulls()
    return "–" if values.is_empty() else f"{np.median(values.to_numpy()):g}"
