"""Margins: the accuracy of bands and groups, and the mean error of a band's answers, all at once.

A world with a known truth. The first score is trained on 30% of the rows, the answers on 90%, with features that say
nothing: so the answers follow the labels of certifying rows that trained them.
"""

import numpy as np
import pytest
from scipy import special

from qacal import Paths, Tally
from qacal.calibrators import margins
from qacal.calibrators.cells import Cells, plan_cells
from qacal.calibrators.margins import fit_margins
from qacal.guarantee import binomial_interval
from qacal.tally.arrays import seven_decimals
from qacal.tally.groups import as_grouping
from qacal.tally.tally import DOCUMENTS
from tests.sizes import FULL, full_only
from tests.theory.lab import assert_breaks, assert_holds, at_least, failure_rate

ALPHA, DEPTH, NOISE = 0.1, 3, 40
TWO_ANSWERS = [(0.5, (0.05, 0.95)), (0.15, (0.1, 0.97))]
SHIFT = np.linspace(-0.6, 0.6, 2**DEPTH)


def drawn(rng, n):
    """Return features of rows, their groups and their true probabilities."""
    z, hidden, group = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2**DEPTH, n)
    p = special.expit(0.4 + z + 0.5 * hidden + SHIFT[group])
    X = np.column_stack(
        [np.ones(n), z, 0.7 * hidden, 0.5 * np.eye(2**DEPTH)[group], 0.15 * rng.normal(size=(n, NOISE))]
    )
    return X, group, p


POPULATION = drawn(np.random.default_rng(99), 15_000)


def trained(X, y):
    """Return the coefficients of a logistic regression with a ridge."""
    b = np.zeros(X.shape[1])
    for _ in range(8):
        q = special.expit(X @ b)
        b += np.linalg.solve((X * (q * (1 - q))[:, None]).T @ X + np.eye(len(b)), X.T @ (y - q) - b)
    return b


def tree(group):
    return Paths(group, np.full(len(group), DEPTH + 1), DEPTH)


def fitted(rng, n=1500, within=0.08, is_certified_apart=True, answers_from="held"):
    """Return a fit, the true accuracies and mean answers of its cells, and the rows that certified it.

    is_certified_apart : other rows certify than those that made the bands; else the same.
    answers_from : the rows that tell the mean answer: "held" or "trained".
    """
    X, group, p = drawn(rng, n)
    y = (rng.random(n) < p) * 1.0
    made_bands, trains = np.arange(n) < 0.3 * n, np.arange(n) < 0.9 * n
    coefficients = [trained(X[part], y[part]) for part in (made_bands, trains)]
    first, answer = (special.expit(X @ b) for b in coefficients)
    certifies = ~made_bands if is_certified_apart else made_bands
    cells = plan_cells(
        first[made_bands],
        as_grouping(tree(group[made_bands]), made_bands.sum()),
        rows=certifies.sum(),
        alpha=ALPHA,
        within=within,
    )
    tells = ~trains if answers_from == "held" else trains & ~made_bands
    tally = Tally.of(first[certifies], y[certifies], groups=tree(group[certifies]))
    maps = fit_margins(tally, cells, alpha=ALPHA, answers=Tally.of(first[tells], answer[tells]))
    return maps, truth_of(cells, maps, coefficients), tally


def truth_of(cells, maps, coefficients):
    """Return the true accuracy of all cells, and the true mean answer of bands."""
    X, group, p = POPULATION
    first, answer = (special.expit(X @ b) for b in coefficients)
    band, bands = np.searchsorted(cells.tops, first), len(cells.tops)
    codes = maps.cells.lineage.owner[1:]
    node = group >> (DEPTH - (cells.depth or 0))
    accuracy = [p[band == k].mean() for k in range(bands)] + [p[node == code].mean() for code in codes]
    plus, times = maps.moves
    mean_answer = [(plus[band] + times[band] * answer)[band == k].mean() for k in range(bands)]
    return np.array(accuracy), np.array(mean_answer)


