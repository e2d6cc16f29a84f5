"""The paper's theorem for distinct scores (ties="jitter"), and the exact intervals that replace it."""

import numpy as np
import pytest

import qacal
from qacal import QABinning
from qacal.calibrators import ScalingQABinning, UniformMassBinning
from qacal.guarantee import binomial_interval
from tests.sizes import sized
from tests.theory.lab import assert_breaks, assert_holds, at_least, at_most, failure_rate

ALPHA = 0.1


def fitted(rng, n, groups, b, truth=0.5, tied=False):
    """Fit uninformative scores: the accuracy of every bin is `truth`. Ties are ordered by id."""
    h, s = rng.choice([0.5, 0.8, 1.0], n) if tied else rng.random(n), rng.integers(0, groups, n)
    model = QABinning(points_per_bin=b, ties="jitter", alpha=ALPHA)
    return model.fit(h, rng.random(n) < truth, groups=s, ids=rng.permutation(n))


def own_bins(maps):
    """Leave out the root's bins: the theorem is about groups with their own map."""
    return slice(maps.offset[1], None)


def test_the_theorem_holds_and_needs_its_union_bound():
    n, groups, b, trials = 4000, 8, 20, 300
    eps = qacal.planning.epsilon(b, n, ALPHA)
    no_union = np.sqrt(np.log(2 / ALPHA) / (2 * (b - 1)))

    def misses(eps):
        return lambda rng: np.abs((m := fitted(rng, n, groups, b).maps_).value[own_bins(m)] - 0.5).max() > eps

    assert_holds(misses(eps), ALPHA, trials)
    assert_breaks(misses(no_union), ALPHA, trials)


def test_the_theorem_with_the_root_counts_two_levels():
    n, groups, b, trials = 4000, 8, 20, 300
    eps = qacal.planning.epsilon(b, n, ALPHA, levels=2)
    assert_holds(lambda rng: np.abs(fitted(rng, n, groups, b).maps_.value - 0.5).max() > eps, ALPHA, trials)


def test_plain_umd_holds_and_needs_its_union_bound():
    n, B, trials = 4000, 100, 300
    eps = qacal.planning.epsilon(n // B, n, ALPHA)
    no_union = np.sqrt(np.log(2 / ALPHA) / (2 * (n // B - 1)))

    def misses(eps):
        def trial(rng):
            model = UniformMassBinning(n_bins=B, ties="jitter").fit(rng.random(n), rng.random(n) < 0.5, ids=range(n))
            return np.abs(model.maps_.value - 0.5).max() > eps

        return trial

    assert_holds(misses(eps), ALPHA, trials)
    assert_breaks(misses(no_union), ALPHA, trials)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("truth", [0.5, 0.9, 0.02])
def test_exact_intervals_hold_for_all_bins_at_once(truth, tied):
    n, groups, b, trials = 3000, 6, 60, 400

    def broken(rng):
        maps = fitted(rng, n, groups, b, truth, tied).maps_
        return ((maps.low > truth) | (maps.high < truth)).any()

    assert_holds(broken, ALPHA, trials)


def test_exact_intervals_need_both_tails_and_every_bin():
    """The same counts with weaker tails: without the factor 2, or without the union over bins."""
    n, b, trials = 2500, 500, 3000

    def broken(tail):
        def trial(rng):
            rows = np.full(n // b, b - 1)
            right = rng.binomial(rows, 0.5)
            low, high = binomial_interval(right, rows, tail)
            return ((low > 0.5) | (high < 0.5)).any()

        return trial

    bins = n // b
    assert_holds(broken(ALPHA / (2 * bins)), ALPHA, trials)
    assert_breaks(broken(ALPHA / bins), ALPHA, trials)
    assert_breaks(broken(ALPHA / 2), ALPHA, trials)


def test_one_bin_fails_about_as_often_as_allowed():
    """One bin of 1,000 rows: the interval is nearly tight. Alpha is 0.2; discreteness costs a little of it."""
    n, trials = 1000, sized(2000)

    def broken(rng):
        model = UniformMassBinning(points_per_bin=n, ties="jitter", alpha=0.2)
        model.fit(rng.random(n), rng.random(n) < 0.5, ids=range(n))
        return model.maps_.low[0] > 0.5 or model.maps_.high[0] < 0.5

    rate = failure_rate(broken, trials)
    assert rate <= at_most(0.2, trials)
    assert rate >= at_least(0.16, trials)


def test_edge_rows_enter_no_bin():
    """Given the edges, the rows between them are independent draws from their bin; the edges themselves are not."""
    rng = np.random.default_rng(0)
    h = rng.random(1000)
    model = UniformMassBinning(n_bins=10, ties="jitter").fit(h, rng.random(1000) < h)
    assert model.maps_.rows.sum() == 1000 - 9


def test_a_marginal_nu_is_not_enough():
    """Two groups at 0.6 and 0.4, a pooled scaler that answers 0.5, correct on average: nu = 0 by the paper's
    definition, and every bin of every group misses by 0.1. With nu by group the bound holds."""
    n, b, trials = 40_000, 1500, 20
    marginal, by_group = qacal.planning.epsilon(b, n // 2, ALPHA), qacal.planning.epsilon(b, n // 2, ALPHA, nu=0.1)
    assert marginal < 0.1 < by_group

    def misses(eps):
        def trial(rng):
            s = rng.integers(0, 2, n)
            truth = np.where(s == 1, 0.6, 0.4)
            model = ScalingQABinning(pooling="full", points_per_bin=b, ties="jitter")
            maps = model.fit(rng.random(n), rng.random(n) < truth, groups=s, ids=np.arange(n)).maps_
            own = np.repeat(np.where(maps.lineage.owner == 1, 0.6, 0.4), np.diff(maps.offset))[maps.offset[1] :]
            return np.abs(maps.value[maps.offset[1] :] - own).max() > eps

        return trial

    assert_holds(misses(by_group), ALPHA, trials)
    assert_breaks(misses(marginal), ALPHA, trials)


def test_nu_measured_by_group_is_a_bound():
    """A judge that is 0.1 too lenient in one group: the bound covers it, the marginal estimate does not."""
    trials = 200

    def trial(rng, which):
        s = rng.integers(0, 2, 4000)
        truth = rng.random(4000) < 0.5
        judged = np.where(truth, rng.random(4000) < 1 - 0.05 * (s == 0), rng.random(4000) < 0.1 * (s == 1))
        bound = qacal.planning.nu_bound(judged, truth, rng.choice([0.7, 0.9], 4000), groups=s, alpha=ALPHA)
        return getattr(bound, which) < 0.05

    assert_holds(lambda rng: trial(rng, "bound"), ALPHA, trials)
    assert_breaks(lambda rng: trial(rng, "marginal"), ALPHA, trials)
