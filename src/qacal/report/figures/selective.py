"""Answering only where confident: accuracy over the threshold, and the error rate over how much is answered."""

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

_POINTS = 200


def threshold_plot(
    scores: Any, *, threshold: float | None = None, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw how many of the answers at or above a threshold are right, for every threshold.

    Above the diagonal a threshold keeps its word: of the answers at 0.8 or more, more than 0.8 are right. The key gives
    the area under the curve (AUAC), where thresholds that accept nothing count 0; the curve ends where they accept no
    more than ten answers.

    scores : as in :func:`reliability_diagram`.
    threshold : the one that was chosen, to be marked.

    >>> ax = threshold_plot(Tally.of([0.5, 0.5, 0.9, 0.9], [0, 1, 1, 1]), threshold=0.9)
    >>> ax.get_title(loc="left")
    'At 0.9 or more, 100% of the answers are right'
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    style.unit_square(ax)
    for name, tally in tallies.items():
        look, curve = style.look_of(name), accuracy_confidence_curve(tally)
        # The share of right answers among a handful is noise.
        accuracy = np.where(curve.coverage * tally.n > min(10, tally.n / 20), curve.accuracy, np.nan)
        label = f"{look.label}: {auac(tally):.3f}"
        ax.plot(curve.threshold, accuracy, color=look.colour, linestyle=look.line, linewidth=1.6, label=label)
    if threshold is not None:
        ax.axvline(threshold, color=style.COLOURS["ink"], linewidth=0.8, linestyle=(0, (2, 2)))
        _mark(ax, tallies, threshold)
    style.key(ax, "area under the curve (AUAC), higher is better")
    style.name_axes(ax, "threshold on the confidence", "right among those answered")
    return style.describe(ax, title or _at_or_above(tallies, threshold), _threshold_text(tallies))


def _mark(ax: Axes, tallies: dict[str, Tally], threshold: float) -> None:
    for name, tally in tallies.items():
        look, (coverage, accuracy) = style.look_of(name), answered(tally, threshold)
        if coverage > 0:
            ax.plot(
                threshold, accuracy, look.marker, color=look.colour, markerfacecolor=look.face, markersize=5, zorder=6
            )


def answered(tally: Tally, threshold: float) -> tuple[float, float]:
    """Return the share of rows at or above a threshold, and how many of them are right."""
    curve = accuracy_confidence_curve(tally, thresholds=[threshold])
    return float(curve.coverage[0]), float(curve.accuracy[0])


def _at_or_above(tallies: dict[str, Tally], threshold: float | None) -> str:
    at = 0.8 if threshold is None else threshold
    said = []
    for name in dict.fromkeys((next(iter(tallies)), list(tallies)[-1])):
        coverage, accuracy = answered(tallies[name], at)
        said.append((style.look_of(name).label, words.percent(accuracy) if coverage > 0 else "none"))
    (first, right), (last, later) = said[0], said[-1]
    if first == last:
        return f"At {at:g} or more, {right} of the answers are right"
    if later == "none":
        return f"No {last} confidence reaches {at:g}; of those {first} as {at:g} or more, {right} are right"
    return f"At {at:g} or more, {right} are right by the {first} confidence, {later} by the {last} one"


def _threshold_text(tallies: dict[str, Tally]) -> str:
    parts = ["Share of right answers among those at or above a threshold."]
    for name, tally in tallies.items():
        curve = accuracy_confidence_curve(tally, thresholds=GRID[::25])
        some = zip(curve.threshold.tolist(), curve.accuracy.tolist(), curve.coverage.tolist(), strict=True)
        said = (f"at {at:.2f} {right:.2f} of {words.percent(share)}" for at, right, share in some if share > 0)
        parts.append(f"{style.look_of(name).label}: {', '.join(said)} answered; AUAC {auac(tally):.3f}.")
    return " ".join(parts)


def risk_coverage_plot(
    scores: Any, *, threshold: float | None = None, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the share of wrong answers over the share of questions that are answered, the most confident first.

    It measures ranking alone: no stretching of confidences changes it. The key gives the area under the curve (AURC),
    lower is better; a mark shows where the chosen threshold puts each score.

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
        share, right = (0.0, 0.0) if threshold is None else answered(tally, threshold)
        if share > 0:
            (mark,) = ax.plot(share, 1 - right, look.marker, color=look.colour, clip_on=False, zorder=6)
            mark.set(markerfacecolor=look.face, markersize=6)
    overall = 1 - next(iter(tallies.values())).mean
    ax.set(xlim=(-0.03, 1.03), ylim=(0, highest))
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "20%", "40%", "60%", "80%", "100%"])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax, "area under the curve (AURC), lower is better")
    style.name_axes(ax, "questions answered, most confident first", "wrong among them")
    return style.describe(ax, title or _ranking(tallies), _risk_text(tallies, overall))


def _curve(tally: Tally) -> tuple[Floats, Floats]:
    """Return the curve at as many points as an eye can tell apart.

    Among rows of equal confidence the order is chance, so the wrong answers, and not the risk, grow evenly with them.
    """
    curve = risk_coverage_curve(tally)
    # The first few rows alone would make the curve jump between 0 and 1.
    coverage = np.linspace(min(20 / tally.n, 1.0), 1, _POINTS)
    wrong = np.interp(coverage, np.append(0, curve.coverage), np.append(0, curve.coverage * curve.risk))
    return coverage, wrong / coverage


def _ranking(tallies: dict[str, Tally]) -> str:
    first, last = next(iter(tallies)), list(tallies)[-1]
    before, after = aurc(tallies[first]), aurc(tallies[last])
    if first == last:
        return f"Averaged over how much is answered, {words.percent(before)} is wrong"
    if abs(before - after) > 0.002 and words.percent(before) != words.percent(after):
        how, name = "better" if after < before else "worse", style.look_of(last).label.capitalize()
        return f"{name} confidences rank {how}: {words.percent(after)} wrong on average, {words.percent(before)} before"
    return f"Ranking is as it was: {words.percent(after)} wrong, averaged over how much is answered"


def _risk_text(tallies: dict[str, Tally], overall: float) -> str:
    parts = [
        f"Share of wrong answers over the share of questions answered; all answered, {words.percent(overall)} wrong."
    ]
    for name, tally in tallies.items():
        curve = risk_coverage_curve(tally)
        at = min(int(np.searchsorted(curve.coverage, 0.5)), len(curve.coverage) - 1)
        half = f"answering {words.percent(curve.coverage[at])}, {words.percent(curve.risk[at])} are wrong"
        parts.append(f"{style.look_of(name).label}: {half}; AURC {aurc(tally):.3f}.")
    return " ".join(parts)
