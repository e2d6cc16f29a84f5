"""The public API as users of scikit-learn try it first, one test per trap."""

import inspect
import sys
from html import unescape

import matplotlib as mpl
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics
from sklearn.calibration import CalibrationDisplay, calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

import qacal
from qacal.sources.elicitation.client import Client
from qacal.sources.elicitation.run import Plan, elicit
from tests.cli.test_cli import run as run_cli


def test_a_missing_package_is_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="onnxruntime is not installed") as told:
        qacal.embedder("minilm")
    assert isinstance(told.value, qacal.QacalError)
    assert not isinstance(told.value, ValueError)
    assert told.value.name == "onnxruntime"


def test_a_silent_server_is_a_connection_error(tmp_path):
    rows = [{"id": 1, "question": "2 + 2?"}]
    with pytest.raises(ConnectionError, match="Is the server running") as told:
        elicit(rows, Client("http://127.0.0.1:9/v1", tries=1), Plan("tiny"), tmp_path / "run.db")
    assert isinstance(told.value, qacal.QacalError)
    assert not isinstance(told.value, ValueError)


LABELS = np.tile([1, 1, 0, 1], 50)
PROBABILITIES = np.tile([0.9, 0.8, 0.7, 0.6], 50)
METRICS = [
    qacal.metrics.accuracy_confidence_curve,
    qacal.metrics.auac,
    qacal.metrics.auroc,
    qacal.metrics.aurc,
    qacal.metrics.brier_score,
    qacal.metrics.calibration_error,
    qacal.metrics.estimate_auroc,
    qacal.metrics.estimate_calibration_error,
    qacal.metrics.estimate_maximum_calibration_error,
    qacal.evaluate,
    qacal.metrics.log_loss,
    qacal.metrics.maximum_calibration_error,
    qacal.metrics.reliability_table,
    qacal.metrics.risk_coverage_curve,
    qacal.threshold_curve,
]


def test_metrics_take_scikit_learns_order():
    for ours, theirs in [
        (qacal.metrics.log_loss, sklearn_metrics.log_loss),
        (qacal.metrics.brier_score, sklearn_metrics.brier_score_loss),
        (qacal.metrics.auroc, sklearn_metrics.roc_auc_score),
    ]:
        assert ours(LABELS, PROBABILITIES) == pytest.approx(theirs(LABELS, PROBABILITIES))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_swapped_columns_are_refused(metric):
    metric(LABELS, PROBABILITIES)
    with pytest.raises(qacal.InputError, match=r"seem to be swapped; the order is \(y_true, y_prob\)"):
        metric(PROBABILITIES, LABELS)
    with pytest.raises((qacal.InputError, TypeError), match="y_prob"):
        metric(LABELS)


@pytest.mark.parametrize("choose", [qacal.certified_threshold, qacal.cheapest_threshold], ids=["certified", "cheapest"])
def test_swapped_columns_choose_no_threshold(choose):
    goal = {"accuracy": 0.5} if choose is qacal.certified_threshold else {"wrong": 5, "abstain": 1}
    choose(LABELS, PROBABILITIES, **goal)
    with pytest.raises(qacal.InputError, match="seem to be swapped"):
        choose(PROBABILITIES, LABELS, **goal)


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric is not qacal.evaluate])
def test_a_tally_stands_in_place_of_both_columns(metric):
    tally = qacal.Tally.of(PROBABILITIES, LABELS, ids=np.arange(200), n_blocks=256)
    assert metric(tally) is not None
    with pytest.raises(qacal.InputError, match="pass it alone"):
        metric(tally, PROBABILITIES)


def test_soft_targets_beside_certain_confidences_can_be_evaluated():
    """They look like swapped columns, but records and tallies name their columns."""
    soft = qacal.Tally.of(np.ones(100), np.full(100, 0.7))
    assert qacal.metrics.brier_score(soft) == pytest.approx(0.09)


