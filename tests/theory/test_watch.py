"""The watch: alarms that are ever raised are right with probability 1 - alpha, and how many labels a shift takes."""

import numpy as np
import pytest
from scipy import stats

from qacal.metrics import betting
from qacal.metrics.betting import bet
from qacal.model.broken import _bets, _documents, _Limits, _means
from qacal.model.labelling import draw
from qacal.model.watching import equal_chances
from qacal.tally.ids import id_hashes
from tests.sizes import sized
from tests.theory.lab import assert_breaks, assert_holds

ALPHA = 0.1
# True accuracies of groups; the statements about them are the truth itself, which is the hardest that is true.
ACCURACY = np.array([0.3, 0.5, 0.7, 0.8, 0.9, 0.97])
WIDTH = 0.05


def labels(rng, rows, accuracy=ACCURACY):
    """Return groups and labels of rows."""
    group = rng.integers(0, len(accuracy), rows)
    return group, (rng.random(rows) < accuracy[group]) * 1.0


def statements(group, y, low, high):
    """Return the values of both sides of the statements about groups, and of both about all rows."""
    inside = group[:, None] == np.arange(len(low))
    above, below = y - high[group], low[group] - y
    x = np.concatenate([inside * above[:, None], inside * below[:, None], above[:, None], below[:, None]], axis=1)
    return x, -np.concatenate([high, 1 - low, [high.max(), 1 - low.min()]])


@pytest.mark.parametrize("weights", [None, np.repeat([1 / 6, 1], [12, 2])])
def test_no_alarm_is_ever_raised_if_all_statements_hold(weights):
    def breaks(rng):
        alarms = bet(*statements(*labels(rng, 2000), ACCURACY, ACCURACY), ALPHA, weights)
        return alarms.any_at >= 0 or (alarms.broken_at >= 0).any()

    assert_holds(breaks, ALPHA, 1600)


def test_one_statement_at_its_border_is_hardly_wasteful():
    """A single process, without the sharing of alpha among many."""

    def breaks(rng):
        x = (rng.random(4000) < 0.8) - 0.8
        return bet(x[:, None], np.array([-0.8]), ALPHA).any_at >= 0

    assert_holds(breaks, ALPHA, 2000)
    assert np.mean([breaks(np.random.default_rng(seed)) for seed in range(sized(800))]) > ALPHA / 4


def test_true_statements_are_not_called_broken_beside_false_ones():
    def breaks(rng):
        group, y = labels(rng, 2000)
        stated = ACCURACY - 0.4 * (np.arange(6) == 5)
        alarms = bet(*statements(group, y, stated, stated), ALPHA)
        assert alarms.broken_at[5] >= 0
        # Group 5 is better than stated, and so are all rows together.
        return (np.delete(alarms.broken_at, [5, 12]) >= 0).any()

    assert_holds(breaks, ALPHA, 2000)


def test_values_between_0_and_1_hold_too():
    """The mean of a document is such a value."""

    def breaks(rng):
        x = rng.beta(0.3, 0.7, 3000) - 0.3
        return bet(np.stack([x, -x], axis=1), np.array([-0.3, -0.7]), ALPHA).any_at >= 0

    assert_holds(breaks, ALPHA, 1600)


def test_a_whole_alpha_for_each_statement_breaks_it():
    def breaks(rng):
        accuracy = np.full(12, 0.8)
        x, lowest = statements(*labels(rng, 3000, accuracy), accuracy, accuracy)
        return any(bet(x[:, [at]], lowest[[at]], ALPHA).any_at >= 0 for at in range(x.shape[1]))

    assert_breaks(breaks, ALPHA, 400)


def test_an_exact_test_at_every_look_breaks_it():
    """A binomial test of a fixed number of rows, repeated after every label."""

    def breaks(rng):
        right = np.cumsum(rng.random(2000) < 0.8)
        rows = np.arange(1, 2001)
        return (stats.binom.cdf(right, rows, 0.8) <= ALPHA).any()

    assert_breaks(breaks, ALPHA, 400)


def test_stakes_chosen_after_the_rows_break_it(monkeypatch):
    monkeypatch.setattr(betting, "_averaged", lambda log_capital: log_capital.max(axis=-1))
    assert_breaks(
        lambda rng: bet(((rng.random(4000) < 0.8) - 0.8)[:, None], np.array([-0.8]), ALPHA).any_at >= 0, ALPHA, 2000
    )


