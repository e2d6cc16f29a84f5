"""The traps that calibration libraries fall into, each crossed with every calibrator.

Others are in the contract: row order, kinds of columns, weights of 0, predicting twice and from threads.
"""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from qacal import InputError, MarginBinning, Paths, QABinning, RepeatedQuestionsWarning, Tally
from qacal.calibrators import (
    HierarchicalScaling,
    IsotonicCalibration,
    PlattScaling,
    ScalingQABinning,
    TreeScaling,
    UniformMassBinning,
)
from qacal.calibrators.curves import IsotonicCurve
from qacal.metrics import log_loss
from tests.calibrators.contract import CALIBRATORS, name_of, recalibrate
from tests.sizes import FULL, sized

every_calibrator = pytest.mark.parametrize("calibrator", CALIBRATORS, ids=name_of)
with_points = [c for c in CALIBRATORS if "points_per_bin" in c.get_params()]
binning = pytest.mark.parametrize("calibrator", with_points, ids=name_of)


def uninformative(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), rng.integers(0, 3, n)


@every_calibrator
def test_confidence_exactly_0_and_1(calibrator):
    right, groups = uninformative()
    h = np.tile([0.0, 1.0, 0.5, 0.9], 100)
    right[h == 0], right[h == 1] = 0, 1
    model = clone(calibrator).fit(h, right, groups=groups, ids=range(400))
    p = model.predict([0.0, 1.0], groups=[0, 0], ids=[1, 2])
    assert np.isfinite(p).all()
    assert p[0] < 0.3
    assert p[1] > 0.7


@every_calibrator
def test_all_confidences_equal(calibrator):
    right, groups = uninformative()
    model = clone(calibrator).fit(np.full(400, 0.9), right, groups=groups, ids=range(400))
    p = model.predict([0.0, 0.9, 1.0], groups=[1, 1, 1], ids=[1, 2, 3])
    assert np.isfinite(p).all()
    if type(calibrator).__name__ != "Identity":
        assert abs(p[1] - right.mean()) < 0.2


@every_calibrator
def test_one_row(calibrator):
    for right in (0, 1, 0.3):
        model = clone(calibrator).fit([0.8], [right], groups=["law"], ids=["q1"])
        p = model.predict([0.0, 0.8, 1.0], groups=["law", "law", "art"], ids=[1, 2, 3])
        if recalibrate(calibrator):
            np.testing.assert_allclose(p, right, atol=1e-6)
        evidence = model.explain([0.8], groups=["law"], ids=["q1"])
        assert len(evidence.to_polars()) == 1


@pytest.mark.parametrize(("rows", "source"), [(19, "root"), (20, "group"), (21, "group")])
@pytest.mark.parametrize("ties", ["merge", "jitter"])
def test_groups_about_as_large_as_a_bin(rows, source, ties):
    """n_s = b - 1, b, b + 1 for b = 20: the small group borrows the root's map."""
    h = np.linspace(0, 1, rows + 200)
    right = np.arange(rows + 200) % 2
    groups = np.repeat([0, 1], [rows, 200])
    model = QABinning(points_per_bin=20, ties=ties).fit(h, right, groups=groups, ids=range(rows + 200))
    evidence = model.explain([0.01], groups=[0], ids=[-1])
    assert evidence.source[0] == source
    if source == "group" and ties == "merge":
        assert evidence.rows[0] == rows


@every_calibrator
@pytest.mark.parametrize("answer", [0, 1])
def test_a_group_that_is_all_correct_or_all_wrong(calibrator, answer):
    right, _ = uninformative()
    groups = np.arange(400) % 4
    right[groups == 2] = answer
    h = np.tile([0.5, 0.7, 0.9, 1.0, 0.6], 80)
    model = clone(calibrator).fit(h, right, groups=groups, ids=range(400))
    p = model.predict(h, groups=groups, ids=range(400))
    assert ((p >= 0) & (p <= 1)).all()
    if recalibrate(calibrator) and calibrator.properties.uses_groups and getattr(calibrator, "pooling", None) != "full":
        assert np.abs(p[groups == 2].mean() - answer) < 0.15


