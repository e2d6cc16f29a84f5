"""qacal: how far to trust an LLM's answer.

It turns the confidence an LLM states about an answer into the probability that the answer is right, for the kind of
question it is, with a guarantee. ``QABinning().fit(confidence, correct, groups=groups).predict(...)`` is the start;
the README tells the rest.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

# Names are imported when they are first used, so that `import qacal` loads neither scikit-learn nor polars.
_HOME = {
    "Identity": "calibrators.identity",
    "PlattScaling": "calibrators.platt",
    "IsotonicCalibration": "calibrators.isotonic",
    "UniformMassBinning": "calibrators.binning",
    "ScalingBinning": "calibrators.binning",
    "QABinning": "calibrators.binning",
    "ScalingQABinning": "calibrators.binning",
    "HierarchicalScaling": "calibrators.hierarchical",
    "TreeScaling": "calibrators.tree_scaling",
    "TreeBinning": "calibrators.tree_binning",
    "StepBinning": "calibrators.step_binning",
    "Evidence": "calibrators.evidence",
    "LearnedScore": "calibrators.score.learned",
    "KDTree": "partitions.kdtree",
    "BisectingTree": "partitions.bisecting",
    "LearnedTree": "partitions.learned",
    "KMeans": "partitions.kmeans",
    "Column": "partitions.column",
    "Product": "partitions.product",
    "Function": "partitions.function",
    "QACalibrator": "model.model",
    "load": "model.saved",
    "Search": "search",
    "run_experiment": "experiment",
    "embedder": "embedders",
    "evaluate": "metrics.evaluation",
    "check": "checking",
    "certified_threshold": "thresholds.certified",
    "cheapest_threshold": "thresholds.costs",
    "threshold_curve": "thresholds.curve",
    "GroupSummary": "model.groups",
    "QACalibrationClassifier": "classifier",
    "calibration_error": "metrics.calibration",
    "estimate_calibration_error": "metrics.calibration",
    "estimate_maximum_calibration_error": "metrics.calibration",
    "estimate_auroc": "metrics.ranking",
    "brier_decomposition": "metrics.proper_scores",
    "selective_risk": "metrics.selective",
    "maximum_calibration_error": "metrics.calibration",
    "confidence_bias": "metrics.calibration",
    "validity_curve": "metrics.validity",
    "reliability_table": "metrics.reliability",
    "ReliabilityDisplay": "metrics.display",
    "accuracy_confidence_curve": "metrics.selective",
    "auac": "metrics.selective",
    "risk_coverage_curve": "metrics.selective",
    "aurc": "metrics.selective",
    "auroc": "metrics.ranking",
    "brier_score": "metrics.proper_scores",
    "log_loss": "metrics.proper_scores",
    "sharpness": "metrics.proper_scores",
    "epsilon": "planning",
    "points_per_bin": "planning",
    "epsilon_of_bins": "planning",
    "n_bins": "planning",
    "nu_bound": "planning",
    "BadRows": "records.bad_rows",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'qacal' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"qacal.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
