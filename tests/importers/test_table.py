"""Tables of one's own: names, scales, thresholds, and columns that pass through."""

import polars as pl
import pytest

from qacal.errors import InputError
from qacal.importers import Selection, import_log
from tests.importers.logs import write_lines

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
        {**ROW, "confidence": 90},
        {**ROW, "correct": ""},
    ]
    found = imported(tmp_path, *rows)
    assert found.frame["correct"].to_list() == [1.0, None]
    assert found.dropped == {
        "no confidence: none in the confidence": 2,
        "no confidence: the number in the confidence is outside 0 to 1 (--percent reads percents)": 1,
    }


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(InputError, match=r"has no column 'answer'; it has question\. Say --column answer=ITS_NAME"):
        imported(tmp_path, {"question": "?"})
    with pytest.raises(InputError, match="has no column 'score'; it has question, answer, confidence, correct"):
        imported(tmp_path, ROW, columns={"confidence": "score"})
    with pytest.raises(InputError, match=r"rows\.jsonl line 2: answer is None; expected text\. Mend the row"):
        imported(tmp_path, ROW, {"question": "?"})


def test_answers_of_one_question_share_an_id(tmp_path):
    found = imported(tmp_path, ROW, {**ROW, "answer": "Lyon"}, {**ROW, "question": "Another?"}).frame
    first, second, third = found["id"].to_list()
    assert first == second != third
