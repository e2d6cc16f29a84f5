"""Groups learned from labels: bins keep their promise if these labels are not used again, and break it if they are."""

import numpy as np
import pytest

from qacal import QABinning
from qacal.partitions import LearnedTree
from tests.sizes import sized
from tests.theory.lab import assert_holds, at_most, failure_rate

ALPHA = 0.1
WIDTH = 120


def answers(rng, n=800):
    """Return vectors, stated confidences, labels, and how probably each answer is right.

    Hard for whoever learns from labels: the LLM is off by a standard deviation of a logit along a direction of 120
    coordinates, so that 800 rows show that there is one and tell it poorly; their noise goes into what is learned.
    """
    Z = rng.normal(size=(n, WIDTH))
    confidence = rng.choice([0.7, 0.9], n)
    truth = 1 / (1 + np.exp(-(2 * confidence - 1.5 + Z.sum(axis=1) / np.sqrt(WIDTH))))
    return Z, confidence, rng.random(n) < truth, truth


def is_broken(rng, certificate, same_rows=False, by_labels=True):
    """Return whether the interval of some group and confidence misses the share of right answers to expect there.

    by_labels : learn from the labels of the beta rows; otherwise from labels that are noise.
    """
    Z, confidence, correct, _ = beta = answers(rng)
    tree = LearnedTree(max_depth=2).fit(
        Z, confidence=confidence, correct=correct if by_labels else rng.permuted(correct)
    )
    Z, confidence, correct, truth = beta if same_rows else answers(rng)
    group = tree.assign(Z)
    model = QABinning(points_per_bin=40, certificate=certificate, alpha=ALPHA)
    found = model.fit(confidence, correct, groups=group).explain(confidence, groups=group)
    _, cell = np.unique(np.stack([group, confidence]), axis=1, return_inverse=True)
    expected = (np.bincount(cell.ravel(), truth) / np.bincount(cell.ravel()))[cell.ravel()]
    is_own = np.array(found.source) == "group"
    return ((found.low > expected) | (found.high < expected))[is_own].any()


@pytest.mark.parametrize("certificate", ["conditional", "uniform"])
def test_bins_of_learned_groups_keep_their_promise_on_other_rows(certificate):
    trials = 120
    assert_holds(lambda rng: is_broken(rng, certificate), ALPHA, trials)


@pytest.mark.parametrize("certificate", ["conditional", "uniform"])
def test_they_break_it_on_the_rows_whose_labels_made_the_groups(certificate):
    """Not by a little: always. With groups learned from noise instead, the same rows keep it."""
    trials = sized(30)
    assert failure_rate(lambda rng: is_broken(rng, certificate, same_rows=True), trials) > 0.9
    unlearned = failure_rate(lambda rng: is_broken(rng, certificate, same_rows=True, by_labels=False), trials)
    assert unlearned <= at_most(ALPHA, trials)