# The median number of labels in a group until it is named, among six groups with intervals of 0.05 to both sides.
@pytest.mark.parametrize(("shift", "most"), [(0.1, 900), (0.2, 140), (0.3, 70)])
def test_labels_until_a_shift_is_seen(shift, most):
    def needed(rng):
        moved = ACCURACY - shift * (np.arange(6) == 3)
        group, y = labels(rng, 12_000, moved)
        alarms = bet(*statements(group, y, np.maximum(ACCURACY - WIDTH, 0), np.minimum(ACCURACY + WIDTH, 1)), ALPHA)
        at = alarms.broken_at[6 + 3]
        return np.inf if at < 0 else np.count_nonzero(group[: at + 1] == 3)

    rng = np.random.default_rng(0)
    assert np.median([needed(rng) for _ in range(sized(100))]) <= most


# Rows that are not a simple random sample. One interval, the accuracy of all rows, at its border on both sides.


def is_alarmed_by(document, y, accuracy):
    """Return whether an alarm is raised for rows of documents, at the end of each document."""
    limits = _Limits(np.array([accuracy]), np.array([accuracy]), bands=0, roots=1)
    means = _means(document, np.zeros((len(y), 1), dtype=np.int64), np.zeros(len(y)), y, limits)
    return _bets(means, limits, document.max() + 1, ALPHA, has_all=False).any_at >= 0


def rows_of_documents(rng, documents=600):
    """Return the ids of rows, and labels that are the same in all rows of a document; long documents are worse."""
    size = rng.integers(1, 9, documents)
    right = rng.random(documents) < np.where(size > 4, 0.5, 0.9)
    return id_hashes(np.repeat(rng.integers(0, 2**60, documents), size), size.sum()), np.repeat(right * 1.0, size)


def test_documents_hold_however_their_rows_depend_on_each_other():
    def breaks(rng):
        ids, y = rows_of_documents(rng)
        return is_alarmed_by(_documents(ids)[0], y, 0.7)

    assert_holds(breaks, ALPHA, 2000)


def test_rows_of_documents_as_if_independent_break_it():
    def breaks(rng):
        y = rows_of_documents(rng)[1]
        # The accuracy of a random row, so that only the dependence is wrong.
        accuracy = (10 * 0.9 + 26 * 0.5) / 36
        return is_alarmed_by(np.arange(len(y)), y, accuracy)

    assert_breaks(breaks, ALPHA, 400)


def drawn_for_labels(rng):
    """Return ids, labels and chances: less confident answers are labelled more often."""
    is_sure = rng.random(4000) < 0.5
    chance = np.where(is_sure, 0.1, 0.6)
    y = (rng.random(4000) < np.where(is_sure, 0.9, 0.5)) * 1.0
    chosen = rng.random(4000) < chance
    return id_hashes(rng.integers(0, 2**60, 4000), 4000)[chosen], y[chosen], chance[chosen]


def test_rows_thinned_to_equal_chances_hold():
    def breaks(rng):
        ids, y, chance = drawn_for_labels(rng)
        kept, _, _ = equal_chances(chance, np.ones(len(y), dtype=bool), ids, "")
        return is_alarmed_by(np.arange(kept.sum()), y[kept], 0.7)

    assert_holds(breaks, ALPHA, 2000)


def test_rows_with_other_chances_break_it():
    def breaks(rng):
        _, y, _ = drawn_for_labels(rng)
        return is_alarmed_by(np.arange(len(y)), y, 0.7)

    assert_breaks(breaks, ALPHA, 400)


@pytest.mark.parametrize("accuracies", [(0.5, 0.9), (0.05, 0.95), (0.7,)])
def test_draws_of_label_next_hold_in_the_order_of_the_file(accuracies):
    """Ten draws of 60 rows each; every look counts."""

    def breaks(rng):
        y = []
        for _ in range(10):
            order = rng.integers(0, len(accuracies), 1200)
            labels = (rng.random(1200) < np.array(accuracies)[order]) * 1.0
            chosen = draw(id_hashes(rng.integers(0, 2**60, 1200), 1200), order, 60, 0)
            y.append(labels[np.sort(chosen)])
        return is_alarmed_by(np.arange(600), np.concatenate(y), np.mean(accuracies))

    assert_holds(breaks, ALPHA, 1200)
