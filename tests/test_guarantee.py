import numpy as np
import pytest
from scipy import stats

import qacal
from qacal import InputError, NotEnoughRowsError, QABinning
from qacal.guarantee import (
    Certificate,
    binomial_interval,
    bounded_interval,
    mean_intervals,
    mixed_binomial_interval,
    uniform_certificate,
    weighted_interval,
)
from qacal.planning import nu_bound
from tests.tables import each


@each("n, b", [(1000, 226), (5000, 293), (20000, 353)])
def test_points_per_bin_of_the_theorem(n, b):
    """The advice printed under the paper's figure (300, 400, 500) is for a logarithm of base 2."""
    assert qacal.planning.points_per_bin(0.1, n, 0.1) == b
    assert qacal.planning.epsilon(b, n, 0.1) <= 0.1 < qacal.planning.epsilon(b - 1, n, 0.1)


@pytest.mark.parametrize("nu", [0.0, 0.03])
@pytest.mark.parametrize("levels", [1, 2, 8])
def test_points_per_bin_is_the_smallest_that_suffices(nu, levels):
    for n in (300, 4000):
        for target in (0.12, 0.2, 0.4):
            try:
                b = qacal.planning.points_per_bin(target, n, 0.05, nu, levels=levels)
            except NotEnoughRowsError:
                assert qacal.planning.epsilon(n, n, 0.05, nu, levels=levels) > target
                continue
            assert qacal.planning.epsilon(b, n, 0.05, nu, levels=levels) <= target
            assert b == 2 or qacal.planning.epsilon(b - 1, n, 0.05, nu, levels=levels) > target


def test_targets_out_of_reach_are_errors():
    with pytest.raises(NotEnoughRowsError, match=r"nu is 0\.1: with a label error of nu"):
        qacal.planning.points_per_bin(0.1, 1000, 0.1, nu=0.1)
    with pytest.raises(
        NotEnoughRowsError, match=r"100 rows cannot guarantee epsilon=0\.05: one bin of all of them gives 0\.12"
    ):
        qacal.planning.points_per_bin(0.05, 100, 0.1)