def test_plain_metrics_are_floats():
    for metric in (
        "log_loss",
        "brier_score",
        "auac",
        "aurc",
        "auroc",
        "calibration_error",
        "maximum_calibration_error",
    ):
        assert type(getattr(qacal.metrics, metric)(LABELS, PROBABILITIES)) is float
    assert type(qacal.metrics.sharpness(PROBABILITIES)) is float


def test_weights_are_called_sample_weight():
    half = np.tile([1.0, 1.0, 0.0, 1.0], 50)
    weighted = qacal.QABinning().fit(PROBABILITIES, LABELS, sample_weight=half).predict([0.8])
    assert weighted == qacal.QABinning().fit(PROBABILITIES[half > 0], LABELS[half > 0]).predict([0.8])
    assert qacal.metrics.log_loss(LABELS, PROBABILITIES, sample_weight=half) == pytest.approx(
        sklearn_metrics.log_loss(LABELS, PROBABILITIES, sample_weight=half)
    )
    assert qacal.Tally.of(PROBABILITIES, LABELS, sample_weight=half).is_weighted


def test_score_is_free_for_the_method():
    assert qacal.QACalibrator().get_params()["learned_score"] == "auto"
    with pytest.raises(TypeError, match="score"):
        qacal.QACalibrator(score=None)


def test_parameters_of_parts_are_set_by_nested_names():
    model = qacal.QACalibrator(partition=qacal.BisectingTree(max_depth=2), calibrator=qacal.QABinning())
    assert model.get_params()["calibrator__points_per_bin"] == 50
    assert "calibrator__points_per_bin" not in model.get_params(deep=False)
    model.set_params(calibrator__points_per_bin=20, partition__max_depth=3)
    assert (model.calibrator.points_per_bin, model.partition.max_depth) == (20, 3)
    model.set_params(calibrator__alpha=0.2, calibrator=qacal.calibrators.UniformMassBinning())
    assert repr(model.calibrator) == "UniformMassBinning(alpha=0.2)"
    with pytest.raises(qacal.InputError, match="QABinning has no parameter 'bins'"):
        qacal.QACalibrator(calibrator=qacal.QABinning()).set_params(calibrator__bins=3)
    with pytest.raises(qacal.InputError, match="calibrator is None, which has no parameters"):
        qacal.QACalibrator().set_params(calibrator__alpha=0.2)


def subjects(n=400):
    """Return records without text; 0.8 is too low for physics and too high for law."""
    rng = np.random.default_rng(0)
    said, subject = rng.choice([0.7, 0.8], n), rng.choice(["law", "physics"], n)
    right = rng.random(n) < said + np.where(subject == "law", -0.3, 0.15)
    return pd.DataFrame({"id": np.arange(n), "subject": subject, "confidence": said, "correct": right})


@pytest.fixture(scope="module")
def model():
    return by_subject().fit(subjects())


def by_subject():
    return qacal.QACalibrator(partition=qacal.Column("subject"), calibrator=qacal.QABinning(points_per_bin=20))


def test_predict_takes_records_and_arrays(model, tmp_path):
    frame = subjects(50)
    expected = model.calibrate(frame)["calibrated"].to_numpy()
    frame.to_csv(tmp_path / "rows.csv")
    for records in (
        frame,
        pl.from_pandas(frame),
        frame.to_dict("records"),
        frame.to_dict("list"),
        tmp_path / "rows.csv",
    ):
        np.testing.assert_array_equal(model.predict(records), expected)
    for confidence in (frame["confidence"], frame["confidence"].tolist(), pl.Series(frame["confidence"])):
        np.testing.assert_array_equal(model.predict(confidence, groups=frame["subject"]), expected)
    with pytest.raises(qacal.InputError, match="records have their own columns"):
        model.predict(frame, groups=frame["subject"])
    with pytest.raises(qacal.InputError, match="Collect a lazy frame first"):
        model.predict(pl.from_pandas(frame).lazy())
    assert len(model.predict(pa.Table.from_pandas(frame))) == len(model.predict(nw.from_native(frame))) == 50


