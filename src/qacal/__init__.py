"""qacal: how far to trust an LLM's answer.

In: answers of an LLM with their stated confidences, some labelled correct or wrong. Out: the probability that an answer
is correct, with a certified interval. ``QACalibrator().fit(records).calibrate(new_records)`` is the start; open
`model/model.py` first.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

# The rest is in qacal.calibrators, qacal.metrics, qacal.partitions and qacal.planning.
# Names are imported when they are first used, so that `import qacal` loads neither scikit-learn nor polars.
_HOME = {
    "QABinning": "calibrators.binning",
    "TreeBinning": "calibrators.tree_binning",
    "MarginBinning": "calibrators.margins",
    "StepBinning": "calibrators.step_binning",
    "LearnedScore": "calibrators.score.learned",
    "BisectingTree": "partitions.bisecting",
    "Column": "partitions.column",
    "QACalibrator": "model.model",
    "load": "model.saved",
    "register_duckdb": "model.duckdb",
    "Search": "search",
    "run_experiment": "experiment",
    "embedder": "embedders",
    "evaluate": "metrics.evaluation",
    "check": "checking",
    "agree": "sources.elicitation.agreement",
    "calibrated": "sources.openai_client",
    "certified_threshold": "thresholds.certified",
    "cheapest_threshold": "thresholds.costs",
    "threshold_curve": "thresholds.curve",
    "describe_documents": "model.documents",
    "label_next": "model.labelling",
    "watch": "model.watching",
    "GroupSummary": "model.groups",
    "QACalibrationClassifier": "classifier",
    "ReliabilityDisplay": "metrics.reliability",
    "BadRows": "records.reading",
    "file_options": "records.text_files",
    "Tally": "tally.tally",
    "split": "tally.ids",
    "Paths": "tally.groups",
    "NO_GROUP": "tally.groups",
    "QacalError": "errors",
    "InputError": "errors",
    "BadRowsError": "errors",
    "NotEnoughRowsError": "errors",
    "MissingPackageError": "errors",
    "ServerError": "errors",
    "NotFittedError": "errors",
    "ArtifactError": "errors",
    "QacalWarning": "errors",
    "RepeatedQuestionsWarning": "errors",
}

__all__ = [*sorted(_HOME), "__version__"]


_PACKAGES = ("calibrators", "metrics", "partitions", "planning")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"qacal.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'qacal' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"qacal.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
