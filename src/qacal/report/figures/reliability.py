"""Reliability diagrams: accuracy by confidence, before and after, with intervals and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics import words
from qacal.metrics.calibration import CalibrationError, estimate_calibration_error
from qacal.metrics.evaluation import BINS
from qacal.metrics.reliability import bin_means
from qacal.report import style
from qacal.report.data import as_tallies
from qacal.tally.arrays import Floats
from qacal.tally.bins import mass_bins
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows of a bin, if there are as many.
_FEWEST = 15


def reliability_diagram(scores: Any, *, bins: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the accuracy by confidence, for each score, with the diagonal.

    Bars are 95% intervals of each bin by itself. The key gives the debiased calibration error of each score with its
    95% interval: with few rows, points leave the diagonal by chance, and this error excludes chance.

    Parameters
    ----------
    scores : tallies by name ("stated", "pooled", "calibrated"), a tally, or records with `confidence`, `correct` and
        perhaps `calibrated`. Groups are pooled.
    bins : approximate number of bins of equal count. If there are only a few distinct confidences, each is a bin, and
        rare ones join their neighbour.

    Examples
    --------
    >>> ax = reliability_diagram(Tally.of([0.9] * 200, [1, 0] * 100))
    >>> ax.get_title(loc="left")
    'Stated confidence is off by 40 points'
    """
    ax = _diagram(scores, bins, style.axes_for(ax, height=style.WITH_KEY))
    style.key(ax, "calibration error (95% interval)")
    style.name_axes(ax, "confidence", "accuracy")
    return ax


def small_reliability_diagram(scores: Any, *, ax: Axes | None = None) -> Axes:
    """Draw a small reliability diagram, to be shown beside others: without a key and names of the axes."""
    ax = _diagram(scores, 6, style.axes_for(ax, 1.9, 1.8))
    ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
    return ax


def _diagram(scores: Any, bins: int, ax: Axes) -> Axes:
    style.unit_square(ax)
    claims = []
    parts = ["Reliability diagram: accuracy by confidence; a calibrated score lies on the diagonal."]
    for name, tally in as_tallies(scores).items():
        look, rows = style.look_of(name), tally.pooled()
        error, points = estimate_calibration_error(rows, bins=BINS, redraws=0), _points(rows, bins)
        ax.errorbar(
            points["confidence"],
            points["accuracy"],
            yerr=np.maximum([points["accuracy"] - points["low"], points["high"] - points["accuracy"]], 0.0),
            label=f"{look.label}: {_short(error)}",
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
        claims.append(f"{look.label} confidence {words.off_by(error)}")
        pairs = zip(points["confidence"].tolist(), points["accuracy"].tolist(), strict=True)
        shown = ", ".join(f"accuracy {accuracy:.2f} at {confidence:.2f}" for confidence, accuracy in pairs)
        parts.append(f"{look.label} (error {_short(error)}): {shown}.")
    title = claims[0] if len(claims) == 1 else f"{claims[0]}, {claims[-1]}"
    return style.describe(ax, title[0].upper() + title[1:], " ".join(parts))


def _points(tally: Tally, bins: int) -> dict[str, Floats]:
    """Return the columns of `bin_means`, for bins that are not so small that they would only show noise."""
    cells = tally.without_blocks().without_ties()
    # If there are only a few distinct values, each is a bin, unless it is rare.
    full = 4 * bins if len(cells) <= 2 * bins else bins
    return bin_means(cells, mass_bins(cells, max(cells.n // full, _FEWEST)), alpha=0.05)


def _short(error: CalibrationError) -> str:
    if not error.debiased > 0:
        most = f" (up to {error.high:.2f})" if error.high > 0 else ""
        return f"{words.NONE_SEEN}{most}"
    bounds = words.interval(max(error.low, 0.0), error.high, 2)
    return f"{error.debiased:.2f}" + (f" ({bounds})" if bounds else "")
