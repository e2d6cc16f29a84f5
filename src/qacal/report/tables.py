"""Tables for the page: the headline numbers, and the tables that a caller adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from qacal.metrics.calibration import CalibrationError
from qacal.metrics.words import decimal, error_seen, percent
from qacal.planning import rounded_up
from qacal.report.content import Content
from qacal.report.style import look_of
from qacal.thresholds.certified import CertifiedThreshold, ThresholdMenu


@dataclass(frozen=True)
class Cell:
    """One cell: its text, smaller words under it, and whether it is the best of its kind."""

    text: str
    note: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Table:
    """A table for a report; the first column has the names of the rows, the others are numbers.

    >>> Table("Results", ["method", "error"], [["None", "0.41"], ["HS-QAB", Cell("0.03", is_best=True)]]).cells[1][1]
    Cell(text='0.03', note='', is_best=True)
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    intro: str = ""

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, with text as cells."""
        return [[cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row] for row in self.rows]


def headline_table(content: Content) -> Table:
    """Return the headline numbers, a column for each score.

    The best of a row is marked, with all that are not distinguishable from it: errors inside the interval of the best,
    other scores with the same digits. AUAC has no best, because stretching confidences raises it.
    """
    scores = list(content.evaluation.by_score.values())
    rows: list[list[str | Cell]] = [[_MEAN, *(percent(one.confidence) for one in scores)]]
    rows += _error_rows(_ERROR, [one.error for one in scores])
    within = [one.error_by_group for one in scores if one.error_by_group is not None]
    rows += _error_rows(_ERROR_WITHIN, within) if within else []
    for name, label in _LOWER_IS_BETTER.items():
        texts = [decimal(getattr(one, name)) for one in scores]
        best = min(texts, key=float)
        rows.append([label, *(Cell(text, is_best=text == best and texts.count(best) < len(texts)) for text in texts)])
    rows.append([_AUAC, *(decimal(one.auac) for one in scores)])
    rows.append([_SHARPNESS, *(decimal(one.sharpness**0.5) for one in scores)])
    return Table("", ["", *(look_of(name).label for name in content.evaluation.by_score)], rows)


def menu_table(menu: ThresholdMenu, *, has_ids: bool) -> Table:
    """Return the certified thresholds for several accuracies, with what is guaranteed."""
    rows = [_menu_row(line) for line in menu.lines]
    each = 100 * (1 - menu.lines[0].alpha)
    intro = (
        "Give an answer only if its calibrated confidence reaches a threshold, and abstain otherwise. With probability "
        f"{percent(1 - menu.alpha)}, all thresholds in this table have at least their accuracy on other answers like "
        f"these test rows, so you may choose any of them. (One line by itself: with probability {each:.4g}%.)"
    )
    if menu.lines[0].documents is not None:
        intro += " Some ids have several rows, so accuracy is that of a random accepted row of a random document."
    if not has_ids:
        intro += (
            " This holds only if the model was not fitted on these rows; they have no id or question to check that."
        )
    header = ["accuracy of the answers given", "threshold", "answers given", "correct here"]
    return Table("When to answer", header, rows, intro)


def _menu_row(line: CertifiedThreshold) -> list[str | Cell]:
    part, target = line.parts[0], f"at least {percent(line.accuracy)}"
    if part.threshold is None or part.accuracy is None:
        why = "; no threshold had this accuracy" if part.outlook == "never" else ""
        if part.rows_needed is not None:
            why = f"; about {rounded_up(part.rows_needed):,} might be enough"
        return [Cell(target, f"not reachable with these rows{why}"), "–", "–", "–"]
    given = Cell(percent(part.coverage), f"{part.accepted:,} of {part.rows:,}")
    return [target, f"{part.threshold:g}", given, percent(part.accuracy)]


# Plain words, and under them the term of the literature.
_MEAN = Cell("mean confidence", "compare it with the accuracy")
_ERROR = Cell("typical error", "calibration error without noise (debiased), and its 95% interval")
_ERROR_WITHIN = Cell("typical error within groups", "calibration error within groups, debiased")
_NOISY = Cell("the same, with noise", "plain (plug-in) error, and its noise floor")
_AUAC = Cell("accuracy above a threshold, averaged over thresholds", "AUAC; higher is better, but stretching raises it")
_SHARPNESS = Cell("how much the confidences differ", "sharpness: their standard deviation")
_LOWER_IS_BETTER = {
    "brier": Cell("squared distance from the outcome", "Brier score; lower is better"),
    "log_loss": Cell("penalty for confident errors", "log loss, cut at 0.001; lower is better"),
    "aurc": Cell("error rate, averaged over the share answered", "AURC, ranking only; lower is better"),
}


def _error_rows(label: Cell, errors: list[CalibrationError]) -> list[list[str | Cell]]:
    best = min(errors, key=lambda error: error.debiased)
    limit = max(best.debiased, 0.0) if isnan(best.high) else best.high
    are_all_best = all(error.debiased <= limit for error in errors)
    debiased = []
    for error in errors:
        low, high = decimal(max(error.low, 0.0)), decimal(max(error.high, 0.0))
        bounds = f"{low}–{high}" if error.debiased > 0 else f"at most {high}"
        is_best = error.debiased <= limit and not are_all_best
        debiased.append(Cell(error_seen(error.debiased), "" if isnan(error.low) else bounds, is_best))
    noisy = [Cell(decimal(error.plugin), f"noise {decimal(error.floor)}".removesuffix("noise ")) for error in errors]
    return [[label, *debiased], [_NOISY, *noisy]]
