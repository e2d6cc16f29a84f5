"""The look of every figure: quiet axes, one colour, line and marker for each score, and titles that state the result.

Axes are styled one by one and not through matplotlib's global settings, so a figure looks the same in a notebook, in a
paper and in the report. Each colour below has a name; in the report it becomes a CSS variable of that name, so that
figures follow the page's light or dark colours (see :mod:`qacal.report.svg`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from qacal.tally.arrays import Floats

COLOURS = {
    "ink": "#24292f",
    "quiet": "#5f6771",
    "grid": "#e3e6ea",
    "paper": "#fdfdfc",
    "stated": "#b8450f",
    "pooled": "#646c77",
    "calibrated": "#0a5fa5",
}
"""Every colour of the figures, by the name of its CSS variable; the lightness differs, for print in black and white."""

FONT = 8.5
"""In points; in a figure of 3.6 inches that is scaled to the width of a phone, 12 pixels."""


@dataclass(frozen=True)
class Look:
    """How one score is drawn; line and marker differ too, for readers without colour."""

    label: str
    colour: str
    line: Any
    marker: str
    is_filled: bool

    @property
    def face(self) -> str:
        """The colour inside a marker."""
        return self.colour if self.is_filled else COLOURS["paper"]


LOOKS = {
    "stated": Look("stated", COLOURS["stated"], (0, (1, 1.5)), "o", False),
    "pooled": Look("one correction for all", COLOURS["pooled"], (0, (4, 2)), "s", False),
    "calibrated": Look("calibrated", COLOURS["calibrated"], "-", "o", True),
}


def look_of(name: str) -> Look:
    """Return how to draw a score; other scores than the three are drawn in ink."""
    return LOOKS.get(name) or Look(name, COLOURS["ink"], "-", "D", False)


WITH_KEY = 3.85
"""The height of a figure with a key of four lines under its axes, in inches."""


def axes_for(ax: Axes | None, width: float = 3.6, height: float = 3.2) -> Axes:
    """Return the axes, or those of a new figure, in the style of the report."""
    if ax is None:
        ax = Figure(figsize=(width, height), layout="constrained", facecolor="none").add_subplot()
    ax.set_facecolor("none")
    ax.grid(True, color=COLOURS["grid"], linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=COLOURS["quiet"], linewidth=0.7)
    ax.tick_params(length=0, pad=4, labelsize=FONT, labelcolor=COLOURS["quiet"])
    return ax


def name_axes(ax: Axes, x: str, y: str) -> None:
    """Label the axes."""
    ax.set_xlabel(x, fontsize=FONT, color=COLOURS["quiet"], labelpad=5)
    ax.set_ylabel(y, fontsize=FONT, color=COLOURS["quiet"], labelpad=5)


def unit_square(ax: Axes) -> None:
    """Show 0 to 1 in both directions, with room for markers at the ends, and the diagonal."""
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    ax.set_xticks(ticks, ["0", ".2", ".4", ".6", ".8", "1"])
    ax.set_yticks(ticks, ["0", ".2", ".4", ".6", ".8", "1"])
    ax.plot([0, 1], [0, 1], color=COLOURS["quiet"], linewidth=0.8, zorder=1)


def line(ax: Axes, x: Floats, y: Floats, look: Look, value: str) -> None:
    """Draw the curve of a score; the key gives a value with its name."""
    ax.plot(x, y, color=look.colour, linestyle=look.line, linewidth=1.6, label=f"{look.label}: {value}")


def mark(ax: Axes, x: float | None, y: float, look: Look) -> None:
    """Mark the chosen threshold on the curve of a score; nothing if it accepts no answer (`x` is None)."""
    if x is not None:
        ax.plot(x, y, look.marker, color=look.colour, markerfacecolor=look.face, markersize=5, zorder=6, clip_on=False)


# From the axes down past the numbers and the name of the x axis, in points.
_BELOW = 34


def key(ax: Axes, title: str = "") -> None:
    """Add a legend under the axes, where it covers nothing, in the colours of the lines.

    title : what the numbers beside the names are.
    """
    below = ScaledTranslation(0, -_BELOW / 72, ax.get_figure(root=True).dpi_scale_trans)  # type: ignore[union-attr]
    legend = ax.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        borderaxespad=0,
        borderpad=0,
        frameon=False,
        title=title or None,
        title_fontproperties={"size": FONT},
        alignment="left",
        fontsize=FONT,
        handlelength=2.2,
        handletextpad=0.6,
        labelspacing=0.35,
        labelcolor="linecolor",
    )
    legend.get_title().set_color(COLOURS["quiet"])
    for text in legend.get_texts():
        text.set_parse_math(False)


def describe(ax: Axes, title: str, text: str) -> Axes:
    """Set a title that states the result, and a text alternative (``ax.get_label()``)."""
    ax.set_title(title, loc="left", fontsize=FONT + 1.5, color=COLOURS["ink"], pad=8, wrap=True, parse_math=False)
    ax.set_label(text)
    return ax
