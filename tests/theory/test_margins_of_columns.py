"""Margin binning without a score: bands and groups depend on no label, and all rows both fit and certify."""

import numpy as np
import pytest
from scipy import special

from qacal import MarginBinning, Tally
from qacal.calibrators.cells import Cells
from qacal.calibrators.margins import fit_margins
from qacal.calibrators.tree_scaling import fit_tree_curves
from qacal.guarantee import mean_intervals
from tests.sizes import FULL
from tests.theory.lab import assert_breaks, assert_holds, at_least, at_most, failure_rate

ALPHA, N = 0.1, 1500
# A population: an LLM that states seven values, and eight subjects with their frequencies and shifts.
STATED = np.array([0.5, 0.7, 0.75, 0.8, 0.9, 0.95, 1.0])
FREQUENCY = np.array([0.05, 0.1, 0.05, 0.2, 0.25, 0.15, 0.2])
SHARE = np.array([0.22, 0.18, 0.08, 0.03, 0.12, 0.12, 0.2, 0.05])
SHIFT = np.array([1.0, -0.8, 0.3, -1.2, 0.5, -0.4, 0.8, -0.9])


def drawn(rng, kind="plain"):
    """Return confidences, subjects, the probability that each row is correct, labels, weights and ids."""
    h, subject = rng.choice(STATED, N, p=FREQUENCY), rng.choice(len(SHARE), N, p=SHARE)
    # It falls at 1.0, so the curves, which only rise, cannot have the right shape.
    p = special.expit(5 * h - 3.6 - 1.5 * (h == 1.0) + SHIFT[subject])
    w = rng.exponential(size=N) + 0.05 if kind == "weighted" else None
    if kind == "documents":
        ids = rng.integers(0, N // 3, N)
        return h, subject, p, rng.random(N // 3)[ids] < p, w, ids
    if kind == "soft":
        return h, subject, p, rng.beta(2 * p, 2 * (1 - p)), w, None
    return h, subject, p, rng.random(N) < p, w, None


def mean(values, weights, ids):
    """Return a weighted mean; over documents, the mean of their means."""
    if ids is None:
        return np.average(values, weights=weights)
    _, place = np.unique(ids, return_inverse=True)
    return np.mean(np.bincount(place, values) / np.bincount(place))


def cells_of(maps, h, subject):
    """Yield the rows of each band and each group with an interval, and where the interval is."""
    bands = len(maps.shift)
    place = np.searchsorted(maps.cells.top[:bands], h)
    for at in np.unique(place):
        yield place == at, at
    for at, group in enumerate(maps.cells.lineage.owner[1:], start=bands):
        yield subject == maps.grouping.label(int(group)), at


def is_broken(rng, kind="plain"):
    """Return whether a mean error of a band, or the accuracy of a group, is outside of its interval."""
    h, subject, p, correct, w, ids = drawn(rng, kind)
    within = 0.15 if kind == "documents" else None
    model = MarginBinning(alpha=ALPHA, within=within).fit(h, correct, groups=subject, sample_weight=w, ids=ids)
    maps, evidence = model.maps_, model.explain(h, groups=subject)
    assert len(maps.shift) > 1
    assert len(maps.cells.lineage.owner) > 6
    for rows, at in cells_of(maps, h, subject):
        some = None if w is None else w[rows], None if ids is None else ids[rows]
        truth = mean(p[rows], *some)
        if at < len(maps.shift):
            error = truth - mean(evidence.calibrated[rows], *some)
            assert maps.below[at] >= 0
            assert maps.above[at] >= 0
            is_wrong = not -maps.below[at] - 1e-9 <= error <= maps.above[at] + 1e-9
        else:
            is_wrong = not maps.cells.low[at] <= truth <= maps.cells.high[at]
        if is_wrong:
            return True
    return False


@pytest.mark.parametrize("kind", ["weighted", "soft", "documents"])
def test_all_bands_and_groups_hold_at_once(kind):
    assert_holds(lambda rng: is_broken(rng, kind), ALPHA, 800, seed=1)


def test_the_failure_rate_is_near_alpha():
    """Not far below: intervals are no wider than they must be."""
    trials = 800 if FULL else 150
    rate = failure_rate(is_broken, trials, seed=2)
    assert rate <= at_most(ALPHA, trials)
    if FULL:  # fewer trials cannot show it
        assert rate >= at_least(ALPHA / 4, trials)


def test_cells_must_share_alpha():
    def trial(rng):
        h, subject, p, correct, *_ = drawn(rng)
        maps = MarginBinning(alpha=ALPHA).fit(h, correct, groups=subject).maps_
        for rows, _ in cells_of(maps, h, subject):
            n, right = float(rows.sum()), float(correct[rows].sum())
            low, high = mean_intervals(*np.array([[n], [n], [right], [right], [n]]), ALPHA / 2)
            if not low[0] <= p[rows].mean() <= high[0]:
                return True
        return False

    assert_breaks(trial, ALPHA, 200)


def is_broken_on(rng, sees_labels):
    """Return whether a band is wrong whose place the labels of other rows, or of the same rows, have chosen."""
    h, width = np.sort(rng.random(N).round(7)), 150
    correct, others = rng.random((2, N)) < 0.6
    shares = np.convolve(correct if sees_labels else others, np.full(width, 1 / width), "valid")
    first = min(max(int(shares.argmax()), 1), N - width - 1)
    tops = np.array([h[first - 1], h[first + width - 1], np.inf])
    tally = Tally.of(h, correct)
    maps = fit_margins(tally, Cells(tops, 0), alpha=ALPHA, curves=fit_tree_curves(tally))
    return not (maps.cells.low <= 0.6).all() or not (maps.cells.high >= 0.6).all()


def test_bands_must_not_see_labels():
    assert_holds(lambda rng: is_broken_on(rng, sees_labels=False), ALPHA, 400)
    assert_breaks(lambda rng: is_broken_on(rng, sees_labels=True), ALPHA, 400)
