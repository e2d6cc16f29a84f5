"""What calibration does to a confidence: recalibrated over stated, and how far each score commits itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics.proper_scores import sharpness
from qacal.report import style, words
from qacal.report.data import Pairs, as_pairs, as_tallies
from qacal.report.style import Look
from qacal.tally.arrays import Floats, Ints
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS, _MANY = 12, 200
_SMALLEST, _EDGE = 1.8, 0.7
# The side of a square beside the diameter of a circle of the same area.
_SIDE = {"s": np.sqrt(np.pi) / 2}


def recalibration_scatter(scores: Any, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw recalibrated over stated confidences, with regression lines: marks of an area that counts rows.

    One pooled map gives each stated confidence one answer; groups give it several, and the column above a stated 0.9
    shows which.

    scores : pairs by name (:meth:`Scored.pairs`), or records with `confidence`, `correct` and `calibrated`.

    >>> rows = [{"confidence": 0.9, "correct": k % 2, "calibrated": 0.4 + 0.2 * (k % 2)} for k in range(40)]
    >>> recalibration_scatter(rows).get_title(loc="left")
    'A stated 0.9 becomes 0.40 to 0.60, by its kind'
    """
    pairs = as_pairs(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    style.unit_square(ax)
    most = max(int(found.rows.max()) for found in pairs.values())
    # The score with the most marks first, so that it hides none of the others.
    for name in sorted(pairs, key=lambda name: -len(pairs[name].rows)):
        look = style.look_of(name)
        draw_bubbles(ax, pairs[name].stated, pairs[name].recalibrated, pairs[name].rows, look, most=most)
        _line(ax, pairs[name], look)
    style.key(ax)
    style.name_axes(ax, "stated confidence", "recalibrated confidence")
    return style.describe(ax, title or _becomes(pairs), _scatter_text(pairs))


def _line(ax: Axes, pairs: Pairs, look: style.Look) -> None:
    """Draw the regression line, and name line and marks in the key; where all rows are alike there is no line."""
    slope = "one value" if np.isnan(pairs.slope) else f"slope {words.decimal(pairs.slope, 2)}"
    ax.plot(
        *_within_square(pairs),
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


def _within_square(pairs: Pairs) -> tuple[Floats, Floats]:
    """Return the ends of the regression line over the stated confidences, cut where it leaves [0, 1]."""
    ends = np.array([pairs.stated.min(), pairs.stated.max()])
    if np.isnan(pairs.slope):
        return ends[:0], ends[:0]
    if pairs.slope != 0:
        leaves = np.sort((np.array([0.0, 1.0]) - pairs.intercept) / pairs.slope)
        ends = np.clip(ends, *leaves)
    return ends, np.clip(pairs.intercept + pairs.slope * ends, 0, 1)


def _becomes(pairs: dict[str, Pairs]) -> str:
    last = list(pairs.values())[-1]
    _, low, high = last.common
    if high - low < 0.005:
        return f"A stated {last.claim} becomes {low:.2f}"
    return f"A stated {last.claim} becomes {low:.2f} to {high:.2f}" + ("" if last.is_rough else ", by its kind")


def _scatter_text(pairs: dict[str, Pairs]) -> str:
    parts = ["Scatter of recalibrated over stated confidence; the area of a mark counts rows."]
    for name, found in pairs.items():
        _, low, high = found.common
        parts.append(
            f"{style.look_of(name).label}: nine tenths of the answers at a stated {found.claim} become {low:.2f}"
        )
        parts.append(f"to {high:.2f}; the regression line has slope {words.decimal(found.slope, 2) or 'undefined'}.")
    return " ".join(parts)


def sharpness_plot(scores: Any, *, cells: int = 20, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw how the confidences of each score are spread, and its sharpness (their standard deviation).

    scores : as in :func:`reliability_diagram`.
    cells : how many columns of the histogram.
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    edges = np.linspace(0, 1, cells + 1)
    spread = {name: float(np.sqrt(sharpness(tally))) for name, tally in tallies.items()}
    for name, tally in tallies.items():
        look = style.look_of(name)
        label = f"{look.label}: {spread[name]:.2f}"
        shares = _shares(tally, cells)
        ax.stairs(shares, edges, color=look.colour, linestyle=look.line, linewidth=1.4, label=label)
        if look.is_filled:
            ax.stairs(shares, edges, color=look.colour, alpha=0.12, fill=True)
    ax.set(xlim=(-0.01, 1.01), ylim=(0, None))
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", ".2", ".4", ".6", ".8", "1"])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax, "standard deviation (sharpness)")
    style.name_axes(ax, "confidence", "share of answers")
    return style.describe(ax, title or _commits(tallies), _sharpness_text(tallies, spread))


def _shares(tally: Tally, cells: int) -> Floats:
    """Return the share of rows in each column; 0.95 begins a column, however it is rounded."""
    column = np.minimum(np.floor(tally.confidence * cells + 1e-5), cells - 1).astype(np.int64)
    return np.asarray(np.bincount(column, tally.w, cells) / tally.w.sum())


def _commits(tallies: dict[str, Tally]) -> str:
    name = list(tallies)[-1]
    low, high = _middle(tallies[name])
    what = "Stated" if name == "stated" else style.look_of(name).label.capitalize()
    return f"{what} confidences lie between {low:.2f} and {high:.2f} for nine answers in ten"


def _middle(tally: Tally) -> tuple[float, float]:
    """Return the middle nine tenths of the confidences."""
    order = np.argsort(tally.confidence)
    through = np.cumsum(tally.w[order]) / tally.w.sum()
    at = np.minimum(np.searchsorted(through, [0.05, 0.95]), len(order) - 1)
    low, high = tally.confidence[order][at]
    return float(low), float(high)


def _sharpness_text(tallies: dict[str, Tally], spread: dict[str, float]) -> str:
    parts = ["Histogram of confidences."]
    for name, tally in tallies.items():
        low, high = _middle(tally)
        parts.append(
            f"{style.look_of(name).label}: nine tenths between {low:.2f} and {high:.2f}, sd {spread[name]:.2f}."
        )
    return " ".join(parts)


def draw_bubbles(ax: Axes, x: Floats, y: Floats, rows: Ints, look: Look, *, most: int | None = None) -> None:
    """Draw marks in a few sizes: one marker is defined for each size, and the file stays small.

    most : the rows of the largest mark, where marks of another call are to be compared with these.
    """
    largest = 17.0 if len(rows) <= _MANY else 13.0
    most = int(rows.max()) if most is None else most
    level = np.maximum(np.rint(np.sqrt(rows / most) * _LEVELS), 1).astype(np.int64)
    for one in np.unique(level)[::-1].tolist():
        mine = level == one
        diameter = max(largest * one / _LEVELS * _SIDE.get(look.marker, 1.0) - _EDGE, _SMALLEST)
        ax.plot(
            x[mine],
            y[mine],
            linestyle="none",
            marker=look.marker,
            markersize=diameter,
            markerfacecolor=look.face if look.is_filled else "none",
            markeredgecolor=look.colour,
            markeredgewidth=_EDGE,
            alpha=0.55 if look.is_filled else 0.8,
            zorder=3 if look.is_filled else 4,
        )
