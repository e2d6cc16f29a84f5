"""The report's test of the guarantee: few false alarms, and clear breaches are found."""

import numpy as np
import pytest

from qacal import MarginBinning, Paths, QABinning, StepBinning
from qacal.calibrators import UniformMassBinning
from qacal.calibrators.margins import MarginMaps
from qacal.guarantee import mean_intervals
from qacal.metrics.claims import GAMMA
from qacal.report import realised_errors
from qacal.tally.ids import id_hashes
from tests.sizes import sized
from tests.theory.lab import assert_breaks, assert_holds, at_least, at_most, failure_rate

N_BINS = 20


def held_against(model, score, right, groups=None, ids=None):
    """Return the test of a fit's intervals on new rows."""
    hashes = None if ids is None else id_hashes(ids, len(score))
    maps, rows = model.maps_, model._checked_rows(score, groups, ids)
    if isinstance(maps, MarginMaps):
        levels = maps.cells.bins_by_level(rows)
        return realised_errors(maps, levels[:, 0], levels, right, hashes, maps.apply(rows))
    return realised_errors(maps, maps.bins_of(rows), maps.bins_by_level(rows), right, hashes)


def drawn(rng, probability):
    return (rng.random(len(probability)) < probability).astype(float)


def one_map(rng, n=3000):
    """Return a fit with one map to a calibrated score."""
    score = rng.random(n)
    return StepBinning(step=1 / N_BINS, alpha=0.1).fit(score, drawn(rng, score))


def bin_of(score):
    return np.minimum((score * N_BINS).astype(int), N_BINS - 1)


def at_the_ends(rng, model, is_corrected):
    """Return whether a breach is reported if every true accuracy is at an end of its interval."""
    ends = np.where(np.arange(N_BINS) % 2, model.maps_.low, model.maps_.high)
    score = rng.random(2000)
    found = held_against(model, score, drawn(rng, ends[bin_of(score)]))
    if is_corrected:
        return found.is_broken.any()
    rows, right = found.rows.astype(float), np.rint(found.rows * found.accuracy)
    low, high = mean_intervals(rows, rows, right, right, rows, GAMMA / 2, is_mixed=False)
    return ((low > found.high) | (high < found.low)).any()


def test_true_accuracies_at_the_ends_of_intervals_are_rarely_reported_as_a_breach():
    """The worst case in which the guarantee holds; separate tests of each bin would report too many."""
    model, trials = one_map(np.random.default_rng(1)), sized(1500)
    rate = failure_rate(lambda rng: at_the_ends(rng, model, True), trials)
    assert at_least(GAMMA / 4, trials) <= rate <= at_most(GAMMA / 2, trials)
    assert_breaks(lambda rng: at_the_ends(rng, model, False), GAMMA, 200)


def groups_of(rng, n):
    """Return leaves of a tree of depth 3; the first leaf has half of the rows."""
    leaf = np.where(rng.random(n) < 0.5, 0, rng.integers(1, 8, n))
    return Paths(leaf, np.full(n, 4), 3)


def truth_of(score, paths):
    """Return accuracies that match the score in every fourth leaf and are lower in the others."""
    return np.clip(score - 0.25 * (paths.groups(3) % 4 > 0), 0, 1)


FITS = {
    "fixed bins": lambda: StepBinning(step=0.1, rows_per_map=200),
    "bins of equal count": lambda: QABinning(points_per_bin=60),
    "bins of equal count, jittered": lambda: QABinning(points_per_bin=60, ties="jitter"),
    "bands and groups": lambda: MarginBinning(),
    "one map": lambda: UniformMassBinning(n_bins=10),
}


def breach_is_seen(rng, make, n=1500, shift=0.0):
    """Return whether a breach is reported for nested groups on rows whose accuracy is lower by `shift`."""
    parts = []
    for place, by in enumerate((0.0, shift)):
        score, paths = rng.random(n), groups_of(rng, n)
        right = drawn(rng, np.clip(truth_of(score, paths) - by, 0, 1))
        parts.append((score, right, paths, np.arange(n) + place * n))
    (score, right, paths, ids), new = parts
    model = make().fit(score, right, groups=paths, ids=ids)
    return held_against(model, *new).is_broken.any()


