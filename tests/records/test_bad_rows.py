"""Rows that cannot be used are counted by reason, and too many of them stop the work."""

import json

import numpy as np
import polars as pl
import pytest

import qacal
from qacal import BadRows, BadRowsError, InputError, QABinning, QACalibrator, load
from qacal.model.model_set import fit_set
from qacal.records.files import File, refuse
from qacal.records.reading import Reading, read
from tests.answers import answers
from tests.cli.test_cli import ok, run

FIT = ("--partition", "column:subject")


def rows_with(*faults, count=100):
    """Return rows, some of them with these values."""
    rows = [{**row, "subject": "law"} for row in answers(count)]
    for at, fault in enumerate(faults):
        rows[at] |= fault
    return rows


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_open_quote_costs_all_lines_after_it(tmp_path):
    text = "question,answer,confidence\n" + "".join(f"q{at},{chr(34) * (at == 5)}a,0.7\n" for at in range(50))
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(
        InputError, match="line 7: a quote that opens in line 7 is not closed before the end of the file"
    ):
        list(read(tmp_path / "a.csv", Reading(), needs_labels=False))
    bad = BadRows()
    assert sum(map(len, read(tmp_path / "a.csv", Reading(on_fault=bad, max_bad=1.0), needs_labels=False))) == 5
    assert (bad.count, bad.rows) == (45, 50)


def test_bad_rows_of_a_frame_have_their_lists(tmp_path):
    rows = [{"question": "q", "answer": "a", "confidence": 7.0, "tags": ["x", "y"], "more": {"a": [1]}}] * 2
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    faults = []
    with pytest.raises(BadRowsError):
        list(read(tmp_path / "a.parquet", Reading(on_fault=BadRows(faults.append), max_bad=0.9), needs_labels=False))
    assert [fault.row for fault in faults] == rows


def test_reasons_are_counted_with_an_example_each():
    bad = BadRows()
    rows = rows_with({"confidence": 85}, {"confidence": 70}, {"confidence": "high"}, {"correct": 7}, {"answer": [1]})
    assert sum(map(len, read(rows, Reading(on_fault=bad), needs_labels=True))) == 95
    assert (bad.count, bad.rows) == (5, 100)
    assert {reason.kind: reason.count for reason in bad.reasons} == {
        "confidence above 1": 2,
        "confidence in words": 1,
        "correct above 1": 1,
        "answer that is not text": 1,
    }
    assert bad.reasons[0].example.place == "row 1"


def test_too_many_bad_rows_stop_a_fit_in_python_unless_allowed():
    rows = rows_with(*[{"confidence": 85}] * 21)
    model = QACalibrator(partition="column:subject", calibrator=QABinning(points_per_bin=20))
    with pytest.raises(BadRowsError, match=r"21 of 100 rows \(21%\)\n  21: confidence above 1, such as "):
        model.fit(rows, on_fault=BadRows())
    assert model.fit(rows, on_fault=BadRows(), max_bad=0.21).rows_ == 79
    assert model.fit(rows[2:], on_fault=BadRows()).rows_ == 79


def test_calibrate_keeps_bad_rows_with_empty_columns():
    rows = rows_with()
    model = QACalibrator(partition="column:subject", calibrator=QABinning(points_per_bin=20)).fit(rows)
    frame = pl.DataFrame(rows_with(*[{"confidence": 85.0}] * 40))
    found = model.calibrate(frame, on_fault=BadRows())
    assert found["id"].to_list() == frame["id"].to_list()
    assert found["calibrated"].is_null().to_list() == [at < 40 for at in range(100)]
    assert found.schema == model.calibrate(frame[40:]).schema


def test_too_many_bad_rows_stop_a_command_and_are_in_the_file(tmp_path):
    file = lines(tmp_path / "a.jsonl", rows_with(*[{"confidence": "high"}] * 30, {"correct": "?"}))
    fit = ("fit", file, "-o", tmp_path / "model", *FIT, "--skip-bad-rows", tmp_path / "bad.jsonl")
    code, _, err = run(*fit)
    assert code == 1
    assert "31 of 100 rows (31%)\n  30: confidence in words, such as" in err
    assert "\n  1: correct in words, such as" in err
    assert "--max-bad 0.31" in err
    assert not (tmp_path / "model").exists()
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 31
    ok(*fit, "--max-bad", "0.31")
    assert (tmp_path / "model").exists()


