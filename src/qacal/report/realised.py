"""The promise kept? Each bin's certified error bound against the error it has on test rows, and the validity curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.binmaps import BinMaps
from qacal.evaluation import BINS
from qacal.intervals import mean_intervals
from qacal.metrics.validity import validity_curve
from qacal.report import style, words
from qacal.report.bubbles import draw_bubbles
from qacal.report.inputs import as_tallies
from qacal.values import Bools, Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FINE, _COARSE, _MANY = 0.005, 0.02, 200


@dataclass(frozen=True, eq=False)
class Realised:
    """The bins of a fit that test rows fell into.

    answer, low, high, bound : what each bin answers, its certificate, and how far off that lets the answer be.
    rows, accuracy : of the test rows in it.
    noise_low, noise_high : an interval for the bin's truth from the test rows alone, all of them right at once with
        probability 0.95.
    alpha : how often the certificates may fail, all of them together.
    left_out : test rows that read the map of an ancestor or the root, whose certificate speaks of a larger set.
    """

    answer: Floats
    low: Floats
    high: Floats
    bound: Floats
    rows: Ints
    accuracy: Floats
    noise_low: Floats
    noise_high: Floats
    alpha: float
    left_out: int

    @property
    def error(self) -> Floats:
        """How far each bin's answer is from what its test rows say."""
        return np.abs(self.answer - self.accuracy)

    @property
    def typical(self) -> float:
        """The error of a test row's bin, on average."""
        return float(self.rows @ self.error / self.rows.sum())

    @property
    def is_within(self) -> Bools:
        """Which bins are off by no more than their bound, by the test rows as they are."""
        return np.asarray(self.error <= self.bound + 1e-12)

    @property
    def is_broken(self) -> Bools:
        """Which bins miss by more than the noise of the test rows explains."""
        return np.asarray((self.noise_low > self.high) | (self.noise_high < self.low))


def realised_errors(maps: BinMaps, bins: Ints, correct: Floats, is_own: Bools) -> Realised | None:
    """Return how the bins of a fit did on test rows; None if no row reads a map of its own.

    bins : the bin that answered each row (:meth:`BinMaps.bins_of`).
    is_own : whether the row read its own group's map.
    """
    own, t = bins[is_own], correct[is_own]
    if not len(own):
        return None
    used, where = np.unique(own, return_inverse=True)
    rows = np.bincount(where).astype(np.float64)
    right, squares = _sums(where, t), _sums(where, t * t)
    noise_low, noise_high = mean_intervals(rows, rows, right, squares, rows, 0.025 / len(used))
    return Realised(
        answer=maps.value[used],
        low=maps.low[used],
        high=maps.high[used],
        bound=maps.error_bounds()[used],
        rows=rows.astype(np.int64),
        accuracy=right / rows,
        noise_low=noise_low,
        noise_high=noise_high,
        alpha=float(maps.certificate.alpha),
        left_out=int(len(bins) - len(own)),
    )


def _sums(where: Ints, values: Floats) -> Floats:
    return np.asarray(np.bincount(where, values), dtype=np.float64)


def realised_error_plot(realised: Realised, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw each bin's error on test rows over its certified bound; the area of a mark counts its test rows.

    Below the diagonal the promise is kept. A bin above it has either missed or had unlucky test rows; the title says
    how many miss by more than chance explains.
    """
    ax = style.axes_for(ax)
    top = 1.08 * float(max(realised.bound.max(), realised.error.max(), 0.05))
    ax.fill_between([0, top], [0, top], [top, top], color=style.COLOURS["grid"], alpha=0.5, linewidth=0)
    ax.plot([0, top], [0, top], color=style.COLOURS["quiet"], linewidth=0.8)
    x, y, rows = _cells(realised.bound, realised.error, realised.rows)
    draw_bubbles(ax, x, y, rows, style.LOOKS["calibrated"])
    style.write(ax, 0.03 * top, 0.95 * top, "off by more than certified", va="top")
    ax.set(xlim=(0, top), ylim=(0, top))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    style.name_axes(ax, "certified bound on the bin's error", "error on test rows")
    return style.describe(ax, title or _title(realised), _text(realised))


def _cells(x: Floats, y: Floats, rows: Ints) -> tuple[Floats, Floats, Ints]:
    """Put bins that would be drawn over each other into one mark."""
    step = _FINE if len(x) <= _MANY else _COARSE
    grid = np.rint(np.stack([x, y]) / step).astype(np.int64)
    points, where = np.unique(grid, axis=1, return_inverse=True)
    return points[0] * step, points[1] * step, np.bincount(where.ravel(), rows).astype(np.int64)


def _title(realised: Realised) -> str:
    bins, within, broken = len(realised.rows), int(realised.is_within.sum()), int(realised.is_broken.sum())
    if within == bins:
        return (
            f"All {words.counted(bins, 'bin')} are off by less than certified"
            if bins > 1
            else "The bin keeps its bound"
        )
    how = "none" if broken == 0 else f"{broken}"
    return f"{within} of {bins} bins are within their bound; {how} of the others by more than chance explains"


def _text(realised: Realised) -> str:
    median = float(np.median(realised.error))
    return (
        f"Error on test rows over the certified bound, for {words.counted(len(realised.rows), 'bin')}. Bounds lie "
        f"between {realised.bound.min():.2f} and {realised.bound.max():.2f}; the median error is {median:.2f}, "
        f"the largest {realised.error.max():.2f}; {int(realised.is_within.sum())} are within their bound."
    )


def validity_plot(scores: Any, *, bins: int = BINS, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the share of rows whose bin misses by at most epsilon, and what a perfect score of this size would show.

    scores : as in :func:`reliability_diagram`; bins are made within the tallies' groups.
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax)
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
    style.key(ax, "lower right")
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
