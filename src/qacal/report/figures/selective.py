"""Selective answering: accuracy by threshold, and error rate by coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.metrics import words
from qacal.metrics.selective import accuracy_confidence_curve, auac, aurc, risk_coverage_curve
from qacal.report import style
from qacal.report.data import as_tallies
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def threshold_plot(scores: Any, *, threshold: float | None = None, ax: Axes | None = None) -> Axes:
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
    if threshold is not None:
        ax.axvline(threshold, color=style.COLOURS["ink"], linewidth=0.8, linestyle=(0, (2, 2)))
    parts = ["Accuracy of the answers at or above a threshold."]
    for name, tally in tallies.items():
        look, curve, area = style.look_of(name), accuracy_confidence_curve(tally), f"{auac(tally):.3f}"
        # The accuracy of a few answers is noise.
        accuracy = np.where(curve.coverage * tally.n > min(10, tally.n / 20), curve.accuracy, np.nan)
        style.line(ax, curve.threshold, accuracy, look, area)
        columns = (column[::25].tolist() for column in (curve.threshold, curve.accuracy, curve.coverage))
        points = zip(*columns, strict=True)
        shown = (f"at {at:.2f} {right:.2f} of {words.percent(share)}" for at, right, share in points if share > 0)
        parts.append(f"{look.label}: {', '.join(shown)} answered; AUAC {area}.")
        if threshold is not None:
            share, reached = answered(tally, threshold)
            style.mark(ax, threshold if share else None, reached, look)
    style.key(ax, "area under the curve (AUAC), higher is better")
    style.name_axes(ax, "threshold on the confidence", "accuracy of accepted answers")
    return style.describe(ax, _at_or_above(tallies, 0.8 if threshold is None else threshold), " ".join(parts))


def answered(tally: Tally, threshold: float) -> tuple[float, float]:
    """Return the share of rows at or above a threshold, and their accuracy."""
    curve = accuracy_confidence_curve(tally, thresholds=[threshold])
    return float(curve.coverage[0]), float(curve.accuracy[0])


def _at_or_above(tallies: dict[str, Tally], threshold: float) -> str:
    names = [*tallies]
    (share, accuracy), (last_share, last_accuracy) = (
        answered(tallies[name], threshold) for name in (names[0], names[-1])
    )
    first, last = (style.look_of(name).label for name in (names[0], names[-1]))
    if len(names) == 1:
        correct = f"At {threshold:g} or more, {words.percent(accuracy)} of the answers are correct"
        return correct if share else f"No confidence is {threshold:g} or more"
    title = f"At a {first} confidence of {threshold:g} or more, {words.percent(accuracy)} are correct"
    title = title if share else f"No {first} confidence is {threshold:g} or more"
    after = f"at a {last} one, {words.percent(last_accuracy)}" if last_share else f"no {last} one is as high"
    return f"{title}; {after}"


def risk_coverage_plot(scores: Any, *, threshold: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw the error rate by the share of questions that are answered, the most confident first.

    It measures ranking only: stretching confidences does not change it. The key gives the area under the curve (AURC);
    marks show the chosen threshold.

    scores, threshold : as in :func:`threshold_plot`.
    """
    tallies = as_tallies(scores)
    ax = style.axes_for(ax, height=style.WITH_KEY)
    overall = 1 - next(iter(tallies.values())).mean
    parts = [f"Error rate by the share of questions answered; if all are answered, {words.percent(overall)}."]
    highest = 0.05
    for name, tally in tallies.items():
        look, curve, area = style.look_of(name), risk_coverage_curve(tally), f"{aurc(tally):.3f}"
        # The first few rows alone would make the curve jump between 0 and 1.
        coverage = np.linspace(min(20 / tally.n, 1.0), 1, 200)
        # Among rows of equal confidence the order is chance, so the number of wrong answers grows evenly, not the risk.
        wrong = np.interp(coverage, np.append(0, curve.coverage), np.append(0, curve.coverage * curve.risk))
        risk = wrong / coverage
        highest = max(highest, 1.1 * float(risk.max()))
        style.line(ax, coverage, risk, look, area)
        at = min(int(np.searchsorted(curve.coverage, 0.5)), len(curve.coverage) - 1)
        half = f"{words.percent(curve.risk[at])} if {words.percent(curve.coverage[at])} are answered"
        parts.append(f"{look.label}: {half}; AURC {area}.")
        if threshold is not None:
            share, accuracy = answered(tally, threshold)
            style.mark(ax, share or None, 1 - accuracy, look)
    ax.set(xlim=(-0.03, 1.03), ylim=(0, highest))
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "20%", "40%", "60%", "80%", "100%"])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    style.key(ax, "area under the curve (AURC), lower is better")
    style.name_axes(ax, "questions answered, most confident first", "error rate")
    return style.describe(ax, _ranking(tallies), " ".join(parts))


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
