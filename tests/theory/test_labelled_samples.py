"""The accuracy from a sample of labels: drawn by `label-next`, or by people with the help of a judge."""

import numpy as np
import pytest

from qacal.guarantee import binomial_interval
from qacal.metrics import accuracy, estimate_accuracy, estimate_judged_accuracy
from qacal.model.labelling import draw
from qacal.tally.ids import id_hashes
from tests.tables import each
from tests.theory.lab import assert_breaks, assert_holds

ALPHA = 0.1


def misses(found, truth):
    return not found.low <= truth <= found.high


# Rows drawn by `label-next`. Labels are fixed; only the draw is random.


def file_of_answers(rng, accuracies, size):
    """Return labels, and the order of strata; the accuracy depends on the stratum."""
    order = rng.integers(0, len(accuracies), size)
    return rng.random(size) < np.asarray(accuracies)[order], order


def sampled(rng, n, accuracies, size, estimate=estimate_accuracy):
    labels, order = file_of_answers(rng, accuracies, size)
    ids = id_hashes(rng.integers(0, 2**60, size), size)
    return misses(estimate(labels[draw(ids, order, n, 0)]), labels.mean())


WORLDS = [(40, (0.5,), 2000), (60, (0.05, 0.95), 1500), (50, (0.2, 0.5, 0.9), 1049), (30, (0.97,), 900)]


@pytest.mark.parametrize("world", WORLDS)
def test_the_accuracy_of_the_file_is_in_the_interval(world):
    assert_holds(lambda rng: sampled(rng, *world), ALPHA, 4000)


def test_the_intervals_of_parts_hold_too():
    """A part is a range of the probability or a group: the rows that fall into it are a sample of it."""

    def broken(rng):
        labels, order = file_of_answers(rng, (0.1, 0.6, 0.6, 0.95), 2000)
        chosen = draw(id_hashes(rng.integers(0, 2**60, 2000), 2000), order, 120, 0)
        # Parts that cut across the order, as groups cut across ranges; alpha is shared by two.
        parts = order[chosen] % 2, order % 2
        return any(
            misses(estimate_accuracy(labels[chosen][parts[0] == at], alpha=ALPHA / 2), labels[parts[1] == at].mean())
            for at in (0, 1)
        )

    assert_holds(broken, ALPHA, 2000)


def test_a_normal_interval_breaks_it():
    def normal(labels):
        half = 1.645 * labels.std() / np.sqrt(len(labels))
        return accuracy.Accuracy(labels.mean(), labels.mean() - half, labels.mean() + half)

    assert_breaks(lambda rng: sampled(rng, 30, (0.97,), 900, normal), ALPHA, 1000)


def test_more_labels_where_the_model_is_unsure_need_weights():
    """Neyman's allocation, with the plain interval."""

    def broken(rng):
        labels, order = file_of_answers(rng, (0.5, 0.95), 4000)
        chance = np.where(order == 0, 0.5, np.sqrt(0.95 * 0.05))
        chosen = rng.choice(4000, 200, replace=False, p=chance / chance.sum())
        return misses(estimate_accuracy(labels[chosen]), labels.mean())

    assert_breaks(broken, ALPHA, 1000)


# A judge labelled many rows, and people few.


def judged(rng, n, others, right, too_strict, too_lenient, estimate):
    """Return whether an estimate misses; shares of all rows: right answers, and those that the judge gets wrong."""
    y = rng.random(n + others) < right
    flips = rng.random(n + others) < np.where(y, too_strict / right, too_lenient / (1 - right))
    j = y ^ flips
    return misses(estimate(y[:n] * 1.0, j[:n] * 1.0, j[n:] * 1.0), right)


# rows of people, of the judge alone, accuracy, share of rows for which the judge is too strict, and too lenient
JUDGES = [
    (30, 400, 0.7, 0.05, 0.05),
    (30, 400, 0.7, 0.0, 0.1),
    (30, 300, 0.9, 0.0, 0.04),
    (20, 200, 0.8, 0.02, 0.0),
    (25, 200, 0.5, 0.3, 0.2),
]


@pytest.mark.parametrize(("world", "alone"), [*((world, 0) for world in JUDGES), (JUDGES[0], 0.5)])
def test_the_accuracy_by_people_is_in_the_interval(world, alone):
    estimate = lambda *labels: estimate_judged_accuracy(*labels, alpha=ALPHA, alone=alone)  # noqa: E731
    assert_holds(lambda rng: judged(rng, *world, estimate), ALPHA, 400)


def test_people_labelled_more_rows_than_the_judge_who_is_hardly_ever_wrong():
    """Only a narrow part of the confidence set has the mean that is tested, and the grid must meet it."""
    assert_holds(lambda rng: judged(rng, 5000, 300, 0.7, 0.0005, 0.0005, estimate_judged_accuracy), ALPHA, 40)


def test_the_judges_labels_by_themselves_break_it():
    assert_breaks(
        lambda rng: judged(rng, 40, 400, 0.7, 0.0, 0.1, lambda y, j, others: estimate_accuracy(others)), ALPHA, 400
    )


def test_a_normal_prediction_powered_interval_breaks_it():
    """In 40 rows, a judge that is wrong for 4% is often never wrong."""

    def normal(y, j, others):
        value = (y - j).mean() + others.mean()
        half = 1.645 * np.sqrt((y - j).var() / len(y) + others.var() / len(others))
        return accuracy.Accuracy(value, value - half, value + half)

    assert_breaks(lambda rng: judged(rng, 40, 300, 0.9, 0.0, 0.04, normal), ALPHA, 1000)


def test_observed_shares_in_place_of_the_confidence_set_break_it(monkeypatch):
    monkeypatch.setattr(accuracy, "binomial_interval", lambda right, rows, tail: (right / rows, right / rows))
    estimate = lambda *labels: estimate_judged_accuracy(*labels, alpha=ALPHA, alone=0)  # noqa: E731
    assert_breaks(lambda rng: judged(rng, 40, 300, 0.9, 0.0, 0.04, estimate), ALPHA, 1000)


@each("n, others, wrong, tail", [(20, 60, 0.1, 0.05), (30, 300, 0.02, 0.05), (30, 40, 0.4, 0.2)])
def test_a_finer_grid_moves_an_end_by_less_than_its_margin(n, others, wrong, tail):
    rng = np.random.default_rng(n)
    y = rng.random(n + others) < 0.7
    j = y ^ (rng.random(n + others) < wrong)
    counts = accuracy.JudgedCounts(n, int((y > j)[:n].sum()), int((y < j)[:n].sum()), others, int(j[n:].sum()))
    low = accuracy._judged_low(counts, tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "_STEP_OF_B", 0.005)
        patch.setattr(accuracy, "_STEP_OF_Q", 0.0025)
        assert low - accuracy._judged_low(counts, tail) < accuracy._MARGIN


def test_a_judge_who_is_never_wrong_narrows_the_interval_most():
    y = np.repeat([1.0, 0.0], [210, 90])
    with_judge = estimate_judged_accuracy(y, y, np.repeat([1.0, 0.0], [7000, 3000]))
    people = binomial_interval(np.array([210.0]), np.array([300.0]), ALPHA / 2)
    assert with_judge.high - with_judge.low < 0.5 * float(people[1][0] - people[0][0])
