"""TreeBinning: answers close to the curves, within their intervals, certified for all groups at once."""

import numpy as np
import pytest

from qacal import InputError, Paths, TreeBinning
from qacal.calibrators import TreeScaling
from tests.sizes import FULL, sized

DEPTH = 4


def rows(n, seed, values=None):
    rng = np.random.default_rng(seed)
    leaf = rng.integers(0, 2**DEPTH, n)
    h = rng.random(n) if values is None else rng.choice(values, n)
    truth = 1 / (1 + np.exp(-(-1.0 + 2.0 * h + 0.8 * (leaf >= 8) - 0.4 * (leaf % 4 == 1))))
    return h, (rng.random(n) < truth).astype(float), Paths(leaf, np.full(n, DEPTH + 1), DEPTH), truth


STATED = [0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]


@pytest.mark.parametrize("values", [STATED, None])
@pytest.mark.parametrize("step", [0.02, 0.05, 0.2])
def test_answers_are_within_a_step_of_the_curves(values, step):
    h, right, paths, _ = rows(4000, 1, values)
    curves, steps = TreeScaling().fit(h, right, groups=paths), TreeBinning(step=step).fit(h, right, groups=paths)
    found = steps.explain(h, groups=paths)
    # A curve is cut at observed values; between two of them it may already be in the next step.
    assert np.abs(found.calibrated - curves.predict(h, groups=paths)).max() <= step + (0 if values else 0.02)
    assert ((found.low <= found.calibrated) & (found.calibrated <= found.high)).all()


def test_a_step_answers_the_mean_of_its_rows_curve():
    h, right, paths, _ = rows(3000, 2, STATED)
    curves, model = TreeScaling().fit(h, right, groups=paths), TreeBinning(step=0.1).fit(h, right, groups=paths)
    p, found = curves.predict(h, groups=paths), model.explain(h, groups=paths)
    for leaf in range(2**DEPTH):
        mine = paths.path == leaf
        level = np.floor(p[mine] / 0.1 + 1e-9)
        for one in np.unique(level):
            here = np.flatnonzero(mine)[level == one]
            expected = np.clip(p[here].mean(), found.low[here[0]], found.high[here[0]])
            np.testing.assert_allclose(found.calibrated[here], expected)
            assert (found.rows[here] == len(here)).all()


def test_values_without_rows_in_a_group_are_answered_by_its_curve():
    h, right, paths, _ = rows(3000, 3, STATED)
    keep = ~((paths.path == 5) & (h > 0.6))
    kept = Paths(paths.path[keep], paths.exit[keep], DEPTH)
    model = TreeBinning(step=0.05).fit(h[keep], right[keep], groups=kept)
    curves = TreeScaling().fit(h[keep], right[keep], groups=kept)
    ask = Paths(np.full(3, 5), np.full(3, DEPTH + 1), DEPTH)
    found = model.explain([0.8, 0.9, 1.0], groups=ask)
    np.testing.assert_allclose(found.calibrated, curves.predict([0.8, 0.9, 1.0], groups=ask), atol=0.05)
    empty = found.rows == 0
    assert empty.any()
    assert (found.low[empty] == 0).all()
    assert (found.high[empty] == 1).all()


def test_all_intervals_hold_at_once_though_curves_and_bins_come_from_the_same_rows():
    """The share of fits with any interval that misses its bin's true accuracy is at most alpha, plus noise."""
    misses, trials = 0, sized(200)
    for seed in range(trials):
        h, right, paths, truth = rows(600, 1000 + seed, STATED)
        model = TreeBinning(step=0.1, alpha=0.1).fit(h, right, groups=paths)
        found = model.explain(h, groups=paths)
        bins = np.unique(
            np.stack([paths.path, np.round(1e9 * found.calibrated).astype(int)]), axis=1, return_inverse=True
        )[1].ravel()
        mean = np.bincount(bins, weights=truth) / np.bincount(bins)
        low, high = (np.bincount(bins, weights=end) / np.bincount(bins) for end in (found.low, found.high))
        misses += bool(((mean < low - 1e-9) | (mean > high + 1e-9)).any())
    assert misses <= 0.1 * trials + (9 if FULL else 5)


def test_intervals_that_ignore_the_choice_of_bins_fail():
    """The same simulation with intervals for a single bin shows that the test above can fail."""
    from scipy.stats import beta

    misses = 0
    for seed in range(60):
        h, right, paths, truth = rows(600, 1000 + seed, STATED)
        found = TreeBinning(step=0.1).fit(h, right, groups=paths).explain(h, groups=paths)
        bins = np.unique(
            np.stack([paths.path, np.round(1e9 * found.calibrated).astype(int)]), axis=1, return_inverse=True
        )[1].ravel()
        n, k = np.bincount(bins), np.bincount(bins, weights=right)
        mean = np.bincount(bins, weights=truth) / n
        low, high = np.nan_to_num(beta.ppf(0.05, k, n - k + 1)), np.nan_to_num(beta.ppf(0.95, k + 1, n - k), nan=1.0)
        misses += bool(((mean < low) | (mean > high)).any())
    assert misses > 40


@pytest.mark.parametrize("step", [0, 2, -0.1, "wide", None])
def test_invalid_steps_are_refused(step):
    with pytest.raises(InputError, match="step is"):
        TreeBinning(step=step).fit([0.5, 0.9], [0, 1])