@each(
    "call, message",
    [
        (lambda: qacal.planning.epsilon(1, 100, 0.1), "points_per_bin is 1; expected a whole number from 2 to n=100"),
        (lambda: qacal.planning.epsilon(101, 100, 0.1), "points_per_bin is 101"),
        (lambda: qacal.planning.epsilon(10, 100, 0), "alpha is 0"),
        (lambda: qacal.planning.epsilon(10, 100, 1.0), r"alpha is 1\.0"),
        (lambda: qacal.planning.epsilon(10, 100, 0.1, nu=-1), "nu is -1"),
        (lambda: qacal.planning.epsilon(10, 1, 0.1), "n is 1"),
        (lambda: qacal.planning.points_per_bin(0, 100, 0.1), "epsilon is 0"),
        (lambda: qacal.QABinning(points_per_bin=0).fit([0.5], [1]), "points_per_bin is 0"),
        (lambda: qacal.QABinning(points_per_bin=2.5).fit([0.5], [1]), r"points_per_bin is 2\.5"),
        (lambda: qacal.QABinning(points_per_bin=1, ties="jitter").fit([0.5], [1]), "needs 2 or more"),
        (lambda: qacal.QABinning(ties="random").fit([0.5], [1]), "ties is 'random'; expected one of 'merge', 'jitter'"),
        (lambda: qacal.QABinning(certificate="none").fit([0.5], [1]), "certificate is 'none'"),
        (lambda: qacal.QABinning(alpha=2).fit([0.5], [1]), "alpha is 2"),
        (lambda: qacal.calibrators.UniformMassBinning(n_bins=0).fit([0.5], [1]), "n_bins is 0"),
        (lambda: qacal.calibrators.UniformMassBinning(n_bins=2.5).fit([0.5], [1]), r"n_bins is 2\.5"),
        (lambda: qacal.calibrators.UniformMassBinning(alpha="x").fit([0.5], [1]), "alpha is 'x'"),
        (lambda: qacal.calibrators.UniformMassBinning(resolution="a").fit([0.5], [1]), "resolution is 'a'"),
        (lambda: qacal.calibrators.UniformMassBinning(points_per_bin=10**30).fit([0.5], [1]), "points_per_bin is 1000"),
        (lambda: qacal.calibrators.ScalingBinning(seed=None).fit([0.5], [1]), "seed is None"),
        (lambda: qacal.QABinning(max_depth=1).fit([0.5], [1], groups=["a"]), "the groups are not a tree"),
        (lambda: qacal.partitions.KDTree(max_depth=2.5).fit([[0.5]]), r"max_depth is 2\.5"),
        (lambda: qacal.planning.epsilon(10, 100, 0.1, levels=0), "levels is 0"),
        (lambda: qacal.planning.points_per_bin(0.1, 1000.0, 0.1), r"n is 1000\.0"),
        (lambda: qacal.calibrators.PlattScaling(feature="rank").fit([0.5], [1]), "feature is 'rank'"),
        (lambda: qacal.calibrators.ScalingQABinning(pooling="some").fit([0.5], [1]), "pooling is 'some'"),
        (lambda: qacal.calibrators.IsotonicCalibration(pooling="some").fit([0.5], [1]), "pooling is 'some'"),
    ],
)
def test_parameters_out_of_range(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("n", [1, 2, 7, 50, 1000])
@pytest.mark.parametrize("tail", [0.2, 0.025, 1e-6, 1e-20])
def test_binomial_intervals_are_scipys(n, tail):
    k = np.unique([0, 1, n // 2, n - 1, n])
    low, high = binomial_interval(k, np.full(len(k), n), tail)
    for right, a, b in zip(k.tolist(), low, high, strict=True):
        if right > 0:
            assert stats.binom.sf(right - 1, n, a) == pytest.approx(tail, rel=1e-6)
        else:
            assert a == 0
        if right < n:
            assert stats.binom.cdf(right, n, b) == pytest.approx(tail, rel=1e-6)
        else:
            assert b == 1


def test_averages_of_differing_probabilities_need_a_lower_first_end():
    """One row has probability n*q, the others 0: the average is q, and P(one correct answer) is n*q.

    Clopper-Pearson's end for one correct answer is above tail/n, so for q in between it fails more often than tail.
    """
    n, tail = 20, 0.05
    exact, _ = binomial_interval([1], [n], tail)
    safe, _ = mixed_binomial_interval([1], [n], tail)
    assert safe[0] == tail / n < exact[0]
    q = (safe[0] + exact[0]) / 2
    assert n * q > tail  # probability of one correct answer; then the end of Clopper-Pearson excludes q
    assert q > safe[0]  # the corrected end does not
    with pytest.raises(InputError, match="tails up to"):
        mixed_binomial_interval([1], [n], 0.3)


@each("seed", range(30))
def test_mixed_intervals_cover_averages_exactly(seed):
    """No simulation: the distribution of a sum of differing Bernoulli variables is a product of polynomials."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    p = rng.beta(*rng.uniform(0.05, 2, 2), n)
    pmf = np.array([1.0])
    for q in p:
        pmf = np.convolve(pmf, [1 - q, q])
    for tail in (0.01, 0.05, 0.2):
        low, high = mixed_binomial_interval(np.arange(n + 1), np.full(n + 1, n), tail)
        assert pmf[low > p.mean()].sum() <= tail + 1e-12
        assert pmf[high < p.mean()].sum() <= tail + 1e-12


def test_bounded_intervals_solve_their_equation():
    def kl(p, q):
        return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))

    low, high = bounded_interval(np.array([0.3]), np.array([40.0]), 0.01)
    assert 40 * kl(0.3, low[0]) == pytest.approx(-np.log(0.01), rel=1e-9)
    assert 40 * kl(0.3, high[0]) == pytest.approx(-np.log(0.01), rel=1e-9)
    low, high = bounded_interval(np.array([0.0, 1.0]), np.array([40.0, 40.0]), 0.01)
    np.testing.assert_allclose(high[0], 1 - 0.01 ** (1 / 40))
    np.testing.assert_allclose([low[0], high[1], low[1]], [0, 1, 0.01 ** (1 / 40)])


def test_the_interval_depends_on_the_kind_of_labels():
    ones = np.array([10.0])
    binary = mean_intervals(ones, ones, ones * 0.4, ones * 0.4, ones, 0.05, is_mixed=False)
    np.testing.assert_array_equal(binary, binomial_interval([4], [10], 0.05))
    scaled = mean_intervals(ones, 3 * ones, 3 * ones * 0.4, 3 * ones * 0.4, 9 * ones, 0.05, is_mixed=False)
    np.testing.assert_allclose(scaled, binary)
    soft = mean_intervals(ones, ones, ones * 0.4, ones * 0.2, ones, 0.05)
    np.testing.assert_array_equal(soft, bounded_interval([0.4], [10], 0.05))
    heavy = mean_intervals(ones, ones, ones * 0.4, ones * 0.4, 2 * ones, 0.05)
    np.testing.assert_array_equal(heavy, weighted_interval(np.array([0.4]), [5], 0.05))
    np.testing.assert_array_equal(mean_intervals(0 * ones, 0 * ones, 0 * ones, 0 * ones, 0 * ones, 0.05), [[0], [1]])


def test_tails_of_the_certificates():
    assert uniform_certificate(0.1, [[9], [4, 5, 6]], 0.01).tail == pytest.approx(0.1 / (2 * 3 * 101 * 102))
    assert uniform_certificate(0.1, [[4], [5]], None).tail == pytest.approx(0.1 / (4 * 5 + 5 * 6))
    assert Certificate("conditional", 0.1, 20).tail == pytest.approx(0.1 / 40)


def test_statements_and_coverage_of_certificates():
    declared = qacal.QABinning(resolution=0.01).fit([0.5, 0.9] * 50, [0, 1] * 50, groups=[0, 1] * 50).maps_.certificate
    assert (declared.kind, declared.grid) == ("uniform", 101)
    assert declared.statements == 2 * 2 * 101 * 102 / 2  # two levels, the larger of two groups
    assert declared.is_about_all
    seen = qacal.QABinning().fit([0.5, 0.9] * 50, [0, 1] * 50, groups=[0, 1] * 50).maps_.certificate
    assert seen.statements == 1 + 1 + 3
    assert not seen.is_about_all
    bins = qacal.QABinning(certificate="conditional").fit([0.5, 0.9] * 50, [0, 1] * 50, groups=[0, 1] * 50)
    assert bins.maps_.certificate.statements == 4  # one bin in each group, two at the root


def test_a_hundred_million_rows_in_a_bin():
    a = np.array([1e8 + 1])
    low, high = mean_intervals(a, a, a, a, a, 0.01)
    assert low[0] > 0.9999999
    assert high[0] == 1


def test_nu_needs_a_proxy_per_row():
    with pytest.raises(InputError, match="proxy has 1 values"):
        nu_bound([0.5], [1, 0], [0.5, 0.6])


def test_nu_is_that_of_the_worst_group():
    truth = np.repeat([1, 0, 1, 0], [700, 300, 500, 500])
    bound = nu_bound(np.full(2000, 0.6), truth, np.full(2000, 0.8), groups=np.repeat(["a", "b"], 1000))
    assert bound.estimate == pytest.approx(0.1)
    assert bound.marginal == pytest.approx(0, abs=1e-12)
    assert 0.1 < bound.bound < 0.2
    assert bound.rows == 2000
    perfect = nu_bound(truth, truth, np.full(2000, 0.8))
    assert perfect.estimate == 0
    assert perfect.bound < 0.1


def test_levels_share_alpha_where_ties_are_jittered():
    """Two levels: the root with 4 bins of 50, and two groups with 2 bins each; all are counted."""
    rng = np.random.default_rng(0)
    h, group = rng.random(200), np.repeat([0, 1], 100)
    model = QABinning(points_per_bin=50, ties="jitter").fit(h, h > 0.5, groups=group, ids=np.arange(200))
    bins = [int(model.maps_.offset[1]), len(model.maps_.value) - int(model.maps_.offset[1])]
    assert model.maps_.certificate.statements == 2 * max(bins)
