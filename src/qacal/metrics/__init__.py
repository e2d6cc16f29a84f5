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
    "auroc": "scores",
    "brier_score": "scores",
    "calibration_error": "calibration",
    "document_shares": "documents",
    "estimate_accuracy": "accuracy",
    "estimate_auroc": "scores",
    "estimate_calibration_error": "calibration",
    "estimate_judged_accuracy": "accuracy",
    "estimate_maximum_calibration_error": "calibration",
    "evaluate": "evaluation",
    "log_loss": "scores",
    "maximum_calibration_error": "calibration",
    "reliability_table": "reliability",
    "risk_coverage_curve": "selective",
    "sharpness": "scores",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