@pytest.mark.parametrize("kind", FITS)
def test_breaches_are_rarely_reported_for_ordinary_fits(kind):
    trials = 300
    assert_holds(lambda rng: breach_is_seen(rng, FITS[kind]), 0.002, trials)


@pytest.mark.parametrize("kind", FITS)
def test_a_clear_breach_is_reported(kind):
    """Questions became harder: accuracy is 0.45 lower than on the calibration rows."""
    assert failure_rate(lambda rng: not breach_is_seen(rng, FITS[kind], shift=0.45), sized(40)) <= 0.05


def test_one_bin_that_misses_is_found_among_many():
    def is_found(rng):
        model, score = one_map(rng), rng.random(4000)
        truth = np.where(bin_of(score) == 13, 0.3, score)
        found = held_against(model, score, drawn(rng, truth))
        return found.is_broken.tolist() == (np.arange(N_BINS) == 13).tolist()

    assert failure_rate(lambda rng: not is_found(rng), sized(100)) <= 0.05


def borrowers(rng, is_whole):
    """Return whether a breach of the root's map is reported, tested on all rows or only on rows that use it.

    Small groups have a lower accuracy and use the root's map, whose guarantee is about all rows.
    """
    n = 4000
    parts = []
    for _ in range(2):
        group = np.where(rng.random(n) < 0.9, 0, rng.integers(1, 9, n))
        score = rng.random(n)
        parts.append((score, drawn(rng, np.where(group == 0, score, score / 3)), group))
    score, right, group = parts[0]
    model = StepBinning(step=0.1, rows_per_map=400).fit(score, right, groups=group)
    score, right, group = parts[1]
    if is_whole:
        return held_against(model, score, right, group).is_broken.any()
    return held_against(model, score[group > 0], right[group > 0], group[group > 0]).is_broken.any()


def test_a_map_is_tested_on_all_rows_it_covers_and_not_only_on_rows_that_use_it():
    assert_holds(lambda rng: borrowers(rng, True), GAMMA, 100)
    assert failure_rate(lambda rng: borrowers(rng, False), sized(100)) > 0.9


def repeated(rng, knows_ids):
    """Return whether a breach is reported if every question has twenty rows with the same label."""
    model, score = one_map(rng), np.repeat(rng.random(400), 20)
    right = np.repeat(drawn(rng, score[::20]), 20)
    return held_against(model, score, right, ids=np.repeat(np.arange(400), 20) if knows_ids else None).is_broken.any()


def test_rows_of_one_question_count_once():
    assert_holds(lambda rng: repeated(rng, True), 0.002, 200)
    assert_breaks(lambda rng: repeated(rng, False), GAMMA, 100)


def test_the_row_that_counts_for_a_question_does_not_depend_on_the_order():
    """Three rows of a question may be in one bin of their group and in several bins of the root."""
    rng = np.random.default_rng(0)
    score, group = rng.random(2000), rng.integers(0, 8, 2000)
    model = QABinning(points_per_bin=100).fit(score, drawn(rng, score), groups=group)
    score, ids = rng.random(600), np.repeat(np.arange(200), 3)
    right, group = drawn(rng, score), rng.integers(0, 8, 200)[ids]
    found, again = (
        held_against(model, score[order], right[order], group[order], ids[order])
        for order in (np.arange(600), np.arange(600)[::-1])
    )
    assert found.rows.tolist() == again.rows.tolist()
    assert found.accuracy.tolist() == again.accuracy.tolist()


def test_few_rows_give_no_verdict():
    rng = np.random.default_rng(0)
    model, score = one_map(rng), rng.uniform(0.3, 0.7, 20)
    found = held_against(model, score, np.zeros(20))
    assert not found.can_be_judged.any()
    assert not found.is_broken.any()
    many = rng.random(4000)
    assert held_against(model, many, drawn(rng, many)).can_be_judged.all()
