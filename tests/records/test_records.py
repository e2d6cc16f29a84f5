"""Validation of records: what is accepted, what is refused, and the messages."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from qacal import Column, LearnedScore, QABinning, QACalibrator
from qacal.calibrators import PlattScaling
from qacal.errors import BadRowsError, InputError
from qacal.records.columns import listed
from qacal.records.reading import Reading, read
from qacal.records.table import as_table

_LABEL = (
    "correct is {}; expected 1 (correct) or 0 (wrong), yes or no, true or false, pass or fail, "
    "or a number between 0 and 1."
)
GOOD = {
    "id": ["q1", "q2", "q3"],
    "question": ["a?", "b?", "c?"],
    "answer": ["1", "", "3"],
    "confidence": [0.5, 1.0, 0.0],
    "correct": [1, 0, 1],
}


def one(records, reading=None, **needs):
    (batch,) = read(records, reading, **{"needs_labels": True, **needs})
    return batch


def objects(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def files(tmp_path, columns):
    frame = pl.DataFrame(columns)
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in objects(columns)))
    return [tmp_path / "a.parquet", tmp_path / "a.csv", tmp_path / "a.jsonl"]


def everything(tmp_path, columns):
    frames = [columns, objects(columns), pl.DataFrame(columns), pd.DataFrame(columns), pa.table(columns)]
    return [*frames, *files(tmp_path, columns)]


def test_every_kind_of_input_gives_the_same_batch(tmp_path):
    for records in everything(tmp_path, GOOD):
        batch = one(records)
        assert batch.question == GOOD["question"]
        assert batch.answer == GOOD["answer"]
        np.testing.assert_array_equal(batch.confidence, GOOD["confidence"])
        np.testing.assert_array_equal(batch.correct, GOOD["correct"])
        np.testing.assert_array_equal(batch.ids, one(GOOD).ids)


def test_columns_can_have_other_names_and_percents():
    renamed = {"score": [50, 100, 0], **{name: GOOD[name] for name in ("question", "answer", "correct")}}
    batch = one(renamed, Reading({"confidence": "score"}, percent=True))
    np.testing.assert_array_equal(batch.confidence, GOOD["confidence"])
    with pytest.raises(InputError, match="records has no column 'confidence'; it has score, question"):
        one(renamed)
    with pytest.raises(InputError, match="there is no column 'certainty' to map"):
        Reading({"certainty": "score"})


def test_declared_percents_that_are_fractions_are_refused():
    many = {"question": ["a"] * 30, "answer": ["b"] * 30, "confidence": [0.9] * 30, "correct": [1] * 30}
    with pytest.raises(InputError, match=r"confidence is 0.9; percents are 0, or 1 to 100. .* leave out --percent"):
        one(many, Reading(percent=True))
    with pytest.raises(InputError, match=r"no confidence is above 1, so these are not percents"):
        one({**many, "confidence": [1] * 30}, Reading(percent=True))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("confidence", 85, "confidence is 85; expected 0 to 1. Others lie between 0 and 1"),
        ("confidence", -0.1, "confidence is -0.1; expected 0 to 1."),
        ("confidence", None, "confidence is missing; expected 0 to 1."),
        ("confidence", float("nan"), "confidence is missing; expected 0 to 1."),
        ("confidence", "0.8", "confidence is '0.8'; expected a number from 0 to 1, not text."),
        ("confidence", [0.8], "confidence is [0.8]; expected 0 to 1."),
        (
            "correct",
            2,
            _LABEL.format(2),
        ),
        ("question", None, "question is missing; expected text"),
        ("answer", ["x"], "answer is ['x']; expected text."),
        ("id", None, "id is missing; expected text or a whole number."),
        ("id", 1.5, "id is 1.5; expected text or a whole number."),
    ],
)
def test_a_bad_row_is_named_with_its_place_value_and_remedy(tmp_path, column, value, said):
    rows = objects(GOOD)
    rows[1][column] = value
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError) as caught:
        one(path)
    assert f"{path} line 2: {said}" in str(caught.value)
    faults = []
    batch = one(path, Reading(on_fault=faults.append, max_bad=1))
    assert batch.question == ["a?", "c?"]
    assert len(batch.ids) == len(batch.confidence) == len(batch.correct) == len(batch.table) == 2
    assert len(faults) == 1
    assert faults[0].row["question"] == rows[1]["question"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
def test_other_faults_are_named_too(tmp_path, kind):
    columns = {**GOOD, "confidence": [0.5, 85.0, None]}
    frame = pl.DataFrame(columns)
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    records = pd.DataFrame(columns) if kind == "pandas" else tmp_path / f"a.{kind}"
    place = {"csv": "line 3", "parquet": "row 2", "pandas": "row 2"}[kind]
    with pytest.raises(InputError, match=rf"{place}: confidence is '?85.0'?; expected 0 to 1. Others lie between"):
        one(records)
    faults = []
    assert len(one(records, Reading(on_fault=faults.append, max_bad=1))) == 1
    assert "missing" in str(faults[1])


def test_csv_reads_numbers_and_booleans_from_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer,confidence,correct\na,b, 0.5 ,TRUE\nc,d,1,no\n")
    batch = one(path)
    np.testing.assert_array_equal(batch.confidence, [0.5, 1.0])
    np.testing.assert_array_equal(batch.correct, [1.0, 0.0])
    for word in ("yes", "1_0", "nan", "inf", "½"):
        path.write_text(f"question,answer,confidence,correct\na,b,{word},1\n")
        with pytest.raises(InputError, match="expected 0 to 1"):
            one(path)


def test_numeric_answers_become_text():
    assert one([{"question": 1, "answer": 42, "confidence": True, "correct": False}]).answer == ["42"]


def test_float32_confidences_are_read_as_their_shortest_decimals():
    frame = pl.DataFrame({**GOOD, "confidence": pl.Series([0.8, 0.7, 0.1], dtype=pl.Float32)})
    np.testing.assert_array_equal(one(frame).confidence, [0.8, 0.7, 0.1])


def test_files_of_any_precision_are_calibrated_alike(tmp_path):
    rng = np.random.default_rng(0)
    stated = np.concatenate([rng.choice([0.7, 0.8, 0.9], 150), rng.random(150)])
    frame = pl.DataFrame({"id": range(300), "subject": ["a", "b"] * 150, "confidence": stated})
    frame = frame.with_columns(correct=pl.Series(rng.integers(0, 2, 300)))
    short = frame.with_columns(pl.col("confidence").cast(pl.Float32))
    frame.write_csv(tmp_path / "text.csv")
    frame.write_ndjson(tmp_path / "text.jsonl")
    short.write_parquet(tmp_path / "short.parquet")
    sources = [frame, short, *(tmp_path / name for name in ("text.csv", "text.jsonl", "short.parquet"))]
    model = QACalibrator(partition=Column("subject"), calibrator=QABinning(points_per_bin=20)).fit(short)
    expected = model.calibrate(frame)["calibrated"].to_list()
    assert len(set(expected)) > 5
    for source in sources:
        assert model.calibrate(source)["calibrated"].to_list() == expected


@pytest.mark.parametrize("form", [pa.table, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "settings", [{"calibrator": QABinning()}, {"calibrator": PlattScaling()}, {"output": "continuous"}]
)
def test_rows_without_any_group_are_calibrated_in_every_frame(form, settings):
    columns = {"id": list(range(40)), "subject": ["law", "art"] * 20, "confidence": [0.7, 0.8, 0.9, 1.0] * 10}
    columns["correct"] = [1, 0, 1, 1, 0] * 8
    score = {"learned_score": LearnedScore(text=False)} if "output" in settings else {}
    model = QACalibrator(partition=Column("subject"), **settings, **score).fit(form(columns))
    columns["subject"] = ["chess"] * 40
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = model.calibrate(form(columns))
        assert listed(found["calibrated"]) == [row["calibrated"] for row in model.calibrate(objects(columns))]
    said = "40 of 40 rows have no subject that the model knows (such as 'chess')"
    uses_groups = isinstance(settings.get("calibrator"), QABinning)
    assert [said in str(one.message) for one in told] == [True] * 2 * uses_groups
    assert isinstance(found, type(form(columns)))
    assert listed(found["group"]) == [None] * 40


def test_labels_may_be_missing_if_not_needed():
    assert one({**GOOD, "correct": [1, None, 0]}, needs_labels=False).correct is None
    assert one({name: GOOD[name] for name in ("question", "answer", "confidence")}, needs_labels=False).correct is None


def test_text_may_be_missing_if_not_needed():
    batch = one({"confidence": [0.5], "correct": [1], "subject": ["law"]}, needs_text=False)
    assert batch.ids is None
    assert list(batch.column("subject")) == ["law"]
    with pytest.raises(InputError, match="records has no column 'tenant'; it has confidence, correct, subject"):
        batch.column("tenant")


def test_the_question_is_used_if_there_is_no_id():
    rows = [{"question": q, "answer": "x", "confidence": 0.5, "correct": 1} for q in ("a", "b", "a")]
    ids = one(rows).ids
    assert ids[0] == ids[2] != ids[1]


def test_no_rows_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(InputError, match="there are no rows to use"):
        one(tmp_path / "a.jsonl")
    with pytest.raises(BadRowsError, match=r"No row can be used: 3 of 3 rows \(100%\)"):
        one({**GOOD, "confidence": [7, 8, 9]}, Reading(on_fault=lambda fault: None))


@pytest.mark.parametrize("records", [3, "rows", pl.LazyFrame(GOOD), [1, 2], np.zeros((3, 2))])
def test_invalid_records_are_refused(records):
    with pytest.raises(InputError, match="expected"):
        one(records)


def test_new_columns_are_added_to_any_container(tmp_path):
    more = pl.DataFrame({"calibrated": [0.1, 0.2, None], "group": [3, None, 4], "source": ["group", "root", None]})
    for records in everything(tmp_path, GOOD)[:5]:
        table = as_table(records).extended(more)
        back = table.frame()
        assert back["question"].to_list() == GOOD["question"]
        assert back["calibrated"].to_list()[:2] == [0.1, 0.2]
        assert [int(value) for value in (back["group"][0], back["group"][2])] == [3, 4]
        assert type(table.native) is (pl.DataFrame if isinstance(records, dict) else type(records))


def test_pandas_keeps_its_index_and_whole_groups():
    frame = pd.DataFrame(GOOD, index=[10, 20, 30])
    out = as_table(frame).extended(pl.DataFrame({"group": [3, None, 4]})).native
    assert out.index.tolist() == [10, 20, 30]
    assert out["group"].dtype == "Int64"
    assert "group" not in frame


def test_ids_in_some_rows_only_are_refused(tmp_path):
    from qacal.records.files import File

    rows = [{**row, "id": at} for at, row in enumerate(objects(GOOD))]
    without = [{name: row[name] for name in row if name != "id"} for row in rows]
    for name, mixed in (("first", rows + without), ("later", without + rows)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in mixed))
        file = File(tmp_path / name, "jsonl", name)
        small = type("Small", (), {"batches": lambda self, on_fault, file=file: file.batches(on_fault, batch_rows=3)})()
        with pytest.raises(InputError, match=r"id is missing|only some rows have an id"):
            list(read(small, needs_labels=True))


def test_a_mapped_column_must_exist():
    with pytest.raises(InputError, match=r"no column 'quid'.*--column id=quid"):
        one(GOOD, Reading({"id": "quid"}))


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_numbers_beyond_floats_are_faults(value):
    with pytest.raises(InputError, match="expected 0 to 1"):
        one([{**objects(GOOD)[0], "confidence": value}])


def test_decimals_and_numpy_numbers_are_numbers():
    from decimal import Decimal

    row = {**objects(GOOD)[0], "confidence": Decimal("0.8"), "id": np.int64(3)}
    assert one([row]).confidence.tolist() == [0.8]
    assert one(pl.DataFrame({**GOOD, "confidence": [Decimal("0.8")] * 3})).confidence.tolist() == [0.8] * 3


def test_objects_and_mixed_types_lose_nothing_in_a_frame():
    rows = [
        {"m": {"a": 1}, "x": 1, "v": [1.0, 2]},
        {"m": {"b": "c"}, "x": "two", "v": [3, 4.5]},
        {"m": None, "x": [3], "v": None},
    ]
    frame = as_table(rows).frame()
    assert [value and json.loads(value) for value in frame["m"]] == [{"a": 1}, {"b": "c"}, None]
    assert frame["x"].to_list() == ["1", "two", "[3]"]
    assert frame["v"].to_list() == [[1.0, 2.0], [3.0, 4.5], None]
    assert as_table([{"s": "\ud800"}, {"s": "ok"}]).frame()["s"][1] == "ok"
    assert as_table([{"n": 2**70}, {"n": 1}]).frame()["n"].to_list() == [str(2**70), "1"]


def test_true_and_false_among_numbers_are_numbers():
    """Labels from two tools: true and false from one, 1 and 0 from the other."""
    rows = [
        {"correct": True, "share": False, "flag": True, "huge": True},
        {"correct": 0, "share": 0.5, "flag": None, "huge": 2**70},
        {"correct": None, "share": 1, "flag": False, "huge": 3},
    ]
    frame = as_table(rows).frame()
    assert frame.schema == {"correct": pl.Int64, "share": pl.Float64, "flag": pl.Boolean, "huge": pl.String}
    assert frame["correct"].to_list() == [1, 0, None]
    assert frame["share"].to_list() == [0.0, 0.5, 1.0]
    assert frame["huge"].to_list() == ["true", str(2**70), "3"]


def confidences(values, *reading, **how):
    rows = [{"confidence": value} for value in values]
    (batch,) = read(rows, Reading(*reading, **how), needs_labels=False, needs_text=False)
    return batch.confidence.tolist()


def test_one_fraction_among_percents_is_refused():
    with pytest.raises(InputError, match=r"row 31: confidence is 0.75; percents are 0, or 1 to 100. .* one scale"):
        confidences([*[80.0] * 30, 0.75], percent=True)
    assert confidences([80, 0, 1], percent=True) == [0.8, 0.0, 0.01]
    with pytest.raises(InputError, match=r"row 2: confidence is 80; .* Others lie between 0 and 1: convert them"):
        confidences([0.75, 80])


@pytest.mark.parametrize(("values", "said"), [([7, 9, 3], "0 to 10"), ([4, 5], "1 to 5"), ([7, 85], "pass --percent")])
def test_messages_about_scales(values, said):
    with pytest.raises(InputError) as caught:
        confidences(values)
    assert said in str(caught.value)
    assert ("--percent" in str(caught.value)) == (said == "pass --percent")


def test_words_have_their_declared_values(tmp_path):
    words = {"high": 0.85, "Very High": 0.95}
    assert confidences(["High", "very-high", 0.5], expressions=words) == [0.85, 0.95, 0.5]
    assert confidences(["high", 50], expressions=words, percent=True) == [0.85, 0.5]
    with pytest.raises(InputError, match=r"confidence is 'low'; expected 0 to 1. Give words .*--expression low=NUMBER"):
        confidences(["low"], expressions=words)
    with pytest.raises(InputError, match="the expression 'high' is worth 85; expected words and a number from 0 to 1"):
        Reading(expressions={"high": 85})
    path = tmp_path / "a.csv"
    path.write_text("confidence\nHIGH\n0.5\n")
    (batch,) = read(path, Reading(expressions=words), needs_labels=False, needs_text=False)
    assert batch.confidence.tolist() == [0.85, 0.5]


def test_a_percent_sign_marks_percents(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("confidence\n70%\n0.5\n100 %\n0%\n")
    (batch,) = read(path, needs_labels=False, needs_text=False)
    assert batch.confidence.tolist() == [0.7, 0.5, 1.0, 0.0]
    path.write_text("confidence\n70%\n50\n")
    (batch,) = read(path, Reading(percent=True), needs_labels=False, needs_text=False)
    assert batch.confidence.tolist() == [0.7, 0.5]
    for text in ("0.95%", "170%", "-3%", "%"):
        path.write_text(f"confidence\n{text}\n")
        with pytest.raises(InputError, match="expected 0 to 1"):
            list(read(path, needs_labels=False, needs_text=False))


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question_is_missing(question):
    row = {"question": question, "answer": "a", "confidence": 0.5, "correct": 1}
    for needs_labels in (True, False):
        with pytest.raises(InputError, match=r"question is .*; expected text\."):
            list(read([row], needs_labels=needs_labels))
        assert len(next(read([row | {"question": "q", "answer": question}], needs_labels=needs_labels))) == 1
    # Here it is not read.
    assert len(next(read([row | {"id": 1}], needs_labels=True, needs_text=False))) == 1
    assert len(next(read([row], needs_labels=False, needs_text=False))) == 1


@pytest.mark.parametrize("value", [2, 85, -1, "perhaps"])
def test_messages_list_valid_labels(tmp_path, value):
    path = tmp_path / "a.csv"
    path.write_text(f"confidence,correct\n0.5,{value}\n")
    with pytest.raises(InputError, match=r"expected 1 \(correct\) or 0 \(wrong\), yes or no") as error:
        list(read(path, needs_labels=True, needs_text=False))
    assert "percent" not in str(error.value)


def test_a_column_in_another_case_is_suggested():
    with pytest.raises(InputError, match=r"=Confidence \(in Python: columns=\{'confidence': 'Confidence'\}\)"):
        list(read([{"Confidence": 0.5}], needs_labels=False, needs_text=False))


def test_words_are_labels_in_any_format():
    rows = [{"confidence": 0.5, "correct": value} for value in ("yes", "No", True, False, " true ", 0.5)]
    assert one(rows, needs_text=False).correct.tolist() == [1, 0, 1, 0, 1, 0.5]


def test_an_empty_id_is_missing():
    rows = [{"id": value, "confidence": 0.5} for value in ("a", "", "b")]
    with pytest.raises(InputError, match="row 2: id is missing; expected text or a whole number"):
        list(read(rows, needs_labels=False, needs_text=False))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("correct", "1", r"between 0 and 1\. Numbers have no quotes\."),
        ("confidence", "0.9%", "not text"),
    ],
)
def test_quotes_are_named(column, value, said):
    rows = [{"confidence": 0.5, "correct": 1} | {column: value}]
    with pytest.raises(InputError, match=said):
        list(read(rows, needs_labels=True, needs_text=False))


@pytest.mark.parametrize("value", ["0.9%", "150%"])
def test_values_with_percent_signs_out_of_range(tmp_path, value):
    path = tmp_path / "a.csv"
    path.write_text(f"confidence\n{value}\n")
    with pytest.raises(InputError, match='Write percents as "70%", from 1% to 100%'):
        list(read(path, needs_labels=False, needs_text=False))


def test_whole_numbers_beyond_any_float_are_bad_rows():
    faults = []
    batch = one(
        [{**row, "confidence": c} for row, c in zip(objects(GOOD), (1, 10**400, 2**64), strict=True)],
        Reading(on_fault=faults.append, max_bad=1.0),
    )
    assert batch.confidence.tolist() == [1.0]
    assert [fault.kind for fault in faults] == ["confidence that is not a number", "confidence above 1"]
