"""The public names, and the cost of importing them."""

import subprocess
import sys

import pytest

import qacal

NAMES = [
    "ArtifactError",
    "BisectingTree",
    "Column",
    "GroupSummary",
    "InputError",
    "BadRows",
    "BadRowsError",
    "LearnedScore",
    "MarginBinning",
    "NO_GROUP",
    "MissingPackageError",
    "ServerError",
    "NotFittedError",
    "Paths",
    "QABinning",
    "QACalibrationClassifier",
    "QACalibrator",
    "QacalError",
    "ReliabilityDisplay",
    "QacalWarning",
    "RepeatedQuestionsWarning",
    "Search",
    "StepBinning",
    "Tally",
    "TreeBinning",
    "NotEnoughRowsError",
    "__version__",
    "agree",
    "calibrated",
    "certified_threshold",
    "cheapest_threshold",
    "check",
    "describe_documents",
    "embedder",
    "evaluate",
    "file_options",
    "label_next",
    "load",
    "register_duckdb",
    "run_experiment",
    "split",
    "threshold_curve",
    "watch",
]


def test_public_names_are_pinned():
    assert sorted(qacal.__all__) == sorted(NAMES)
    assert dir(qacal) == sorted(qacal.__all__)
    for name in NAMES:
        assert getattr(qacal, name) is not None


IN_PACKAGES = {
    "calibrators": [
        "Identity",
        "PlattScaling",
        "QABinning",
        "ScalingQABinning",
        "TreeScaling",
        "LearnedScore",
        "Evidence",
    ],
    "metrics": ["auroc", "brier_score", "calibration_error", "evaluate", "log_loss", "reliability_table", "sharpness"],
    "partitions": ["BisectingTree", "Column", "KDTree", "KMeans", "Product"],
    "planning": ["epsilon", "nu_bound", "plan_margins", "points_per_bin", "rows_for_margins"],
}


def test_the_rest_is_in_packages():
    """Generic names, and those of scikit-learn, are not at the top level, which has about 35 names."""
    assert len(qacal.__all__) <= 43
    for package, names in IN_PACKAGES.items():
        for name in names:
            assert callable(getattr(getattr(qacal, package), name))
    for package in (qacal.metrics, qacal.calibrators):
        for name in package.__all__:
            assert callable(getattr(package, name))
        with pytest.raises(AttributeError, match="Quantum"):
            _ = package.Quantum


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_heavy():
    heavy = "{'sklearn', 'matplotlib', 'polars', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)"
    assert run(f"import sys, qacal; print(len({heavy}))").strip() == "0"


def test_fitting_and_predicting_need_only_numpy_and_scipy():
    code = (
        "import sys, numpy as np, qacal\n"
        "from qacal.calibrators import HierarchicalScaling, PlattScaling, TreeScaling\n"
        "curves = (HierarchicalScaling, TreeScaling, PlattScaling)\n"
        "for method in (qacal.QABinning, qacal.calibrators.ScalingQABinning, *curves):\n"
        "    model = method().fit(np.linspace(0, 1, 200), np.arange(200) % 2, groups=np.arange(200) % 3)\n"
        "    model.explain([0.5], groups=[1])\n"
        "print(qacal.metrics.estimate_calibration_error([0, 1], [0.5, 0.5]).plugin)\n"
        "print({'sklearn', 'matplotlib', 'polars', 'pandas'} & set(sys.modules))"
    )
    assert run(code).split() == ["0.0", "set()"]


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="Quantum"):
        _ = qacal.Quantum
