"""Counts as marks whose area is the count: what a million rows look like without a million marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qacal.report.style import Look
from qacal.values import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS, _MANY = 8, 200
_SMALLEST = 1.5


def draw_bubbles(ax: Axes, x: Floats, y: Floats, rows: Ints, look: Look, *, label: str | None = None) -> None:
    """Draw marks in a few sizes: one marker is defined for each size, and the file stays small."""
    largest = 11.0 if len(rows) <= _MANY else 6.5
    share = np.sqrt(rows / rows.max())
    level = np.ceil(share * _LEVELS).astype(np.int64)
    for one in np.unique(level)[::-1].tolist():
        mine = level == one
        ax.plot(
            x[mine],
            y[mine],
            linestyle="none",
            marker=look.marker,
            markersize=_SMALLEST + (largest - _SMALLEST) * one / _LEVELS,
            markerfacecolor=look.face if look.is_filled else "none",
            markeredgecolor=look.colour,
            markeredgewidth=0.7,
            alpha=0.55 if look.is_filled else 0.8,
            label=label if one == level.max() else None,
            zorder=3 if look.is_filled else 4,
        )
