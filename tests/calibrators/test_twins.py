"""The paper's algorithms written row by row, compared with ours."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from qacal import Paths, QABinning
from qacal.calibrators import IsotonicCalibration, ScalingBinning, ScalingQABinning, UniformMassBinning
from qacal.calibrators.mixed.flat import fit_hierarchical
from qacal.tally import ids as identity


def umd(pairs, targets, B):
    """Algorithm UMD on order statistics; the last bin is closed, where the paper leaves a score of 1 in no bin."""
    order = sorted(range(len(pairs)), key=lambda i: pairs[i])
    h = [None, *(pairs[i] for i in order)]
    t = [None, *(targets[i] for i in order)]
    n = len(pairs)
    A = [0, *(math.ceil(Fraction(b * (n + 1), B)) for b in range(1, B)), n + 1]
    means = [sum(t[A[b - 1] + 1 : A[b]]) / len(t[A[b - 1] + 1 : A[b]]) for b in range(1, B + 1)]
    edges = [(-math.inf, 0), *(h[A[b]] for b in range(1, B)), (math.inf, 0)]

    def g(pair):
        return next(means[b] for b in range(B) if edges[b] <= pair < edges[b + 1])

    return g


def merged(h, targets, b):
    """The rule for ties: a bin closes at the first value where it has b rows; a smaller rest joins the last bin."""
    values = sorted(set(h))
    bins, current = [], []
    for value in values:
        current.append(value)
        if sum(h.count(v) for v in current) >= b:
            bins.append(current)
            current = []
    if current:
        if bins:
            bins[-1] += current
        else:
            bins = [current]
    tops = [bin_[-1] for bin_ in bins]
    means = [np.mean([t for x, t in zip(h, targets, strict=True) if x in bin_]) for bin_ in bins]

    def g(x):
        return next((mean for top, mean in zip(tops, means, strict=True) if x <= top), means[-1])

    return g


def qa_binning(fit_one, h, targets, groups, b):
    """QA binning: a map for the root and for every group with b rows; at test time the group's, or the root's."""
    table = {"root": fit_one(h, targets, b)}
    for s in set(groups) - {-1}:
        mine = [i for i in range(len(h)) if groups[i] == s]
        if len(mine) >= b:
            table[s] = fit_one([h[i] for i in mine], [targets[i] for i in mine], b)
    return lambda x, s: table.get(s, table["root"])(x)


def umd_by_points(pairs, targets, b):
    return umd(pairs, targets, max(len(pairs) // b, 1))


confidences = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0]) | st.floats(0, 1).map(lambda h: round(h, 7))


@st.composite
def rows(draw, min_rows=1, max_rows=60, groups=3):
    n = draw(st.integers(min_rows, max_rows))
    columns = (confidences, st.integers(0, 1), st.integers(-1, groups - 1))
    return tuple(draw(st.lists(values, min_size=n, max_size=n)) for values in columns)


PROBES = [0.0, 0.05, 0.3, 0.4, 0.55, 0.8, 0.85, 0.95, 1.0]


def ties_of(ids):
    return [int(tie) for tie in identity.as_tie(identity.id_hashes(ids, len(ids)))]


@given(rows(), st.integers(2, 20))
def test_umd(data, b):
    h, t, _ = data
    ids = list(range(len(h)))
    twin = umd_by_points(list(zip(h, ties_of(ids), strict=True)), t, b)
    model = UniformMassBinning(points_per_bin=b, ties="jitter").fit(h, t, ids=ids)
    asked, others = h + PROBES, list(range(1000, 1000 + len(h) + len(PROBES)))
    expected = [twin(pair) for pair in zip(asked, ties_of(others), strict=True)]
    np.testing.assert_allclose(model.predict(asked, ids=others), expected)


@given(rows(), st.integers(1, 20))
def test_merged_ties(data, b):
    h, t, _ = data
    twin = merged(h, t, b)
    model = UniformMassBinning(points_per_bin=b).fit(h, t)
    np.testing.assert_allclose(model.predict(h + PROBES), [twin(x) for x in h + PROBES])


@given(rows(), st.integers(2, 12))
def test_qa_binning(data, b):
    h, t, groups = data
    ids = list(range(len(h)))
    asked = PROBES * 4
    where = [s for s in (-1, 0, 1, 7) for _ in PROBES]
    twin = qa_binning(merged, h, t, groups, b)
    model = QABinning(points_per_bin=b).fit(h, t, groups=groups)
    np.testing.assert_allclose(
        model.predict(asked, groups=where), [twin(x, s) for x, s in zip(asked, where, strict=True)]
    )

    twin = qa_binning(umd_by_points, list(zip(h, ties_of(ids), strict=True)), t, groups, b)
    model = QABinning(points_per_bin=b, ties="jitter").fit(h, t, groups=groups, ids=ids)
    others = list(range(500, 500 + len(asked)))
    expected = [twin((x, tie), s) for x, tie, s in zip(asked, ties_of(others), where, strict=True)]
    np.testing.assert_allclose(model.predict(asked, groups=where, ids=others), expected)


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_qa_binning_borrows_from_the_nearest_ancestor(seed, b):
    """A tree of depth 3, row by row: walk up from the leaf until a node has b rows."""
    rng = np.random.default_rng(seed)
    n, depth = int(rng.integers(1, 60)), 3
    path, exits = rng.integers(0, 2**depth, n), rng.integers(0, depth + 2, n)
    exits = np.where(rng.random(n) < 0.7, depth + 1, exits)
    h = rng.choice([0.2, 0.5, 0.8, 1.0], n).tolist()
    t = rng.integers(0, 2, n).tolist()

    def answer(x, leaf, leaves_at):
        if leaves_at <= depth:
            return merged(h, t, b)(x)
        for d in range(depth, 0, -1):
            mine = [i for i in range(n) if d < exits[i] and path[i] >> (depth - d) == leaf >> (depth - d)]
            if len(mine) >= b:
                return merged([h[i] for i in mine], [t[i] for i in mine], b)(x)
        return merged(h, t, b)(x)

    asked = np.repeat([0.2, 0.6, 1.0], 16)
    leaf = np.tile(np.repeat(np.arange(8), 2), 3)
    out = np.tile([depth + 1, 2], 24)
    model = QABinning(points_per_bin=b).fit(h, t, groups=Paths(path, exits, depth))
    expected = [answer(*row) for row in zip(asked.tolist(), leaf.tolist(), out.tolist(), strict=True)]
    np.testing.assert_allclose(model.predict(asked, groups=Paths(leaf, out, depth)), expected)


def halves(ids):
    block = identity.blocks(identity.id_hashes(ids, len(ids)), 2)
    return np.flatnonzero(block == 0), np.flatnonzero(block == 1)


def platt(h, t):
    def loss(ab):
        eta = ab[0] + ab[1] * h
        return np.logaddexp(0, eta).sum() - t @ eta

    a, b = minimize(loss, [0, 0], tol=1e-12).x
    return lambda x, s: expit(a + b * x)


def hierarchical(h, t, groups):
    order = np.lexsort((h, groups))
    fit = fit_hierarchical(h[order], np.ones(len(h)), t[order], groups[order])
    effects = dict(zip(sorted(set(groups.tolist()) - {-1}), fit.effects, strict=True))
    none = np.zeros(2)
    return lambda x, s: expit(fit.fixed @ [1, x] + effects.get(s, none) @ [1, x])


def noisy_rows(seed, n=240, groups=3):
    rng = np.random.default_rng(seed)
    h = rng.choice([0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0], n)
    s = rng.integers(-1, groups, n)
    t = (rng.random(n) < np.clip(0.2 + 0.6 * h + 0.1 * s, 0.05, 0.95)).astype(float)
    return h, t, s


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pooling", ["full", "partial"])
def test_scaling_qa_binning(seed, pooling):
    """Fit the scaler on one half; its values on the other are the targets of QA binning."""
    h, t, s = noisy_rows(seed)
    first, second = halves(range(len(h)))
    scaler = platt(h[first], t[first]) if pooling == "full" else hierarchical(h[first], t[first], s[first])
    targets = [scaler(h[i], s[i]) for i in second]
    twin = qa_binning(merged, h[second].tolist(), targets, s[second].tolist(), 20)
    asked, where = PROBES * 4, [g for g in (-1, 0, 2, 9) for _ in PROBES]
    model = ScalingQABinning(pooling=pooling, points_per_bin=20).fit(h, t, groups=s, ids=range(len(h)))
    expected = [twin(x, g) for x, g in zip(asked, where, strict=True)]
    np.testing.assert_allclose(model.predict(asked, groups=where), expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_scaling_binning(seed):
    h, t, _ = noisy_rows(seed)
    first, second = halves(range(len(h)))
    scaler = platt(h[first], t[first])
    twin = merged(h[second].tolist(), [scaler(x, None) for x in h[second]], 20)
    model = ScalingBinning(points_per_bin=20).fit(h, t, ids=range(len(h)))
    np.testing.assert_allclose(model.predict(PROBES), [twin(x) for x in PROBES], atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pooling", ["full", "partial"])
def test_cross_fitted_scaling_qa_binning(seed, pooling):
    """Each half's targets come from the other half's model; all rows are binned in one map."""
    h, t, s = noisy_rows(seed)
    targets = np.empty(len(h))
    first, second = halves(range(len(h)))
    for train, scale in ((first, second), (second, first)):
        scaler = platt(h[train], t[train]) if pooling == "full" else hierarchical(h[train], t[train], s[train])
        targets[scale] = [scaler(h[i], s[i]) for i in scale]
    twin = qa_binning(merged, h.tolist(), targets.tolist(), s.tolist(), 20)
    asked, where = PROBES * 4, [g for g in (-1, 0, 2, 9) for _ in PROBES]
    model = ScalingQABinning(pooling=pooling, points_per_bin=20, cross_fit=True)
    model.fit(h, t, groups=s, ids=range(len(h)))
    expected = [twin(x, g) for x, g in zip(asked, where, strict=True)]
    np.testing.assert_allclose(model.predict(asked, groups=where), expected, atol=1e-5)


@given(rows(), st.integers(1, 12))
def test_n_bins(data, B):
    """A bin closes at the first value where it has its share of the remaining rows."""
    h, t, _ = data
    values, bins = sorted(set(h)), []
    while values:
        left = sum(h.count(v) for v in values)
        share, current = math.ceil(left / (B - len(bins))), []
        while sum(h.count(v) for v in current) < share:
            current.append(values.pop(0))
        bins.append(current)
    expected = [np.mean([y for x, y in zip(h, t, strict=True) if x in bin_]) for bin_ in bins]
    model = UniformMassBinning(n_bins=B).fit(h, t)
    np.testing.assert_allclose(model.maps_.value, expected)
    if len(set(h)) == len(h) >= B:
        assert len(bins) == B
        assert max(map(len, bins)) - min(map(len, bins)) <= 1


@pytest.mark.parametrize(("n", "B"), [(100, 3), (100, 30), (100, 40), (53, 26)])
def test_n_bins_with_jitter_is_umd_with_that_many_bins(n, B):
    h, t = np.linspace(0.01, 0.99, n), np.arange(n) % 3 == 0
    model = UniformMassBinning(n_bins=B, ties="jitter").fit(h, t)
    twin = umd([(x, 0) for x in h], t, B)
    assert len(model.maps_.value) == B
    np.testing.assert_allclose(model.predict(h), [twin((x, 0)) for x in h])


def test_ranks_are_whole_numbers():
    """n=53, b=2, so B=26: a rounded step (n + 1)/B puts cut 13 on rank 28; in whole numbers it is 27."""
    assert math.ceil(13 * (54 / 26)) == 28
    h = np.linspace(0.01, 0.99, 53)
    right = np.zeros(53)
    right[26] = 1  # the row of rank 27 is an edge: it separates, and enters no mean
    model = UniformMassBinning(points_per_bin=2, ties="jitter").fit(h, right)
    assert model.maps_.offset[-1] == 26
    np.testing.assert_array_equal(model.predict(h), 0)


def test_isotonic_curves_are_scikit_learns():
    rng = np.random.default_rng(0)
    for h in (rng.choice([0.2, 0.5, 0.7, 0.9, 1.0], 300), rng.random(300).round(7)):
        right, weights = rng.random(300) < h**2, rng.choice([0.5, 1.0, 3.0], 300)
        theirs = IsotonicRegression(out_of_bounds="clip").fit(h, right, sample_weight=weights)
        ours = IsotonicCalibration().fit(h, right, sample_weight=weights)
        ask = np.linspace(0, 1, 101)
        np.testing.assert_allclose(ours.predict(ask), theirs.predict(ask), atol=1e-12)
