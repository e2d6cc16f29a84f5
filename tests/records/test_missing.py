"""A missing value is missing everywhere: one definition for labels, groups, confidences, ids and human labels."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from qacal import Column, evaluate
from qacal.errors import InputError, QacalWarning
from qacal.model.evaluating import collect
from qacal.records.columns import listed
from qacal.records.reading import Reading, read
from qacal.sources.elicitation.judging import HumanLabels, question_of
from qacal.sources.importers.base import Log
from qacal.sources.importers.confidences import Unscored
from qacal.sources.importers.formats import Selection
from qacal.tally.arrays import column_of_any, is_missing
from qacal.tally.groups import NO_GROUP, as_grouping
from tests.tables import each

MISSING = {
    "None": None,
    "empty text": "",
    "NaN": float("nan"),
    "NaN of 32 bits": np.float32("nan"),
    "pandas.NA": pd.NA,
    "pandas.NaT": pd.NaT,
    "NaT of numpy": np.datetime64("NaT", "s"),
    "Decimal NaN": Decimal("NaN"),
    "signalling NaN": Decimal("sNaN"),
    "masked": np.ma.masked,
}
THERE = [0, 0.0, False, " ", "nan", "None", "NA", "-", float("inf"), (None,), [], np.array([1.0, np.nan])]


@pytest.fixture(params=MISSING.values(), ids=MISSING.keys())
def gone(request):
    return request.param


def rows_with(**values):
    return [{"id": i, "confidence": 0.8, "correct": i % 2, **values} for i in range(4)]


def test_what_is_missing(gone):
    assert is_missing(gone)


@each("value", THERE)
def test_what_is_not(value):
    assert not is_missing(value)


def test_a_missing_label_is_not_a_group(gone):
    assert as_grouping(["law", gone, "art"], 3).code.tolist() == [1, NO_GROUP, 0]
    assert Column("subject").fit(["law", gone, "art"]).assign(["art", gone]).tolist() == ["art", None]
    assert {group.group for group in evaluate([1, 0], [0.9, 0.8], groups=["law", gone]).groups} == {"law", None}


def test_columns_have_none_for_missing_values_and_texts_may_be_empty(gone):
    for values in (listed(["a", gone, 0.5]), column_of_any(["a", gone, 0.5], "x").tolist()):
        assert values == ["a", "" if isinstance(gone, str) else None, 0.5]
    (batch,) = read(
        [{"confidence": 0.5, "model": value} for value in ("a", gone, "a")], needs_labels=False, needs_text=False
    )
    assert batch.values_of("model") == ["a"]


def test_records_without_it(gone):
    """A confidence or an id that is missing makes a bad row; a row without a label is left out with a warning."""
    for column in ("confidence", "id"):
        faults = []
        records = [*rows_with(question="Why?"), {**rows_with()[0], "question": "Why?", column: gone}]
        batches = read(records, Reading(on_fault=faults.append, max_bad=1.0), needs_labels=True, needs_text=False)
        assert sum(map(len, batches)) == 4, column
        assert [fault.kind for fault in faults] == [f"no {column}"]
    records = [*rows_with(question="Why?"), {**rows_with()[0], "question": "Why?", "correct": gone}]
    with pytest.warns(QacalWarning, match="records: 1 of 5 rows has no label and is not used"):
        assert sum(map(len, read(records, needs_labels=True, needs_text=False))) == 4


def test_a_column_to_measure_by_needs_a_value(gone):
    with pytest.raises(InputError, match="subject is missing in some rows"):
        collect(rows_with(subject=gone), Reading(), None, None, "subject")


def test_a_missing_human_label_is_no_label(gone):
    assert HumanLabels("by_hand").label({"by_hand": gone}) is None
    assert question_of({"id": gone, "question": "Why?"}) == "Why?"


def test_an_imported_confidence_is_none(gone):
    assert isinstance(Log([], Selection(), print).confidence(gone), Unscored)
