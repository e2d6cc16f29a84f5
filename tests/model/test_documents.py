"""Documents through the whole pipeline: ids that repeat in a fit, in a saved model and in a report."""

import numpy as np
import polars as pl
import pytest

import qacal
from qacal import QACalibrator, StepBinning
from qacal.model.summary import described
from qacal.records.files import open_file, refuse
from qacal.report.content import read_contents
from qacal.report.sentences import verdict_of

FIELDS = {"vendor": 0.95, "date": 0.9, "total": 0.6, "iban": 0.75}


def invoices(first, documents, seed=0):
    """Return four fields of each invoice; all fields of a bad scan are often wrong, and some have no IBAN."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(first, first + documents):
        sharp = 1.0 if rng.random() < 0.8 else 0.3
        for field, accuracy in list(FIELDS.items())[: 4 - (number % 3 == 0)]:
            right = bool(rng.random() < accuracy * sharp)
            confidence = round(float(np.clip(rng.normal(0.85 if right else 0.75, 0.1), 0, 1)), 2)
            question = f"What is the {field} of invoice {number}?"
            rows.append({"id": number, "field": field, "question": question, "answer": f"{field} {number}"})
            rows[-1] |= {"confidence": confidence, "correct": right}
    return rows


@pytest.fixture(scope="module")
def model():
    return QACalibrator(partition="bisecting:1").fit(invoices(0, 700))


def test_the_default_model_counts_documents(model, tmp_path):
    maps = model.calibrator_.maps_
    assert maps.certificate.is_by_document
    bands = len(maps.below)
    assert maps.cells.rows[:bands].sum() < model.rows_
    assert maps.cells.rows[bands:].sum() < model.rows_
    said = f"Certified on {model.rows_:,} rows, as documents, since ids repeat. With probability 90%, all of this holds"
    assert said in described(model)
    model.save(tmp_path / "model")
    new = invoices(700, 5, seed=1)
    assert qacal.load(tmp_path / "model").calibrate(new) == model.calibrate(new)


class SmallBatches:
    def __init__(self, path):
        self.path = path

    def batches(self, on_fault=refuse):
        return open_file(self.path).batches(on_fault, 300)


def test_documents_may_be_in_several_batches(model, tmp_path):
    """Rows in an order that spreads every document over the file, read in small batches."""
    rows = pl.DataFrame(invoices(0, 700))
    rows.sample(fraction=1, shuffle=True, seed=0).write_ndjson(tmp_path / "rows.jsonl")
    again = QACalibrator(partition="bisecting:1").fit(SmallBatches(tmp_path / "rows.jsonl"))
    one, two = (each.calibrator_.maps_ for each in (model, again))
    np.testing.assert_array_equal(one.cells.rows, two.cells.rows)
    np.testing.assert_allclose(one.cells.low, two.cells.low, atol=1e-9)
    np.testing.assert_allclose(one.below, two.below, atol=1e-9)
    np.testing.assert_allclose(one.above, two.above, atol=1e-9)


def test_documents_can_be_certified_within_groups():
    model = QACalibrator(partition="bisecting:1", calibrator=StepBinning()).fit(invoices(0, 700))
    maps = model.calibrator_.maps_
    assert maps.certificate.is_by_document
    assert maps.rows[: maps.offset[1]].sum() < model.rows_
    assert (
        "as documents, since ids repeat: for half of the answers, the accuracy of similar answers (a random row of a"
        in described(model)
    )


def test_a_report_tests_one_row_of_each_document_and_bin(model):
    """Documents have three or four rows, and the guarantee can still be tested."""
    found = read_contents(model, invoices(2000, 600, seed=3))[""]
    assert found.is_uneven
    assert found.realised.is_by_document
    assert not found.realised.is_broken.any()
    assert "One row of each document in each band and group was counted" in verdict_of(found).reasons
    wrong = [{**row, "correct": not row["correct"]} for row in invoices(2000, 600, seed=3)]
    with pytest.warns(qacal.QacalWarning, match="opposite|higher"):
        assert read_contents(model, wrong)[""].realised.is_broken.any()
