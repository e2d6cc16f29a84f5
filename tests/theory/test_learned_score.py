"""The whole pipeline: the guarantee holds for a score trained and chosen on other rows than those that certify."""

import numpy as np
import pytest
from scipy.special import expit

from qacal import BisectingTree, StepBinning
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.step_binning import step_tops
from qacal.partitions.base import one_thread
from tests.sizes import sized
from tests.theory.lab import assert_holds, failure_rate

ALPHA, STEP = 0.1, 0.1
TOPS = step_tops(STEP)


MANY = 200
"""Tenants with two rows each: the noise of the rows goes into what is learned of them."""


class World:
    """Answers whose accuracy depends on text, tenant and confidence; tenants differ by two logits."""

    def __init__(self, rng, tenants, width=6):
        self.rng = rng
        self.width = width
        self.effects = rng.normal(0, 2, tenants)

    def answers(self, n):
        """Return rows, the probability that each is correct, and labels."""
        Z = self.rng.normal(size=(n, self.width))
        tenant = self.rng.integers(0, len(self.effects), n)
        h = self.rng.choice([0.6, 0.7, 0.8, 0.9, 1.0], n)
        truth = expit(4 * (h - 0.8) + Z[:, 0] + self.effects[tenant])
        rows = {"confidence": h, "embedding": Z, "tenant": tenant}
        return rows, truth, (self.rng.random(n) < truth).astype(float)


def part(rows, index):
    return {name: values[index] for name, values in rows.items()}


def true_shares(maps, score, paths, truth):
    """Return E[Y | bin, node] for every bin of every map, as a mean over fresh rows, and its standard error."""
    means, errors = [], []
    bins = np.searchsorted(TOPS, score)
    for depth, code in zip(maps.lineage.depth.tolist(), maps.lineage.owner.tolist(), strict=True):
        mine = np.full(len(bins), True) if depth == 0 else paths.groups(depth) == code
        count = np.bincount(bins[mine], minlength=len(TOPS))
        mean = np.bincount(bins[mine], truth[mine], len(TOPS)) / np.maximum(count, 1)
        square = np.bincount(bins[mine], truth[mine] ** 2, len(TOPS)) / np.maximum(count, 1)
        means.append(mean)
        # Fewer than 20 fresh rows are not enough to know the accuracy.
        errors.append(np.where(count < 20, 1.0, np.sqrt(np.maximum(square - mean**2, 0) / np.maximum(count, 1))))
    return np.concatenate(means), np.concatenate(errors)


def certified(rng, n, tenants, has_certify_records, text=True):
    """Train score and groups, certify; return the maps, the true accuracies with standard errors, and the score.

    has_certify_records : train on 80% of the rows and certify on the others; else do both on all rows.
    text : whether the score reads the texts.
    """
    world = World(rng, tenants)
    rows, _, y = world.answers(n)
    learning = np.arange(n) < 0.8 * n if has_certify_records else np.full(n, True)
    certifying = ~learning if has_certify_records else learning
    score = LearnedScore(columns=["tenant"], text=text).fit(part(rows, learning), y[learning])
    tree = BisectingTree(max_depth=2).fit(rows["embedding"][learning])
    mine = part(rows, certifying)
    model = StepBinning(step=STEP, rows_per_map=30, alpha=ALPHA)
    model.fit(score.predict(mine), y[certifying], groups=tree.paths(mine["embedding"]))
    new, truth, _ = world.answers(4_000)
    shares = true_shares(model.maps_, score.predict(new), tree.paths(new["embedding"]), truth)
    return model.maps_, *shares, score


def is_broken(rng, n=600, tenants=1, has_certify_records=True, text=True):
    """Return whether any interval misses, by more than the uncertainty of the true accuracy."""
    maps, truth, error, _ = certified(rng, n, tenants, has_certify_records, text)
    return ((maps.low > truth + 3 * error) | (maps.high < truth - 3 * error)).any()


@pytest.fixture(autouse=True)
def _alone():
    with one_thread():
        yield


def test_intervals_hold_for_a_score_trained_and_chosen_on_other_rows():
    trials = 100
    assert_holds(is_broken, ALPHA, trials)


def test_intervals_fail_for_a_score_trained_on_the_certifying_rows():
    """With one effect per two rows, its accuracy on its own training rows is much too good.

    They fail in 10 of 10 simulations, and in none of 10 with other rows.
    """

    def breaks(rng):
        return is_broken(rng, 2 * MANY, MANY, has_certify_records=False, text=False)

    assert failure_rate(breaks, sized(12)) > 0.5


def test_the_intervals_are_informative():
    """Groups below the root have maps, with intervals that exclude much."""
    maps, truth, _, score = certified(np.random.default_rng(0), 4000, 10, has_certify_records=True)
    assert score.chosen.endswith("+ text + tenant")
    assert set(maps.lineage.depth.tolist()) == {0, 2}
    assert np.median((maps.high - maps.low)[maps.rows > 20]) < 0.5
    assert truth.max() - truth.min() > 0.5
