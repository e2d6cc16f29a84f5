"""A figure of the guarantee: the error of each bin on test rows by its certified bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qacal.errors import counted
from qacal.report import style
from qacal.report.data import merged
from qacal.report.figures.scatter import draw_bubbles
from qacal.report.promise import Realised

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def realised_error_plot(realised: Realised, *, ax: Axes | None = None) -> Axes:
    """Draw the error of each bin on test rows by its certified bound; the area of a mark is its number of test rows.

    Bins above the diagonal exceed their bound, which may be chance; the title counts those that chance cannot explain.
    """
    ax = style.axes_for(ax)
    top = 1.08 * float(max(realised.bound.max(), realised.error.max(), 0.05))
    ax.fill_between([0, top], [0, top], [top, top], color=style.COLOURS["grid"], alpha=0.5, linewidth=0)
    ax.plot([0, top], [0, top], color=style.COLOURS["quiet"], linewidth=0.8)
    x, y, rows = merged(realised.bound, realised.error, realised.rows, fine=0.005, coarse=0.02)
    draw_bubbles(ax, x, y, rows, style.LOOKS["calibrated"])
    quiet = style.COLOURS["quiet"]
    ax.text(0.03 * top, 0.95 * top, "error above the bound", va="top", fontsize=style.FONT, color=quiet)
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
    return style.describe(ax, result, text)
