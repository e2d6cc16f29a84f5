"""Tables for the page: those of a block, and those that a caller adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from qacal.metrics.calibration import CalibrationError
from qacal.report.content import Content, Measured
from qacal.report.style import look_of
from qacal.report.words import decimal, percent


@dataclass(frozen=True)
class Cell:
    """One cell: its text, smaller words under it, and whether it is the best of its kind."""

    text: str
    note: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Table:
    """A table for a report: a title, some words, a header, and rows of cells or plain text.

    The first column names the row; the others are set as numbers.

    >>> Table("Results", ["method", "error"], [["None", "0.41"], ["HS-QAB", Cell("0.03", is_best=True)]]).cells[1][1]
    Cell(text='0.03', note='', is_best=True)
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    intro: str = ""

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, every cell as one."""
        return [[cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row] for row in self.rows]


def headline_table(content: Content) -> Table:
    """Return the headline numbers, a column for each score.

    The best of a row is marked, and whatever cannot be told from it: errors by the best one's interval, other scores by
    the digits shown. AUAC has no best, since it can be gained by stretching confidences.
    """
    found = list(content.measured.values())
    rows: list[list[str | Cell]] = [["mean confidence", *(percent(one.confidence) for one in found)]]
    rows += _error_rows("calibration error", [one.error for one in found])
    within = [one.error_by_group for one in found if one.error_by_group is not None]
    rows += _error_rows("calibration error within groups", within) if within else []
    for label, value in _LOWER_IS_BETTER:
        rows.append([label, *_lower_is_better([decimal(value(one)) for one in found])])
    rows.append(["AUAC", *(decimal(one.auac) for one in found)])
    rows.append(["sharpness (sd)", *(decimal(one.sharpness**0.5) for one in found)])
    return Table("", ["", *(look_of(name).label for name in content.measured)], rows)


_LOWER_IS_BETTER: tuple[tuple[str, Callable[[Measured], float]], ...] = (
    ("Brier score", lambda found: found.brier),
    ("log loss", lambda found: found.log_loss),
    ("AURC", lambda found: found.aurc),
)


def _lower_is_better(texts: list[str]) -> list[Cell]:
    best = min(texts, key=float)
    return [Cell(text, is_best=text == best and texts.count(best) < len(texts)) for text in texts]


def _error_rows(label: str, errors: list[CalibrationError]) -> list[list[str | Cell]]:
    noisy = [Cell(decimal(error.plugin), f"noise {decimal(error.floor)}".removesuffix("noise ")) for error in errors]
    return [[label, *_errors(errors)], [Cell("", "plug-in, and what noise alone would measure"), *noisy]]


def _errors(errors: list[CalibrationError]) -> list[Cell]:
    best = min(errors, key=lambda error: error.debiased)
    limit = max(best.debiased, 0.0) if isnan(best.high) else best.high
    are_best = [error.debiased <= limit for error in errors]
    return [_error(error, is_best and not all(are_best)) for error, is_best in zip(errors, are_best, strict=True)]


def _error(error: CalibrationError, is_best: bool) -> Cell:
    bounds = "" if isnan(error.low) else f"{decimal(max(error.low, 0.0))}–{decimal(max(error.high, 0.0))}"
    return Cell(decimal(max(error.debiased, 0.0)), bounds, is_best)
