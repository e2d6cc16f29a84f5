"""The threshold curve: counts by hand, exact tails, and valid bounds for soft targets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qacal import InputError, Tally, threshold_curve
from qacal.metrics import accuracy_confidence_curve
from qacal.thresholds.curve import ThresholdCurve, binomial_tail


def test_counts_by_hand():
    curve = threshold_curve([1, 0, 1, 1], [0.2, 0.5, 0.5, 1.0], thresholds=[0, 0.2, 0.5, 0.6, 1])
    assert curve.accepted.tolist() == [4, 4, 3, 1, 1]
    assert curve.right.tolist() == [3, 3, 2, 1, 1]
    assert curve.withheld.tolist() == [0, 0, 1, 2, 2]
    assert (curve.rows, curve.all_right) == (4, 3)


def test_it_agrees_with_the_metric_of_the_same_name():
    rng = np.random.default_rng(0)
    h, y = rng.choice(np.linspace(0, 0.9, 19), 300), rng.random(300) < 0.6
    mine, theirs = threshold_curve(y, h), accuracy_confidence_curve(y, h)
    np.testing.assert_array_equal(mine.coverage, theirs.coverage)
    np.testing.assert_array_equal(np.nan_to_num(mine.accuracy), theirs.accuracy)


def test_without_accepted_rows_accuracy_is_unknown_and_the_p_value_is_1():
    curve = threshold_curve([1], [0.5], thresholds=[0.6])
    assert np.isnan(curve.accuracy[0])
    assert (curve.low[0], curve.high[0]) == (0, 1)
    assert curve.p_values(0.9)[0] == 1
    soft = ThresholdCurve(np.array([0.6]), np.zeros(1), np.zeros(1), 1, 0.5, 0.1, is_soft=True)
    assert (soft.low[0], soft.high[0], soft.p_values(0.9)[0]) == (0, 1, 1)
    table = curve.to_polars().row(0, named=True)
    assert table == {
        "threshold": 0.6,
        "accepted": 0,
        "coverage": 0,
        "accuracy": None,
        "low": 0,
        "high": 1,
        "right": 0,
        "withheld": 1,
    }


@given(st.integers(0, 300), st.floats(0, 1), st.sampled_from([0.05, 0.5, 0.9, 0.99]))
def test_tails_are_exact(rows, share, accuracy):
    right = np.floor(rows * share)
    exact = stats.binom.sf(right - 1, rows, accuracy)
    assert binomial_tail(np.array([right]), np.array([float(rows)]), accuracy)[0] == pytest.approx(exact, rel=1e-9)


def test_an_interval_ends_above_the_target_exactly_if_the_p_value_is_below_alpha():
    rng = np.random.default_rng(1)
    h = rng.choice(np.linspace(0, 1, 21), 500)
    curve = threshold_curve(rng.random(500) < h, h, alpha=0.07)
    for target in (0.6, 0.8, 0.95):
        np.testing.assert_array_equal(curve.p_values(target) <= 0.07, curve.low >= target)


def test_bounds_for_soft_targets_are_never_below_the_truth():
    """Labels 0 and 1 are soft targets, too, and their tail is known."""
    accepted = np.repeat(40.0, 41)
    right = np.arange(41.0)
    for accuracy in (0.5, 0.9):
        soft = ThresholdCurve(accepted, accepted, right, 40, 40, 0.1, is_soft=True).p_values(accuracy)
        exact = stats.binom.sf(right - 1, 40, accuracy)
        assert (soft >= exact * (1 - 1e-9)).all()
        assert soft[-1] == pytest.approx(accuracy**40)


def test_tallies_and_errors():
    tally = Tally.of([0.5, 0.9], [0, 1], groups=["a", "b"], ids=[1, 2], n_blocks=4)
    assert threshold_curve(tally, thresholds=[0.9]).right.tolist() == [1]
    with pytest.raises(InputError, match="rising"):
        threshold_curve([1], [0.5], thresholds=[0.9, 0.1])
    with pytest.raises(InputError, match="alpha is 0"):
        threshold_curve([1], [0.5], alpha=0)