def test_the_file_is_written_if_all_rows_are_bad(tmp_path):
    file = lines(tmp_path / "a.jsonl", rows_with(*[{"confidence": None}] * 100))
    for command in (("fit", file, "-o", tmp_path / "model"), ("evaluate", file)):
        code, _, err = run(*command, "--skip-bad-rows", tmp_path / "bad.jsonl", "--max-bad", "1")
        assert code == 1
        assert "No row can be used: 100 of 100 rows (100%)\n  100: no confidence" in err
        assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 100
        (tmp_path / "bad.jsonl").unlink()


def test_apply_keeps_the_rows_of_a_batch_in_which_all_are_bad(tmp_path, monkeypatch):
    monkeypatch.setattr(File.batches, "__defaults__", (refuse, 10))
    pl.DataFrame(rows_with()).write_csv(tmp_path / "a.csv")
    ok("fit", tmp_path / "a.csv", "-o", tmp_path / "model", *FIT)
    bad = pl.DataFrame(rows_with(*[{"confidence": 85}] * 20, count=100), strict=False).with_columns(pl.all().cast(str))
    bad.write_csv(tmp_path / "b.csv")
    skip = ("--skip-bad-rows", tmp_path / "bad.jsonl")
    ok("apply", tmp_path / "model", tmp_path / "b.csv", "-o", tmp_path / "out.csv", *skip)
    out = pl.read_csv(tmp_path / "out.csv")
    assert out["calibrated"].is_null().to_list() == [at < 20 for at in range(100)]


def test_decimal_commas_are_read(tmp_path):
    rows = pl.DataFrame(rows_with())
    text = rows.with_columns(pl.col("confidence").cast(str).str.replace(".", ",", literal=True))
    text.write_csv(tmp_path / "semicolons.csv", separator=";")
    text.write_csv(tmp_path / "quoted.csv")
    for name in ("semicolons.csv", "quoted.csv"):
        (batch,) = read(tmp_path / name, needs_labels=True)
        np.testing.assert_array_equal(batch.confidence, rows["confidence"])
    # New columns use the decimal separator of the file.
    ok("fit", tmp_path / "semicolons.csv", "-o", tmp_path / "model", *FIT)
    ok("apply", tmp_path / "model", tmp_path / "semicolons.csv", "-o", tmp_path / "out.csv")
    calibrated = pl.read_csv(tmp_path / "out.csv", separator=";", decimal_comma=True)["calibrated"]
    np.testing.assert_allclose(calibrated, load(tmp_path / "model").predict(tmp_path / "semicolons.csv"))
    # An answer such as 1,234 does not decide the decimal separator.
    odd = rows.with_columns(answer=pl.lit("1,234"))
    odd.write_csv(tmp_path / "points.csv", separator=";")
    ok("apply", tmp_path / "model", tmp_path / "points.csv", "-o", tmp_path / "out.csv")
    assert pl.read_csv(tmp_path / "out.csv", separator=";")["calibrated"].dtype == pl.Float64
    text.write_csv(tmp_path / "unquoted.csv", quote_style="never")
    code, _, err = run("evaluate", tmp_path / "unquoted.csv")
    assert code == 1
    assert 'a decimal comma needs quotes: "0,75"' in err


def test_commands_take_values_for_words(tmp_path):
    rows = [{**row, "confidence": "High" if row["confidence"] > 0.8 else "low"} for row in rows_with(count=300)]
    file = lines(tmp_path / "a.jsonl", rows)
    words = ("--expression", "high=0.85", "--expression", "low=0.3")
    code, _, err = run("fit", file, "-o", tmp_path / "model", *FIT)
    assert code == 1
    assert "Give words a number: --expression " in err
    assert "=NUMBER" in err
    ok("fit", file, "-o", tmp_path / "model", *FIT, *words)
    out = ok("apply", tmp_path / "model", file, *words)
    assert [json.loads(line)["confidence"] for line in out.splitlines()] == [row["confidence"] for row in rows]
    stated = json.loads(ok("evaluate", file, "--json", *words))["before"]["confidence"]
    assert stated == pytest.approx(np.mean([0.85 if row["confidence"] == "High" else 0.3 for row in rows]))


