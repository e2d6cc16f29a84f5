"""The group with the largest error is named if chance does not explain the error, and only then."""

import numpy as np
import pytest

from qacal.guarantee import mean_intervals
from qacal.metrics.claims import GAMMA, judged
from qacal.report import read_contents
from qacal.report.sentences import in_short
from tests.answers import answers
from tests.report.rows import content, model, uneven
from tests.theory.lab import assert_breaks, assert_holds, failure_rate


def test_the_worst_group_is_named():
    rows = [row | {"correct": 0 if row["topic"] == "cooking" else row["correct"]} for row in answers(400, seed=1)]
    found = read_contents(model(), rows)[""]
    assert [group.group for group in found.groups if group.is_off] == ["cooking"]
    said = next(sentence for sentence in in_short(found) if sentence.startswith("Largest gap"))
    cooking = next(group for group in found.groups if group.group == "cooking")
    assert said.startswith(
        f"Largest gap beyond chance: cooking, where 0% of {cooking.rows} answers are correct and the mean"
    )
    assert "other group" not in said


def test_rows_without_a_group_can_be_the_worst():
    rows = [row | {"topic": None, "correct": 0} if row["topic"] == "cooking" else row for row in answers(400, seed=1)]
    found = read_contents(model(), rows)[""]
    assert [group.group for group in found.groups if group.is_off] == [None]
    assert any(
        sentence.startswith("Largest gap beyond chance: the rows without a group, where 0% of")
        for sentence in in_short(found)
    )


def test_no_group_is_named_if_chance_explains_all_errors():
    assert not any(group.is_off for group in content().groups)
    assert "No group is off by more than 5 points beyond chance (4 groups)." in in_short(content())
    few = read_contents(model(), answers(100, seed=1))[""]
    assert any("only large gaps would show" in sentence for sentence in in_short(few))


@pytest.mark.filterwarnings("ignore:.*exact copies of earlier rows:qacal.QacalWarning")
def test_copies_of_a_row_make_no_gap():
    rows = [row for row in answers(40, seed=1) for _ in range(50)]
    assert not any(group.is_off for group in read_contents(model(), rows)[""].groups)


@pytest.mark.filterwarnings("ignore:.*exact copies of earlier rows:qacal.QacalWarning")
def test_no_group_is_judged_where_some_questions_have_more_rows():
    found = read_contents(model(), uneven(500, seed=1))[""]
    assert not any(group.is_off for group in found.groups)
    assert any(sentence.startswith("Groups cannot be tested for gaps") for sentence in in_short(found))


def named(rng, is_corrected=True, gap=0.0):
    """Return which of 40 groups of 25 answers are named; only the first is overconfident."""
    groups, claimed = np.repeat(np.arange(40), 25), rng.uniform(0.4, 0.6, 1000)
    right = (rng.random(1000) < np.clip(claimed - gap * (groups == 0), 0, 1)).astype(float)
    rows, correct, total = (np.bincount(groups, column) for column in (np.ones(1000), right, claimed))
    claim = total / rows
    if is_corrected:
        return judged(rows, correct, correct, (claim, claim)).is_contradicted
    low, high = mean_intervals(rows, rows, correct, correct, rows, GAMMA / 2)
    return (low > claim) | (high < claim)


def test_a_group_is_seldom_named_by_chance():
    trials = 400
    assert_holds(lambda rng: named(rng).any(), GAMMA, trials)
    assert_breaks(lambda rng: named(rng, is_corrected=False).any(), GAMMA, trials)


def test_a_group_that_is_far_off_is_named():
    assert failure_rate(lambda rng: not named(rng, gap=0.45)[0], 100) <= 0.1
