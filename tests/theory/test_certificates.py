"""The certificates for tied scores, soft targets and weights."""

import numpy as np
import pytest

from qacal import Paths, QABinning, Tally
from qacal.calibrators import ScalingBinning, ScalingQABinning, UniformMassBinning
from qacal.guarantee import bounded_interval, mean_intervals, uniform_certificate, weighted_interval
from tests.sizes import FULL, full_only, sized
from tests.theory.lab import assert_breaks, assert_holds, at_least, at_most, failure_rate

ALPHA = 0.1


def every_interval_fails(right, rows, truth, tail):
    """Return whether any interval misses, over all ranges of neighbouring values in all nodes.

    right, rows : one line per node, one column per confidence value. truth : the same for all.
    """
    k = np.concatenate([np.zeros((len(right), 1)), np.cumsum(right, axis=1)], axis=1)
    n = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)
    a, b = np.triu_indices(k.shape[1], 1)
    k, n = (k[:, b] - k[:, a]).ravel(), (n[:, b] - n[:, a]).ravel()
    k, n = k[n > 0], n[n > 0]
    low, high = mean_intervals(n, n, k, k, n, tail, is_mixed=False)
    return ((low > truth) | (high < truth)).any()


def test_the_uniform_certificate_holds_for_every_interval_in_every_node():
    m, nodes, trials = 8, 5, 400

    def broken(tail):
        def trial(rng):
            rows = rng.integers(20, 80, (nodes, m))
            return every_interval_fails(rng.binomial(rows, 0.5), rows, 0.5, tail)

        return trial

    promise = uniform_certificate(ALPHA, [np.full(nodes, m)], None)
    assert_holds(broken(promise.tail), ALPHA, trials)
    # It fails if the union bound leaves out the ranges, or both nodes and ranges.
    assert_breaks(broken(ALPHA / (2 * nodes)), ALPHA, trials)
    assert_breaks(broken(ALPHA / 2), ALPHA, trials)


def test_the_uniform_certificate_is_tight_for_a_single_value():
    """One node, one value: one statement, whose interval fails about as often as allowed."""
    trials = sized(3000)

    def broken(rng):
        maps = UniformMassBinning(points_per_bin=1000, alpha=0.2).fit(np.full(1000, 0.8), rng.random(1000) < 0.5).maps_
        return maps.low[0] > 0.5 or maps.high[0] < 0.5

    rate = failure_rate(broken, trials)
    assert at_least(0.16, trials) <= rate <= at_most(0.2, trials)


def worst_choice(rng, certificate, cut_before=False):
    """Return whether some choice of points per bin and depth makes a certificate fail.

    A few stated values, a tree of depth 5, an accuracy of 0.5 everywhere.
    """
    n = 1500
    h = rng.choice([0.8, 0.9], n)
    tally = Tally.of(h, rng.random(n) < 0.5, groups=Paths(rng.integers(0, 32, n), np.full(n, 6), 5))
    for b in (5, 20, 60, 200):
        for depth in range(6):
            model = QABinning(points_per_bin=b, certificate=certificate, alpha=ALPHA)
            if cut_before:
                maps = model.fit_tally(tally.roll_up(depth)).maps_
            else:
                maps = model.set_params(max_depth=depth).fit_tally(tally).maps_
            if ((maps.low > 0.5) | (maps.high < 0.5)).any():
                return True
    return False


def test_the_uniform_certificate_survives_choices_made_on_the_same_rows():
    """Depth must be chosen by max_depth on the whole tree: the nodes of a tree cut before fitting are not counted."""
    trials = 150 if FULL else 25
    whole = failure_rate(lambda rng: worst_choice(rng, "uniform"), trials)
    assert whole <= at_most(ALPHA, trials)
    if FULL:
        assert failure_rate(lambda rng: worst_choice(rng, "uniform", cut_before=True), trials) > whole


@full_only
def test_the_conditional_certificate_does_not_survive_them():
    trials = 150
    assert_breaks(lambda rng: worst_choice(rng, "conditional"), ALPHA, trials)


def rising_truth(h, s):
    return np.clip(0.1 + 0.7 * h + 0.1 * (s - 1), 0.02, 0.98)


def conditional_failure(rng, tied, certificate="conditional", calibrator=QABinning, **options):
    """Return whether an interval misses the mean true accuracy of its calibration rows; accuracy rises with h."""
    n = 1500
    h = rng.integers(0, 21, n) / 20 if tied else rng.random(n)
    s = rng.integers(0, 3, n)
    truth = rising_truth(h, s)
    model = calibrator(points_per_bin=50, certificate=certificate, alpha=ALPHA, **options)
    model.fit(h, rng.random(n) < truth, groups=s, ids=np.arange(n))
    evidence = model.explain(h, groups=s)
    bins = np.stack([evidence.low, evidence.high, evidence.calibrated, s])
    _, which = np.unique(bins, axis=1, return_inverse=True)
    average = np.bincount(which.ravel(), truth) / np.bincount(which.ravel())
    missed = (evidence.low > average[which.ravel()] + 1e-12) | (evidence.high < average[which.ravel()] - 1e-12)
    return missed.any()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("certificate", ["conditional", "uniform"])
def test_bins_in_which_the_accuracy_varies(tied, certificate):
    trials = 300
    assert_holds(lambda rng: conditional_failure(rng, tied, certificate), ALPHA, trials)


@pytest.mark.parametrize("tied", [True, False])
def test_scaled_answers_are_certified_by_true_labels(tied):
    """HS-QAB with cross-fitting, on the same rows: its intervals come from labels and hold, without any nu."""
    trials = 120
    assert_holds(lambda rng: conditional_failure(rng, tied, calibrator=ScalingQABinning, cross_fit=True), ALPHA, trials)


