"""How good confidences are: calibration error, selective answering, proper scores.

In: `(y_true, y_prob)`, or a tally in place of both. Out: floats; `estimate_...` functions return intervals too. Open
`calibration.py` first; `evaluation.py` compares before and after.
"""

from __future__ import annotations

import importlib
from typing import Any

# Names are imported when they are first used: few of them are needed at a time.
_HOME = {
    "ReliabilityDisplay": "reliability",
    "accuracy_confidence_curve": "selective",
    "auac": "selective",
    "aurc": "selective",
    "auroc": "ranking",
    "brier_score": "proper_scores",
    "calibration_error": "calibration",
    "document_shares": "documents",
    "estimate_auroc": "ranking",
    "estimate_calibration_error": "calibration",
    "estimate_maximum_calibration_error": "calibration",
    "evaluate": "evaluation",
    "log_loss": "proper_scores",
    "maximum_calibration_error": "calibration",
    "reliability_table": "reliability",
    "risk_coverage_curve": "selective",
    "sharpness": "proper_scores",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
