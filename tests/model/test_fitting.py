"""One fit: which rows it uses, and what it stores and leaves unchanged."""

import numpy as np
import pytest

from qacal import InputError, QABinning, QACalibrator
from qacal.model.fitting import Split
from qacal.records.reading import read
from tests.answers import answers


def ids_of(batch):
    return set(batch.ids.tolist())


def test_the_two_parts_share_no_question_and_are_all_rows():
    (batch,) = read(answers(2000), needs_labels=True)
    parts = Split(0.8, seed=0)
    training, calibrating = parts.for_training(batch), parts.for_calibrator(batch)
    assert not ids_of(training) & ids_of(calibrating)
    assert len(training) + len(calibrating) == 2000
    assert len(training) == pytest.approx(1600, abs=80)
    assert ids_of(Split(0.8, seed=1).for_training(batch)) != ids_of(training)


def test_rows_that_are_not_split_are_in_both_parts():
    (batch,) = read(answers(30), needs_labels=True)
    parts = Split(None, seed=0)
    assert parts.for_training(batch) is parts.for_calibrator(batch) is batch


@pytest.mark.parametrize("parameters", [{}, {"calibrator": QABinning(), "tune": "log_loss"}, {"output": "continuous"}])
def test_a_fitted_model_holds_its_parameters_and_what_was_found(parameters):
    model = QACalibrator(partition="bisecting:2", **parameters).fit(answers(600))
    found = {
        "pipeline_",
        "tuned_",
        "rows_",
        "origins_",
        "groups_",
        "fit_record_",
        "decision_rule_",
        "read_as_",
        "fitted_for_",
        "overviews_",
        "not_tried_",
        "widths_",
    }
    assert set(vars(model)) == {*model.get_params(deep=False), *found}


@pytest.mark.usefixtures("wordless_unless_full")
def test_a_fit_that_fails_leaves_the_model_as_it_was():
    model = QACalibrator(partition="bisecting:2").fit(answers(600))
    new = answers(50, seed=1)
    before = model.calibrate(new)
    with pytest.raises(InputError, match="rows have questions that the model was trained on"):
        model.fit(answers(600), certify_records=answers(10))
    with pytest.raises(InputError, match="there is no embedder"):
        model.set_params(embedder="word2vec").fit(answers(600))
    assert model.calibrate(new) == before


def test_a_fit_changes_none_of_the_parts_that_were_given():
    calibrator = QABinning()
    model = QACalibrator(calibrator=calibrator, tune="log_loss").fit(answers(900))
    assert calibrator.get_params() == QABinning().get_params()
    assert not hasattr(calibrator, "maps_")
    assert model.calibrator_ is not calibrator
    assert np.isfinite(model.tuned_.best.score)
