"""The agreement of samples, compared with a slow version; what must not matter."""

import math
import random
from fractions import Fraction

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qacal
from qacal.errors import InputError
from qacal.sources.elicitation.agreement import Votes
from qacal.sources.elicitation.matching import normalise_answer

# Spellings of few answers, so that samples agree.
ANSWERS = st.sampled_from(["Paris", "paris.", "the Paris", "Lyon", "lyon!", "42", "42.0", "-42", ""])
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["q1", "q2", "q3"]), "answer": ANSWERS, "confidence": st.sampled_from([0.1, 0.5, 0.9])}
    ),
    min_size=4,  # of three ids, one has two rows
)


@given(st.lists(ANSWERS, min_size=1))
def test_shares_add_up_and_give_the_entropy(answers):
    votes = Votes(answers)
    shares = [Fraction(count, len(answers)) for count in votes.counts.values()]
    assert sum(shares) == 1
    assert len(shares) == len({normalise_answer(answer) for answer in answers})
    columns = votes.columns_of(votes.majority)
    assert columns["agreement"] == float(max(shares))
    assert columns["samples"] == len(answers)
    assert columns["answers_entropy"] == pytest.approx(-sum(share * math.log(share) for share in shares), abs=1e-12)
    # At most the entropy of equally frequent answers.
    assert 0 <= columns["answers_entropy"] <= math.log(len(shares)) + 1e-12


@given(st.integers(1, 50), ANSWERS)
def test_equal_answers_have_no_entropy(count, answer):
    columns = Votes([answer] * count).columns_of(Votes.key(answer))
    assert columns == {"agreement": 1.0, "answers_entropy": 0.0, "samples": count}
    assert math.copysign(1, columns["answers_entropy"]) == 1  # not -0.0


@given(ROWS, st.randoms())
def test_the_order_of_rows_does_not_matter(rows, chance):
    mixed = chance.sample(rows, len(rows))
    assert sorted(qacal.agree(rows), key=str) == sorted(qacal.agree(mixed), key=str)


@given(ROWS)
def test_the_row_of_a_question_has_the_majority_answer(rows):
    found = qacal.agree(rows)
    assert {row["id"] for row in found} == {row["id"] for row in rows}
    for row in found:
        of_question = [other for other in rows if other["id"] == row["id"]]
        same = [other for other in of_question if normalise_answer(other["answer"]) == normalise_answer(row["answer"])]
        assert {name: row[name] for name in ("id", "answer", "confidence")} in same
        assert row["agreement"] == len(same) / len(of_question)
        for other in of_question:
            alike = [one for one in of_question if normalise_answer(one["answer"]) == normalise_answer(other["answer"])]
            assert len(alike) <= len(same)


def test_ties_are_not_broken_alphabetically():
    """With two answers of one sample each, the first of the alphabet must not always win: it would be choice A."""
    pairs = [(f"A {n}", f"B {n}") for n in range(400)]
    wins = sum(Votes(pair).majority == Votes.key(pair[0]) for pair in pairs)
    assert 160 < wins < 240  # 4 standard deviations


ROWS_OF_TWO = [
    {"id": 1, "answer": "Paris", "confidence": 0.9, "correct": 1, "agreement": 0.0},
    {"id": 1, "answer": "paris.", "confidence": 0.9, "correct": 1, "agreement": 0.0},
    {"id": 1, "answer": "Lyon", "confidence": 0.2, "correct": 0, "agreement": 0.0},
    {"id": 2, "answer": 42, "confidence": 0.5, "correct": 0, "agreement": 0.0},
]


def test_the_type_of_the_records_stays_and_old_columns_are_replaced():
    rows = [row | {"answer": str(row["answer"])} for row in ROWS_OF_TWO]
    expected = [(1, 1, 2 / 3, 3), (2, 0, 1.0, 1)]
    for records in (rows, pl.DataFrame(rows), pd.DataFrame(rows), pl.DataFrame(rows).to_arrow()):
        found = qacal.agree(records)
        assert type(found) is type(records)
        frame = pl.DataFrame(found) if not isinstance(found, pd.DataFrame) else pl.from_pandas(found)
        assert frame.select("id", "correct", "agreement", "samples").rows() == expected
        assert frame.columns.count("agreement") == 1


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_files(ending, tmp_path):
    rows, path = [row | {"answer": str(row["answer"])} for row in ROWS_OF_TWO], tmp_path / f"rows.{ending}"
    random.Random(0).shuffle(rows)
    frame = pl.DataFrame(rows)
    {"jsonl": frame.write_ndjson, "csv": frame.write_csv, "parquet": frame.write_parquet}[ending](path)
    found = qacal.agree(str(path))
    assert sorted(found["agreement"].to_list()) == [2 / 3, 1.0]
    assert sorted(found["samples"].to_list()) == [1, 3]


@pytest.mark.parametrize(
    ("rows", "by", "message"),
    [
        ([{"id": n, "answer": "x"} for n in range(3)], "id", "each of the 3 values of id has one row"),
        ([{"id": 1, "answer": None}] * 2, "id", "row 1: answer is missing"),
        ([{"id": None, "answer": "x"}] * 2, "id", "row 1: id is missing"),
        ([{"answer": "x"}] * 2, "id", "has no column 'id'; it has answer"),
        ([{"id": 1}] * 2, "id", "has no column 'answer'"),
        ([], "id", "there are no rows"),
        ([{"id": 1, "answer": "x"}] * 2, [], "by is empty"),
        (
            [{"id": 1, "answer": "x", "model": name} for name in ("a", "b")],
            "id",
            "model is 'a' and 'b' in the rows of id 1; .* pass --by id --by model",
        ),
        ([{"id": 1, "answer": "x", "guess": n} for n in (1, 2)], "id", "guess is 1 and 2 in the rows of id 1"),
    ],
)
def test_rows_without_samples_are_refused(rows, by, message):
    with pytest.raises(InputError, match=message):
        qacal.agree(rows, by)


def test_samples_are_grouped_by_several_columns():
    rows = [{"id": 1, "answer": name, "model": name} for name in ("a", "b") for _ in range(3)]
    assert [row["agreement"] for row in qacal.agree(rows, by=["id", "model"])] == [1.0, 1.0]