@every_calibrator
def test_a_million_rows_of_21_values(calibrator):
    rng = np.random.default_rng(0)
    n = 10**6 if FULL else 10**5
    h = rng.integers(0, 21, n) / 20
    groups = rng.integers(0, 16 if FULL else 4, n)
    right = rng.random(n) < 0.2 + 0.5 * h
    ids = np.arange(n) if getattr(calibrator, "ties", None) == "jitter" else None
    # The test is about many rows in few bins, not about many small bins.
    model = clone(calibrator)
    if hasattr(model, "points_per_bin"):
        model.set_params(points_per_bin=1000)
    model.fit(h, right, groups=groups, ids=ids)
    asked = np.arange(21) / 20
    p = model.predict(asked, groups=np.full(21, 3), ids=np.arange(21))
    if type(calibrator).__name__ != "Identity":
        # Curves miss the shape by a little, three bins by more.
        is_coarse = "Scaling" in repr(calibrator) or "n_bins=3" in repr(calibrator)
        np.testing.assert_allclose(p, 0.2 + 0.5 * asked, atol=0.2 if is_coarse else 0.1)


@every_calibrator
def test_a_million_distinct_values(calibrator):
    rng = np.random.default_rng(0)
    n = 10**6 if FULL else 10**5
    h = (rng.permutation(n) + 0.5) / n
    groups = rng.integers(0, 4, n)
    right = rng.random(n) < 0.2 + 0.5 * h
    model = clone(calibrator)
    if hasattr(model, "points_per_bin"):
        model.set_params(points_per_bin=5000 if FULL else 1000)
    model.fit(h, right, groups=groups)
    asked = np.linspace(0.1, 0.9, 9)
    p = model.predict(asked, groups=np.full(9, 3))
    if recalibrate(calibrator):
        tolerance = 0.2 if "n_bins=3" in repr(calibrator) or "logit" in repr(calibrator) else 0.06
        np.testing.assert_allclose(p, 0.2 + 0.5 * asked, atol=tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_the_last_decimals_of_a_tie_do_not_matter_for_the_order_of_rows(seed):
    """10^-10 of noise leaves ties at a million rows and lifts 1.0 above 1; here equal confidences stay equal."""
    rng = np.random.default_rng(seed)
    h = np.full(1000, 1.0)
    right = rng.integers(0, 2, 1000)
    merged = UniformMassBinning(points_per_bin=100).fit(h, right).predict(h)
    assert len(set(merged)) == 1
    ids = np.arange(1000)
    jittered = UniformMassBinning(points_per_bin=100, ties="jitter").fit(h, right, ids=ids)
    np.testing.assert_array_equal(jittered.predict(h, ids=ids), jittered.predict(h, ids=ids))
    assert len(set(jittered.predict(h, ids=ids))) > 1
    with pytest.raises(InputError, match=r"confidence\[0\] is 1.0, and bins divide that value by id"):
        jittered.predict(h)
    # Two tallies added share a cell if id and confidence are the same.
    part = Tally.of(h, right, ids=ids, ties=True)
    with pytest.raises(InputError, match="the same id and the same confidence"):
        UniformMassBinning(points_per_bin=100, ties="jitter").fit_tally(part + part)


@binning
def test_a_value_between_two_bins_belongs_to_the_upper_one(calibrator):
    """Bins are (top of the one below, own top]: fit and predict use one lookup."""
    h = np.repeat([0.2, 0.6], 100)
    right = np.repeat([0, 1], 100)
    model = clone(calibrator).set_params(points_per_bin=10)
    if hasattr(model, "n_bins"):
        model.set_params(n_bins=None)
    model.fit(h, right, groups=np.zeros(200, dtype=int), ids=range(200))
    p = model.predict([0.2, 0.4, 0.6, 1.0, 0.0], groups=[0] * 5, ids=range(5))
    if getattr(calibrator, "ties", None) != "jitter":
        assert p[1] == p[2] == p[3]
        assert p[0] == p[4] < 0.5 < p[1]


def test_stated_confidences_sit_on_edges_and_keep_their_accuracy():
    """Accuracies .193/.534/.906 at .7/.8/.9 come back as they are; two binning rules would shift them by one bin."""
    h = np.repeat([0.7, 0.8, 0.9], 1000)
    right = np.concatenate([np.arange(1000) < k for k in (193, 534, 906)])
    for b in (1, 500, 1000):
        np.testing.assert_allclose(
            UniformMassBinning(points_per_bin=b).fit(h, right).predict([0.7, 0.8, 0.9]), [0.193, 0.534, 0.906]
        )


@every_calibrator
def test_groups_that_appear_only_at_prediction(calibrator):
    right, groups = uninformative()
    h = np.tile([0.5, 0.7, 0.9, 1.0], 100)
    model = clone(calibrator).fit(h, right, groups=groups, ids=range(400))
    new = model.explain([0.7, 0.7, 0.7], groups=[99, -1, 2**40], ids=[1, 1, 1])
    assert set(new.source) == {"band" if isinstance(calibrator, MarginBinning) else "root"}
    assert np.isnan(new.group_low).all()
    assert len(set(new.calibrated)) == 1
    assert new.group[1] is None
    without = model.predict([0.7], ids=[1])
    np.testing.assert_array_equal(new.calibrated[:1], without)


def test_a_new_name_of_a_group_is_shown_as_none():
    model = QABinning(points_per_bin=2).fit([0.5, 0.9, 0.5], [0, 1, 1], groups=["law", "law", "art"])
    evidence = model.explain([0.5, 0.5], groups=["law", "zoo"])
    assert evidence.group == ["law", None]


@pytest.mark.parametrize("cross_fit", [False, True])
def test_halves_that_lack_a_group_fall_back_on_the_common_curve(cross_fit):
    rng = np.random.default_rng(0)
    groups = np.append(rng.integers(0, 3, 300), [7])
    h = rng.choice([0.5, 0.9], 301)
    model = ScalingQABinning(points_per_bin=1, cross_fit=cross_fit).fit(
        h, rng.integers(0, 2, 301), groups=groups, ids=range(301)
    )
    assert 0 < model.predict([h[-1]], groups=[7])[0] < 1


def test_platt_on_data_on_which_full_newton_steps_diverge():
    h = np.repeat([0.1, 0.6, 0.75], [259, 14533, 138])
    right = np.concatenate([np.arange(n) < k for n, k in ((259, 256), (14533, 14498), (138, 73))])
    model = PlattScaling().fit(h, right)
    expected = LogisticRegression(C=np.inf, tol=1e-10).fit(h[:, None], right).predict_proba([[0.75]])[0, 1]
    np.testing.assert_allclose(model.predict([0.75]), expected, atol=1e-4)
    np.testing.assert_allclose(model.predict(h).mean(), right.mean())


def test_platt_never_ends_worse_than_a_constant():
    rng = np.random.default_rng(0)
    for _ in range(sized(500)):
        rows = rng.integers(1, 2000, 3)
        h = np.repeat(np.sort(rng.choice(21, 3, replace=False)) / 20, rows)
        right = np.concatenate([rng.random(n) < p for n, p in zip(rows, rng.beta(0.3, 0.3, 3), strict=True)])
        p = PlattScaling().fit(h, right).predict(h)
        assert log_loss(right, p) <= log_loss(right, np.full(len(h), right.mean())) + 1e-9


def test_choosing_a_depth_of_the_tree():
    """max_depth uses the groups of that depth, for leaf numbers and for paths alike."""
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 8, 4000)
    h = rng.choice([0.7, 0.9], 4000)
    right = rng.random(4000) < 0.2 + 0.08 * leaf
    paths = Paths(leaf, np.full(4000, 4), 3)
    isotonic = partial(IsotonicCalibration, pooling="none")
    for method in (QABinning, ScalingQABinning, HierarchicalScaling, TreeScaling, isotonic):
        for depth in range(4):
            deep = method(max_depth=depth).fit(h, right, groups=paths, ids=range(4000))
            cut = method().fit(
                h, right, groups=Paths(leaf >> (3 - depth), np.full(4000, depth + 1), depth), ids=range(4000)
            )
            expected = cut.predict(h, groups=leaf >> (3 - depth))
            np.testing.assert_allclose(deep.predict(h, groups=paths), expected)
            np.testing.assert_allclose(deep.predict(h, groups=leaf), expected)
    names = QABinning(max_depth=1).fit(h, right, groups=paths).explain([0.7], groups=[7]).group
    assert names == [1]


