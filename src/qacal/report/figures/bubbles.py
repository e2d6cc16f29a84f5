"""Counts as marks whose area is the count: what a million rows look like without a million marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qacal.report.style import Look
from qacal.tally.arrays import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS, _MANY = 12, 200
_SMALLEST, _EDGE = 1.8, 0.7
# The side of a square beside the diameter of a circle of the same area.
_SIDE = {"s": np.sqrt(np.pi) / 2}


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
