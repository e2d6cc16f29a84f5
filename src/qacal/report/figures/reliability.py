"""Reliability diagrams: what was claimed against what was right, before and after, with intervals and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.guarantee import mean_intervals
from qacal.metrics.calibration import CalibrationError, estimate_calibration_error
from qacal.metrics.evaluation import BINS
from qacal.report import style, words
from qacal.report.data import as_tallies
from qacal.tally.arrays import Floats
from qacal.tally.bins import mass_bins
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Rows of a bin, where there are as many.
_FEWEST = 15


def reliability_diagram(
    scores: Any,
    *,
    bins: int = 10,
    alpha: float = 0.05,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the share of right answers over the confidence, for each score, against the diagonal.

    Bars are (1 - alpha) intervals of the bin's share, each bin by itself. The key gives each score's calibration error,
    debiased, with its 95% interval: with few rows points leave the diagonal by chance alone, and this is what is left.

    Parameters
    ----------
    scores : tallies by name ("stated", "pooled", "calibrated"), a tally, or records with `confidence`, `correct` and
        perhaps `calibrated`. Groups are pooled.
    bins : about so many bins of equal count; a few distinct confidences are their own, rare ones join their neighbour.

    Examples
    --------
    >>> ax = reliability_diagram(Tally.of([0.9] * 200, [1, 0] * 100))
    >>> ax.get_title(loc="left")
    'Stated confidence is off by 40 points'
    """
    tallies = {name: tally.pooled() for name, tally in as_tallies(scores).items()}
    errors = {name: _error(tally) for name, tally in tallies.items()}
    ax = _diagram(tallies, errors, bins, alpha, style.axes_for(ax, height=style.WITH_KEY))
    style.key(ax, "calibration error (95% interval)")
    style.name_axes(ax, "confidence", "share of right answers")
    return style.describe(ax, title or _title(errors), _text(tallies, errors, bins))


def small_reliability_diagram(scores: Any, *, bins: int = 6, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw a reliability diagram for a row of many: small, without key and names of the axes."""
    tallies = {name: tally.pooled() for name, tally in as_tallies(scores).items()}
    errors = {name: _error(tally) for name, tally in tallies.items()}
    ax = _diagram(tallies, errors, bins, 0.05, style.axes_for(ax, 1.9, 1.8))
    ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
    return style.describe(ax, title or _title(errors), _text(tallies, errors, bins))


def _diagram(tallies: dict[str, Tally], errors: dict[str, CalibrationError], bins: int, alpha: float, ax: Axes) -> Axes:
    style.unit_square(ax)
    for name, tally in tallies.items():
        look = style.look_of(name)
        _draw(ax, look, _points(tally, bins, alpha), f"{look.label}: {_short(errors[name])}")
    return ax


@dataclass(frozen=True, eq=False)
class _Points:
    """What is drawn of a score: for each bin its mean confidence, and its share of right answers with an interval."""

    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats


def _points(tally: Tally, bins: int, alpha: float) -> _Points:
    """Bin a score so that no bin has very few rows: a bin of two only shows noise."""
    cells = tally.without_blocks().without_ties()
    # A few stated values are their own bins; one that is rare joins its neighbour sooner than it takes a full share.
    full = 4 * bins if len(cells) <= 2 * bins else bins
    of = mass_bins(cells, max(cells.n // full, _FEWEST))
    rows, w, wt = of.sum(cells.rows), of.sum(cells.w), of.sum(cells.wt)
    low, high = mean_intervals(rows, w, wt, of.sum(cells.wtt), of.sum(cells.ww), alpha / 2)
    return _Points(of.sum(cells.w * cells.confidence) / w, np.clip(wt / w, 0, 1), low, high)


def _draw(ax: Axes, look: style.Look, points: _Points, label: str) -> None:
    reach = np.maximum([points.accuracy - points.low, points.high - points.accuracy], 0.0)
    ax.errorbar(
        points.confidence,
        points.accuracy,
        yerr=reach,
        label=label,
        color=look.colour,
        linestyle=look.line,
        linewidth=1.3,
        elinewidth=0.7,
        marker=look.marker,
        markersize=4,
        markerfacecolor=look.face,
        markeredgewidth=1,
        zorder=4 if look.is_filled else 3,
    )


def _error(tally: Tally) -> CalibrationError:
    return estimate_calibration_error(tally, bins=BINS, redraws=0)


def _short(error: CalibrationError) -> str:
    if not error.debiased > 0:
        most = f" (up to {error.high:.2f})" if error.high > 0 else ""
        return f"{words.NONE_SEEN}{most}"
    bounds = words.interval(max(error.low, 0.0), error.high, 2)
    return f"{error.debiased:.2f}" + (f" ({bounds})" if bounds else "")


def _title(errors: dict[str, CalibrationError]) -> str:
    first, last = next(iter(errors)), list(errors)[-1]
    start = f"{style.look_of(first).label.capitalize()} confidence {words.off_by(errors[first])}"
    return start if first == last else f"{start}, {style.look_of(last).label} confidence {words.off_by(errors[last])}"


def _text(tallies: dict[str, Tally], errors: dict[str, CalibrationError], bins: int) -> str:
    parts = ["Reliability diagram: share of right answers over confidence; a calibrated score lies on the diagonal."]
    for name, tally in tallies.items():
        points = _points(tally, bins, 0.05)
        pairs = zip(points.confidence.tolist(), points.accuracy.tolist(), strict=True)
        shown = ", ".join(f"{said:.2f} is right {right:.2f}" for said, right in pairs)
        parts.append(f"{style.look_of(name).label} (error {_short(errors[name])}): {shown}.")
    return " ".join(parts)