def test_the_verbs_of_a_model(model):
    """Other attributes are hyperparameters, fitted (with a trailing underscore) or private."""
    verbs = {"fit", "calibrate", "predict", "explain", "describe_groups", "choose_threshold", "set_threshold"}
    verbs |= {"save", "load", "score", "get_params", "set_params"}
    public = {name for name in dir(model) if not name.startswith("_") and not name.endswith("_")}
    assert public - set(model.get_params(deep=False)) == verbs


def public(estimator):
    """Return the public names that are not hyperparameters."""
    return {name for name in dir(estimator) if name[0] != "_" and name[-1] != "_"} - {*estimator.get_params(deep=False)}


def test_calibrators_show_no_internals():
    verbs = {"fit", "fit_tally", "predict", "predict_tally", "explain", "get_params", "set_params"}
    for name in qacal.calibrators.__all__:
        if name not in ("Evidence", "LearnedScore"):
            assert public(getattr(qacal.calibrators, name)()) == verbs | {"properties"}
    score = {"fit", "predict", "pooled", "chosen", "columns_used", "get_params", "set_params"}
    score |= {"reads_text", "reads_words"}
    assert public(qacal.LearnedScore()) == score


def test_partitions_have_one_way_to_assign_groups():
    """`fit` and `assign`, and in trees `paths`: the groups of every depth."""
    partitions = qacal.partitions
    verbs = {"fit", "assign", "clone", "get_params", "set_params"}
    for tree in (partitions.BisectingTree, partitions.KDTree):
        assert public(tree()) == verbs | {"paths"}
    parts = (partitions.Column("a"), partitions.KMeans())
    for partition in (*parts, partitions.Product(*parts)):
        assert public(partition) == verbs


def test_a_model_loads_itself_and_chooses_its_threshold(model, tmp_path):
    model.save(tmp_path / "model")
    back = qacal.QACalibrator.load(tmp_path / "model")
    new = subjects(2000).assign(id=np.arange(2000) + 1000)
    found = back.choose_threshold(new, accuracy=0.8)
    assert back.set_threshold(found).calibrate(new)["decision"].isin(["answer", "abstain"]).all()


def test_cross_validation_of_records():
    frame = subjects()
    scores = cross_val_score(by_subject(), frame, groups=frame["id"], cv=GroupKFold(3))
    raw = cross_val_score(
        qacal.QACalibrator(learned_score=None, calibrator=qacal.calibrators.Identity()),
        frame,
        groups=frame["id"],
        cv=GroupKFold(3),
    )
    assert (scores > raw).all()
    with pytest.raises(qacal.InputError, match="labels are the column correct"):
        by_subject().fit(frame, frame["correct"])


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_grid_search_over_records(kind):
    frame = kind(subjects().to_dict("list"))
    search = GridSearchCV(by_subject(), {"calibrator__points_per_bin": [20, 200]}, cv=2).fit(frame)
    assert search.best_params_ == {"calibrator__points_per_bin": 20}
    np.testing.assert_array_equal(search.predict(frame), search.best_estimator_.predict(frame))


@pytest.mark.usefixtures("wordless_unless_full")
def test_the_text_model_is_cross_validated_and_tuned():
    """One topic is always wrong: a model that reads the text beats one that does not."""
    rng = np.random.default_rng(0)
    topic = rng.choice(["prime numbers", "capitals of Europe"], 240)
    frame = pd.DataFrame({"id": np.arange(240), "question": [f"{t}, number {i}?" for i, t in enumerate(topic)]})
    frame = frame.assign(answer="Yes", confidence=0.9, correct=rng.random(240) < np.where(topic == topic[0], 0.9, 0.2))
    frame["confidence"] = rng.choice([0.8, 0.9], 240)
    frame = frame.sample(frac=1, random_state=0)  # otherwise one half has longer numbers than the other
    assert (cross_val_score(qacal.QACalibrator(), frame, cv=2, error_score="raise") > -0.6).all()
    model = qacal.QACalibrator(learned_score=qacal.LearnedScore())
    search = GridSearchCV(model, {"learned_score__text": [True, False]}, cv=2, error_score="raise").fit(frame)
    assert search.best_params_ == {"learned_score__text": True}
    assert search.best_estimator_.learned_score_.reads_text


