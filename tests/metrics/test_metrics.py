"""Metrics compared with slow versions, scikit-learn and hand calculation."""

from itertools import pairwise, permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

import qacal
from qacal import InputError, Paths, Tally
from qacal.metrics.scores import doubt_of, estimate_auroc


@st.composite
def rows(draw, max_rows=60, soft=True):
    n = draw(st.integers(2, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    h = rng.choice([0.0, 0.3, 0.5, 0.8, 1.0], n)
    h[0] = 0.3  # soft targets beside 0 and 1 alone would be taken for swapped columns
    t = rng.random(n) if soft and draw(st.booleans()) else rng.integers(0, 2, n).astype(float)
    w = rng.exponential(size=n) if draw(st.booleans()) else np.ones(n)
    return h, t, w, rng.integers(0, 3, n)


def slow_bins(h, t, w, groups):
    """Yield (weight, residual mean, rows) of each group's distinct confidences."""
    for s in sorted(set(groups)):
        for value in sorted(set(h[groups == s])):
            mine = (groups == s) & (h == value)
            yield w[mine].sum(), (w[mine] * (t[mine] - value)).sum() / w[mine].sum(), mine


@given(rows(soft=False))
def test_auroc_is_that_of_scikit_learn_and_lies_in_its_interval(data):
    h, t, w, _ = data
    found = qacal.metrics.estimate_auroc(t, h, sample_weight=w)
    if 0 < t.sum() < len(t):
        assert found.value == pytest.approx(sk.roc_auc_score(t, h, sample_weight=w), abs=1e-9)
    else:
        assert np.isnan(found.value)
    assert 0 <= found.low <= (0.5 if np.isnan(found.value) else found.value + 1e-12)
    assert found.high <= 1
    assert found.low < found.high


def test_auroc_intervals_cover_and_stay_wide_for_a_few_sorted_rows():
    rng = np.random.default_rng(0)
    truth, hits = stats.norm.cdf(1 / np.sqrt(2)), 0
    for _ in range(300):
        t = rng.random(60) < 0.7
        found = qacal.metrics.estimate_auroc(t, stats.norm.cdf(rng.normal(t, 1)))
        hits += found.low <= truth <= found.high
    assert hits >= 0.92 * 300
    assert qacal.metrics.estimate_auroc([0, 0, 1, 1], [0.6, 0.7, 0.8, 0.9]).low < 0.5
    assert qacal.metrics.estimate_auroc([0, 0, 1, 1] * 20, [0.9, 0.8, 0.7, 0.6] * 20).high < 0.2


def stated(n, auroc, seed=0):
    """Return labels, and confidences in steps of 0.05 with about this AUROC."""
    rng = np.random.default_rng(seed)
    right = rng.random(n) < 0.6
    said = np.round(stats.norm.cdf(rng.normal(np.sqrt(2) * stats.norm.ppf(auroc) * (right - 0.5), 1)) * 20) / 20
    return right, said


@pytest.mark.parametrize(
    ("n", "auroc", "kind"),
    [(2000, 0.65, None), (150, 0.3, "opposite"), (2000, 0.4, "opposite"), (2000, 0.5, "unrelated"), (6, 0.3, None)],
)
def test_confidences_that_do_not_fit_their_labels_are_reported(n, auroc, kind):
    assert getattr(doubt_of(*stated(n, auroc)), "kind", None) == kind


def test_a_wide_interval_is_not_called_unrelated():
    """From 0.09 to 0.54: the confidences may also be reversed."""
    rows = np.repeat([1, 0, 1, 0], [2, 6, 6, 2]), np.repeat([0.9, 0.5], 8)
    found = estimate_auroc(*rows)
    assert found.low < 0.1
    assert 0.5 < found.high < 0.55
    assert doubt_of(*rows) is None


def test_good_files_rarely_raise_a_doubt():
    """A weak LLM with an AUROC of 0.6, in files of 30 to 1,000 rows; and any file of a few equal confidences."""
    found = [doubt_of(*stated(n, 0.6, seed)) for n in (30, 100, 300, 1000) for seed in range(50)]
    assert sum(doubt is not None for doubt in found) <= 4
    assert doubt_of([1] * 49, [0.9] * 49) is None
    assert doubt_of([1] * 50, [0.9] * 50).kind == "constant"


def test_rows_of_one_question_count_as_one():
    right, said = stated(12, 0.3, seed=3)
    many = np.tile(right, 20), np.tile(said, 20)
    assert doubt_of(*many).kind == "opposite"
    assert doubt_of(*many, questions=12) is None


@given(rows())
def test_plug_in_errors(data):
    h, t, w, groups = data
    for by in (groups, np.zeros(len(h), dtype=int)):
        bins = list(slow_bins(h, t, w, by))
        error = qacal.metrics.estimate_calibration_error(t, h, groups=by, sample_weight=w, bins="outputs", redraws=0)
        assert error.plugin == pytest.approx(sum(weight * abs(gap) for weight, gap, _ in bins) / w.sum())
        worst = qacal.metrics.estimate_maximum_calibration_error(t, h, groups=by, sample_weight=w, bins="outputs")
        assert worst.plugin == pytest.approx(max(abs(gap) for _, gap, _ in bins))


@given(rows())
def test_debiased_error_is_the_sum_over_pairs(data):
    h, t, w, groups = data
    numerator = denominator = 0.0
    for weight, _, mine in slow_bins(h, t, w, groups):
        s, v = (w * (t - h))[mine], w[mine]
        pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if i != j]
        if pairs:
            numerator += weight * sum(s[i] * s[j] for i, j in pairs) / sum(v[i] * v[j] for i, j in pairs)
            denominator += weight
    error = qacal.metrics.estimate_calibration_error(t, h, groups=groups, sample_weight=w, bins="outputs", redraws=0)
    if denominator == 0:
        assert np.isnan(error.debiased)
    else:
        square = numerator / denominator
        assert error.debiased == pytest.approx(np.sign(square) * np.sqrt(abs(square)), abs=1e-7)


def test_debiased_error_with_several_rows_per_question_pairs_questions_of_different_blocks():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(60), 3)
    h = rng.choice([0.5, 0.8], 180)
    t = rng.integers(0, 2, 180).astype(float)
    tally = Tally.of(h, t, ids=ids, n_blocks=16)
    block = qacal.tally.ids.blocks(qacal.tally.ids.id_hashes(ids, 180), 16)
    numerator = denominator = 0.0
    for value in (0.5, 0.8):
        s = np.where(h == value, t - h, 0)
        v = (h == value).astype(float)
        sums = [(s[block == k].sum(), v[block == k].sum()) for k in range(16)]
        pairs = [(a, b) for i, a in enumerate(sums) for j, b in enumerate(sums) if i != j]
        numerator += v.sum() * sum(a[0] * b[0] for a, b in pairs) / sum(a[1] * b[1] for a, b in pairs)
        denominator += v.sum()
    error = qacal.metrics.estimate_calibration_error(tally)
    assert error.is_clustered
    square = numerator / denominator
    assert error.debiased == pytest.approx(np.sign(square) * np.sqrt(abs(square)))


