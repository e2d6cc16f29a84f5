"""Each reader on rows in the hub's documented format: the questions, and the rows that are skipped."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.errors import InputError
from qacal.sources.questions import bigbench, mmlu, openbookqa, sciq, triviaqa
from qacal.sources.questions.benchmarks import BenchmarkQuestion, UnusableError
from tests.sources.questions.rows import BIGBENCH, BIGBENCH_OPEN, HIDDEN, MMLU, OPENBOOKQA, SCIQ, TRIVIAQA

READERS = {triviaqa: TRIVIAQA, sciq: SCIQ, bigbench: BIGBENCH, openbookqa: OPENBOOKQA, mmlu: MMLU}


def test_triviaqa_has_aliases_once_the_canonical_answer_first():
    assert triviaqa(TRIVIAQA) == BenchmarkQuestion(
        id="tc_7",
        question="Which river flows through Cairo?",
        choices=None,
        ground_truth=("Nile", "The Nile", "River Nile"),
        subject="http://www.triviacountry.com/",
        dataset="triviaqa",
    )


def test_sciq_is_open_unless_asked_otherwise():
    row = sciq(SCIQ)
    assert (row.choices, row.ground_truth, row.subject, row.dataset) == (None, ("carbon dioxide",), None, "sciq")
    # Ids and orders are stored with answers, so they must be the same on every machine and in every version.
    assert row.id == "sciq-94d8e22cb3557f47"
    with_choices = sciq(SCIQ, with_choices=True)
    assert with_choices.id == row.id
    assert with_choices.choices == ("carbon dioxide", "oxygen", "helium", "nitrogen")


def test_the_place_of_the_right_choice_tells_nothing():
    places = Counter()
    for number in range(400):
        row = sciq(SCIQ | {"question": f"Question {number}?"}, with_choices=True)
        assert row.choices is not None
        places[row.choices.index("carbon dioxide")] += 1
    assert set(places) == {0, 1, 2, 3}
    # 100 each, give or take: four standard deviations of a binomial are 35.
    assert all(65 <= count <= 135 for count in places.values())


def test_choices_of_sciq_are_distinct_and_whole():
    row = sciq(SCIQ | {"distractor1": "carbon dioxide", "distractor3": ""}, with_choices=True)
    assert sorted(row.choices or ()) == ["carbon dioxide", "nitrogen"]


def test_bigbench_moves_choices_out_of_the_text():
    row = bigbench(BIGBENCH)
    assert row.question == "Pick the odd one out.\n\nQ: Which is no fruit?\nA:"
    assert row.choices == ("pear", "brick", "plum")
    assert (row.ground_truth, row.subject, row.dataset) == (("brick",), "odd_one_out", "bigbench")


def test_bigbench_without_choices_is_unchanged():
    row = bigbench(BIGBENCH, with_choices=False)
    assert (row.question, row.choices) == (BIGBENCH["inputs"], None)
    assert row.id == bigbench(BIGBENCH).id
    row = bigbench(BIGBENCH_OPEN)
    assert (row.question, row.choices, row.ground_truth) == ("What is 3 plus 4?", None, ("7", "seven"))


def test_bigbench_shuffles_choices_that_the_text_does_not_list():
    """The right one may be the first of the column in all rows of a task."""
    rows = [bigbench(BIGBENCH | {"inputs": f"Question {number}: which is no fruit?"}) for number in range(60)]
    assert {row.question for row in rows} == {f"Question {number}: which is no fruit?" for number in range(60)}
    assert {row.choices.index("brick") for row in rows if row.choices} == {0, 1, 2}
    # A text that lists other choices than the column is left as it is.
    odd = BIGBENCH | {"multiple_choice_targets": ["brick", "pear", "fig"]}
    assert bigbench(odd).question == BIGBENCH["inputs"]


def test_bigbench_takes_the_scores_where_targets_are_no_choices():
    row = BIGBENCH | {"targets": ["(b)"], "multiple_choice_scores": [1, 0, 1]}
    assert bigbench(row).ground_truth == ("brick", "plum")
    for scores in ([0, 0, 0], [], None):
        with pytest.raises(UnusableError, match="not among the choices"):
            bigbench(row | {"multiple_choice_scores": scores})


def test_openbookqa():
    assert openbookqa(OPENBOOKQA) == BenchmarkQuestion(
        "7-980", "Ice left in the sun will", ("melt", "burn", "sing", "grow"), ("melt",), None, "openbookqa"
    )
    numbered = OPENBOOKQA | {"choices": {"text": ["melt", "burn"], "label": ["1", "2"]}, "answerKey": "2"}
    assert openbookqa(numbered).ground_truth == ("burn",)


def test_mmlu():
    row = mmlu(MMLU)
    assert (row.choices, row.ground_truth) == (("21", "27", "29", "33"), ("29",))
    assert (row.subject, row.dataset, row.id) == ("elementary_mathematics", "mmlu", "mmlu-0c7aa6fcd5a9e142")
    assert mmlu(MMLU | {"subject": "chess"}).id == row.id
    assert mmlu(MMLU | {"subject": ""}).subject is None
    assert mmlu(MMLU | {"choices": ["29", "27", "21", "33"]}).id != row.id


@pytest.mark.parametrize(
    ("reader", "change", "reason", "got"),
    [
        (triviaqa, {"answer": HIDDEN}, "the answer is hidden", "answer.value is '<unk>'"),
        (triviaqa, {"answer": HIDDEN | {"value": " "}}, "there is no value", "value is ' '"),
        (triviaqa, {"question": None}, "there is no question", "question is None"),
        (sciq, {"correct_answer": ""}, "there is no correct_answer", "correct_answer is ''"),
        (bigbench, {"targets": [], "multiple_choice_targets": []}, "there is no answer", "targets is []"),
        (bigbench, {"multiple_choice_targets": ["brick", ""]}, "a choice is empty", "is ['brick', '']"),
        (openbookqa, {"answerKey": ""}, "the answer is not among the choices", "answerKey is ''; expected one of A, B"),
        (openbookqa, {"answerKey": "E"}, "the answer is not among the choices", "answerKey is 'E'"),
        (mmlu, {"answer": -1}, "the answer is not among the choices", "answer is -1; expected 0 to 3"),
        (mmlu, {"answer": 4}, "the answer is not among the choices", "answer is 4; expected 0 to 3"),
        (mmlu, {"choices": []}, "the answer is not among the choices", "answer is 2"),
    ],
)
def test_rows_that_cannot_be_asked_or_judged_are_skipped(reader, change, reason, got):
    with pytest.raises(UnusableError) as caught:
        reader(READERS[reader] | change)
    assert caught.value.reason == reason
    assert got in caught.value.got


@pytest.mark.parametrize(
    ("reader", "change", "said"),
    [
        (triviaqa, {"answer": "Nile"}, "answer is 'Nile'; expected an object with value and aliases"),
        (triviaqa, {"answer": {"value": "Nile"}}, "expected an object with value and aliases"),
        (sciq, {"question": 3}, "question is 3; expected text"),
        (bigbench, {"targets": "brick"}, "targets is 'brick'; expected a list of texts"),
        (openbookqa, {"choices": ["melt", "burn"]}, "expected an object with text and label"),
        (openbookqa, {"choices": {"text": ["melt"], "label": ["A", "B"]}}, "expected 1 labels"),
        (mmlu, {"answer": "C"}, "answer is 'C'; expected the place of the correct choice, from 0"),
        (mmlu, {"answer": True}, "answer is True; expected the place"),
        (mmlu, {"choices": [1, 2]}, "choices is [1, 2]; expected a list of texts"),
    ],
)
def test_data_in_another_format_is_an_error(reader, change, said):
    with pytest.raises(InputError) as caught:
        reader(READERS[reader] | change)
    assert said in str(caught.value)
    assert "ask for an earlier --revision" in str(caught.value)


texts = st.text(max_size=12)
values = st.one_of(st.none(), st.booleans(), st.integers(-2, 5), texts, st.lists(texts, max_size=4))


@given(st.sampled_from(sorted(READERS, key=lambda one: one.__name__)), st.data())
def test_rows_with_any_content_are_read_or_skipped(reader, data):
    row = READERS[reader]
    column = data.draw(st.sampled_from(sorted(row)))
    try:
        question = reader(row | {column: data.draw(values)})
    except (UnusableError, InputError):
        return
    assert question.question.strip()
    assert question.ground_truth
    assert all(answer.strip() for answer in question.ground_truth)
    assert question.choices is None or set(question.ground_truth) <= set(question.choices)
