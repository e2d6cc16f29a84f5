"""Each question is kept once; other rows are counted by reason."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.errors import InputError
from qacal.sources.questions import (
    BENCHMARKS,
    COLUMNS,
    LeftOut,
    gather,
    load,
    mmlu,
    openbookqa,
    sciq,
    triviaqa,
)
from tests.sources.questions.rows import HIDDEN, MMLU, OPENBOOKQA, SCIQ, TRIVIAQA


def numbered(number):
    return MMLU | {"question": f"Question {number}?", "subject": f"subject {number // 100}"}


def test_a_question_is_asked_once_whatever_its_subject():
    gathered = gather([MMLU, numbered(1), MMLU, MMLU | {"subject": "number_theory"}], mmlu)
    assert [one.subject for one in gathered.questions] == ["elementary_mathematics", "subject 0"]
    assert gathered.left_out == {"an earlier row asks the same": LeftOut(2, f"row 3: {MMLU['question']}")}


def test_a_question_with_two_answers_keeps_the_first():
    gathered = gather([SCIQ, SCIQ | {"correct_answer": "carbon"}], sciq)
    assert [one.ground_truth for one in gathered.questions] == [("carbon dioxide",)]
    assert list(gathered.left_out) == ["an earlier row asks the same"]


def test_one_id_for_two_questions_keeps_the_first():
    gathered = gather([OPENBOOKQA, OPENBOOKQA | {"question_stem": "Rain is"}], openbookqa)
    assert gathered.left_out == {"an earlier row has the same id": LeftOut(1, "row 2: Rain is")}


def test_hidden_answers_are_reported():
    hidden = [TRIVIAQA | {"question_id": f"tc_{number}", "answer": HIDDEN} for number in range(3)]
    with pytest.raises(InputError) as caught:
        gather(hidden, triviaqa)
    assert str(caught.value) == (
        "no row can be used: the answer is hidden (3 rows; row 1: answer.value is '<unk>'). Test splits often hide "
        "their answers; ask for another --split."
    )
    assert gather([*hidden, TRIVIAQA], triviaqa).left_out["the answer is hidden"].count == 3
    with pytest.raises(InputError, match="there is no row"):
        gather([], triviaqa)


def test_another_format_is_reported_with_its_row():
    with pytest.raises(InputError, match=r"row 2: answer is 'C'; expected the place of the correct choice"):
        gather([MMLU, MMLU | {"answer": "C"}], mmlu)


def test_a_sample_is_from_all_subjects_and_grows_without_losing_any():
    gathered = gather((numbered(number) for number in range(1000)), mmlu)
    small, large = gathered.sample(40), gathered.sample(200)
    assert (len(small.questions), len(large.questions)) == (40, 200)
    assert {one.id for one in small.questions} < {one.id for one in large.questions}
    assert len({one.subject for one in large.questions}) == 10
    assert [one for one in gathered.questions if one in large.questions] == list(large.questions)
    assert gathered.sample(5000) == gathered


@given(st.lists(st.integers(0, 8), min_size=1, max_size=30))
def test_every_row_is_a_question_or_counted_and_ids_are_unique(numbers):
    gathered = gather((numbered(number) | {"answer": 4 if number == 8 else 0} for number in [0, *numbers]), mmlu)
    assert len({one.id for one in gathered.questions}) == len(gathered.questions)
    assert len(gathered.questions) + sum(one.count for one in gathered.left_out.values()) == len(numbers) + 1
    assert {one.question for one in gathered.questions} == {f"Question {one}?" for one in {0, *numbers} - {8}}


def test_the_table_has_the_same_columns_whatever_is_missing():
    frame = gather([TRIVIAQA], triviaqa).frame()
    assert frame.schema == gather([MMLU], mmlu).frame().schema
    assert tuple(frame.columns) == COLUMNS
    assert frame.schema["choices"] == pl.List(pl.String)
    assert frame["choices"].to_list() == [None]


def test_every_benchmark_has_a_reader_for_its_columns():
    for name, row in (("triviaqa", TRIVIAQA), ("sciq", SCIQ), ("openbookqa", OPENBOOKQA), ("mmlu", MMLU)):
        one = BENCHMARKS[name]
        question = one.read({column: row[column] for column in one.columns})
        assert question.dataset == name
        assert (question.choices is not None) == one.forms[0]


def test_what_a_benchmark_does_not_have_is_refused_before_anything_is_loaded():
    for name, options, said in (
        ("bigbench", {}, "the paper does not say which it used; name yours: --task NAME"),
        ("sciq", {"tasks": ["pets"]}, "sciq does not consist of tasks; leave out --task pets"),
        ("triviaqa", {"choices": True}, "triviaqa has no choices; leave out --choices"),
        ("mmlu", {"choices": False}, "could be asked without their choices; leave out --no-choices"),
        ("squad", {}, "'squad' is not a benchmark; there are triviaqa, sciq, bigbench, openbookqa, mmlu"),
    ):
        with pytest.raises(InputError) as caught:
            load(name, **options)
        assert said in str(caught.value)


def test_tasks_are_configs_that_end_in_zero_shot():
    configs = BENCHMARKS["bigbench"].configs(["pets", "sums_zero_shot"])
    assert configs == {"pets_zero_shot": {"task": "pets"}, "sums_zero_shot": {"task": "sums"}}
