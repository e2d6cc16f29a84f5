"""The decision rule and the fit record of a model: by hand, saved and loaded, and with hostile content."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError, Tally
from qacal.calibrators import Evidence
from qacal.storage import flatten, unflatten
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import FitRecord, Forecasts, remembered, sample
from tests.rebuilt import rebuilt
from tests.sizes import examples


def evidence(calibrated, groups=None):
    return Evidence.of(np.asarray(calibrated), np.asarray(calibrated), group=groups)


def test_a_row_at_or_above_the_threshold_is_answered():
    found = DecisionRule(0.8).decide(evidence([0.79, 0.8, 1.0, 0.0]))
    assert found.decision == ["abstain", "answer", "answer", "abstain"]
    assert found.threshold.tolist() == [0.8] * 4
    assert DecisionRule(0.0).decide(evidence([0.0])).decision == ["answer"]
    assert DecisionRule(1.0).decide(evidence([1.0, 0.999])).decision == ["answer", "abstain"]


def test_no_threshold_abstains_and_is_null():
    found = DecisionRule(None).decide(evidence([1.0]))
    assert found.decision == ["abstain"]
    assert found.to_polars()["threshold"].to_list() == [None]


def test_each_group_has_its_own_threshold_and_unknown_groups_abstain():
    groups = ["law", "art", "chess", None, 1]
    rule = DecisionRule(None, {"law": 0.5, "art": None, 1: 0.9})
    found = rule.decide(evidence([0.6, 0.6, 0.6, 0.6, 0.95], groups))
    assert found.decision == ["answer", "abstain", "abstain", "abstain", "answer"]
    np.testing.assert_array_equal(found.threshold, [0.5, np.nan, np.nan, np.nan, 0.9])


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.8", True])
def test_a_threshold_is_a_probability(value):
    with pytest.raises(InputError, match="expected a number from 0 to 1"):
        DecisionRule(value)
    with pytest.raises(InputError, match="expected a number from 0 to 1"):
        DecisionRule(None, {"law": value})


thresholds = st.none() | st.floats(0, 1)
names = st.text(max_size=5) | st.integers(-5, 5) | st.floats(0.5, 0.7)


@examples(20)
@given(thresholds, st.none() | st.dictionaries(names, thresholds, max_size=3))
def test_a_rule_is_saved_and_loaded(threshold, groups):
    rule = DecisionRule(threshold, groups, {"kind": "certified", "accuracy": 0.9})
    plain, numbers = flatten(rule)
    assert unflatten(DecisionRule, json.loads(json.dumps(plain)), numbers) == rule


RULE = flatten(DecisionRule(None, {"law": 0.5, "art": None}))[0]


@pytest.mark.parametrize(
    "plain",
    [
        [],
        0.8,
        {**RULE, "more": 1},
        {**RULE, "threshold": "0.8"},
        {**RULE, "threshold": 1.5},
        {**RULE, "threshold": True},
        {**RULE, "groups": {"law": "0.8"}},
        {**RULE, "groups": [["law"]]},
        {**RULE, "groups": [["law", 0.5], ["law", 0.6]]},
        {**RULE, "groups": [[["law"], 0.5]]},
        {**RULE, "groups": [["law", -1]]},
        {**RULE, "groups": [[None, 0.5]]},
        {**RULE, "about": None},
        {**RULE, "about": {}},
        {**RULE, "about": {"kind": "magic"}},
        {**RULE, "about": {"kind": ["given"]}},
    ],
)
def test_invalid_rules_are_refused(plain):
    with pytest.raises(InputError):
        unflatten(DecisionRule, plain, b"")


def memory():
    tally = Tally.of([0.5, 0.9, 0.9, 0.7], [0, 1, 1, 0], groups=["law", "law", "art", None])
    return remembered(np.arange(1, 900, dtype=np.uint64), np.empty(0, dtype=np.uint64), Forecasts.of(tally))


def test_a_fit_record_is_saved_and_loaded():
    plain, numbers = flatten(memory())
    back = unflatten(FitRecord, json.loads(json.dumps(plain)), numbers)
    assert {*back.groups} == {"law", "art"}
    assert back.outlooks().expected("law").rows.sum() == pytest.approx(2 + 20)
    assert back.outlooks().expected("chess").rows.sum() == pytest.approx(20)


def test_five_percent_of_known_questions_are_detected():
    seen, new = np.arange(1, 20_001, dtype=np.uint64), np.arange(50_000, 60_000, dtype=np.uint64)
    mine = replace(memory(), questions=sample(seen))
    assert mine.known(new) == 0
    assert mine.known(np.concatenate([new, seen[::20]])) > 3
    assert len(mine.questions) == 256
    nameless = replace(memory(), questions=sample(np.zeros(5, dtype=np.uint64)))
    assert nameless.known(np.zeros(5, dtype=np.uint64)) == 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"questions": np.array([2, 1])}, "questions must rise"),
        ({"groups": ("law", "law")}, "each group once"),
        ({"groups": ("law",)}, "each group once"),
        ({"offset": np.array([0, 9, 9, 9])}, "offset must rise"),
        ({"offset": np.array([0, 4, 3, 6])}, "offset must rise"),
        ({"score": np.zeros(2)}, "has shape"),
        ({"score": np.full(6, 0.5)}, "must rise"),
        ({"score": np.full(6, 1.5)}, "expected 0 to 1"),
        ({"rows": np.full(6, -1.0)}, "expected 0 to"),
        ({"rows": np.full(6, 1e300)}, "expected 0 to"),
        ({"rows": np.zeros(6)}, "more rows are correct"),
        ({"right": np.full(6, np.nan)}, "right.0. is nan"),
    ],
)
def test_invalid_fit_records_are_refused(changes, match):
    assert len(memory().score) == 6
    with pytest.raises(InputError, match=match):
        rebuilt(replace(memory(), **changes))