def test_the_jackknife_leaves_out_one_block_at_a_time():
    rng = np.random.default_rng(1)
    h, t, ids = rng.choice([0.5, 0.8], 100), rng.integers(0, 2, 100), np.arange(100)
    tally = Tally.of(h, t, ids=ids, n_blocks=8)
    block = qacal.tally.ids.blocks(qacal.tally.ids.id_hashes(ids, 100), 8)

    def square(keep):
        value = qacal.metrics.calibration_error(t[keep], h[keep], bins="outputs")
        return np.sign(value) * value**2

    without = np.array([square(block != k) for k in range(8)])
    variance = 7 / 8 * ((without - without.mean()) ** 2).sum()
    error = qacal.metrics.estimate_calibration_error(tally, bins="outputs", redraws=0)
    value, z = square(block >= 0), stats.t.ppf(0.975, 7)
    low, high = value - z * np.sqrt(variance), value + z * np.sqrt(variance)
    # The rows' own noise and one more row with an error of 1 widen it.
    reach = z * np.sqrt((((t - h) ** 2).sum() + 1) / 100**2)
    assert np.sqrt(high) < reach + np.sqrt(reach**2 + value) == pytest.approx(error.high)
    assert error.low == pytest.approx(np.sign(low) * np.sqrt(abs(low)), abs=1e-6)


