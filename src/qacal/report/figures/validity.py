"""Figures of the promise: each bin's error on test rows over its certified bound, and the validity curve."""

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
    """Draw each bin's error on test rows over its certified bound; the area of a mark counts its test rows.

    Below the diagonal the promise is kept. A bin above it has either missed or had unlucky test rows; the title says
    how many miss by more than chance explains.
    """
    ax = style.axes_for(ax)
    top = 1.08 * float(max(realised.bound.max(), realised.error.max(), 0.05))
    ax.fill_between([0, top], [0, top], [top, top], color=style.COLOURS["grid"], alpha=0.5, linewidth=0)
    ax.plot([0, top], [0, top], color=style.COLOURS["quiet"], linewidth=0.8)
    step = _FINE if len(realised.rows) <= _MANY else _COARSE
    x, y, rows = merged(realised.bound, realised.error, realised.rows, step)
    draw_bubbles(ax, x, y, rows, style.LOOKS["calibrated"])
    style.write(ax, 0.03 * top, 0.95 * top, "off by more than certified", va="top")
    ax.set(xlim=(0, top), ylim=(0, top))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    style.name_axes(ax, "certified bound on the bin's error", "error on test rows")
    return style.describe(ax, title or _title(realised), _text(realised))


def _title(realised: Realised) -> str:
    bins, within, broken = len(realised.rows), int(realised.is_within.sum()), int(realised.is_broken.sum())
    if broken:
        return f"{broken} of {counted(bins, 'bin')} missed by more than chance explains"
    if within < bins:
        return f"{within} of {counted(bins, 'bin')} are within their bound; chance explains the others"
    return f"All {counted(bins, 'bin')} are off by less than certified" if bins > 1 else "The bin keeps its bound"


def _text(realised: Realised) -> str:
    median = float(np.median(realised.error))
    return (
        f"Error on test rows over the certified bound, for {counted(len(realised.rows), 'bin')}. Bounds lie "
        f"between {realised.bound.min():.2f} and {realised.bound.max():.2f}; the median error is {median:.2f}, "
        f"the largest {realised.error.max():.2f}; {int(realised.is_within.sum())} are within their bound."
    )


def validity_plot(scores: Any, *, bins: int = BINS, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the share of rows whose bin misses by at most epsilon, and what a perfect score of this size would show.

    scores : as in :func:`reliability_diagram`; bins are made within the tallies' groups.
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    found = {name: validity_curve(tally, bins=bins, redraws=49) for name, tally in tallies.items()}
    for name, curve in found.items():
        look = style.look_of(name)
        ax.plot(curve.epsilon, curve.share, color=look.colour, linestyle=look.line, linewidth=1.6, label=look.label)
    last = list(found)[-1]
    ideal = found[last].calibrated
    if not np.isnan(ideal).any():
        ax.plot(found[last].epsilon, ideal, color=style.COLOURS["quiet"], linewidth=0.9, label="a perfect score")
    ax.set(xlim=(0, 0.52), ylim=(-0.03, 1.03))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax)
    style.name_axes(ax, "error ε", "rows whose bin is off by at most ε")
    said = {name: curve.at(0.1) for name, curve in found.items()}
    return style.describe(ax, title or _valid(said), _valid_text(said, float(ideal[10])))


def _valid(said: dict[str, float]) -> str:
    first, last = next(iter(said)), list(said)[-1]
    if first == last:
        return f"{words.percent(said[first])} of the rows are in bins that miss by at most 0.1"
    before, after = words.percent(said[first]), words.percent(said[last])
    return f"In bins that miss by at most 0.1: {before} of the rows before, {after} after"


def _valid_text(said: dict[str, float], ideal: float) -> str:
    shares = ", ".join(f"{style.look_of(name).label} {words.percent(share)}" for name, share in said.items())
    perfect = (
        "" if np.isnan(ideal) else f" A perfectly calibrated score of this size would measure {words.percent(ideal)}."
    )
    return f"Share of rows whose bin misses by at most epsilon. At 0.1: {shares}.{perfect}"
