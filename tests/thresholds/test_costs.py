"""Costs: the rule for calibrated confidences, and the cheapest threshold by brute force."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError, cheapest_threshold


def slow_cost(h, y, threshold, wrong, abstain):
    return np.mean([wrong * (1 - right) if score >= threshold else abstain for score, right in zip(h, y, strict=True)])


@given(st.integers(0, 10**6), st.sampled_from([(5, 1), (1, 1), (2, 0.5), (1, 3), (3, 0)]), st.booleans())
def test_nothing_is_cheaper_by_brute_force(seed, costs, is_soft):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    h = rng.choice([0.0, 0.3, 0.6, 0.9, 1.0], n)
    y = rng.random(n) if is_soft else (rng.random(n) < h).astype(float)
    found = cheapest_threshold(y, h, wrong=costs[0], abstain=costs[1])
    every = {t: slow_cost(h, y, t, *costs) for t in (*np.unique(h), 2.0)}
    assert found.seen_policy.cost == pytest.approx(min(every.values()))
    assert found.rule_policy.threshold == max(0, 1 - costs[1] / costs[0])
    assert found.rule_policy.cost == pytest.approx(slow_cost(h, y, found.rule_policy.threshold, *costs))
    assert found.always == pytest.approx(slow_cost(h, y, 0, *costs))
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_rule_is_nearly_cheapest_only_for_calibrated_confidences():
    rng = np.random.default_rng(0)
    p = rng.choice(np.linspace(0.05, 0.95, 19), 20_000)
    y = rng.random(20_000) < p
    calibrated = cheapest_threshold(y, p, wrong=4, abstain=1)
    assert (calibrated.threshold, calibrated.rule().threshold) == (0.75, 0.75)
    assert calibrated.rule_policy.cost < calibrated.seen_policy.cost + 0.002
    too_sure = cheapest_threshold(y, np.sqrt(p), wrong=4, abstain=1)
    assert abs(too_sure.seen_policy.threshold - np.sqrt(0.75)) < 0.05
    assert too_sure.rule_policy.cost > too_sure.seen_policy.cost + 0.01


def test_never_answering_may_be_cheapest():
    found = cheapest_threshold(np.repeat([1, 0], 250), np.full(500, 0.95), wrong=10, abstain=1)
    assert (found.seen_policy.threshold, found.seen_policy.cost, found.seen_policy.accuracy) == (None, 1, None)


def test_one_row_and_several_rows_of_a_question():
    assert cheapest_threshold([1], [0.9], wrong=2, abstain=1).threshold == 0.5
    found = cheapest_threshold([1, 1, 0], [0.9, 0.9, 0.2], wrong=2, abstain=1, ids=[1, 1, 2])
    assert (found.rows, found.dropped) == (2, 1)


@pytest.mark.parametrize("costs", [(0, 1), (-1, 1), (1, -1), (float("inf"), 1), (1, float("nan")), (True, 1)])
def test_costs_are_numbers(costs):
    with pytest.raises(InputError, match="expected its cost"):
        cheapest_threshold([1], [0.5], wrong=costs[0], abstain=costs[1])
