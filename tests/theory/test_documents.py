"""Rows of one document may depend on each other in any way: intervals hold for independent documents."""

import numpy as np
import pytest

from qacal import Paths, StepBinning, Tally, certified_threshold
from qacal.guarantee import binomial_interval, counted_shares, document_intervals
from tests.sizes import sized
from tests.theory.lab import assert_breaks, assert_holds, at_most, failure_rate

ALPHA, DEPTH, STEP = 0.1, 2, 0.25
SCORES = np.array([0.2, 0.4, 0.7, 0.9])

# Kinds of documents: how common they are, how many rows they have at most, where their rows are, how often correct.
# Long documents are worse, so that a random row of a random document is correct more often than a random row.
SHARE = np.array([0.5, 0.3, 0.2])
CELL = np.array([[1, 2, 3, 6], [3, 3, 3, 3], [2, 6, 3, 1]])[:, :, None] * np.array(
    [[[4, 1, 3, 2]], [[1, 1, 1, 1]], [[1, 4, 2, 3]]]
)
CELL = CELL / CELL.sum(axis=(1, 2), keepdims=True)
RIGHT = np.clip(
    SCORES[:, None] + np.array([0.08, -0.05, 0.03, -0.1]) + np.array([0.1, 0.0, -0.15])[:, None, None], 0.02, 0.98
)