def test_equal_rows_have_a_wide_interval():
    """The jackknife sees no spread: for 0.9 and four correct answers it would give an error of exactly 0.1."""
    error = qacal.metrics.estimate_calibration_error([1] * 4, [0.9] * 4, redraws=0, bins=15)
    assert error.debiased == pytest.approx(0.1)
    assert (error.low, error.high) == (-1, 1)
    many = qacal.metrics.estimate_calibration_error([1] * 10_000, [1.0] * 10_000, redraws=0, bins=15)
    assert many.low < 0 < many.high < 0.0005


def test_a_brier_score_is_never_negative():
    """Summed over these rows, 1 - 2 p + p^2 is rounded to less than 0."""
    assert f"{qacal.metrics.brier_score(np.ones(400), np.full(400, 1 - 3e-9)):.4f}" == "0.0000"


def test_equal_mass_bins_for_continuous_scores():
    rng = np.random.default_rng(0)
    h = rng.random(3000)
    t = (rng.random(3000) < h).astype(float)
    error = qacal.metrics.estimate_calibration_error(t, h)
    assert error.bins == 15
    order = np.argsort(h)
    expected = sum(abs((t - h)[part].sum()) for part in np.split(order, 15)) / 3000
    assert error.plugin == pytest.approx(expected)
    assert qacal.metrics.estimate_calibration_error(t, h, bins=30).bins == 30
    assert qacal.metrics.estimate_calibration_error(t, h, groups=np.arange(3000) % 4).bins == 60
    assert qacal.metrics.estimate_calibration_error(t, np.round(h, 1)).bins == 11


def test_one_group_is_no_group_and_depth_0_is_ce():
    rng = np.random.default_rng(0)
    h, t = rng.choice([0.5, 0.9], 100), rng.integers(0, 2, 100)
    plain = qacal.metrics.estimate_calibration_error(t, h)
    assert (
        qacal.metrics.estimate_calibration_error(t, h, groups=np.zeros(100, dtype=int), ids=None).plugin == plain.plugin
    )
    root = Paths(np.zeros(100, dtype=int), np.ones(100, dtype=int), 0)
    assert qacal.metrics.estimate_calibration_error(t, h, groups=root).plugin == plain.plugin


@given(rows(), st.integers(0, 1000))
def test_metrics_do_not_depend_on_row_order(data, seed):
    h, t, w, groups = data
    order = np.random.default_rng(seed).permutation(len(h))

    def everything(i):
        return (
            qacal.metrics.estimate_calibration_error(t[i], h[i], groups=groups[i], sample_weight=w[i], redraws=5),
            qacal.metrics.estimate_maximum_calibration_error(t[i], h[i], groups=groups[i], sample_weight=w[i]),
            qacal.metrics.auac(t[i], h[i], sample_weight=w[i]),
            qacal.metrics.aurc(t[i], h[i], sample_weight=w[i]),
            qacal.metrics.brier_score(t[i], h[i], sample_weight=w[i]),
        )

    assert repr(everything(order)) == repr(everything(np.arange(len(h))))


@given(rows(max_rows=6, soft=False))
def test_aurc_is_the_mean_over_orders_of_ties(data):
    h, t, _, _ = data

    def area(order):
        wrong = 1 - t[list(order)]
        return np.mean(np.cumsum(wrong) / np.arange(1, len(h) + 1))

    consistent = [o for o in permutations(range(len(h))) if all(h[a] >= h[b] for a, b in pairwise(o))]
    assert qacal.metrics.aurc(t, h) == pytest.approx(np.mean([area(o) for o in consistent]))


@given(rows(soft=False))
def test_auac_row_by_row(data):
    h, t, w, _ = data
    grid = np.linspace(0, 1, 101)
    accuracy = [np.average(t[h >= g], weights=w[h >= g]) if (h >= g).any() else 0.0 for g in grid]
    assert qacal.metrics.auac(t, h, sample_weight=w) == pytest.approx(np.trapezoid(accuracy, grid))
    curve = qacal.metrics.accuracy_confidence_curve(t, h, sample_weight=w, thresholds=[0.0, 0.5, 1.0])
    np.testing.assert_allclose(curve.coverage, [w[h >= g].sum() / w.sum() for g in (0.0, 0.5, 1.0)])