@pytest.fixture
def no_window():
    """Draw without a window, and close all figures."""
    from matplotlib import pyplot as plt

    with mpl.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def parameters_of(method):
    return [name for name in inspect.signature(method).parameters if name not in ("alpha", "depth")]


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_a_reliability_display_is_used_as_scikit_learns(no_window, strategy):
    for method in ("from_predictions", "from_estimator", "plot"):
        theirs = parameters_of(getattr(CalibrationDisplay, method))
        assert parameters_of(getattr(qacal.ReliabilityDisplay, method)) == theirs
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(int)
    shown = qacal.ReliabilityDisplay.from_predictions(y, p, n_bins=8, strategy=strategy, name="LLM")
    prob_true, prob_pred = calibration_curve(y, p, n_bins=8, strategy=strategy)
    np.testing.assert_allclose(shown.prob_true, prob_true)
    np.testing.assert_allclose(shown.prob_pred, prob_pred)
    np.testing.assert_array_equal(shown.line_.get_ydata(), shown.prob_true)
    assert (shown.ax_.figure, shown.estimator_name) == (shown.figure_, "LLM")
    theirs = CalibrationDisplay.from_predictions(y, p, n_bins=8, strategy=strategy, name="LLM")
    assert vars(theirs).keys() <= vars(shown).keys()
    assert (shown.pos_label, shown.line_.get_label()) == (theirs.pos_label, theirs.line_.get_label())
    again = qacal.ReliabilityDisplay.from_predictions(1 - y, 1 - p, ax=shown.ax_)
    assert again.figure_ is shown.figure_
    with pytest.raises(qacal.InputError, match="seem to be swapped"):
        qacal.ReliabilityDisplay.from_predictions(p, y)


def test_the_bands_of_a_reliability_display_are_exact(no_window):
    shown = qacal.ReliabilityDisplay.from_predictions([1] * 8 + [0] * 2, [0.9] * 10)
    exact = stats.binomtest(8, 10).proportion_ci(0.95, method="exact")
    assert (shown.low[0], shown.high[0]) == pytest.approx((exact.low, exact.high))
    assert shown.band_ is not None


def test_a_reliability_display_of_an_estimator(no_window, model):
    frame = subjects(200)
    shown = qacal.ReliabilityDisplay.from_estimator(model, frame, frame["correct"])
    np.testing.assert_array_equal(shown.y_prob, model.predict(frame))
    X, words = frame[["confidence"]], np.where(frame["correct"], "yes", "no")
    theirs = LogisticRegression().fit(X, words)
    shown = qacal.ReliabilityDisplay.from_estimator(theirs, X, words)
    np.testing.assert_array_equal(shown.y_prob, theirs.predict_proba(X)[:, 1])
    assert shown.estimator_name == "LogisticRegression"


def test_a_fitted_model_shows_in_notebooks_what_fit_prints(model, tmp_path):
    subjects().to_csv(tmp_path / "rows.csv", index=False)
    how = ("--partition", "column:subject", "--calibrator", "qa-binning", "--points-per-bin", "20")
    code, printed, _ = run_cli("fit", tmp_path / "rows.csv", "-o", tmp_path / "model", *how)
    assert code == 0
    shown = unescape(model._repr_html_())
    assert "400 rows certify, in 2 groups" in shown
    assert shown.removeprefix("<pre>").removesuffix("</pre>").partition("\n\n")[2] in printed
    assert by_subject()._repr_html_().startswith("<pre>QACalibrator(")
    assert "400 rows certify" in qacal.load(tmp_path / "model")._repr_html_()
