"""What users may import, and what importing costs."""

import subprocess
import sys

import pytest

import qacal

NAMES = [
    "ArtifactError",
    "BisectingTree",
    "Column",
    "Evidence",
    "Function",
    "GroupSummary",
    "HierarchicalScaling",
    "Identity",
    "InputError",
    "BadRows",
    "BadRowsError",
    "IsotonicCalibration",
    "KDTree",
    "KMeans",
    "LearnedScore",
    "LearnedTree",
    "NO_GROUP",
    "MissingPackageError",
    "ServerError",
    "NotFittedError",
    "Paths",
    "PlattScaling",
    "Product",
    "QABinning",
    "QACalibrationClassifier",
    "QACalibrator",
    "QacalError",
    "ReliabilityDisplay",
    "QacalWarning",
    "RepeatedQuestionsWarning",
    "ScalingBinning",
    "ScalingQABinning",
    "Search",
    "StepBinning",
    "Tally",
    "TreeBinning",
    "TreeScaling",
    "UniformMassBinning",
    "NotEnoughRowsError",
    "__version__",
    "accuracy_confidence_curve",
    "auac",
    "auroc",
    "aurc",
    "brier_decomposition",
    "brier_score",
    "estimate_auroc",
    "estimate_calibration_error",
    "estimate_maximum_calibration_error",
    "selective_risk",
    "calibration_error",
    "certified_threshold",
    "cheapest_threshold",
    "check",
    "confidence_bias",
    "embedder",
    "epsilon",
    "epsilon_of_bins",
    "evaluate",
    "load",
    "log_loss",
    "maximum_calibration_error",
    "n_bins",
    "nu_bound",
    "points_per_bin",
    "reliability_table",
    "risk_coverage_curve",
    "run_experiment",
    "sharpness",
    "split",
    "threshold_curve",
    "validity_curve",
]


def test_public_names_are_pinned():
    assert sorted(qacal.__all__) == sorted(NAMES)
    assert dir(qacal) == sorted(qacal.__all__)
    for name in NAMES:
        assert getattr(qacal, name) is not None


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_heavy():
    heavy = "{'sklearn', 'matplotlib', 'polars', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)"
    assert run(f"import sys, qacal; print(len({heavy}))").strip() == "0"


def test_fitting_and_predicting_need_only_numpy_and_scipy():
    code = (
        "import sys, numpy as np, qacal\n"
        "curves = (qacal.HierarchicalScaling, qacal.TreeScaling, qacal.PlattScaling)\n"
        "for method in (qacal.QABinning, qacal.ScalingQABinning, *curves):\n"
        "    model = method().fit(np.linspace(0, 1, 200), np.arange(200) % 2, groups=np.arange(200) % 3)\n"
        "    model.explain([0.5], groups=[1])\n"
        "print(qacal.estimate_calibration_error([0, 1], [0.5, 0.5]).plugin)\n"
        "print({'sklearn', 'matplotlib', 'polars', 'pandas'} & set(sys.modules))"
    )
    assert run(code).split() == ["0.0", "set()"]


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="Quantum"):
        _ = qacal.Quantum