def test_risk_coverage_curve_by_hand():
    curve = qacal.metrics.risk_coverage_curve([1, 1, 0, 0], [0.9, 0.8, 0.8, 0.1])
    np.testing.assert_allclose(curve.coverage, [1 / 4, 3 / 4, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 3, 1 / 2])
    np.testing.assert_allclose(curve.threshold, [0.9, 0.8, 0.1])


@given(rows(soft=False))
def test_proper_scores_are_scikit_learns(data):
    h, t, w, _ = data
    assert qacal.metrics.log_loss(t, h, sample_weight=w) == pytest.approx(
        sk.log_loss(t, h, sample_weight=w, labels=[0, 1])
    )
    assert qacal.metrics.brier_score(t, h, sample_weight=w) == pytest.approx(
        sk.brier_score_loss(t, h, sample_weight=w, pos_label=1)
    )
    assert qacal.metrics.sharpness(h, sample_weight=w) == pytest.approx(
        np.average((h - np.average(h, weights=w)) ** 2, weights=w)
    )


def test_the_reliability_table():
    table = qacal.metrics.reliability_table(
        [1, 0, 1, 1, 0], [0.5, 0.5, 0.9, 0.9, 0.9], groups=["law", "law", "law", "art", None], bins="outputs"
    )
    assert table.columns == ["group", "from", "to", "rows", "confidence", "accuracy", "low", "high", "gap"]
    assert table["group"].to_list() == [None, "art", "law", "law"]
    law = table.filter(pl.col("group") == "law")
    assert law["rows"].to_list() == [2, 1]
    assert law["accuracy"].to_list() == [0.5, 1.0]
    assert (table["low"] <= table["accuracy"]).all()
    assert (table["accuracy"] <= table["high"]).all()
    assert qacal.metrics.reliability_table([1, 0], [0.5, 0.9]).columns[0] == "from"


def test_a_tally_can_be_given_instead_of_rows():
    rng = np.random.default_rng(0)
    h, t, s = rng.choice([0.5, 0.8], 200), rng.integers(0, 2, 200), rng.integers(0, 3, 200)
    tally = Tally.of(h, t, groups=s, ids=range(200), n_blocks=256)
    rows = qacal.metrics.estimate_calibration_error(t, h, groups=s, ids=range(200))
    assert repr(qacal.metrics.estimate_calibration_error(tally)) == repr(rows)
    assert qacal.metrics.auac(tally) == qacal.metrics.auac(t, h)
    assert qacal.metrics.aurc(tally) == qacal.metrics.aurc(t, h)
    assert qacal.metrics.log_loss(tally) == pytest.approx(qacal.metrics.log_loss(t, h))
    assert qacal.metrics.brier_score(tally) == pytest.approx(qacal.metrics.brier_score(t, h))
    assert np.isnan(qacal.metrics.estimate_calibration_error(tally.without_blocks()).low)
    assert np.isnan(qacal.metrics.maximum_calibration_error(tally.without_blocks()))
    with pytest.raises(InputError, match="pass it alone"):
        qacal.metrics.auac(tally, h)
    with pytest.raises(InputError, match="y_prob is missing"):
        qacal.metrics.auac(h)
    with pytest.raises(InputError, match="bins is 0"):
        qacal.metrics.estimate_calibration_error(t, h, bins=0)
    with pytest.raises(InputError, match="redraws is -1"):
        qacal.metrics.estimate_calibration_error(t, h, redraws=-1)


def test_one_row_has_an_estimate_and_no_interval():
    error = qacal.metrics.estimate_calibration_error([1], [0.8])
    assert error.plugin == pytest.approx(0.2)
    assert np.isnan(error.debiased)
    assert qacal.metrics.aurc([1], [0.8]) == 0
    assert qacal.metrics.auac([1], [0.8]) == pytest.approx(0.805)
    assert np.isnan(qacal.metrics.maximum_calibration_error([1], [0.8]))


