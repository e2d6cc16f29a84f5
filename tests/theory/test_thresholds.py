"""Certified thresholds miss their target with probability at most alpha; weaker procedures fail more often."""

import numpy as np
from scipy import stats

from qacal import Tally, certified_threshold, threshold_curve
from qacal.thresholds.certified import lowest_rejected
from qacal.thresholds.curve import ThresholdCurve, curve_of
from qacal.thresholds.fit_record import CANDIDATES, Forecasts, cells_of
from qacal.thresholds.outlook import best_start
from tests.theory.lab import assert_breaks, assert_holds, at_least, failure_rate

TRIALS = 400
ALPHA = 0.1
SCORES = np.arange(1, 21) / 20


def flat(rng, n=500):
    """Return answers whose accuracy is just below the target of 0.8 at every score."""
    return rng.choice(SCORES, n), rng.random(n) < 0.7999


def falling(rng, n=300):
    """Return answers for which strict thresholds are worse: the few with a score of 1 are never correct."""
    h = np.where(rng.random(n) < 0.06, 1.0, 0.5)
    return h, rng.random(n) < np.where(h == 1, 0.0, 0.7999 / 0.94)


def require_sorted(rng, n=500):
    """Return nearly calibrated scores: the accuracy of accepted answers crosses the target at 0.6."""
    h = rng.choice(SCORES, n)
    return h, rng.random(n) < h


def accuracy_of_accepted(make, threshold, seed=10):
    h, y = make(np.random.default_rng(seed), 400_000)
    return y[h >= threshold].mean()


def certifies(make, **options):
    return lambda rng: certified_threshold(*make(rng)[::-1], accuracy=0.8, alpha=ALPHA, **options).threshold is not None


def test_a_missed_target_is_rarely_certified():
    for make in (flat, falling):
        others = Forecasts.of(Tally.of(*make(np.random.default_rng(99), 5000)))
        assert_holds(certifies(make), ALPHA, TRIALS)
        assert_holds(certifies(make, others=others), ALPHA, TRIALS)


def test_the_failure_probability_is_nearly_alpha():
    others = Forecasts.of(Tally.of(*flat(np.random.default_rng(99), 5000)))
    assert failure_rate(certifies(flat, others=others), TRIALS) >= at_least(0.06, TRIALS)


def test_a_threshold_that_is_too_low_is_rarely_certified():
    true = {t: accuracy_of_accepted(require_sorted, t) for t in CANDIDATES}

    def too_low(rng):
        found = certified_threshold(*require_sorted(rng)[::-1], accuracy=0.8, alpha=ALPHA).threshold
        return found is not None and true[found] < 0.8

    assert_holds(too_low, ALPHA, TRIALS)


def test_picking_the_lowest_that_passes_is_not_enough():
    def picks(rng):
        curve = threshold_curve(*flat(rng)[::-1])
        return (curve.p_values(0.8) <= ALPHA).any()

    assert_breaks(picks, ALPHA, TRIALS)


def test_a_start_chosen_by_the_labels_of_the_tested_rows_fails():
    def starts_where_it_looks_best(rng):
        cells = cells_of(Tally.of(*flat(rng)))[None]
        curve = curve_of(cells.score, cells.rows, cells.right, SCORES, ALPHA, is_soft=False)
        start = best_start(cells, SCORES, curve.rows, 0.8, ALPHA)
        return lowest_rejected(curve.p_values(0.8), start, ALPHA) is not None

    assert_breaks(starts_where_it_looks_best, ALPHA, TRIALS)


def test_the_normal_approximation_is_not_exact():
    """35 answers with an accuracy of 0.95 are all correct in one case of six; the approximation certifies these."""
    rows = np.arange(1, 200.0)
    right = np.arange(201.0)[:, None]
    chances = stats.binom.pmf(right, rows, 0.95)
    exact = (chances * (stats.binom.sf(right - 1, rows, 0.95) <= ALPHA)).sum(axis=0)
    curve = ThresholdCurve(rows, rows, rows, 200, 200, ALPHA)
    np.testing.assert_allclose(curve.p_values(0.95), 0.95**rows)
    z = (right - 0.95 * rows) / np.sqrt(rows * 0.95 * 0.05)
    normal = (chances * (stats.norm.sf(z) <= ALPHA)).sum(axis=0)
    assert exact.max() <= ALPHA
    assert normal[34] > 0.16
    assert np.mean(normal > ALPHA) > 0.3


def test_all_groups_hold_at_once_and_only_with_a_share_of_alpha_each():
    trials = 150
    groups = np.repeat(np.arange(8), 150)

    def some_group_fails(rng, alpha=ALPHA):
        h, y = flat(rng, 1200)
        return certified_threshold(y, h, accuracy=0.8, alpha=alpha, groups=groups).is_certified

    assert_holds(some_group_fails, ALPHA, trials)
    # Eight times alpha, divided by eight groups: the whole alpha for each.
    assert_breaks(lambda rng: some_group_fails(rng, 0.8), ALPHA, trials)


def test_repeated_questions_count_once():
    def repeated(rng, **options):
        h, y = (np.repeat(column, 8) for column in flat(rng, 60))
        return certified_threshold(y, h, accuracy=0.8, alpha=ALPHA, **options).is_certified

    ids = np.repeat(np.arange(60), 8)
    assert_holds(lambda rng: repeated(rng, ids=ids), ALPHA, 300)
    assert_breaks(repeated, ALPHA, 300)


def test_soft_targets():
    def soft(rng):
        y = rng.beta(0.4 * 0.7999, 0.4 * 0.2001, 400)
        return certified_threshold(y, rng.choice(SCORES, 400), accuracy=0.8, alpha=ALPHA).is_certified

    assert_holds(soft, ALPHA, TRIALS)


def test_with_plenty_of_rows_a_threshold_near_the_true_one_is_found():
    """For calibrated uniform scores, accepted answers have an accuracy of (1 + t) / 2: 0.9 at t = 0.8."""
    rng = np.random.default_rng(3)
    h = rng.random(40_000)
    found = certified_threshold(rng.random(40_000) < h, h, accuracy=0.9)
    assert 0.8 <= found.threshold <= 0.83
    groups = rng.integers(0, 4, 40_000)
    each = certified_threshold(rng.random(40_000) < h, h, accuracy=0.9, groups=groups)
    assert all(0.79 <= threshold <= 0.85 for threshold in each.thresholds.values())


def test_misleading_fit_rows_cost_power_only():
    """On the rows of the fit the score looked reversed."""
    h, y = require_sorted(np.random.default_rng(5), 5000)
    wrong = Forecasts.of(Tally.of(1 - h, y))
    assert_holds(certifies(flat, others=wrong), ALPHA, TRIALS)
