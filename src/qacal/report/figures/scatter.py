"""What calibration does to a confidence, how the confidences are spread, and how far each bin was off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import counted
from qacal.metrics import words
from qacal.metrics.scores import sharpness
from qacal.report import style
from qacal.report.data import Pairs, as_pairs, as_tallies, merged
from qacal.report.promise import Realised
from qacal.tally.arrays import Floats, Ints
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 20
_LEVELS, _MANY = 12, 200
_SMALLEST, _EDGE = 1.8, 0.7
# The side of a square with the area of a circle of diameter 1.
_SIDE = {"s": np.sqrt(np.pi) / 2}


def recalibration_scatter(scores: Any, *, ax: Axes | None = None) -> Axes:
    """Draw recalibrated by stated confidences, with regression lines; the area of a mark is its number of rows.

    One pooled map gives each stated confidence one answer; groups give it several.

    scores : pairs by name (:meth:`Scored.pairs`), or records with `confidence`, `correct` and `calibrated`.

    >>> rows = [{"confidence": 0.9, "correct": k % 2, "calibrated": 0.4 + 0.2 * (k % 2)} for k in range(40)]
    >>> recalibration_scatter(rows).get_title(loc="left")
    'A stated 0.9 becomes 0.40 to 0.60'
    """
    pairs = as_pairs(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    style.unit_square(ax)
    most = max(int(one.rows.max()) for one in pairs.values())
    # Draw the score with the most marks first, so that it does not hide the others.
    for name in sorted(pairs, key=lambda name: -len(pairs[name].rows)):
        look = style.look_of(name)
        draw_bubbles(ax, pairs[name].stated, pairs[name].recalibrated, pairs[name].rows, look, most=most)
        _line(ax, pairs[name], look)
    style.key(ax)
    style.name_axes(ax, "stated confidence", "recalibrated confidence")
    last = list(pairs.values())[-1]
    _, low, high = last.common
    becomes = f"A stated {last.claim} becomes {low:.2f}" + (f" to {high:.2f}" if high - low >= 0.005 else "")
    return style.describe(ax, becomes, _scatter_text(pairs))


def _line(ax: Axes, pairs: Pairs, look: style.Look) -> None:
    """Draw the regression line with its label; a single stated confidence has no line."""
    slope = "one value" if np.isnan(pairs.slope) else f"slope {words.decimal(pairs.slope, 2)}"
    ends = np.array([pairs.stated.min(), pairs.stated.max()])
    if pairs.slope and not np.isnan(pairs.slope):
        # Cut the line where it leaves [0, 1].
        ends = np.clip(ends, *np.sort((np.array([0.0, 1.0]) - pairs.intercept) / pairs.slope))
    ax.plot(
        ends,
        np.clip(pairs.intercept + pairs.slope * ends, 0, 1),
        color=look.colour,
        linestyle="none" if np.isnan(pairs.slope) else look.line,
        linewidth=1.8,
        marker=look.marker,
        markersize=4,
        markerfacecolor=look.colour if look.is_filled else "none",
        markevery=[],
        label=f"{look.label}, {slope}",
        zorder=5,
    )


def _scatter_text(pairs: dict[str, Pairs]) -> str:
    parts = ["Scatter of recalibrated by stated confidence; the area of a mark is its number of rows."]
    for name, one in pairs.items():
        _, low, high = one.common
        parts.append(
            f"{style.look_of(name).label}: 90% of the answers at a stated {one.claim} become {low:.2f} to {high:.2f}; "
            f"the regression line has slope {words.decimal(one.slope, 2) or 'undefined'}."
        )
    return " ".join(parts)


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


def sharpness_plot(scores: Any, *, ax: Axes | None = None) -> Axes:
    """Draw a histogram of the confidences of each score, with its sharpness (their standard deviation).

    scores : as in :func:`reliability_diagram`.
    """
    ax = style.axes_for(ax, height=style.WITH_KEY)
    edges = np.linspace(0, 1, _COLUMNS + 1)
    parts = ["Histogram of confidences."]
    for name, tally in as_tallies(scores).items():
        look, spread, (low, high) = style.look_of(name), f"{np.sqrt(sharpness(tally)):.2f}", _middle(tally)
        # 0.95 starts a column, however it is rounded.
        column = np.minimum(np.floor(tally.confidence * _COLUMNS + 1e-5), _COLUMNS - 1).astype(np.int64)
        shares = np.bincount(column, tally.w, _COLUMNS) / tally.w.sum()
        label = f"{look.label}: {spread}"
        ax.stairs(shares, edges, color=look.colour, linestyle=look.line, linewidth=1.4, label=label)
        if look.is_filled:
            ax.stairs(shares, edges, color=look.colour, alpha=0.12, fill=True)
        parts.append(f"{look.label}: 90% between {low:.2f} and {high:.2f}, standard deviation {spread}.")
    ax.set(xlim=(-0.01, 1.01), ylim=(0, None))
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", ".2", ".4", ".6", ".8", "1"])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax, "standard deviation (sharpness)")
    style.name_axes(ax, "confidence", "share of answers")
    title = f"90% of the {look.label} confidences lie between {low:.2f} and {high:.2f}"
    return style.describe(ax, title, " ".join(parts))


def _middle(tally: Tally) -> tuple[float, float]:
    """Return the range of the middle 90% of the confidences."""
    order = np.argsort(tally.confidence)
    through = np.cumsum(tally.w[order]) / tally.w.sum()
    at = np.minimum(np.searchsorted(through, [0.05, 0.95]), len(order) - 1)
    low, high = tally.confidence[order][at]
    return float(low), float(high)


def draw_bubbles(ax: Axes, x: Floats, y: Floats, rows: Ints, look: style.Look, *, most: int | None = None) -> None:
    """Draw marks in a few sizes: each size is defined once, which keeps the file small.

    most : the rows of the largest mark, if marks of another call are to be compared with these.
    """
    largest = 17.0 if len(rows) <= _MANY else 13.0
    most = int(rows.max()) if most is None else most
    level = np.maximum(np.rint(np.sqrt(rows / most) * _LEVELS), 1).astype(np.int64)
    for size in np.unique(level)[::-1].tolist():
        marks = level == size
        diameter = max(largest * size / _LEVELS * _SIDE.get(look.marker, 1.0) - _EDGE, _SMALLEST)
        ax.plot(
            x[marks],
            y[marks],
            linestyle="none",
            marker=look.marker,
            markersize=diameter,
            markerfacecolor=look.face if look.is_filled else "none",
            markeredgecolor=look.colour,
            markeredgewidth=_EDGE,
            alpha=0.55 if look.is_filled else 0.8,
            zorder=3 if look.is_filled else 4,
        )