@pytest.mark.parametrize("lacking", [range(10), range(50, 60)])
@pytest.mark.parametrize("column", ["confidence", "score", "model"])
def test_rows_of_a_batch_without_a_column_are_bad_if_other_batches_have_it(tmp_path, monkeypatch, column, lacking):
    monkeypatch.setattr(File.batches, "__defaults__", (refuse, 10))
    rows = [{**row, "score": row["confidence"]} for row in rows_with()]
    for at in lacking:
        del rows[at][column]
    file = lines(tmp_path / "a.jsonl", rows)
    more = {"score": ("--column", "confidence=score"), "model": ("--by", "model")}.get(column, ())
    bad = tmp_path / "bad.jsonl"
    ok("fit", file, "-o", tmp_path / "model", *FIT, *more, "--skip-bad-rows", bad)
    assert [json.loads(line)["place"] for line in bad.read_text().splitlines()] == [f"line {at + 1}" for at in lacking]
    out = ok("apply", tmp_path / "model", file, "--skip-bad-rows", bad)
    is_empty = [json.loads(line)["calibrated"] is None for line in out.splitlines()]
    assert is_empty == [at in lacking for at in range(100)]
    code, _, err = run("fit", file, "-o", tmp_path / "other", *FIT, *more)
    assert code == 1
    assert f"a.jsonl line {lacking[0] + 1}: {column} is " in err


def test_texts_that_a_batch_lacks_are_missing_in_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(File.batches, "__defaults__", (refuse, 10))
    rows = rows_with()
    for row in rows[:10]:
        del row["question"]
    bad = BadRows()
    kept = sum(map(len, read(lines(tmp_path / "a.jsonl", rows), Reading(on_fault=bad), needs_labels=True)))
    assert (kept, [(reason.kind, reason.count) for reason in bad.reasons]) == (90, [("no question", 10)])


def test_a_column_that_no_row_of_a_file_has_is_an_error_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(File.batches, "__defaults__", (refuse, 10))
    rows = [{name: value for name, value in row.items() if name != "confidence"} for row in rows_with()]
    file = lines(tmp_path / "a.jsonl", rows)
    code, _, err = run("fit", file, "-o", tmp_path / "model", *FIT, "--skip-bad-rows", tmp_path / "bad.jsonl")
    assert code == 1
    assert "a.jsonl has no column 'confidence'; it has id, question, answer" in err
    assert not (tmp_path / "bad.jsonl").exists()


@pytest.mark.filterwarnings("always::qacal.QacalWarning")
@pytest.mark.parametrize("way", ["null", "no key", "no key in a batch"])
def test_rows_without_a_label_are_counted_and_left_out_by_every_command(tmp_path, monkeypatch, way):
    """They are not bad rows: neither --skip-bad-rows nor --max-bad is needed, however many there are."""
    rows = rows_with(count=400)
    others = [{**row, "id": f"new {row['id']}", "question": f"New: {row['question']}"} for row in rows]
    for row in [*rows[:240], *others[:240]]:
        row["confidence"] = 85  # a row that is not used may be bad
        row["correct"] = None
        if way != "null":
            del row["correct"]
    if way == "no key in a batch":
        monkeypatch.setattr(File.batches, "__defaults__", (refuse, 10))
    file, other = lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", others)
    model = tmp_path / "model"
    code, _, err = run("fit", file, "-o", model, *FIT)
    assert (code, err.count("a.jsonl: 240 of 400 rows have no label and are not used.")) == (0, 1)
    ok("fit", lines(tmp_path / "labelled.jsonl", rows[240:]), "-o", tmp_path / "same", *FIT)
    assert load(model).describe_groups() == load(tmp_path / "same").describe_groups()
    for command in (
        ("evaluate", other, "--model", model),
        ("evaluate", other),
        ("threshold", model, other, "--accuracy", "0.5"),
        ("report", model, other, "-o", tmp_path / "report.html"),
    ):
        code, _, err = run(*command)
        assert code == 0, err
        assert "b.jsonl: 240 of 400 rows have no label and are not used." in err
    none = lines(tmp_path / "none.jsonl", [{**row, "correct": None} for row in rows])
    for command in (("fit", none, "-o", tmp_path / "other", *FIT), ("evaluate", none, "--model", model)):
        code, _, err = run(*command)
        assert code == 1
        assert "none.jsonl: no row has a label (correct). Label some answers: qacal judge, or by hand." in err