def test_halves_without_ids_are_independent_of_labels():
    """All rows have one stated value and no ids: the binned half is still a random sample, and its interval holds."""
    trials = 400

    def broken(rng):
        maps = ScalingBinning(points_per_bin=50, alpha=ALPHA).fit(np.full(400, 0.9), rng.random(400) < 0.5).maps_
        return maps.low[0] > 0.5 or maps.high[0] < 0.5

    assert_holds(broken, ALPHA, trials)


def test_the_conditional_certificate_needs_both_tails_and_every_bin():
    """Tied scores, one value per bin. The same counts with weaker tails fail too often."""
    values, trials = 5, 3000

    def broken(tail):
        def trial(rng):
            rows = np.full(values, 400.0)
            right = rng.binomial(400, 0.5, values).astype(float)
            low, high = mean_intervals(rows, rows, right, right, rows, tail)
            return ((low > 0.5) | (high < 0.5)).any()

        return trial

    assert_holds(broken(ALPHA / (2 * values)), ALPHA, trials)
    assert_breaks(broken(ALPHA / values), ALPHA, trials)
    assert_breaks(broken(ALPHA / 2), ALPHA, trials)


def test_weights_need_the_effective_number_of_rows():
    """One row in fifty weighs a hundred times as much as the others."""
    n, trials, tail = 500, 1000, ALPHA / 2

    def broken(effective):
        def trial(rng):
            w = np.where(np.arange(n) % 50 == 0, 100.0, 1.0)
            mean = np.average(rng.random(n) < 0.5, weights=w)
            rows = w.sum() ** 2 / (w**2).sum() if effective else n
            low, high = weighted_interval(np.array([mean]), np.array([rows]), tail)
            return low[0] > 0.5 or high[0] < 0.5

        return trial

    assert_holds(broken(effective=True), ALPHA, trials)
    assert_breaks(broken(effective=False), ALPHA, trials)


def test_weighted_rows_through_the_calibrator():
    n, trials = 900, 300

    def broken(rng):
        w = np.where(rng.random(n) < 0.05, 50.0, 1.0)
        h, s = rng.choice([0.7, 0.9], n), rng.integers(0, 3, n)
        maps = (
            QABinning(points_per_bin=50, certificate="conditional", alpha=ALPHA)
            .fit(h, rng.random(n) < 0.5, groups=s, sample_weight=w)
            .maps_
        )
        return ((maps.low > 0.5) | (maps.high < 0.5)).any()

    assert_holds(broken, ALPHA, trials)


def test_kl_does_not_hold_with_an_effective_number_of_rows():
    """Why weighted rows get Hoeffding's interval: one row weighs 20, two hundred weigh 1, accuracy is 1/50.

    If the heavy row is correct (once in fifty), the kl interval with a tail of 0.01 excludes the true accuracy.
    """
    w = np.append(np.ones(200), 20.0)
    effective = w.sum() ** 2 / (w**2).sum()
    tail, truth, trials = 0.01, 0.02, 4000
    means = np.average(np.random.default_rng(0).random((trials, 201)) < truth, axis=1, weights=w)

    def rate(interval):
        return np.mean(interval(means, np.full(trials, effective), tail)[0] > truth)

    assert rate(bounded_interval) > at_most(tail, trials)
    assert rate(weighted_interval) <= at_most(tail, trials)


def test_soft_targets_hold_and_need_the_union_bound():
    """Mostly 0 and 1: nearly as noisy as labels."""
    n, groups, b, trials = 1600, 16, 50, 300

    def soft(rng):
        return np.where(rng.random(n) < 0.98, rng.integers(0, 2, n), rng.random(n))

    def fitted(rng):
        return (
            QABinning(points_per_bin=b, certificate="conditional", alpha=ALPHA)
            .fit(rng.random(n), soft(rng), groups=rng.integers(0, groups, n))
            .maps_
        )

    def broken(rng):
        maps = fitted(rng)
        return ((maps.low > 0.5) | (maps.high < 0.5)).any()

    def broken_without_union(rng):
        maps = fitted(rng)
        low, high = bounded_interval(maps.value, maps.rows.astype(float), ALPHA / 2)
        return ((low > 0.5) | (high < 0.5)).any()

    assert_holds(broken, ALPHA, trials)
    assert_breaks(broken_without_union, ALPHA, trials)


def test_a_declared_grid_covers_all_future_answers():
    """Continuous scores snapped to a grid of 21: intervals contain E[Y | bin, group] for new answers."""
    n, trials = 2000, 150
    step = 0.05

    def broken(rng):
        h, s = rng.beta(3, 1.5, n), rng.integers(0, 3, n)
        model = QABinning(points_per_bin=80, resolution=step, alpha=ALPHA)
        model.fit(h, rng.random(n) < rising_truth(h, s), groups=s)
        new_h, new_s = rng.beta(3, 1.5, 100_000), rng.integers(0, 3, 100_000)
        evidence = model.explain(new_h, groups=new_s)
        key = evidence.low + 10 * evidence.high + 1000 * new_s
        _, which = np.unique(key, return_inverse=True)
        truth = np.bincount(which, rising_truth(new_h, new_s)) / np.bincount(which)
        # The true accuracy of a bin is itself simulated: half a percent of slack.
        return ((evidence.low > truth[which] + 0.005) | (evidence.high < truth[which] - 0.005)).any()

    assert_holds(broken, ALPHA, trials)
