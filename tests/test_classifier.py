import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from qacal import QABinning, QACalibrationClassifier
from qacal.calibrators import HierarchicalScaling
from qacal.partitions import KDTree


# Its weights are importances and not counts of rows, so with small bins in groups check_sample_weight_equivalence (a
# weight of 2 is a row twice) does not apply; curves and large bins pass it.
@parametrize_with_checks(
    [
        QACalibrationClassifier(),
        QACalibrationClassifier(HierarchicalScaling(), KDTree(max_depth=1)),
        QACalibrationClassifier(partition=KDTree(max_depth=3)),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 3))
    stated = rng.choice([0.7, 0.8, 0.9], n)
    right = rng.random(n) < np.where(features[:, 0] > 0, 0.95, 0.55)
    return np.column_stack([stated, features]), right.astype(int)


def test_grid_search_over_depth_and_points_per_bin():
    X, y = rows()
    model = QACalibrationClassifier(QABinning(), KDTree(axes="coordinate"))
    grid = {"partition__max_depth": [0, 1, 2, 3], "calibrator__points_per_bin": [20, 100]}
    search = GridSearchCV(model, grid, scoring="neg_brier_score", n_jobs=1).fit(X, y)
    assert search.best_params_["partition__max_depth"] >= 1
    scores = search.cv_results_["mean_test_score"]
    at_depth_0 = [p["partition__max_depth"] == 0 for p in search.cv_results_["params"]]
    assert scores[np.flatnonzero(at_depth_0)].max() < scores.max() - 0.01


def test_groups_of_the_features_are_calibrated():
    X, y = rows()
    model = QACalibrationClassifier(QABinning(points_per_bin=100), KDTree(max_depth=1, axes="coordinate")).fit(X, y)
    p = model.predict_proba(np.array([[0.8, -0.5, 0, 0], [0.8, 0.5, 0, 0], [0.8, 99, 0, 0]]))
    np.testing.assert_allclose(p[:, 1], [0.55, 0.95, 0.75], atol=0.05)
    evidence = model.explain(np.array([[0.8, -0.5, 0, 0], [0.8, 99, 0, 0]]))
    assert evidence.source.tolist() == ["group", "root"]


def test_the_larger_label_counts_as_correct():
    X, y = rows()
    numbered = QACalibrationClassifier().fit(X, y)
    named = QACalibrationClassifier().fit(X, np.where(y == 1, "yes", "no"))
    assert list(named.classes_) == ["no", "yes"]
    np.testing.assert_array_equal(named.predict_proba(X), numbered.predict_proba(X))
    assert set(named.predict(X)) <= {"no", "yes"}


def test_confidences_are_clipped():
    X, y = rows()
    model = QACalibrationClassifier().fit(X, y)
    far, edge = X[:5].copy(), X[:5].copy()
    far[:, 0], edge[:, 0] = 7, 1
    np.testing.assert_array_equal(model.predict_proba(far), model.predict_proba(edge))


def test_in_a_pipeline():
    from sklearn.preprocessing import FunctionTransformer

    X, y = rows()
    percent = X.copy()
    percent[:, 0] *= 100
    pipeline = make_pipeline(FunctionTransformer(lambda Z: Z / [100, 1, 1, 1]), QACalibrationClassifier())
    np.testing.assert_allclose(
        pipeline.fit(percent, y).predict_proba(percent), QACalibrationClassifier().fit(X, y).predict_proba(X)
    )


def test_three_classes_are_refused():
    with pytest.raises(ValueError, match="y has 3 classes"):
        QACalibrationClassifier().fit([[0.5], [0.6], [0.7]], [0, 1, 2])


def test_ids_reach_the_calibrator():
    X, y = rows(400)
    model = QACalibrationClassifier(QABinning(points_per_bin=40, ties="jitter")).fit(X, y, ids=range(400))
    weighted = QACalibrationClassifier(QABinning(points_per_bin=40, ties="jitter"))
    weighted.fit(X, y, sample_weight=np.arange(400) % 2, ids=range(400))
    assert len(set(model.predict_proba(X, ids=range(400))[:, 1])) > 3
    assert len(set(weighted.explain(X, ids=range(400)).calibrated)) > 1