def test_the_log_loss_of_extreme_confidences():
    assert qacal.metrics.log_loss([1, 0], [1.0, 0.0]) == pytest.approx(0, abs=1e-12)
    assert qacal.metrics.log_loss([0], [1.0]) == pytest.approx(36.04, abs=0.01)
    assert qacal.metrics.brier_score([0, 1], [1.0, 0.0]) == 1
    assert qacal.metrics.estimate_calibration_error([1, 1], [1.0, 1.0]).plugin == 0


def test_perfect_noise_is_the_floor():
    """For calibrated scores the plug-in error grows with the number of distinct outputs; all of it is floor."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 64, 1400)
    plugins = []
    for outputs in (2, 5, 20):
        h = rng.choice(np.linspace(0.3, 0.9, outputs), 1400)
        t = rng.random(1400) < h
        error = qacal.metrics.estimate_calibration_error(t, h, groups=groups)
        plugins.append(error.plugin)
        assert error.plugin == pytest.approx(error.floor, abs=0.02)
        assert error.low < 0 < error.high
        assert error.p_value > 0.01
    assert plugins[0] < plugins[1] < plugins[2]
    assert plugins[2] > 0.25


def test_a_stated_confidence_passes_a_threshold_of_the_same_number():
    for k in range(101):
        curve = qacal.metrics.accuracy_confidence_curve([1] * 4, [k / 100] * 4)
        assert curve.accuracy[k] == 1, k


def test_metrics_refuse_what_they_cannot_measure():
    with pytest.raises(InputError, match="expected rising numbers"):
        qacal.metrics.auac([1], [0.5], thresholds=[1, 0])
    halves = [Tally.of([0.5], [1], ids=[1], n_blocks=2).fold(k, of=2) for k in (0, 1)]
    with pytest.raises(InputError, match="the tally is empty"):
        qacal.metrics.estimate_calibration_error(min(halves, key=len))


def test_tallies_that_keep_ties_give_the_same_metrics():
    rng = np.random.default_rng(0)
    h, t = rng.choice([0.5, 0.8], 200), rng.integers(0, 2, 200)
    kept = Tally.of(h, t, ids=range(200), n_blocks=256, ties=True)
    assert repr(qacal.metrics.estimate_calibration_error(kept)) == repr(
        qacal.metrics.estimate_calibration_error(t, h, ids=range(200))
    )
    assert qacal.metrics.aurc(kept) == qacal.metrics.aurc(t, h)


def test_dependent_rows_without_blocks_have_no_floor():
    h, t = np.full(100, 0.8), np.tile([1, 0], 50)
    error = qacal.metrics.estimate_calibration_error(Tally.of(h, t, ids=np.repeat(np.arange(50), 2)))
    assert error.is_clustered
    assert np.isnan([error.floor, error.p_value, error.debiased]).all()
    assert np.isnan(qacal.metrics.estimate_calibration_error(Tally.of(h, t * 0.5)).p_value)


def test_the_worst_bin_is_named():
    h = np.repeat([0.5, 0.9, 0.99], [100, 100, 1])
    t = np.concatenate([np.tile([1, 0], 50), np.arange(100) < 60, [0]])
    groups = ["law"] * 100 + ["art"] * 100 + ["zoo"]
    alone = qacal.metrics.estimate_maximum_calibration_error(t, h, groups=groups)
    assert (alone.group, alone.bin_rows) == ("zoo", 1)
    worst = qacal.metrics.estimate_maximum_calibration_error(t, h, groups=groups, min_rows=50)
    assert (worst.group, worst.bin_rows) == ("art", 100)
    np.testing.assert_allclose([worst.stated, worst.observed, worst.plugin], [0.9, 0.6, 0.3])
    with pytest.raises(InputError, match="the largest bin has 100 rows"):
        qacal.metrics.estimate_maximum_calibration_error(t, h, min_rows=200)


def test_few_blocks_make_wide_intervals():
    h, t = np.full(1000, 0.8), np.arange(1000) % 2
    lengths = []
    for n_blocks in (2, 8, 256):
        error = qacal.metrics.estimate_calibration_error(Tally.of(h, t, ids=range(1000), n_blocks=n_blocks), redraws=0)
        lengths.append(error.high - error.low)
    assert lengths[0] > lengths[2]
    assert "[no interval]" in repr(qacal.metrics.estimate_calibration_error(Tally.of(h, t)))
