"""The methods: one per file, each a thin shell around a solver that takes a tally."""

from __future__ import annotations

import importlib
from typing import Any

# Names are imported when they are first used: saved maps apply without scipy.
_HOME = {
    "Evidence": "evidence",
    "HierarchicalScaling": "hierarchical",
    "Identity": "identity",
    "IsotonicCalibration": "isotonic",
    "LearnedScore": "score.learned",
    "PlattScaling": "platt",
    "QABinning": "binning",
    "ScalingBinning": "binning",
    "ScalingQABinning": "binning",
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
