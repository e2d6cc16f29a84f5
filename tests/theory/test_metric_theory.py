"""Metrics on simulated data: p-values, noise floors, debiased errors and their intervals."""

from dataclasses import replace

import numpy as np
import pytest

import qacal
from qacal import Tally
from qacal.metrics.binned import Binned
from qacal.metrics.noise import p_value, redraw
from tests.sizes import sized
from tests.theory.lab import assert_breaks, assert_holds, at_least, at_most, failure_rate


def test_p_values_are_exact_for_calibrated_scores_in_groups():
    trials = sized(1000)

    def rejects(rng, pooled=False):
        h = rng.choice([0.3, 0.6, 0.9], 150)
        t = rng.random(150) < h
        groups = rng.integers(0, 10, 150)
        if not pooled:
            return (
                qacal.metrics.estimate_calibration_error(
                    t, h, groups=groups, redraws=99, seed=int(rng.integers(2**31))
                ).p_value
                <= 0.1
            )
        # Weakened: the noise of the pooled score instead of that of its groups.
        binned = Binned.of(Tally.of(h, t), "outputs")
        drawn = redraw(binned, 99, seed=0)
        return p_value(qacal.metrics.estimate_calibration_error(t, h, groups=groups, redraws=0).plugin, drawn) <= 0.1

    rate = failure_rate(rejects, trials)
    assert at_least(0.08, trials) <= rate <= at_most(0.1, trials)
    assert_breaks(lambda rng: rejects(rng, pooled=True), 0.1, 200)


def repeated(rng, questions=150, each=4):
    """Return 150 questions with four rows each, all correct or all wrong: 600 rows worth 150."""
    h = np.repeat(rng.choice([0.4, 0.7], questions), each)
    t = np.repeat(rng.random(questions) < h[::each], each)
    return h, t, np.repeat(np.arange(questions), each)


def test_several_rows_of_a_question_are_not_independent():
    trials = 400

    def rejects(rng, knows_ids):
        h, t, ids = repeated(rng)
        return qacal.metrics.estimate_calibration_error(t, h, ids=ids if knows_ids else None, redraws=99).p_value <= 0.1

    # Sign flips are approximate: 0.1 may become 0.14, but not 0.5.
    assert_holds(lambda rng: rejects(rng, True), 0.14, trials)
    assert_breaks(lambda rng: rejects(rng, False), 0.14, trials)


def test_intervals_of_clustered_rows_are_wide_enough():
    trials, truth = 300, 0.15

    def misses(rng, knows_ids):
        h, t, ids = repeated(rng)
        stated = h + truth  # every bin is overconfident by 0.15
        error = qacal.metrics.estimate_calibration_error(t, stated, ids=ids if knows_ids else None, redraws=0)
        return not error.low <= truth <= error.high

    assert_holds(lambda rng: misses(rng, True), 0.08, trials)
    assert_breaks(lambda rng: misses(rng, False), 0.08, trials)


def off_by(rng, n, gap, groups):
    """Return scores that are too high by `gap` in half of the groups and too low in the others."""
    s = rng.integers(0, groups, n)
    truth = rng.choice([0.4, 0.5, 0.6], n)
    return np.round(truth + np.where(s % 2, gap, -gap), 10), rng.random(n) < truth, s


def test_the_debiased_error_is_unbiased_and_the_plug_in_is_not():
    gap, groups, n, trials = 0.1, 20, 500, 600
    rng = np.random.default_rng(0)
    squares, plugins = [], []
    for _ in range(trials):
        h, t, s = off_by(rng, n, gap, groups)
        error = qacal.metrics.estimate_calibration_error(t, h, groups=s, redraws=0)
        squares.append(np.sign(error.debiased) * error.debiased**2)
        plugins.append(error.plugin)
    standard_error = np.std(squares) / np.sqrt(trials)
    assert abs(np.mean(squares) - gap**2) < 4 * standard_error
    assert np.mean(plugins) > gap + 0.03


def test_intervals_of_the_debiased_error_cover():
    trials = 400

    def misses(rng):
        h, t, s = off_by(rng, 800, 0.1, 10)
        error = qacal.metrics.estimate_calibration_error(t, h, groups=s, redraws=0)
        return not error.low <= 0.1 <= error.high

    assert_holds(misses, 0.07, trials)


def test_the_noise_floor_is_what_perfect_calibration_measures():
    rng = np.random.default_rng(0)
    plugins, floors = [], []
    for seed in range(200):
        h, s = rng.choice([0.3, 0.6, 0.9], 400), rng.integers(0, 20, 400)
        error = qacal.metrics.estimate_calibration_error(rng.random(400) < h, h, groups=s, seed=seed, redraws=50)
        plugins.append(error.plugin)
        floors.append(error.floor)
    assert abs(np.mean(plugins) - np.mean(floors)) < 4 * np.std(plugins) / np.sqrt(200)


def test_the_held_out_maximum_does_not_exceed_the_truth_on_average():
    """Calibrated except for one group of twenty with an error of 0.1; the plug-in maximum is far higher."""
    rng = np.random.default_rng(0)
    held, plugins = [], []
    for _ in range(300):
        s = rng.integers(0, 20, 600)
        h = np.full(600, 0.5)
        t = rng.random(600) < np.where(s == 0, 0.6, 0.5)
        error = qacal.metrics.estimate_maximum_calibration_error(t, h, groups=s)
        held.append(error.debiased)
        plugins.append(error.plugin)
    assert np.mean(held) <= 0.1 + 3 * np.std(held) / np.sqrt(300)
    assert np.mean(plugins) > 0.18


def rejects_calibrated(rng, kind):
    """Return whether perfectly calibrated scores are rejected at 5%: high confidences, many small groups."""
    n = 700
    h, s, ids = rng.choice([0.6, 0.8, 0.95], n), rng.integers(0, 32, n), np.arange(n)
    t = (rng.random(n) < h).astype(float)
    weights = rng.pareto(2, n) + 0.5 if kind == "weighted" else None
    if kind == "one repeated":
        ids[1] = 0
    if kind == "soft":
        t = np.where(t == 1, 0.999, 0.001)
    if kind == "added":
        parts = [slice(k, None, 4) for k in range(4)]
        tally = sum(Tally.of(h[k], t[k], groups=s[k], ids=ids[k], n_blocks=256) for k in parts)
        return qacal.metrics.estimate_calibration_error(tally, redraws=99).p_value <= 0.05
    return (
        qacal.metrics.estimate_calibration_error(t, h, groups=s, ids=ids, sample_weight=weights, redraws=99).p_value
        <= 0.05
    )


@pytest.mark.parametrize("kind", ["weighted", "one repeated", "soft", "added"])
def test_calibrated_scores_are_rarely_rejected_whatever_the_rows_are(kind):
    trials = 200
    assert_holds(lambda rng: rejects_calibrated(rng, kind), 0.08, trials)


def test_days_that_ask_the_same_questions_are_not_independent():
    """The same answers on four days, added up: rows are independent within a day, but not across days."""
    trials = 150

    def rejects(rng, knows):
        h, s = rng.choice([0.6, 0.8, 0.95], 200), rng.integers(0, 8, 200)
        t = rng.random(200) < h
        tally = sum(Tally.of(h, t, groups=s, ids=range(200), n_blocks=256) for _ in range(4))
        if not knows:
            tally = replace(tally, is_sum=False)
        return qacal.metrics.estimate_calibration_error(tally, redraws=99).p_value <= 0.05

    assert_holds(lambda rng: rejects(rng, True), 0.1, trials)
    assert_breaks(lambda rng: rejects(rng, False), 0.1, trials)
