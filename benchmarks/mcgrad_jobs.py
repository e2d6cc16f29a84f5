"""MCGrad on several deals at once, in its own environment: one process, so that its start is in nobody's time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.combinations import Split
from benchmarks.features import GROUP_DEPTH, bisecting_groups, components, inside
from benchmarks.peers import ask

MCGRAD = ("mcgrad-components", "mcgrad-groups")
"""Its names in tables: with the principal components as numbers, with the groups as categories."""

# A fit takes 1 to 3 s.
_LIMIT_A_FIT = 60.0


def mcgrad_answers(method: str, deals: Sequence[Split]) -> Iterator[tuple[Split, np.ndarray, float]]:
    """Yield each deal's answers and the seconds of the fit alone: finding components or groups is not counted."""
    given: dict[str, Any] = {}
    for deal in deals:
        for name, array in _arrays(method, deal).items():
            given[f"{name}_{deal.seed}"] = array
    outcome = ask("mcgrad", script="mcgrad_fits", limit=_LIMIT_A_FIT * len(deals), method=method, **given)
    if not outcome.told:
        raise RuntimeError(f"{method}: {outcome.trouble or f'stopped after {outcome.limit:.0f} s'}")
    for deal in deals:
        told = outcome.told[str(deal.seed)]
        yield deal, np.array(told["answers"]), told["seconds"]


def _arrays(method: str, deal: Split) -> dict[str, np.ndarray]:
    fitting, testing = deal.fitting, deal.testing
    if method == "mcgrad-components":
        features, asked = components(fitting, testing)
    else:
        features, asked = (nodes[:, -1:] for nodes in bisecting_groups(fitting, testing, GROUP_DEPTH))
    return {
        "confidence": inside(fitting["confidence"]),
        "correct": fitting["correct"].to_numpy(),
        "features": features,
        "asked": asked,
        "stated": inside(testing["confidence"]),
    }
