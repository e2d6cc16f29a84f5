"""What the lines say: means over combinations, paired differences with intervals, and who is beaten where.

All splits use the same rows, so they are no new evidence: means are over combinations. A difference is
taken between means over the same splits, and its interval is Student's over the combinations. LLMs that answered the
same questions are taken as independent, which they are not quite. Debiased errors are averaged over splits as squares,
in which they have no bias: the root of one split's may be far below 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import stats

MARGIN = 0.002
"""By how much log loss another must be better to count as better."""

MEASURES = {
    "log_loss": "log loss",
    "log_loss_cut": "log loss, cut at 0.001",
    "brier": "Brier",
    "ce_label": "CE by label, debiased",
    "aurc": "AURC",
    "auac": "AUAC",
}
"""Measures by their titles; of all but the last, lower is better."""

ROOTS = ("ce_label",)
"""Measures that are roots of what has no bias."""

JUDGED = ("brier", "log_loss_cut", "ce_label", "aurc")


@dataclass(frozen=True, eq=False)
class Verdict:
    """Lines of all methods on the same splits of the same combinations, beside one of the methods."""

    lines: pl.DataFrame
    beside: str

    def text(self) -> str:
        """Return all tables, as Markdown."""
        parts = self._means(), self._differences(), self._places(), self._beaten(), self._by_combination()
        return "\n\n".join(parts)

    @property
    def _methods(self) -> list[str]:
        """The methods, the best first."""
        means = self.lines.group_by("method").agg(pl.col("log_loss_cut").mean())
        return means.sort("log_loss_cut", "method")["method"].to_list()

    def _of(self, method: str, measure: str) -> dict[str, float]:
        """Return a method's mean over splits, by combination."""
        mine = self.lines.filter(pl.col("method") == method)
        means = mine.group_by("combination").agg(_mean_of_squares(measure) if measure in ROOTS else pl.mean(measure))
        return dict(means.sort("combination").iter_rows())

    def _mean(self, method: str, measure: str) -> float:
        return float(np.mean(list(self._of(method, measure).values())))

    def _paired(self, method: str, measure: str) -> dict[str, float]:
        """Return how much higher a method is than the one it is compared with, by combination."""
        ours, theirs = self._of(self.beside, measure), self._of(method, measure)
        return {name: theirs[name] - ours[name] for name in theirs if name in ours}

    def _means(self) -> str:
        rows = [
            [method, *(f"{self._mean(method, measure):.4f}" for measure in MEASURES), f"{self._seconds(method):.2f}"]
            for method in self._methods
        ]
        counts = (self.lines[name].n_unique() for name in ("combination", "split"))
        title = "Means over {} combinations, {} splits each.".format(*counts)
        return f"{title}\n\n{table(['method', *MEASURES.values(), 'seconds'], rows)}"

    def _seconds(self, method: str) -> float:
        return float(np.median(self.lines.filter(pl.col("method") == method)["seconds"].to_numpy()))

    def _differences(self) -> str:
        rows = [
            [method, *(interval(list(self._paired(method, measure).values())) for measure in MEASURES)]
            for method in self._methods
            if method != self.beside
        ]
        title = f"Each method minus {self.beside}, x 1000, with 95% intervals over combinations."
        return f"{title}\n\n{table(['method', *MEASURES.values()], rows)}"

    def _places(self) -> str:
        """Return who is first, where the method that is compared with stands, and how long it takes beside MCGrad."""
        lines = []
        for measure in JUDGED:
            ranked = sorted(self._methods, key=lambda method: self._mean(method, measure))
            place = ranked.index(self.beside) + 1
            best = ", ".join(f"{method} {self._mean(method, measure):.4f}" for method in ranked[:3])
            lines.append(f"- {MEASURES[measure]}: {self.beside} is number {place} of {len(ranked)} ({best}).")
        for method in (name for name in self._methods if name.startswith("mcgrad")):
            share = self._seconds(self.beside) / self._seconds(method)
            lines.append(f"- time: {self.beside} takes {share:.2f} times as long as {method}.")
        return "\n".join(lines)

    def _beaten(self) -> str:
        """Return where others are better by more than the margin."""
        lines, everywhere = [], set()
        for method in self._methods:
            lost = {name: gap for name, gap in self._paired(method, "log_loss_cut").items() if gap < -MARGIN}
            everywhere |= lost.keys()
            if lost:
                named = ", ".join(f"{name} ({lost[name]:+.4f})" for name in sorted(lost, key=lambda name: lost[name]))
                lines.append(f"- by {method} on {len(lost)}: {named}")
        title = (
            f"By more than {MARGIN} log loss, cut at 0.001, {self.beside} is beaten on {len(everywhere)} combinations"
        )
        return "\n".join([title + (":\n" if lines else "."), *lines])

    def _by_combination(self) -> str:
        names = sorted(self.lines["combination"].unique())
        rows = [[method, *_cells(self._of(method, "log_loss_cut"), names)] for method in self._methods]
        titles = [f"{name.rsplit('/', 1)[-1]} (open)" if "/" in name else name for name in names]
        return f"Log loss, cut at 0.001, by combination.\n\n{table(['method', *titles], rows)}"


def _mean_of_squares(measure: str) -> pl.Expr:
    """Return the signed root of the mean of signed squares."""
    square = (pl.col(measure) * pl.col(measure).abs()).mean()
    return square.sign() * square.abs().sqrt()


def interval(gaps: Sequence[float]) -> str:
    """Return a mean difference and half its 95% interval, x 1000.

    >>> interval([0.001, 0.002, 0.003])
    '+2.0 ± 2.5'
    """
    mean = 1000 * float(np.mean(gaps))
    if len(gaps) < 2:
        return f"{mean:+.1f}"
    half = 1000 * float(stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps)))
    return f"{mean:+.1f} ± {half:.1f}"


def _cells(found: dict[str, float], names: Sequence[str]) -> Iterator[str]:
    return (f"{found[name]:.4f}" if name in found else "" for name in names)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
