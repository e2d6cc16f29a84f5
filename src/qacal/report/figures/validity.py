"""Figures of the guarantee: the error of each bin on test rows by its certified bound, and the validity curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import counted
from qacal.metrics.calibration import validity_curve
from qacal.metrics.evaluation import BINS
from qacal.report import style, words
from qacal.report.data import as_tallies, merged
from qacal.report.figures.scatter import draw_bubbles
from qacal.report.promise import Realised

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FINE, _COARSE, _MANY = 0.005, 0.02, 200


def realised_error_plot(realised: Realised, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the error of each bin on test rows by its certified bound; the area of a mark is its number of test rows.

    Bins above the diagonal exceed their bound, which may be chance; the title counts those that chance cannot explain.
    """
    ax = style.axes_for(ax)
    top = 1.08 * float(max(realised.bound.max(), realised.error.max(), 0.05))
    ax.fill_between([0, top], [0, top], [top, top], color=style.COLOURS["grid"], alpha=0.5, linewidth=0)
    ax.plot([0, top], [0, top], color=style.COLOURS["quiet"], linewidth=0.8)
    step = _FINE if len(realised.rows) <= _MANY else _COARSE
    x, y, rows = merged(realised.bound, realised.error, realised.rows, step)
    draw_bubbles(ax, x, y, rows, style.LOOKS["calibrated"])
    style.write(ax, 0.03 * top, 0.95 * top, "error above the bound", va="top")
    ax.set(xlim=(0, top), ylim=(0, top))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    style.name_axes(ax, "certified bound on the bin's error", "error on test rows")
    bins, within, broken = len(realised.rows), int(realised.is_within.sum()), int(realised.is_broken.sum())
    if broken:
        result = f"{broken} of {counted(bins, 'bin')} exceed their bound by more than chance explains"
    elif within < bins:
        result = f"{within} of {counted(bins, 'bin')} are within their bound; chance explains the others"
    else:
        result = f"All {counted(bins, 'bin')} are within their bound" if bins > 1 else "The bin is within its bound"
    text = (
        f"Error on test rows by certified bound, for {counted(bins, 'bin')}. Bounds lie between "
        f"{realised.bound.min():.2f} and {realised.bound.max():.2f}; the median error is "
        f"{np.median(realised.error):.2f}, the largest {realised.error.max():.2f}; {within} are within their bound."
    )
    return style.describe(ax, title or result, text)


def validity_plot(scores: Any, *, bins: int = BINS, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the share of rows in bins with an error of at most epsilon, beside a perfectly calibrated score.

    scores : as in :func:`reliability_diagram`; bins are made within the tallies' groups.
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    curves = {name: validity_curve(tally, bins=bins, redraws=49) for name, tally in tallies.items()}
    for name, curve in curves.items():
        look = style.look_of(name)
        ax.plot(curve.epsilon, curve.share, color=look.colour, linestyle=look.line, linewidth=1.6, label=look.label)
    ideal = curve.calibrated
    if not np.isnan(ideal).any():
        ax.plot(curve.epsilon, ideal, color=style.COLOURS["quiet"], linewidth=0.9, label="perfectly calibrated")
    ax.set(xlim=(0, 0.52), ylim=(-0.03, 1.03))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax)
    style.name_axes(ax, "error ε", "rows in bins with error ≤ ε")
    shares = {name: words.percent(curve.at(0.1)) for name, curve in curves.items()}
    if title is None:
        first, *_, last = [*shares.values()] * 2
        after = "" if len(shares) == 1 else f" before, {last} after"
        title = f"Rows in bins with an error of at most 0.1: {first}{after}"
    at_a_tenth = ", ".join(f"{style.look_of(name).label} {share}" for name, share in shares.items())
    text = f"Share of rows in bins with an error of at most epsilon. At 0.1: {at_a_tenth}."
    if not np.isnan(ideal[10]):
        text += f" A perfectly calibrated score with as many rows would measure {words.percent(float(ideal[10]))}."
    return style.describe(ax, title, text)