def fitted_at_scale(rng, n=600, more=2400):
    """Return what `fitted` does, if n rows are a sample of all: the others train nothing, and are counted by band."""
    X, group, p = drawn(rng, n + more)
    y = (rng.random(n + more) < p) * 1.0
    place = np.arange(n + more)
    made_bands, trains = place < 0.3 * n, place < 0.9 * n
    coefficients = [trained(X[part], y[part]) for part in (made_bands, trains)]
    first, answer = (special.expit(X @ b) for b in coefficients)
    column = as_grouping(tree(group[made_bands]), made_bands.sum())
    cells = plan_cells(first[made_bands], column, rows=(~made_bands).sum(), alpha=ALPHA, within=0.08)
    ends = np.minimum(cells.tops, 1.0)[np.searchsorted(cells.tops, seven_decimals(first))]
    tally = Tally.of(ends[~made_bands], y[~made_bands], groups=tree(group[~made_bands]))
    maps = fit_margins(tally, cells, alpha=ALPHA, answers=Tally.of(ends[~trains], answer[~trains]))
    return maps, truth_of(cells, maps, coefficients), tally


def misses_accuracy(fit):
    maps, (accuracy, _), _ = fit
    return ((accuracy < maps.cells.low) | (accuracy > maps.cells.high)).any()


def misses_mean_error(fit):
    maps, (accuracy, mean_answer), _ = fit
    error = accuracy[: len(mean_answer)] - mean_answer
    return ((error < -maps.below) | (error > maps.above)).any()


def test_cells_hold_at_once_and_waste_little():
    def breaks(rng):
        return misses_accuracy(fitted(rng, within=0.2))

    assert_holds(breaks, ALPHA, 400)
    if FULL:
        assert failure_rate(breaks, 400, seed=1) >= at_least(ALPHA / 4, 400)


def test_mean_errors_hold_although_answers_follow_certifying_labels():
    assert_holds(lambda rng: misses_mean_error(fitted(rng)), ALPHA / 2, 400)


@pytest.mark.parametrize("n", [200, 600])
def test_few_rows_hold_too(n):
    def breaks(rng):
        fit = fitted(rng, n)
        return misses_accuracy(fit) or misses_mean_error(fit)

    assert_holds(breaks, ALPHA, 400)


def test_a_sample_trains_and_all_other_rows_certify_by_the_ends_of_their_bands():
    def breaks(rng):
        fit = fitted_at_scale(rng)
        return misses_accuracy(fit) or misses_mean_error(fit)

    assert_holds(breaks, ALPHA, 400)


def test_alpha_must_be_shared_among_cells():
    """With twenty cells, an interval misses in 50 of 60 worlds if each has all of alpha, and in 4 if they share it."""

    def breaks(rng):
        maps, (accuracy, _), tally = fitted(rng, within=0.2)
        rows, bands = maps.cells.rows.astype(float), len(maps.below)
        of_bands = np.bincount(np.searchsorted(maps.cells.top[:bands], tally.confidence), tally.wt, bands)
        right = np.concatenate([of_bands, np.rint(rows * maps.cells.value)[bands:]])
        low, high = binomial_interval(right, rows, ALPHA / 2)
        return ((accuracy < low) | (accuracy > high)).any()

    assert_breaks(breaks, ALPHA, 200)


def test_rows_that_made_the_bands_must_not_certify():
    """The first score is too sure of the rows that trained it, so bands look better there than they are."""
    assert_breaks(lambda rng: misses_accuracy(fitted(rng, 600, within=0.2, is_certified_apart=False)), ALPHA, 200)


