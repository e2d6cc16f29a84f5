"""Tables of one's own: names, scales, thresholds, and columns that pass through."""

import polars as pl
import pytest

from qacal.errors import InputError
from qacal.sources.importers import Selection, import_log
from tests.sources.importers.logs import write_lines

ROW = {"question": "Capital of France?", "answer": "Paris", "confidence": 0.9, "correct": 1}


def imported(folder, *rows, **selection):
    return import_log("table", [write_lines(folder / "rows.jsonl", rows)], Selection(**selection))


def test_a_table_with_the_names_of_records_needs_no_mapping(tmp_path):
    row = {**ROW, "id": 7, "model": "llm", "ground_truth": ["Paris", "Paname"], "level": 2, "vector": [0.5, 1]}
    assert imported(tmp_path, row).frame.to_dicts() == [
        {
            "id": "7",
            "question": "Capital of France?",
            "answer": "Paris",
            "confidence": 0.9,
            "confidence_source": "confidence",
            "correct": 1.0,
            "ground_truth": ["Paris", "Paname"],
            "model": "llm",
            "level": 2,
            "vector": [0.5, 1.0],
        }
    ]


def test_other_names_and_scales(tmp_path):
    """RAGAS: one column for each metric, and a threshold that makes one of them right or wrong."""
    frame = pl.DataFrame(
        {
            "user_input": ["q1", "q2"],
            "response": ["a1", "a2"],
            "reference": ["r1", None],
            "answer_correctness": [0.8, 0.3],
            "faithfulness": [1.0, 0.5],
            "percent": [90, 40],
        }
    )
    frame.write_parquet(tmp_path / "ragas.parquet")
    columns = {
        "question": "user_input",
        "answer": "response",
        "ground_truth": "reference",
        "correct": "answer_correctness",
        "confidence": "percent",
    }
    found = import_log(
        "table", [tmp_path / "ragas.parquet"], Selection(columns=columns, percent=True, correct_at=0.5)
    ).frame
    assert found["correct"].to_list() == [1.0, 0.0]
    assert found["confidence"].to_list() == [0.9, 0.4]
    assert found["confidence_source"].to_list() == ["percent"] * 2
    assert found["ground_truth"].to_list() == ["r1", None]
    assert found["faithfulness"].to_list() == [1.0, 0.5]


def test_a_name_that_is_taken_by_another_column_is_kept_apart(tmp_path):
    row = imported(tmp_path, {**ROW, "logprob": 0.3}, columns={"confidence": "logprob"}).frame.to_dicts()[0]
    assert (row["confidence"], row["table_confidence"]) == (0.3, 0.9)


def test_rows_without_confidence_or_label(tmp_path):
    rows = [
        ROW,
        {**ROW, "confidence": None},
        {**ROW, "confidence": ""},
        {**ROW, "correct": ""},
    ]
    found = imported(tmp_path, *rows)
    assert found.frame["correct"].to_list() == [1.0, None]
    assert found.account.dropped == {"no confidence: none in the column 'confidence'": 2}


@pytest.mark.parametrize("as_text", [False, True])
def test_confidences_on_another_scale_are_refused_as_a_whole(tmp_path, as_text):
    """Row by row, those that are left would be 1.0, 0.0 and 1.0, for one percent, none, and one percent."""
    numbers = [95, 80, 1, 0, 60, 1]
    rows = [{**ROW, "confidence": str(number) if as_text else number} for number in numbers]
    with pytest.raises(InputError) as refused:
        imported(tmp_path, *rows)
    assert str(refused.value) == (
        f"{tmp_path / 'rows.jsonl'} line 1: the confidence in the column 'confidence' is 95; expected 0 to 1. On "
        "another scale a 1 may mean anything, so nothing is imported. If these are percents, pass --percent."
    )
    assert imported(tmp_path, *rows, percent=True).frame["confidence"].to_list() == [n / 100 for n in numbers]
    with pytest.raises(InputError, match=r"is 150; .*It is not a percent either\."):
        imported(tmp_path, *rows, {**ROW, "confidence": 150}, percent=True)
    with pytest.raises(InputError, match=r"is -1; .*If -1 or the like means no value, leave it empty\."):
        imported(tmp_path, ROW, {**ROW, "confidence": -1})