def test_rows_without_a_label_do_not_make_bad_rows_few():
    rows = rows_with(*[{"correct": None}] * 50, *[{"correct": "unclear"}] * 20)
    match = r"20 of 50 rows \(40%; 50 more without a label do not count\)[^$]*--max-bad 0\.4 "
    with pytest.raises(BadRowsError, match=match):
        list(read(rows, Reading(on_fault=BadRows()), needs_labels=True))
    with pytest.warns(qacal.QacalWarning, match="50 of 100 rows have no label"):
        assert sum(map(len, read(rows, Reading(on_fault=BadRows(), max_bad=0.4), needs_labels=True))) == 30


def test_rows_of_a_file_without_a_label_are_counted_once(tmp_path):
    file = lines(tmp_path / "a.jsonl", rows_with({"correct": None}))
    with pytest.warns(qacal.QacalWarning, match="1 of 100 rows has no label") as caught:
        QACalibrator(partition="column:subject", calibrator=QABinning(points_per_bin=20)).fit(file)
    assert len(caught) == 1


def test_rows_of_each_llm_without_a_label_are_counted():
    rows = [{**row, "model": llm} for llm in ("one", "two") for row in rows_with(*[{"correct": None}] * 5)]
    like = QACalibrator(partition="column:subject", calibrator=QABinning(points_per_bin=20))
    with pytest.warns(qacal.QacalWarning) as caught:
        fit_set(like, rows[3:], "model")
    assert [str(one.message) for one in caught] == [
        "model one: 2 of 97 rows have no label and are not used.",
        "model two: 5 of 100 rows have no label and are not used.",
    ]


def test_apply_calibrates_rows_whose_label_is_bad(tmp_path):
    ok("fit", lines(tmp_path / "a.jsonl", rows_with()), "-o", tmp_path / "model", *FIT)
    labelled = rows_with({"correct": "perhaps"}, {"correct": 7}, {"correct": [1]}, {"correct": None})
    out = ok("apply", tmp_path / "model", lines(tmp_path / "b.jsonl", labelled))
    found = [json.loads(line) for line in out.splitlines()]
    assert all(row["calibrated"] is not None for row in found)
    assert [row["correct"] for row in found] == [row["correct"] for row in labelled]
    pl.DataFrame(labelled[:1]).write_csv(tmp_path / "b.csv")
    assert "perhaps" in ok("apply", tmp_path / "model", tmp_path / "b.csv")
    code, _, err = run("evaluate", tmp_path / "b.jsonl", "--model", tmp_path / "model")
    assert code == 1
    assert "b.jsonl line 1: correct is 'perhaps'; expected 1 (correct) or 0 (wrong)" in err


def test_a_file_that_holds_no_bad_rows_is_not_overwritten_by_them(tmp_path):
    file = lines(tmp_path / "a.jsonl", rows_with({"confidence": 85}))
    other = lines(tmp_path / "kept.jsonl", rows_with())
    for written, message in (
        (other, "kept.jsonl exists and was not written by --skip-bad-rows"),
        (file, "a.jsonl is named twice"),
    ):
        before = written.read_bytes()
        code, _, err = run("evaluate", file, "--skip-bad-rows", written)
        assert (code, written.read_bytes()) == (2 if written == file else 1, before)
        assert message in " ".join(err.split())
    code, _, err = run("fit", file, "-o", tmp_path / "model", *FIT, "--group-rows", other, "--skip-bad-rows", other)
    assert code == 2
    bad = tmp_path / "bad.jsonl"
    bad.touch()
    for found in (1, 1, 0, 1):  # an earlier run's file, an empty one too, is replaced
        ok("evaluate", file if found else other, "--skip-bad-rows", bad)
        assert len(bad.read_text().splitlines()) == found
    bad.write_text("my notes\n")
    assert run("evaluate", file, "--skip-bad-rows", bad)[0] == 1
    assert bad.read_text() == "my notes\n"


def test_messages_name_options_in_the_shell_and_also_arguments_in_python(tmp_path):
    file = lines(tmp_path / "a.jsonl", rows_with(*[{"confidence": 85}] * 60, *[{"confidence": 90}] * 40))
    with pytest.raises(InputError, match=r"--percent \(in Python: percent=True\)\..*FILE \(in Python: on_fault"):
        list(read(file, needs_labels=True))
    _, _, err = run("evaluate", file)
    assert err.endswith("pass --percent. Fix the row, or skip such rows: --skip-bad-rows FILE.\n")
    assert "Pass --percent." in run("check", file)[1]
    _, _, err = run("evaluate", lines(file, rows_with(*[{"confidence": 85}] * 60)), "--skip-bad-rows", tmp_path / "bad")
    assert "--max-bad 0.6. Up to 20%" in err