def lengths(size):
    """Return the number of rows of documents, by kind: the largest have `size`."""
    return np.maximum(np.array([size // 5, size // 2, size]), 1)


def drawn(rng, size, together, documents=400):
    """Return score, label, leaf and id of each row; a row shares its document's draw with probability `together`."""
    kind = rng.choice(3, documents, p=SHARE)
    ids = np.repeat(np.arange(documents), lengths(size)[kind])
    kind = kind[ids]
    place = (rng.random((len(ids), 1)) > CELL.reshape(3, -1).cumsum(axis=1)[kind]).sum(axis=1).clip(max=15)
    luck = np.where(rng.random(len(ids)) < together, rng.random(documents)[ids], rng.random(len(ids)))
    bins, leaf = np.divmod(place, 4)
    return SCORES[bins], luck < RIGHT[kind, bins, leaf], leaf, ids


def true_shares(size):
    """Return the accuracy of a random row of a random document that has rows there, for each (depth, node) and bin."""
    truth = {}
    for depth in range(DEPTH + 1):
        for node in range(2**depth):
            below = np.arange(4) >> (DEPTH - depth) == node
            mass, right = CELL[:, :, below].sum(axis=2), (CELL * RIGHT)[:, :, below].sum(axis=2)
            has_rows = SHARE[:, None] * (1 - (1 - mass) ** lengths(size)[:, None])
            truth[depth, node] = (has_rows * right / mass).sum(axis=0) / has_rows.sum(axis=0)
    return truth


def is_broken(rng, size, together, truth, *, has_ids=True):
    h, y, leaf, ids = drawn(rng, size, together)
    groups = Paths(leaf, np.full(len(h), DEPTH + 1), DEPTH)
    binning = StepBinning(step=STEP, rows_per_map=100, alpha=ALPHA)
    maps = binning.fit(h, y, groups=groups, ids=ids if has_ids else None).maps_
    owners = zip(maps.lineage.depth.tolist(), maps.lineage.owner.tolist(), strict=True)
    shares = np.concatenate([truth[depth, max(code, 0)] for depth, code in owners])
    return ((maps.low > shares) | (maps.high < shares)).any()


def test_the_truth_is_that_of_random_rows_of_random_documents():
    rng = np.random.default_rng(0)
    h, y, _, ids = drawn(rng, 20, 0.3, documents=60_000)
    row = rng.permutation(len(ids))
    row = row[np.unique(ids[row] * 4 + np.searchsorted(SCORES, h[row]), return_index=True)[1]]
    means = [y[row][h[row] == score].mean() for score in SCORES]
    np.testing.assert_allclose(means, true_shares(20)[0, 0], atol=0.015)
    assert abs(means[1] - y[h == 0.4].mean()) > 0.02


@pytest.mark.parametrize("size", [2, 5, 20])
@pytest.mark.parametrize("together", [0, 0.3, 1])
def test_all_bins_of_all_nested_maps_hold_at_once(size, together):
    truth = true_shares(size)
    assert_holds(lambda rng: is_broken(rng, size, together, truth), ALPHA, 200)


def test_assuming_independent_rows_breaks_it():
    truth = true_shares(20)
    assert_breaks(lambda rng: is_broken(rng, 20, 1, truth, has_ids=False), ALPHA, 100)


# One bin: beta-binomial documents with an intra-class correlation.


def shares(rng, documents, size, mean, correlation):
    if correlation in (0, 1):
        chance = np.full(documents, mean) if correlation == 0 else (rng.random(documents) < mean) * 1.0
    else:
        strength = 1 / correlation - 1
        chance = rng.beta(mean * strength, (1 - mean) * strength, documents)
    return rng.binomial(size, chance) / size


def intervals(rng, trials, documents, size, mean, correlation, tail):
    """Return the intervals of independent bins, one per trial."""
    share = shares(rng, trials * documents, size, mean, correlation)
    place = np.repeat(np.arange(trials), documents)
    drawn = np.bincount(place, rng.random(len(share)) < share)
    return document_intervals(*counted_shares(share, place), drawn, np.full(trials, tail))


@pytest.mark.parametrize("mean", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("correlation", [0, 0.3, 1])
def test_each_end_fails_no_more_often_than_its_tail(mean, correlation):
    trials, tail = sized(2000), 0.1
    for documents, size in ((10, 2), (60, 5), (300, 20)):
        low, high = intervals(np.random.default_rng(7), trials, documents, size, mean, correlation, tail)
        assert (low > mean).mean() <= at_most(tail, trials)
        assert (high < mean).mean() <= at_most(tail, trials)


def test_rows_in_place_of_documents_break_one_bin():
    """Documents of five equal rows, each of which counts as a document."""
    share = np.repeat(shares(np.random.default_rng(7), 2000 * 60, 1, 0.5, 1), 5)
    place = np.repeat(np.arange(2000), 300)
    low, high = document_intervals(*counted_shares(share, place), np.bincount(place, share), np.full(2000, 0.1))
    assert (low > 0.5).mean() > at_most(0.1, 2000)
    assert (high < 0.5).mean() > at_most(0.1, 2000)


def test_intervals_lose_little_if_rows_agree_and_gain_much_if_they_do_not():
    rng, tail = np.random.default_rng(3), 5e-4

    def width(size, correlation):
        low, high = intervals(rng, 30, 200, size, 0.9, correlation, tail)
        return (high - low).mean()

    low, high = binomial_interval(np.array([180.0]), np.array([200.0]), tail)
    one_row = float(high[0] - low[0])
    assert width(20, 1) < 1.1 * one_row
    assert width(5, 0.3) < 0.95 * one_row
    assert width(5, 0) < 0.7 * one_row
    assert width(20, 0) < 0.5 * one_row


# Thresholds: at every score the accuracy is just below the target of 0.8.


def certifies(rng, *, has_ids=True, groups=None):
    ids = np.repeat(np.arange(120), rng.choice([1, 4, 20], 120))
    luck = np.where(rng.random(len(ids)) < 0.6, rng.random(120)[ids], rng.random(len(ids)))
    score = rng.choice(np.arange(1, 11) / 10, len(ids))
    labels = None if groups is None else rng.integers(0, groups, len(ids))
    options = {"ids": ids} if has_ids else {}
    return certified_threshold(luck < 0.7999, score, accuracy=0.8, alpha=ALPHA, groups=labels, **options).is_certified


def test_a_missed_target_is_rarely_certified():
    assert_holds(certifies, ALPHA, 400)
    assert_holds(lambda rng: certifies(rng, groups=3), ALPHA, 400)
    assert_breaks(lambda rng: certifies(rng, has_ids=False), ALPHA, 400)


def test_all_rows_of_documents_certify_more_often_than_one_row_of_each():
    """Documents of ten fields; a threshold of 0.5 accepts half of them."""

    def found(rng, is_one):
        ids = np.repeat(np.arange(70), 1 if is_one else 10)
        score = rng.choice([0.2, 0.7], len(ids))
        others = Tally.of(score, rng.random(len(ids)) < np.where(score > 0.5, 0.9, 0.4))
        chosen = certified_threshold(
            rng.random(len(ids)) < np.where(score > 0.5, 0.9, 0.4), score, accuracy=0.8, ids=ids, others=others
        )
        return chosen.is_certified

    assert failure_rate(lambda rng: found(rng, is_one=False), 40) > 0.9
    assert failure_rate(lambda rng: found(rng, is_one=True), 40) < 0.8
