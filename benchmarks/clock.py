"""How long something takes: the best of several runs, since noise only ever adds."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

Work = Callable[[], Any]


def best_of(repeats: int, work: Work) -> float:
    """Return the seconds of the fastest of `repeats` runs."""
    return race(repeats, work)[0]


def race(repeats: int, *works: Work) -> list[float]:
    """Return the best seconds of each, run in turns: a slow moment of the machine then meets all of them."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            start = perf_counter()
            work()
            best[place] = min(best[place], perf_counter() - start)
    return best