def test_the_mean_answer_must_come_from_rows_that_did_not_train():
    """A score that memorises its rows answers them otherwise than new ones."""

    def breaks(rng, is_held):
        n = 2000
        X, _, p = drawn(rng, n)
        y = (rng.random(n) < p) * 1.0
        first = special.expit(X[:, 1])
        trains = np.arange(n) < 0.9 * n
        answer = np.where(trains, 0.9 * y + 0.05, 0.5)
        tells = ~trains if is_held else trains
        cells = Cells(np.array([0.5, np.inf]), 0)
        maps = fit_margins(Tally.of(first, y), cells, alpha=ALPHA, answers=Tally.of(first[tells], answer[tells]))
        X, _, p = POPULATION
        band = np.searchsorted(cells.tops, special.expit(X[:, 1]))
        plus, times = maps.moves
        error = np.array([p[band == k].mean() - (plus[k] + 0.5 * times[k]) for k in range(2)])
        return ((error < -maps.below) | (error > maps.above)).any()

    assert_holds(lambda rng: breaks(rng, True), ALPHA, 200)
    assert_breaks(lambda rng: breaks(rng, False), ALPHA, 200)


# held-out rows, share of the first of two answers, both answers, and how often each is correct
FEW_ANSWERS = [
    *((n_held, share, answers, answers) for n_held in (3, 10, 30) for share, answers in TWO_ANSWERS),
    (5, 0.6, (0.2, 0.9), (0.97, 0.97)),
    (10, 0.6, (0.2, 0.9), (0.97, 0.97)),
    (8, 0.6, (0.02, 0.6), (0.04, 0.04)),
    (3, 0.1, (0.02, 0.99), (0.98, 0.01)),
]


def misses_few_answers(rng, n_held, share, answers, correct):
    """Return whether the mean error of a single band is missed, if a seventh of its rows is held out."""
    n = 7 * n_held
    is_first = rng.random(n) < share
    answer, right = np.where(is_first, *answers), (rng.random(n) < np.where(is_first, *correct)) * 1.0
    held = Tally.of(np.full(n_held, 0.6), answer[:n_held])
    maps = fit_margins(Tally.of(np.full(n, 0.6), right), Cells(np.array([np.inf]), 0), alpha=ALPHA, answers=held)
    plus, times = maps.moves
    mean, accuracy = (share * first + (1 - share) * second for first, second in (answers, correct))
    error = accuracy - (plus[0] + times[0] * mean)
    return error < -maps.below[0] or error > maps.above[0]


@pytest.mark.parametrize("world", FEW_ANSWERS)
def test_few_held_out_answers_that_differ_much(world):
    # Approximate: with calibrated answers of this kind and ten of them, up to 0.125.
    assert_holds(lambda rng: misses_few_answers(rng, *world), 0.125, 400)


def test_a_normal_quantile_of_few_answers_breaks_it(monkeypatch):
    """Two or three answers may all look alike."""
    monkeypatch.setattr(margins, "_FARTHEST", 0.1)
    monkeypatch.setattr(special, "stdtrit", lambda rows, tail: special.ndtri(tail) * np.ones_like(rows))
    assert_breaks(lambda rng: misses_few_answers(rng, *FEW_ANSWERS[0]), 0.125, 400)


@full_only
def test_documents_hold_although_their_rows_depend_on_each_other():
    """Five rows of a document have one label; counted as rows, intervals are too narrow."""

    def breaks(rng, by_document):
        X, group, p = drawn(rng, 300)
        y = np.repeat((rng.random(300) < p) * 1.0, 5)
        first = np.repeat(special.expit(X[:, 1]), 5)
        ids = {"ids": np.repeat(np.arange(300), 5), "n_blocks": DOCUMENTS} if by_document else {}
        cells = Cells(np.array([0.4, 0.6, np.inf]), 2)
        maps = fit_margins(Tally.of(first, y, groups=tree(np.repeat(group, 5)), **ids), cells, alpha=ALPHA)
        _, (accuracy, _) = maps, truth_of(cells, maps, [np.eye(X.shape[1])[1]] * 2)
        return ((accuracy < maps.cells.low) | (accuracy > maps.cells.high)).any()

    assert_holds(lambda rng: breaks(rng, True), ALPHA, 400)
    assert_breaks(lambda rng: breaks(rng, False), ALPHA, 200)