def test_grades_on_another_scale_are_refused_as_a_whole(tmp_path):
    rows = [{**ROW, "rating": rating} for rating in (1, 2, 5, 4, 1)]
    with pytest.raises(InputError) as refused:
        imported(tmp_path, *rows, columns={"correct": "rating"})
    assert str(refused.value) == (
        f"{tmp_path / 'rows.jsonl'} line 2: the column 'rating' is 2; expected 0 to 1. On another scale a 1 may mean "
        "anything, so nothing is imported. Pass the lowest score of a correct answer: --correct-at SCORE."
    )
    found = imported(tmp_path, *rows, columns={"correct": "rating"}, correct_at=4)
    assert found.frame["correct"].to_list() == [0.0, 0.0, 1.0, 1.0, 0.0]


def test_a_scale_may_show_itself_late(tmp_path):
    """Rows of many batches are on their way before the one that tells."""
    rows = [{**ROW, "confidence": 1} for _ in range(9_000)]
    assert imported(tmp_path, *rows).account.kept == 9_000
    with pytest.raises(InputError, match="line 9001: the confidence in the column 'confidence' is 55"):
        imported(tmp_path, *rows, {**ROW, "confidence": 55})


def test_rounding_is_no_other_scale(tmp_path):
    found = imported(tmp_path, {**ROW, "confidence": 1.0000001192, "correct": -1e-9})
    assert found.frame.select("confidence", "correct").row(0) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "read"),
    [("0.95", 0.95), ("95%", 0.95), ("8/10", 0.8), (" .5 ", 0.5), ("1e-2", 0.01), ("0,8", 0.8), ("1%", 0.01)],
)
def test_confidences_as_text_are_read_as_those_of_an_llm(tmp_path, text, read):
    assert imported(tmp_path, {**ROW, "confidence": text}).frame["confidence"].to_list() == [read]


@pytest.mark.parametrize("text", ["0.95%", "1.0%", "0.", "0.7-0.9", ">0.9", "high", "nan"])
def test_text_that_can_be_read_in_several_ways_is_not_read(tmp_path, text):
    found = imported(tmp_path, ROW, {**ROW, "confidence": text})
    assert found.account.kept == 1
    assert next(iter(found.account.dropped)).startswith("no confidence: the column 'confidence': ")


@pytest.mark.parametrize(
    ("given", "truths"),
    [
        ("[1, 2, 3]", "[1, 2, 3]"),
        ('["a", 1]', '["a", 1]'),
        ('{"a": 1}', '{"a": 1}'),
        ('"Faust"', '"Faust"'),
        ("[Paris", "[Paris"),
        ('["Paris", "Paname"]', ["Paris", "Paname"]),
        (["Paris", "Paname"], ["Paris", "Paname"]),
    ],
)
def test_a_truth_that_looks_like_a_list_is_one_only_if_all_of_it_is_text(tmp_path, given, truths):
    assert imported(tmp_path, {**ROW, "ground_truth": given}).frame["ground_truth"].to_list() == [truths]


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(InputError, match=r"has no column 'answer'; it has question\. Pass --column answer=ITS_NAME"):
        imported(tmp_path, {"question": "?"})
    with pytest.raises(InputError, match="has no column 'score'; it has question, answer, confidence, correct"):
        imported(tmp_path, ROW, columns={"confidence": "score"})
    with pytest.raises(InputError, match=r"rows\.jsonl line 2: answer is None; expected text\. Fix the row"):
        imported(tmp_path, ROW, {"question": "?"})


def test_answers_of_one_question_share_an_id(tmp_path):
    found = imported(tmp_path, ROW, {**ROW, "answer": "Lyon"}, {**ROW, "question": "Another?"}).frame
    first, second, third = found["id"].to_list()
    assert first == second != third
