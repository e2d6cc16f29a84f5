"""How long the paper's protocol takes on 14,000 rows with their vectors, and how that splits into parts.

    python -m benchmarks.protocol

Nine methods, 8 seeds, 11 depths x 12 points per bin; beside it, one seed of the same search in which every setting is
fitted from the rows. Nothing here fails when a goal is missed: machines are noisy, and the numbers are to be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

import qacal
from benchmarks.table import duration
from qacal.calibrators.base import Calibrator
from qacal.experiment import METHODS
from qacal.experiment.groups import Beta, at_cut, only
from qacal.experiment.protocol import BETA, CALIBRATION, TUNING, Protocol, Split, deal
from qacal.experiment.sample import Sample

ROWS, WIDTH, SEEDS = 14_000, 64, 8
GOAL = 10.0
BETA_GROUPS = Beta("made", "kdtree")
STATED = np.array([0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0])


def answers() -> Sample:
    """Return rows whose accuracy depends on where their vector is, and too little on the confidence."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((ROWS, WIDTH)).astype(np.float32) * np.linspace(3, 0.5, WIDTH, dtype=np.float32)
    h = rng.choice(STATED, ROWS)
    chance = 1 / (1 + np.exp(-(h - 0.8) * 3 - np.tanh(Z[:, 0]) - 0.5 * np.tanh(Z[:, 1])))
    correct = (rng.random(ROWS) < chance).astype(float)
    return Sample(h, correct, np.arange(ROWS).astype(np.uint64), {"made": Z})


def timed_seed(sample: Sample, seed: int, protocol: Protocol) -> dict[str, float]:
    """Return the seconds of each part of one seed."""
    marks = [perf_counter()]
    dealt = deal(sample, BETA_GROUPS, seed, protocol)
    marks.append(perf_counter())
    tuned = {name: dealt.search.tune(method) for name, method in METHODS.items()}
    marks.append(perf_counter())
    test = dealt.test
    for best in tuned.values():
        groups = at_cut(dealt.test_groups, best.best.cut)
        test.measured(best.calibrator.predict(test.confidence, groups=groups, ids=test.ids))
    marks.append(perf_counter())
    return dict(zip(("split and group", "search and fit", "test"), np.diff(marks).tolist(), strict=True))


def from_rows(sample: Sample, dealt: Split) -> Iterator[Any]:
    """Fit every setting of every method from the rows, and score it on the tuning rows."""
    groups, parts = BETA_GROUPS.groups(sample, dealt.part == BETA), {}
    for which in (CALIBRATION, TUNING):
        rows = dealt.part == which
        parts[which] = (sample.confidence[rows], sample.correct[rows], only(groups, rows), sample.ids[rows])
    for method in METHODS.values():
        for chosen in settings(dealt, method):
            h, correct, groups, ids = parts[CALIBRATION]
            fitted = type(method)(**chosen).fit(h, correct, groups=groups, ids=ids)
            h, correct, groups, ids = parts[TUNING]
            yield qacal.metrics.log_loss(correct, fitted.predict(h, groups=groups, ids=ids))


def settings(dealt: Split, method: Calibrator) -> Iterator[dict[str, Any]]:
    given = method.get_params()
    depths = [cut for cut, _ in dealt.search.sizes] if method.properties.uses_groups else [None]
    for depth in depths:
        for b in dealt.search.ranges.points_per_bin if "points_per_bin" in given else [None]:
            wanted = {"max_depth": depth, "points_per_bin": b}
            yield given | {name: value for name, value in wanted.items() if name in given and value is not None}


def main() -> None:
    print(f"qacal {qacal.__version__}, numpy {np.__version__}, {os.cpu_count()} cores; {ROWS:,} rows x {WIDTH}\n")
    sample, protocol = answers(), Protocol(search="wide")
    timed_seed(sample, 0, protocol)
    seeds = [timed_seed(sample, seed, protocol) for seed in range(SEEDS)]
    parts = {part: sum(seed[part] for seed in seeds) for part in seeds[0]}
    whole = sum(parts.values())
    for part, seconds in parts.items():
        print(f"{part:<24}{duration(seconds):>10}   {seconds / whole:.0%}")
    verdict = "met" if whole < GOAL else "MISSED"
    print(f"{f'{SEEDS} seeds, {len(METHODS)} methods':<24}{duration(whole):>10}   goal: under {GOAL:g} s, {verdict}")
    dealt = deal(sample, BETA_GROUPS, 0, protocol)
    start = perf_counter()
    count = sum(1 for _ in from_rows(sample, dealt))
    naive, ours = perf_counter() - start, min(seed["search and fit"] for seed in seeds)
    print(f"\none search, {count} settings: {duration(ours)}; fitted one by one from rows: {duration(naive)}", end="")
    print(f", {naive / ours:.1f}x as long")


if __name__ == "__main__":
    main()
