"""The error that the theorem guarantees by points per bin b, for several N and nu (a figure of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.planning import epsilon
from qacal.report import style
from qacal.tally.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    """Draw epsilon (:func:`qacal.planning.epsilon`) by points per bin, with one fit marked.

    Parameters
    ----------
    sizes, nus : a curve for each number of calibration rows N and each error nu of the labels.
    alpha, levels : as in :func:`qacal.planning.epsilon`.
    fit : (points per bin, calibration rows) of the fit to mark on a curve of its own.
    realised : the error of that fit's bins on test rows, also marked.

    Examples
    --------
    >>> points_per_bin_plot(fit=(50, 5000)).get_title(loc="left")
    'The theorem guarantees an error of at most 0.28 for 50 points per bin'
    """
    ax = style.axes_for(ax, 3.9, 3.2)
    reached = None if fit is None else epsilon(*fit, alpha, levels=levels)
    widest = 1000 if fit is None else int(max(1000, 1.4 * fit[0]))
    # The fit must be inside the figure.
    top = max(0.5, 1.1 * (reached or 0.0), 1.1 * (realised or 0.0))
    for nu in nus:
        _bundle(ax, sorted(sizes), nu, alpha, levels, widest, top)
    if fit is not None and reached is not None:
        curve = _errors(fit[1], 0.0, alpha, levels, widest, top)
        ax.plot(*curve, color=style.COLOURS["calibrated"], linewidth=1.8, zorder=4)
        label = f"this fit: ε {reached:.2f}\nb {fit[0]:,}, N {fit[1]:,}"
        _mark(ax, (fit[0], reached), (max(fit[0], 0.3 * widest), 0.84 * top), label, marker="o", markersize=6)
        if realised is not None:
            # The label is above the curves, which would cross it beside the mark.
            beside, paper = (max(fit[0], 0.3 * widest), 0.68 * top), style.COLOURS["paper"]
            label = f"{realised:.2f} on test rows"
            _mark(ax, (fit[0], realised), beside, label, marker="D", markersize=5, markerfacecolor=paper)
    ax.set(xlim=(0, widest * 1.24), ylim=(0, top))
    ax.set_xticks(np.arange(0, widest + 1, 200 * max(1, widest // 1000)))
    ax.yaxis.set_major_formatter("{x:g}")
    style.name_axes(ax, "points per bin b", "guaranteed error ε")
    if title is None:
        title = f"More points per bin, a smaller error in every bin (with probability {1 - alpha:g})"
        if fit is not None:
            title = f"The theorem guarantees an error of at most {reached:.2f} for {fit[0]:,} points per bin"
    parts = [f"Guaranteed error epsilon by points per bin b, with alpha {alpha:g}."]
    for nu in nus:
        ends = (f"N {size:,}: {epsilon(min(300, size), size, alpha, nu, levels=levels):.2f}" for size in sizes)
        parts.append(f"With nu {nu:g}, 300 points per bin guarantee for {', '.join(ends)}.")
    if fit is not None:
        parts.append(f"This fit, with b {fit[0]:,} and N {fit[1]:,}, is at {reached:.2f}.")
    return style.describe(ax, title, " ".join(parts))


def _bundle(ax: Axes, sizes: Sequence[int], nu: float, alpha: float, levels: int, widest: int, top: float) -> None:
    """Draw the curves of one nu, which are close together for all N; the one with the most rows is on top."""
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


def _mark(ax: Axes, at: tuple[float, float], beside: tuple[float, float], label: str, **marker: Any) -> None:
    """Mark a point, with its label beside it at the end of a thin line."""
    colour = style.COLOURS["calibrated"]
    ax.plot([at[0], beside[0]], [at[1], beside[1]], color=colour, linewidth=0.6, zorder=3)
    ax.plot(*at, color=colour, zorder=5, clip_on=False, **marker)
    style.write(ax, beside[0] + 0.008 * ax.get_xlim()[1], beside[1], label, colour, va="center")


def _errors(size: int, nu: float, alpha: float, levels: int, widest: int, top: float) -> tuple[Floats, Floats]:
    b = np.unique(np.geomspace(2, max(2, min(widest, size)), 60).astype(np.int64))
    error = np.array([epsilon(int(one), size, alpha, nu, levels=levels) for one in b])
    shown = error <= top
    kept = shown if shown.any() else slice(-1, None)
    return np.asarray(b[kept], dtype=np.float64), np.asarray(error[kept], dtype=np.float64)
