"""The calibrators: each is a thin class around a solver that takes a tally.

In: a tally of confidences, labels and groups. Out: frozen maps from confidence and group to a probability and its
interval. Open `base.py` first, then `step_binning.py` (the default) or `binning.py` (the paper's four methods).
"""

from __future__ import annotations

import importlib
from typing import Any

# Names are imported when they are first used: saved maps apply without scipy.
_HOME = {
    "Evidence": "base",
    "HierarchicalScaling": "hierarchical",
    "Identity": "identity",
    "IsotonicCalibration": "isotonic",
    "LearnedScore": "score.learned",
    "PlattScaling": "curves",
    "QABinning": "binning",
    "ScalingBinning": "binning",
    "ScalingQABinning": "binning",
    "MarginBinning": "margins",
    "StepBinning": "step_binning",
    "TreeBinning": "tree_binning",
    "TreeScaling": "tree_scaling",
    "UniformMassBinning": "binning",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
