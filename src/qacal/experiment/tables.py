"""Results as the paper lays them out: a line per method, mean and 1.96 sd / sqrt(seeds), the best in bold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
class Column:
    """A column of the results: its name in the file and in tables, and which values are better.

    is_root : a debiased error, which is the signed root of an unbiased square.
    """

    name: str
    title: str
    is_better: str | None = "low"
    is_root: bool = False


COLUMNS = [
    Column("ce_beta", "CE(h;β)"),
    Column("ce_beta_floor", "its noise floor", None),
    Column("ce_beta_debiased", "CE(h;β) debiased", is_root=True),
    Column("ce", "CE(h)"),
    Column("ce_debiased", "CE(h) debiased", is_root=True),
    Column("mce_beta", "β-MCE"),
    Column("auac", "AUAC", "high"),
    Column("aurc", "AURC"),
    Column("brier", "Brier"),
    Column("log_loss", "log loss, cut at 2.2e-16"),
]

LABEL_COLUMNS = [
    Column("ce_label", "CE by {label}"),
    Column("ce_label_floor", "its noise floor", None),
    Column("ce_label_debiased", "CE by {label} debiased", is_root=True),
]


@dataclass(frozen=True)
class Cell:
    """A measured number: its mean over seeds, how far to trust it, and whether it is the best of its table."""

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
    """One method: what it measured, and the medians of the groups and points per bin that were chosen."""

    method: str
    cells: list[Cell]
    chosen: tuple[str, str]


@dataclass(frozen=True)
class Table:
    """The methods in one block.

    names : of the block, and of its beta if there are several.
    titles : of all columns: names, method, measures, and what was chosen.
    columns : the measures.
    """

    names: tuple[str, ...]
    titles: tuple[str, ...]
    columns: list[Column]
    lines: list[Line]

    def markdown(self) -> str:
        """Return the table for a Markdown page."""
        rows = [self.titles, ("---",) * len(self.titles)]
        for line in self.lines:
            cells = (f"**{cell.text}**" if cell.is_best else cell.text for cell in line.cells)
            rows.append((*self.names, line.method, *cells, *line.chosen))
        return "\n".join(f"| {' | '.join(map(escaped, row))} |" for row in rows)


def escaped(text: str) -> str:
    r"""Return a text that cannot break out of a cell of a Markdown table.

    >>> print(escaped("a|b <i>"))
    a\|b &lt;i>
    """
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def tables(results: pl.DataFrame, names: Sequence[str], label: str | None, *, has_spread: bool = True) -> list[Table]:
    """Return a table for every block of the results; `names` are the columns that tell blocks apart.

    has_spread : show how much seeds differ. Means over several blocks have no such number.
    """
    columns = [*COLUMNS, *(LABEL_COLUMNS if label is not None else [])]
    titles = [_TITLES.get(name, name) for name in (*names, "method")]
    titles += [column.title.format(label=label) for column in columns]
    return [
        Table(
            tuple(str(block[name][0]) for name in names),
            (*titles, "groups", "b"),
            columns,
            _lines(block, columns, has_spread),
        )
        for block in (results.partition_by(list(names), maintain_order=True) if names else [results])
    ]


def _lines(block: pl.DataFrame, columns: Sequence[Column], has_spread: bool) -> list[Line]:
    methods = block.partition_by("method", maintain_order=True)
    cells = [[_cell(method[column.name].to_numpy(), column) for column in columns] for method in methods]
    best = [
        min((_goodness(row[place], column) for row in cells if not np.isnan(row[place].mean)), default=None)
        for place, column in enumerate(columns)
    ]
    lines = []
    for method, row in zip(methods, cells, strict=True):
        marked = [
            Cell(
                cell.mean,
                cell.half_width if has_spread else float("nan"),
                column.is_better is not None and _goodness(cell, column) == top,
            )
            for cell, top, column in zip(row, best, columns, strict=True)
        ]
        chosen = (_median(method, "groups"), _median(method, "points_per_bin"))
        lines.append(Line(str(method["method"][0]), marked, chosen))
    return lines


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
