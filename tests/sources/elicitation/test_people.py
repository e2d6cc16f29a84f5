"""Labels by people: how the judge agrees with them when rows are not independent, and whose rows are theirs."""

import numpy as np
import pytest

from qacal.errors import InputError
from qacal.sources.elicitation.people import HumanLabels, agreement, question_of, without


@pytest.mark.parametrize("rows_each", [1, 3])
def test_intervals_hold_where_the_rows_of_a_question_are_judged_alike(rows_each):
    """Intervals that take rows as independent hold in three quarters of the worlds with three rows a question."""
    rng, truth, missed = np.random.default_rng(0), 0.8, 0
    for _ in range(400):
        same = np.repeat(rng.random(100) < truth, rows_each)
        questions = [str(number) for number in np.repeat(np.arange(100), rows_each)]
        found = agreement(same.astype(float), np.ones(len(same)), questions, alpha=0.1).agreement
        missed += not found.low <= truth <= found.high
    assert missed <= 0.1 * 400
    assert found.questions == 100
    assert ("questions" in str(found)) == (rows_each > 1)


def test_a_question_is_known_by_its_id_and_else_by_its_text():
    rows = [
        {"id": "a", "question": "same?", "by_hand": 1},
        {"id": "b", "question": "same?", "by_hand": None},
        {"id": "a", "question": "other?", "by_hand": None},
    ]
    people = HumanLabels("by_hand")
    assert people.questions(rows) == {"a"}
    assert [row["id"] for row in without(rows, people.questions(rows))] == ["b"]
    assert question_of({"id": "", "question": "Q?"}) == question_of({"question": "Q?"}) == "Q?"


def test_labels_that_are_none():
    people = HumanLabels("by_hand")
    assert [people.label({"by_hand": value}) for value in ("Yes", 0, "", None, float("nan"), True)] == [
        *(1.0, 0.0, None, None, None, 1.0),
    ]
    assert people.label({}) is None
    with pytest.raises(InputError, match="by_hand is 'perhaps'"):
        people.label({"by_hand": "perhaps"})
