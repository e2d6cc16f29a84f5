"""`qacal groups` shows what is certified of each group."""

import json

import pytest

from qacal import QACalibrator, StepBinning
from tests.answers import answers
from tests.cli.test_cli import ok


def test_the_certified_interval_of_each_group(tmp_path):
    model = QACalibrator(partition="bisecting:2").fit(answers(1000))
    model.save(tmp_path / "model")
    listed = json.loads(ok("groups", tmp_path / "model", "--json"))
    rows = [row for row in model.calibrate(answers(500, seed=1)) if row["group_low"] is not None]
    assert {group["group"] for group in listed} == {row["group"] for row in rows} == {0, 1, 2, 3}
    intervals = {group["group"]: (group["low"], group["high"]) for group in listed}
    for row in rows:
        assert intervals[row["group"]] == pytest.approx((row["group_low"], row["group_high"]), abs=1e-6)
    printed = ok("groups", tmp_path / "model")
    for low, high in intervals.values():
        assert f"{low:.2f} to {high:.2f}" in printed
    assert "certified: the accuracy of all answers of the group" in printed
    assert "With probability 90%, all intervals" in " ".join(printed.split())


def test_a_model_that_certifies_bins_shows_no_interval(tmp_path):
    QACalibrator(partition="bisecting:2", calibrator=StepBinning()).fit(answers(600)).save(tmp_path / "model")
    assert "certified:" not in ok("groups", tmp_path / "model")
    assert {group["low"] for group in json.loads(ok("groups", tmp_path / "model", "--json"))} == {None}