def test_small_groups_of_a_tree_read_their_ancestors_curve():
    leaf = np.repeat([0, 1, 2, 3], [100, 10, 100, 100])
    right = np.concatenate([np.arange(100) < 20, np.arange(10) < 5, np.arange(200) < 190])
    paths = Paths(leaf, np.full(310, 3), 2)
    model = IsotonicCalibration(pooling="none", rows_per_group=50).fit(np.full(310, 0.8), right, groups=paths)
    evidence = model.explain([0.8, 0.8, 0.8], groups=[0, 1, 2])
    assert evidence.source.tolist() == ["group", "ancestor", "group"]
    np.testing.assert_allclose(evidence.calibrated[:2], [0.2, 25 / 110])


def test_groups_given_to_a_fit_without_them_are_counted():
    model = QABinning().fit([0.5, 0.6], [1, 0])
    with pytest.raises(InputError, match="groups has 3 values"):
        model.predict([0.5], groups=[1, 2, 3])


def test_small_weights_do_not_switch_the_groups_off():
    rng = np.random.default_rng(0)
    groups = np.arange(2000) % 4
    right = rng.random(2000) < np.array([0.3, 0.5, 0.7, 0.9])[groups]
    h = rng.choice([0.7, 0.9], 2000)
    model = HierarchicalScaling().fit(h, right, groups=groups, sample_weight=np.full(2000, 1 / 2000))
    np.testing.assert_allclose(model.predict(np.full(4, 0.8), groups=range(4)), [0.3, 0.5, 0.7, 0.9], atol=0.06)


