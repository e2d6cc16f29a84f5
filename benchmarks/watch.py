"""The watch: false alarms over many looks, labels until a shift is seen, and swaps of real LLMs.

    python -m benchmarks.watch                  simulations
    python -m benchmarks.watch DATA             a replay of model swaps as well

A swap: a model is fitted on 70% of the questions, answered by one LLM, and watches the answers of another LLM to other
questions, in random orders. The first 300 labels are looked at, one by one.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import qacal
from benchmarks.combinations import LABELS
from qacal.metrics.betting import Alarms, bet
from qacal.model.broken import Watched
from qacal.model.watching import Watch

ALPHA = 0.1
GROUPS, BANDS = 16, 6
# Bands, groups and all answers have the same weight together.
WEIGHTS = np.tile(1 / np.repeat([BANDS, GROUPS, 1], [BANDS, GROUPS, 1]), 2)
LOOKS = 100_000
FEW = 300


# Simulations: groups and bands cut across each other, as in a default model


@dataclass(frozen=True, eq=False)
class World:
    """Answers in groups and bands, and what is promised about them.

    chance : the true probability of each row, by group and band.
    answer : the answer of each band.
    within, group_within : half the widths of intervals of bands and groups; 0 for the hardest promise that is true.
    """

    chance: np.ndarray
    answer: np.ndarray
    within: float
    group_within: float

    @classmethod
    def usual(cls, within: float, group_within: float) -> World:
        answer = np.linspace(0.3, 0.95, BANDS)
        spread = np.linspace(-0.05, 0.05, GROUPS)[:, None]
        return cls(np.clip(answer + spread, 0, 1), answer, within, group_within)

    def watched(self, rng: np.random.Generator, rows: int, loss: np.ndarray | float = 0.0) -> tuple[Alarms, np.ndarray]:
        """Return the alarms for new labels, with a loss of accuracy in each group, and the groups of the rows."""
        group, band = rng.integers(0, GROUPS, rows), rng.integers(0, BANDS, rows)
        lost = np.broadcast_to(loss, GROUPS)[group]
        y = (rng.random(rows) < self.chance[group, band] - lost) * 1.0
        of_band, of_group = band[:, None] == np.arange(BANDS), group[:, None] == np.arange(GROUPS)
        off, accuracy = (y - self.answer[band])[:, None], self.chance.mean(axis=1)
        high, low = accuracy + self.group_within, accuracy - self.group_within
        above = [of_band * (off - self.within), of_group * (y[:, None] - high), off - self.within]
        below = [of_band * (-off - self.within), of_group * (low - y[:, None]), -off - self.within]
        ends = [np.full(BANDS, 1 + self.within), high, [1 + self.within]]
        other = [np.full(BANDS, 1 + self.within), 1 - low, [1 + self.within]]
        return bet(np.concatenate(above + below, axis=1), -np.concatenate(ends + other), ALPHA, WEIGHTS), group


def false_alarms(worlds: int) -> None:
    print(
        f"\nFalse alarms ever, {LOOKS:,} looks, {2 * (GROUPS + BANDS + 1)} statements, alpha {ALPHA}, {worlds} worlds"
    )
    for within, title in ((0.0, "all promises at their border"), (0.03, "intervals of 0.03 (bands) and 0.06 (groups)")):
        world, rng = World.usual(within, 2 * within), np.random.default_rng(0)
        alarms = sum(world.watched(rng, LOOKS)[0].any_at >= 0 for _ in range(worlds))
        print(f"  {title}: {alarms} of {worlds} ({alarms / worlds:.1%})")


def labels_needed(worlds: int) -> None:
    print(f"\nLabels until a shift is seen: median and 90th percentile of {worlds} worlds; intervals of 0.03 and 0.06")
    world = World.usual(0.03, 0.06)
    for loss in (0.1, 0.2, 0.3):
        for title, where in (("everywhere", np.ones(GROUPS)), ("in one group of 16", np.arange(GROUPS) == 7)):
            rng, needed, in_group = np.random.default_rng(0), [], []
            for _ in range(worlds):
                alarms, group = world.watched(rng, 60_000 if where.sum() == 1 else 5_000, loss * where)
                needed.append(alarms.any_at + 1 if alarms.any_at >= 0 else np.inf)
                at = alarms.broken_at[(GROUPS + BANDS + 1) + BANDS + 7]
                in_group.append(np.count_nonzero(group[: at + 1] == 7) if at >= 0 else np.inf)
            most = np.quantile(needed, 0.9, method="higher")
            text = f"  {loss:.1f} {title}: {np.median(needed):,.0f} and {most:,.0f} labels (inf: more than were drawn)"
            if title != "everywhere":
                text += f"; the group is named after {np.median(in_group):,.0f} labels in it"
            print(text)


# Swaps of real LLMs


@dataclass(frozen=True)
class Swap:
    """One order of the labels of one swap.

    off : how far the accuracy of all answers is outside of the promise for them; 0 if it is inside.
    group_off : the same of the group that is farthest outside.
    worst : that group.
    few, whole : the watch after few labels, and after all.
    """

    file: str
    fitted: str
    watched: str
    off: float
    group_off: float
    worst: object
    few: Watch
    whole: Watch


def swaps(data: Path, orders: int) -> Iterator[Swap]:
    for file in LABELS:
        rows = pl.read_parquet(data / f"{file}.parquet")
        is_later = pl.Series(qacal.split(rows["id"], (0.7, 0.3), seed=1) == 1)
        for name in sorted(rows["model"].unique()):
            model = qacal.QACalibrator().fit(rows.filter(~is_later & (pl.col("model") == name)))
            for other in sorted(rows["model"].unique()):
                later = rows.filter(is_later & (pl.col("model") == other))
                for order in range(orders):
                    yield swap(model, later.sample(fraction=1, shuffle=True, seed=order), file, name, other)


def swap(model: qacal.QACalibrator, later: pl.DataFrame, file: str, name: str, other: str) -> Swap:
    few, whole = (qacal.watch(model, part, allow_other_source="model") for part in (later[:FEW], later))

    def off(interval: Watched) -> float:
        accuracy = interval.low if interval.accuracy is None else interval.accuracy
        return max(interval.low - accuracy, accuracy - interval.high, 0.0)

    groups = [one for one in whole.intervals if one.kind == "group" and one.labels >= 30]
    worst = max(groups, key=off)
    overall = [off(one) for one in whole.intervals if one.kind == "all"]
    bands = [off(one) for one in whole.intervals if one.kind == "band" and one.labels >= 30]
    return Swap(file, name, other, max(overall or bands or [0.0]), off(worst), worst.group, few, whole)


def replay(data: Path, orders: int) -> None:
    every = []
    for one in swaps(data, orders):
        every.append(one)
        if len(every) % orders == 0:
            last = every[-orders:]
            noticed = sum(one.few.is_alarm for one in last)
            print(
                f"  {one.file} {one.fitted} -> {one.watched}: off by {one.off:.2f}, noticed {noticed}/{orders}",
                flush=True,
            )
    same = [one for one in every if one.fitted == one.watched]
    print(f"\nThe same LLM, {len(same)} replays: alarms within {FEW} labels {sum(one.few.is_alarm for one in same)}, "
          f"with all labels {sum(one.whole.is_alarm for one in same)}")  # fmt: skip
    others = [one for one in every if one.fitted != one.watched]
    for least in (0.0, 0.05, 0.1, 0.2):
        _print_swaps([one for one in others if one.off >= least], f"off by {least:g} or more overall")
    for file in LABELS:
        _print_swaps([one for one in others if one.file == file], file)


def _print_swaps(found: list[Swap], title: str) -> None:
    if not found:
        return
    pairs = len({(one.file, one.fitted, one.watched) for one in found})
    noticed = [one.few.broken_after for one in found if one.few.broken_after is not None]
    print(f"\n{title}: {pairs} swaps, {len(found)} replays")
    share, median = len(noticed) / len(found), np.median(noticed or [np.nan])
    print(f"  noticed within {FEW} labels: {share:.0%}, median {median:.0f} labels")
    print(f"  noticed with all labels: {np.mean([one.whole.is_alarm for one in found]):.0%}")
    for name in ("few", "whole"):
        named = [
            (one, [gr.group for gr in getattr(one, name).broken if gr.kind == "group"])
            for one in found
            if one.group_off
        ]
        some = [(one, groups) for one, groups in named if groups]
        if some:
            print(
                f"  {name}: a group is named in {len(some) / len(named):.0%} of {len(named)}; the worst one in "
                f"{np.mean([one.worst in groups for one, groups in some]):.0%} of these, and first in "
                f"{np.mean([one.worst == groups[0] for one, groups in some]):.0%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--orders", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    false_alarms(options.worlds)
    labels_needed(options.worlds)
    if options.data is not None:
        replay(options.data, options.orders)


if __name__ == "__main__":
    main()
