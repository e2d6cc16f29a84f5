"""Selective answering: accuracy by threshold, and error rate by coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics.selective import GRID, accuracy_confidence_curve, auac, aurc, risk_coverage_curve
from qacal.report import style, words
from qacal.report.data import as_tallies
from qacal.tally.arrays import Floats
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def threshold_plot(
    scores: Any, *, threshold: float | None = None, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the accuracy of the answers at or above each threshold.

    Above the diagonal, the accuracy is higher than the threshold. The key gives the area under the curve (AUAC), in
    which thresholds that accept nothing count as 0; the curve ends where they accept at most ten answers.

    scores : as in :func:`reliability_diagram`.
    threshold : the chosen threshold, to be marked.

    >>> ax = threshold_plot(Tally.of([0.5, 0.5, 0.9, 0.9], [0, 1, 1, 1]), threshold=0.9)
    >>> ax.get_title(loc="left")
    'At 0.9 or more, 100% of the answers are correct'
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    style.unit_square(ax)
    for name, tally in tallies.items():
        look, curve = style.look_of(name), accuracy_confidence_curve(tally)
        # The accuracy of a few answers is noise.
        accuracy = np.where(curve.coverage * tally.n > min(10, tally.n / 20), curve.accuracy, np.nan)
        label = f"{look.label}: {auac(tally):.3f}"
        ax.plot(curve.threshold, accuracy, color=look.colour, linestyle=look.line, linewidth=1.6, label=label)
    if threshold is not None:
        ax.axvline(threshold, color=style.COLOURS["ink"], linewidth=0.8, linestyle=(0, (2, 2)))
        for name, tally in tallies.items():
            share, reached = answered(tally, threshold)
            _mark(ax, style.look_of(name), threshold if share else None, reached, markersize=5)
    style.key(ax, "area under the curve (AUAC), higher is better")
    style.name_axes(ax, "threshold on the confidence", "accuracy of accepted answers")
    return style.describe(ax, title or _at_or_above(tallies, threshold), _threshold_text(tallies))


def _mark(ax: Axes, look: style.Look, x: float | None, y: float, **options: Any) -> None:
    """Mark the chosen threshold on the curve of a score; nothing if it accepts no answer."""
    if x is not None:
        ax.plot(x, y, look.marker, color=look.colour, markerfacecolor=look.face, zorder=6, **options)


def answered(tally: Tally, threshold: float) -> tuple[float, float]:
    """Return the share of rows at or above a threshold, and their accuracy."""
    curve = accuracy_confidence_curve(tally, thresholds=[threshold])
    return float(curve.coverage[0]), float(curve.accuracy[0])


def _at_or_above(tallies: dict[str, Tally], threshold: float | None) -> str:
    at = 0.8 if threshold is None else threshold
    names = [*tallies]
    (share, accuracy), (last_share, last_accuracy) = (answered(tallies[name], at) for name in (names[0], names[-1]))
    first, last = (style.look_of(name).label for name in (names[0], names[-1]))
    if len(names) == 1:
        correct = f"At {at:g} or more, {words.percent(accuracy)} of the answers are correct"
        return correct if share else f"No confidence is {at:g} or more"
    title = f"At a {first} confidence of {at:g} or more, {words.percent(accuracy)} are correct"
    title = title if share else f"No {first} confidence is {at:g} or more"
    return (
        f"{title}; at a {last} one, {words.percent(last_accuracy)}"
        if last_share
        else f"{title}; no {last} one is as high"
    )


def _threshold_text(tallies: dict[str, Tally]) -> str:
    parts = ["Accuracy of the answers at or above a threshold."]
    for name, tally in tallies.items():
        curve = accuracy_confidence_curve(tally, thresholds=GRID[::25])
        points = zip(curve.threshold.tolist(), curve.accuracy.tolist(), curve.coverage.tolist(), strict=True)
        shown = (f"at {at:.2f} {right:.2f} of {words.percent(share)}" for at, right, share in points if share > 0)
        parts.append(f"{style.look_of(name).label}: {', '.join(shown)} answered; AUAC {auac(tally):.3f}.")
    return " ".join(parts)


def risk_coverage_plot(
    scores: Any, *, threshold: float | None = None, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the error rate by the share of questions that are answered, the most confident first.

    It measures ranking only: stretching confidences does not change it. The key gives the area under the curve (AURC);
    marks show the chosen threshold.

    scores, threshold : as in :func:`threshold_plot`.
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    highest = 0.05
    for name, tally in tallies.items():
        look, (coverage, risk) = style.look_of(name), _curve(tally)
        highest = max(highest, 1.1 * float(risk.max()))
        label = f"{look.label}: {aurc(tally):.3f}"
        ax.plot(coverage, risk, color=look.colour, linestyle=look.line, linewidth=1.6, label=label)
        if threshold is not None:
            share, accuracy = answered(tally, threshold)
            _mark(ax, look, share or None, 1 - accuracy, markersize=6, clip_on=False)
    overall = 1 - next(iter(tallies.values())).mean
    ax.set(xlim=(-0.03, 1.03), ylim=(0, highest))
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "20%", "40%", "60%", "80%", "100%"])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax, "area under the curve (AURC), lower is better")
    style.name_axes(ax, "questions answered, most confident first", "error rate")
    return style.describe(ax, title or _ranking(tallies), _risk_text(tallies, overall))


def _curve(tally: Tally) -> tuple[Floats, Floats]:
    """Return the curve at 200 points.

    Among rows of equal confidence the order is chance, so the number of wrong answers grows evenly, not the risk.
    """
    curve = risk_coverage_curve(tally)
    # The first few rows alone would make the curve jump between 0 and 1.
    coverage = np.linspace(min(20 / tally.n, 1.0), 1, 200)
    wrong = np.interp(coverage, np.append(0, curve.coverage), np.append(0, curve.coverage * curve.risk))
    return coverage, wrong / coverage


def _ranking(tallies: dict[str, Tally]) -> str:
    names = [*tallies]
    before, after = aurc(tallies[names[0]]), aurc(tallies[names[-1]])
    average = f"{words.percent(after)}, averaged over the share answered"
    if len(names) == 1:
        return f"Error rate {average}"
    if abs(before - after) > 0.002 and words.percent(before) != words.percent(after):
        name, better = style.look_of(names[-1]).label.capitalize(), "better" if after < before else "worse"
        return f"{name} confidences rank {better}: error rate {average} ({words.percent(before)} before)"
    return f"The ranking is about the same: error rate {average}"


def _risk_text(tallies: dict[str, Tally], overall: float) -> str:
    parts = [f"Error rate by the share of questions answered; if all are answered, {words.percent(overall)}."]
    for name, tally in tallies.items():
        curve = risk_coverage_curve(tally)
        at = min(int(np.searchsorted(curve.coverage, 0.5)), len(curve.coverage) - 1)
        half = f"{words.percent(curve.risk[at])} if {words.percent(curve.coverage[at])} are answered"
        parts.append(f"{style.look_of(name).label}: {half}; AURC {aurc(tally):.3f}.")
    return " ".join(parts)
