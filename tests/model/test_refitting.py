"""A refit: which rows train, which certify, and in which form they may come."""

import re

import numpy as np
import polars as pl
import pytest

from qacal import Column, QACalibrator, StepBinning
from qacal.calibrators import PlattScaling
from qacal.errors import InputError
from qacal.model.refitting import LabelledAnswer, refit
from qacal.model.summary import described
from tests.answers import answers

RNG = np.random.default_rng(0)


def labelled(rows, probability=0.5, **others):
    return [LabelledAnswer(RNG.bytes(16).hex(), {**row, **others}, probability) for row in rows]


def test_only_the_sample_certifies_and_its_questions_train_nothing_else():
    model = QACalibrator("static", "bisecting:2", StepBinning(alpha=0.2), features=(), train_share=0.5)
    model.fit(answers(200))
    first, served = answers(200), answers(150, seed=4)
    reported = labelled(answers(40, seed=5), None)
    # Earlier rows and volunteered labels have questions of the sample, by id or by text.
    found = refit(model, labelled(served) + reported + labelled(served[:3], None), [*first, *served[:5]])
    asked = {row["question"] for row in served}
    shared = sum(row["question"] in asked for row in (*first, *answers(40, seed=5)))
    assert shared > 0
    assert (found.audited, found.sample, found.volunteered, found.repeated) == (150, 150, 43, shared + 8)
    assert found.model.rows_ == 150
    assert found.model.calibrator_.maps_.certificate.alpha == 0.2


def test_without_other_rows_a_part_of_the_sample_trains():
    model = QACalibrator(features=()).fit(answers(300))
    found = refit(model, labelled(answers(300, seed=4)))
    assert found.model.rows_ == pytest.approx(210, abs=30)


def test_widths_are_by_labels_of_audits_whatever_else_trains():
    model = QACalibrator(features=()).fit(answers(300))
    drawn = labelled(answers(120, seed=4))
    for records in (None, answers(600, seed=5)):
        found = refit(model, drawn, records)
        assert [one.labels for one in found.model.widths_] == [30, 60, 120, 240, 480]
        text = described(found.model, is_refit=True)
        assert re.search(r"labels of audits +30 +60 +120 +\*240 +\*480\n", text)
        assert f"{120 + found.earlier} labelled rows: " in text
    assert found.model.rows_ == 120
    halves = [one.band_width for one in found.model.widths_ if one.is_measured]
    assert halves == sorted(halves, reverse=True)


def test_groups_that_are_columns_are_certified_by_the_sample_alone():
    model = QACalibrator(partition=Column("topic")).fit(answers(300))
    found = refit(model, labelled(answers(200, seed=4)) + labelled(answers(100, seed=5), None), answers(300))
    assert found.model.rows_ == 200


def test_a_continuous_model_trains_on_all_rows():
    model = QACalibrator(features=(), output="continuous").fit(answers(200))
    found = refit(model, labelled(answers(100, seed=4)) + labelled(answers(50, seed=5), None))
    assert found.model.rows_ == 150


def test_earlier_rows_are_read_as_in_the_fit(tmp_path):
    """Other names and percents there; served records have the standard ones."""
    names = {"question": "asked", "confidence": "stated"}
    rows = pl.DataFrame(answers(150)).with_columns(pl.col("confidence") * 100).rename(names)
    rows.write_ndjson(tmp_path / "train.jsonl")
    model = QACalibrator(calibrator=PlattScaling())
    model.fit(tmp_path / "train.jsonl", columns=names, percent=True)
    served = [{name: value for name, value in row.items() if name != "id"} for row in answers(100, seed=4)]
    served[0]["id"], served[1]["id"] = None, "its own"
    found = refit(model, labelled(served), tmp_path / "train.jsonl")
    assert (found.earlier + found.repeated, found.model.rows_) == (150, 100)
    direct = QACalibrator(calibrator=PlattScaling()).fit(answers(100, seed=4))
    assert found.model.predict([{"confidence": 0.9, "id": 1}]) == pytest.approx(
        direct.predict([{"confidence": 0.9, "id": 1}]), abs=0.05
    )


def test_unequal_chances_thin_the_sample_and_the_rest_trains():
    model = QACalibrator(partition=Column("topic")).fit(answers(300))
    rows = labelled(answers(200, seed=4), 0.1) + labelled(answers(200, seed=5), 0.4)
    found = refit(model, rows)
    assert (found.audited, found.probability) == (400, 0.1)
    assert found.sample == pytest.approx(250, abs=25)
    assert found.model.rows_ == found.sample
    assert refit(model, rows).sample == found.sample


def test_answers_of_several_llms_are_refused():
    model = QACalibrator(partition=Column("topic")).fit(answers(200))
    rows = labelled(answers(100, seed=4)) + labelled(answers(100, seed=5), model="parrot-2")
    with pytest.raises(InputError, match="several LLMs"):
        refit(model, rows)
    assert refit(model, rows, allow_mixed=True).model.rows_ == 200


def test_served_records_without_an_llm_are_of_that_of_the_fit():
    model = QACalibrator(features=()).fit(answers(300, llm="parrot-1"))
    served = [{name: value for name, value in row.items() if name != "model"} for row in answers(200, seed=4)]
    assert refit(model, labelled(served)).model.origins_ == model.origins_
    assert refit(model, labelled(served, model="owl-2")).model.origins_["model"] == ["owl-2"]
    assert model.origins_["model"] == ["parrot-1"]


def test_volunteered_labels_alone_are_refused():
    model = QACalibrator(partition=Column("topic")).fit(answers(200))
    with pytest.raises(InputError, match="volunteered labels cannot certify"):
        refit(model, labelled(answers(50, seed=4), None))
