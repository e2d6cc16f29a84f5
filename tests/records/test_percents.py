"""Confidences declared as percents that look like something else."""

import json

import polars as pl
import pytest

from qacal import Column, QABinning, QACalibrator
from qacal.errors import InputError
from qacal.records.columns import Percents
from qacal.records.reading import Reading, read
from qacal.records.writers import writing


def counted(*shares):
    percents = Percents()
    percents.add(shares)
    return percents


def test_fractions_among_percents_are_refused():
    with pytest.raises(InputError, match="1 of 100 confidences lie between 0 and 1, and others reach 80"):
        counted(*[0.8] * 99, 0.0075).require()
    counted(*[0.8] * 50, *[0.0] * 25, *[0.01] * 25).require()


def test_fractions_are_not_percents():
    with pytest.raises(InputError, match=r"no confidence is above 0\.9"):
        counted(*[0.009] * 20).require()
    counted(*[0.009] * 19).require()
    Percents().require()


def test_grades_are_not_percents():
    with pytest.raises(InputError, match=r"no confidence is above 9, as on a scale from 0 to 10 .*leave out --percent"):
        counted(*[0.02, 0.05, 0.09] * 7).require()
    counted(*[0.02, 0.05, 0.09] * 7, 0.11).require()
    counted(*[0.09] * 19).require()
    counted(*[0.09] * 30).require(is_assumed=True)  # the fit had percents, and these may be the smallest ones


def test_a_one_without_a_declared_scale_is_refused():
    with pytest.raises(InputError, match=r"fitted on percents, and no confidence here is above 1\..*percent=False"):
        counted(0.0, 0.01).require(is_assumed=True)
    counted(0.0).require(is_assumed=True)
    counted(0.01).require()


def test_calibrate_does_not_guess_the_scale_of_a_one():
    rows = [
        {"id": at, "topic": "ab"[at % 2], "confidence": (50, 90)[at % 3 > 0], "correct": at % 3 > 0} for at in range(60)
    ]
    model = QACalibrator(partition=Column("topic"), calibrator=QABinning(points_per_bin=10)).fit(rows, percent=True)
    one = [{"id": 1, "topic": "a", "confidence": 1.0}]
    with pytest.raises(InputError, match="no confidence here is above 1"):
        model.calibrate(one)
    assert model.calibrate(one, percent=False)[0]["calibrated"] == model.predict([1.0], groups=["a"])[0]
    assert model.calibrate(one, percent=True)[0]["calibrated"] == model.predict([0.01], groups=["a"])[0]


def test_rows_whose_confidences_are_not_needed_are_not_checked_for_percents():
    """Rows for groups alone may lack confidences; once they were read as zeros, and so as fractions."""
    rows = [{"question": f"Q {number}?", "answer": "A"} for number in range(30)]
    (batch,) = read(rows, Reading(percent=True), needs_labels=False, needs_confidence=False)
    assert len(batch) == 30


def test_percents_of_a_csv_file_stay_percents_in_json(tmp_path):
    (tmp_path / "in.csv").write_text("question,answer,confidence\nq1,a,85%\nq2,b,70\nq3,c,100%\n")
    (batch,) = read(tmp_path / "in.csv", Reading(percent=True), needs_labels=False)
    with writing(tmp_path / "out.jsonl", "csv", ",") as writer:
        writer.write(batch.with_evidence(pl.DataFrame({"calibrated": [0.5, 0.6, 0.7]})))
    rows = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert [row["confidence"] for row in rows] == [85, 70, 100]