def test_wrong_tallies_and_groups_in_two_columns_are_refused():
    with pytest.raises(InputError, match="fit_tally takes a Tally and got list"):
        QABinning().fit_tally([0.5])
    with pytest.raises(InputError, match=r"groups holds the columns \['topic', 'tenant'\]; give one"):
        QABinning().fit([0.5, 0.6], [0, 1], groups={"topic": ["a", "b"], "tenant": [1, 2]})


def test_the_warning_of_repeated_questions_points_at_the_caller():
    with pytest.warns(RepeatedQuestionsWarning) as caught:
        QABinning().fit([0.5, 0.6], [0, 1], ids=["q", "q"])
    assert caught[0].filename == __file__


TINY = 5e-324


@every_calibrator
@pytest.mark.parametrize("extremes", ["weights", "confidences", "both"])
def test_numbers_at_the_ends_of_float64_give_no_nan(calibrator, extremes):
    """Weights that differ by 1e16 and by 1e200, and confidences next to 0 whose differences have no inverse."""
    rng = np.random.default_rng(3)
    n, options = 120, calibrator._tally_options()
    groups, right, stated = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.random(n).round(1)
    for weights in ([1e-8, 1e8], [1e-100, 1e100]):
        weight = rng.choice(weights, n) if extremes != "confidences" else None
        tally = Tally.of(stated, right, groups=groups, sample_weight=weight, ids=np.arange(n), **options)
        if extremes != "weights":
            if options.get("ties") or options.get("resolution"):
                pytest.skip("ties are kept, or confidences are snapped to a grid")
            # Without the check of confidences, as for scores of other models.
            tally = tally.with_confidence(np.round(tally.confidence * 10) * TINY)
        model = clone(calibrator).fit_tally(tally)
        answers = model.predict_tally(tally)
        assert ((answers >= 0) & (answers <= 1)).all()
        if model.properties.is_certified:
            bins = getattr(model.maps_, "cells", model.maps_)
            assert ((bins.low >= 0) & (bins.high <= 1)).all()


def test_small_weights_are_not_lost_behind_large_ones():
    """A bin's mean depends on its own rows only, whatever the weights below it."""
    h, n = np.arange(1, 61) / 100, 60
    right = np.arange(n) % 2
    weights = np.where(h <= 0.3, 1e8, 1e-8)
    heavy = UniformMassBinning(points_per_bin=20, ties="jitter").fit(h, right, sample_weight=weights)
    plain = UniformMassBinning(points_per_bin=20, ties="jitter").fit(h, right)
    assert heavy.predict([0.6])[0] == pytest.approx(plain.predict([0.6])[0])


def test_a_shape_between_nearly_equal_knots():
    shape = IsotonicCurve(np.array([0.0, 4 * TINY, 1.0]), np.array([-1.0, 1.0, 2.0]))
    np.testing.assert_allclose(shape.apply(np.array([0.0, TINY, 2 * TINY, 4 * TINY, 0.5])), [-1, -0.5, 0, 1, 1.5])


def test_curves_per_group_look_for_groups_once(monkeypatch):
    """Searching all cells for every group would take quadratic time."""
    looked, real = [], Tally.group_runs
    monkeypatch.setattr(Tally, "group_runs", lambda level: looked.append(level) or real(level))
    groups = np.repeat(np.arange(300), 4)
    model = IsotonicCalibration(pooling="none", rows_per_group=4)
    h, right = np.tile([0.2, 0.4, 0.6, 0.8], 300), (np.arange(1200) * 7 % 10) < 5
    found = model.fit(h, right, groups=groups).predict(h, groups=groups)
    assert len(looked) == 3  # once for the groups with enough rows, and once for the curves of each level
    for group in (0, 150, 299):
        alone = IsotonicCalibration().fit(h[groups == group], right[groups == group])
        np.testing.assert_array_equal(found[groups == group], alone.predict(h[groups == group]))
