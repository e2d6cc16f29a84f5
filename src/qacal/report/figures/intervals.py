"""The intervals of bands and groups, with the accuracy of the test rows in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import counted
from qacal.report import style
from qacal.report.promise import Realised
from qacal.tally.arrays import Bools, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def band_plot(realised: Realised, *, ax: Axes | None = None) -> Axes:
    """Draw the accuracy of each band on test rows and its certified interval, by the mean calibrated confidence."""
    ax = style.axes_for(ax, height=style.WITH_KEY)
    style.unit_square(ax)
    shown = ~realised.is_group
    style.name_axes(ax, "mean calibrated confidence of the band", "accuracy of the band")
    return _drawn(ax, realised, shown, realised.answer[shown], "band")


def group_plot(realised: Realised, *, ax: Axes | None = None) -> Axes:
    """Draw the accuracy of each group on test rows and its certified interval, from the lowest to the highest."""
    ax = style.axes_for(ax, height=style.WITH_KEY)
    shown = realised.is_group
    middle = (realised.low + realised.high)[shown]
    ax.set(xlim=(-0.7, len(middle) - 0.3), ylim=(-0.03, 1.03), xticks=[])
    ax.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", ".2", ".4", ".6", ".8", "1"])
    style.name_axes(ax, "groups, from the lowest interval to the highest", "accuracy of the group")
    return _drawn(ax, realised, shown, np.argsort(np.argsort(middle)).astype(np.float64), "group")


def _drawn(ax: Axes, realised: Realised, shown: Bools, x: Floats, kind: str) -> Axes:
    """Draw certified intervals as bars, and accuracies with their own intervals as marks with thin lines."""
    low, high, accuracy = realised.low[shown], realised.high[shown], realised.accuracy[shown]
    ends, broken = (realised.noise_low[shown], realised.noise_high[shown]), realised.is_broken[shown]
    inside = realised.is_inside[shown]
    bar: dict[str, Any] = {"color": style.COLOURS["pooled"], "linewidth": min(5.0, 120 / len(x)), "alpha": 0.35}
    ax.vlines(x, low, high, zorder=2, **bar)
    ax.plot([], [], label="certified interval", **bar)
    for is_shown, colour, marker, label in (
        (~broken, style.COLOURS["calibrated"], "o", "accuracy of the test rows"),
        (broken, style.COLOURS["stated"], "D", "accuracy that contradicts its interval"),
    ):
        if is_shown.any():
            ax.vlines(x[is_shown], ends[0][is_shown], ends[1][is_shown], color=colour, linewidth=0.9, zorder=3)
            marks: dict[str, Any] = {"linestyle": "none", "marker": marker, "markersize": 4.5, "color": colour}
            ax.plot(x[is_shown], accuracy[is_shown], label=label, zorder=4, **marks)
    style.key(ax)
    count, out = counted(len(x), kind), int(broken.sum())
    if out:
        result = f"{out} of {count}: the accuracy contradicts the interval"
    elif inside.all():
        result = f"The accuracy lies in the interval of {'every' if len(x) > 1 else 'the'} {kind}"
    else:
        result = f"The accuracy lies in the interval of {int(inside.sum())} of {count}; chance explains the others"
    text = (
        f"Certified interval and accuracy on test rows of {count}. Intervals are {(high - low).min():.2f} to "
        f"{(high - low).max():.2f} wide; the accuracy lies inside {int(inside.sum())} of them, and contradicts {out}."
    )
    return style.describe(ax, result, text)
