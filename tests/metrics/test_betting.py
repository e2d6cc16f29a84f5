"""Bets against statements about means, compared with the formulas written out."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError
from qacal.metrics import betting
from qacal.metrics.betting import STAKES, bet, closed
from tests.sizes import examples


def wealth_of(x, lowest):
    """Return the wealth of one process after each row, in products."""
    capital, out = np.ones(len(STAKES)), []
    for value in x:
        capital = capital * [1 + stake / -lowest * value for stake in STAKES]
        out.append(capital.mean())
    return np.array(out)


def closed_by_sets(wealth, alpha, weights=None):
    """Return which statements all sets with them reject."""
    weights = np.ones(len(wealth)) if weights is None else weights
    every = range(len(wealth))
    sets = [[*chosen] for size in every for chosen in combinations(every, size + 1)]
    return [all(weights[s] @ wealth[s] >= weights[s].sum() / alpha for s in sets if at in s) for at in every]


def drawn(seed, rows, processes=4):
    rng = np.random.default_rng(seed)
    lowest = -rng.uniform(0.1, 1.5, processes)
    return rng.uniform(lowest, 1 - 0.5 * lowest, (rows, processes)) * (rng.random((rows, processes)) < 0.4), lowest


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 160), st.integers(1, 4)), min_size=1, max_size=6), st.sampled_from([4, 8, 16]))
def test_closed_testing_is_that_of_all_sets(pairs, least):
    wealth, weights = np.array(pairs, dtype=np.float64).T
    # A little more, so that no mean is within rounding of the border.
    wealth = wealth / 2 + 1 / 4096
    found = closed(np.log(wealth), 1 / least, weights)
    assert found.tolist() == closed_by_sets(wealth, 1 / least, weights)


@pytest.mark.parametrize("seed", range(4))
def test_alarms_are_those_of_the_products(seed, monkeypatch):
    x, lowest = drawn(seed, 300)
    wealth = np.stack([wealth_of(x[:, at], lowest[at]) for at in range(4)], axis=1)
    weights = np.array([1.0, 2.0, 0.5, 1.0]) if seed % 2 else None
    is_broken = np.array([closed_by_sets(row, 0.1, weights) for row in wealth])
    first = np.where(is_broken.any(axis=0), is_broken.argmax(axis=0), -1)
    any_at = int(np.argmax(np.average(wealth, axis=1, weights=weights) >= 10))
    assert (first >= 0).any()
    assert any_at > 0
    for rows in (7, 4096):  # however many rows are taken at a time
        monkeypatch.setattr(betting, "_ROWS", rows)
        alarms = bet(x, lowest, alpha=0.1, weights=weights)
        np.testing.assert_allclose(alarms.log_wealth, np.log(wealth[-1]), atol=1e-9)
        assert alarms.broken_at.tolist() == first.tolist()
        assert alarms.any_at == any_at


def test_rows_of_other_statements_change_nothing():
    x, lowest = drawn(1, 100, processes=1)
    apart = np.insert(x, np.arange(100), 0.0, axis=0)
    assert bet(x, lowest).log_wealth == pytest.approx(bet(apart, lowest).log_wealth)


def test_a_broken_statement_stays_broken_and_its_wealth_is_finite():
    x = np.concatenate([np.full((4000, 1), 1.0), np.full((400, 1), -0.5)])
    alarms = bet(np.repeat(x, 2, axis=1), np.array([-0.5, -0.5]))
    assert np.isfinite(alarms.log_wealth).all()
    assert (alarms.broken_at < 10).all()


def test_no_rows_raise_no_alarm():
    alarms = bet(np.empty((0, 3)), np.full(3, -1.0))
    assert alarms.any_at == -1
    assert (alarms.broken_at == -1).all()
    assert not alarms.log_wealth.any()


def test_no_statements_raise_no_alarm():
    assert bet(np.empty((5, 0)), np.empty(0)).any_at == -1


def test_alpha_is_checked():
    with pytest.raises(InputError, match="alpha"):
        bet(np.zeros((1, 1)), np.array([-1.0]), alpha=1.5)
