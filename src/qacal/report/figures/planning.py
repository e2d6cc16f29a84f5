"""Choosing points per bin: the error that the theorem promises, over b, for several N and nu (the paper's figure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from qacal.planning import epsilon
from qacal.report import style
from qacal.tally.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The height of the figure, unless the fit is above it.
_TOP = 0.5


def points_per_bin_plot(
    *,
    sizes: Sequence[int] = (1_000, 5_000, 20_000),
    nus: Sequence[float] = (0.0, 0.1),
    alpha: float = 0.1,
    levels: int = 1,
    fit: tuple[int, int] | None = None,
    realised: float | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw epsilon over points per bin, as :func:`qacal.planning.epsilon` has it, with one fit marked.

    Parameters
    ----------
    sizes, nus : a curve for each number of calibration rows N and each nu, what labels may be off by.
    alpha, levels : as in :func:`qacal.planning.epsilon`.
    fit : (points per bin, calibration rows) of the fit to mark on a curve of its own.
    realised : the error of that fit's bins on test rows, to be marked below its promise.

    Examples
    --------
    >>> points_per_bin_plot(fit=(50, 5000)).get_title(loc="left")
    'By the theorem, bins of 50 points are off by at most 0.28'
    """
    ax = style.axes_for(ax, 3.9, 3.2)
    widest = 1000 if fit is None else int(max(1000, 1.4 * fit[0]))
    marks = [] if fit is None else [_epsilon(fit, alpha, levels), realised or 0.0]
    top = max([_TOP, *(1.1 * mark for mark in marks)])
    for nu in nus:
        _bundle(ax, sorted(sizes), nu, alpha, levels, widest, top)
    if fit is not None:
        _mark(ax, fit, alpha, levels, widest, top)
    if fit is not None and realised is not None:
        _mark_realised(ax, fit[0], realised, widest, top)
    ax.set(xlim=(0, widest * 1.24), ylim=(0, top))
    ax.set_xticks(np.arange(0, widest + 1, 200 * max(1, widest // 1000)))
    ax.yaxis.set_major_formatter("{x:g}")
    style.name_axes(ax, "points per bin b", "promised error ε")
    return style.describe(ax, title or _title(fit, alpha, levels), _text(sizes, nus, alpha, levels, fit))


def _bundle(ax: Axes, sizes: Sequence[int], nu: float, alpha: float, levels: int, widest: int, top: float) -> None:
    """Draw the curves of one nu; those of all N run close together, the one of the most rows on top."""
    ends = []
    for size in sizes:
        b, error = _errors(size, nu, alpha, levels, widest, top)
        ax.plot(b, error, color=style.COLOURS["quiet"], linewidth=1.0, linestyle="-" if nu == 0 else (0, (3, 2)))
        ends.append(float(error[-1]))
    x, gap = widest * 1.015, 0.024 * top
    if nu == 0:
        style.write(ax, x, max(ends) + gap, f"N {sizes[-1]:,}", va="center")
        style.write(ax, x, min(ends) - gap, f"N {sizes[0]:,}", va="center")
    else:
        style.write(ax, x, sum(ends) / len(ends), f"ν {nu:g}", va="center")


def _mark(ax: Axes, fit: tuple[int, int], alpha: float, levels: int, widest: int, top: float) -> None:
    b, error = _errors(fit[1], 0.0, alpha, levels, widest, top)
    ax.plot(b, error, color=style.COLOURS["calibrated"], linewidth=1.8, zorder=4)
    reached = _epsilon(fit, alpha, levels)
    beside, above = max(fit[0], 0.3 * widest), 0.84 * top
    colour = style.COLOURS["calibrated"]
    ax.plot([fit[0], beside], [reached, above], color=colour, linewidth=0.6, zorder=3)
    ax.plot(fit[0], reached, "o", color=colour, markersize=6, zorder=5, clip_on=False)
    text = f"this fit: ε {reached:.2f}\nb {fit[0]:,}, N {fit[1]:,}"
    style.write(ax, beside + widest * 0.01, above, text, colour, va="center")


def _mark_realised(ax: Axes, b: int, realised: float, widest: int, top: float) -> None:
    # The words stand above the curves, under those of the promise: beside the mark, curves would run through them.
    colour, beside, above = style.COLOURS["calibrated"], max(b, 0.3 * widest), 0.68 * top
    ax.plot([b, beside], [realised, above], color=colour, linewidth=0.6, zorder=3)
    ax.plot(b, realised, "D", color=colour, markerfacecolor=style.COLOURS["paper"], markersize=5, zorder=6)
    style.write(ax, beside + widest * 0.01, above, f"{realised:.2f} on test rows", colour, va="center")


def _errors(size: int, nu: float, alpha: float, levels: int, widest: int, top: float) -> tuple[Floats, Floats]:
    b = np.unique(np.geomspace(2, max(2, min(widest, size)), 60).astype(np.int64))
    error = np.array([epsilon(int(one), size, alpha, nu, levels=levels) for one in b])
    shown = error <= top
    kept = shown if shown.any() else slice(-1, None)
    return np.asarray(b[kept], dtype=np.float64), np.asarray(error[kept], dtype=np.float64)


def _epsilon(fit: tuple[int, int], alpha: float, levels: int) -> float:
    return epsilon(fit[0], fit[1], alpha, levels=levels)


def _title(fit: tuple[int, int] | None, alpha: float, levels: int) -> str:
    if fit is None:
        return f"More points per bin, a smaller error in every bin (with probability {1 - alpha:g})"
    return f"By the theorem, bins of {fit[0]:,} points are off by at most {_epsilon(fit, alpha, levels):.2f}"


def _text(sizes: Sequence[int], nus: Sequence[float], alpha: float, levels: int, fit: tuple[int, int] | None) -> str:
    parts = [f"Promised error epsilon over points per bin b, with alpha {alpha:g}."]
    for nu in nus:
        ends = (f"N {size:,}: {epsilon(min(300, size), size, alpha, nu, levels=levels):.2f}" for size in sizes)
        parts.append(f"With nu {nu:g}, 300 points per bin promise for {', '.join(ends)}.")
    if fit is not None:
        parts.append(f"This fit, b {fit[0]:,} and N {fit[1]:,}, is at {_epsilon(fit, alpha, levels):.2f}.")
    return " ".join(parts)
