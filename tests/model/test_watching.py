"""`watch`: which intervals of a model no longer hold for labelled rows."""

import numpy as np
import polars as pl
import pytest

from qacal import (
    Column,
    InputError,
    QABinning,
    QACalibrator,
    QacalWarning,
    StepBinning,
    TreeBinning,
    describe_documents,
    label_next,
    load,
    watch,
)
from qacal.calibrators import PlattScaling
from qacal.model.broken import _bets, _documents, _Limits, _Means
from qacal.model.model_set import fit_set
from qacal.model.watching import watches
from qacal.records.reading import Reading

WORDS = {"art": ("painting", "sculpture", "museum", "canvas"), "law": ("court", "contract", "statute", "appeal")}


def answers(first, n, seed=0, loss=0.0, share=0.5, **more):
    """Return labelled rows: stated confidences are right, but for a loss of accuracy in law."""
    rng = np.random.default_rng(seed)
    out = []
    for at in range(n):
        subject = "law" if rng.random() < share else "art"
        stated = float(rng.choice([0.6, 0.7, 0.8, 0.9]))
        text = " ".join(rng.choice(WORDS[subject], 3)) + f" {rng.integers(500)}?"
        row = {"id": first + at, "subject": subject, "question": text, "answer": "yes", "confidence": stated}
        out.append({**row, "correct": bool(rng.random() < stated - loss * (subject == "law")), **more})
    return out


@pytest.fixture(scope="module")
def model():
    return QACalibrator(partition=Column("subject")).fit(answers(0, 2000))


@pytest.fixture(scope="module")
def learned():
    """The text matters: law is less accurate from the start."""
    return QACalibrator(partition="bisecting:1").fit(answers(0, 1500, loss=0.2))


def test_rows_like_those_of_the_fit_raise_no_alarm(model, learned):
    for one, loss in ((model, 0.0), (learned, 0.2)):
        found = watch(one, answers(10_000, 2000, seed=1, loss=loss))
        assert not found.is_alarm
        assert found.broken == ()
        assert found.labels == 2000
        assert not any(signal.is_notable for signal in found.signals)
        assert "No alarm after 2,000 labels" in str(found)


def test_the_worst_group_is_named(model, learned):
    for one, loss in ((model, 0.3), (learned, 0.5)):
        found = watch(one, answers(10_000, 1500, seed=1, loss=loss))
        groups = [interval for interval in found.broken if interval.kind == "group"]
        assert groups
        name = "law" if one is model else one.explain("court contract statute 5?", "yes", 0.7)["group"]
        assert {interval.group for interval in groups} == {name}
        (law,) = groups
        assert law.side == "low"
        assert law.accuracy < law.low
        assert found.broken_after <= law.broken_after < 600
        assert found.broken[0].broken_after == min(interval.broken_after for interval in found.broken)


def test_the_numbers_are_those_of_the_rows(model):
    rows = answers(10_000, 400, seed=2)
    intervals = watch(model, rows).intervals
    found = {interval.group or interval.name: interval for interval in intervals}
    calibrated = pl.DataFrame(model.calibrate(pl.DataFrame(rows)))
    law = calibrated.filter(pl.col("subject") == "law")
    assert found["law"].labels == len(law)
    assert found["law"].accuracy == pytest.approx(law["correct"].mean())
    assert found["law"].low == pytest.approx(law["group_low"][0])
    whole = found["all answers"]
    assert whole.accuracy == pytest.approx(calibrated["correct"].mean())
    maps = model.calibrator_.maps_
    # Of rows with no cut end, the promise is the mean of the printed interval.
    is_whole = (calibrated["low"] > 0).all() and (calibrated["high"] < 1).all()
    assert is_whole
    assert whole.low == pytest.approx(calibrated["low"].mean())
    assert whole.high == pytest.approx(calibrated["high"].mean())
    bands = [interval for interval in intervals if interval.kind == "band"]
    assert len(bands) == maps.n_bands
    assert sum(band.labels for band in bands) == 400


def test_functions_that_take_a_model_take_the_path_of_a_saved_one(model, tmp_path):
    model.save(tmp_path / "model")
    rows = answers(10_000, 300, seed=2)
    assert watch(str(tmp_path / "model"), rows).headline == watch(model, rows).headline
    assert label_next(tmp_path / "model", rows, 10) == label_next(model, rows, 10)
    others = answers(20_000, 3, seed=3)
    assert describe_documents(tmp_path / "model", rows, others).equals(describe_documents(model, rows, others))
    with pytest.raises(InputError, match="model is 3; expected a fitted model or the path of a saved one"):
        watch(3, rows)


def test_more_accurate_than_promised_is_an_alarm_too(model):
    found = watch(model, answers(10_000, 1000, seed=1, loss=-0.25))
    assert found.broken[0].side == "high"


def test_an_alarm_is_raised_by_the_rows_up_to_it(model):
    rows = answers(10_000, 1000, seed=1, loss=0.3)
    found = watch(model, rows)
    assert not watch(model, rows[: found.broken_after - 1]).is_alarm
    again = watch(model, rows[: found.broken_after])
    assert again.broken_after == found.broken_after
    # Later rows do not take it back.
    assert watch(model, rows + answers(20_000, 3000, seed=3)).broken_after == found.broken_after


def test_a_larger_alpha_is_earlier(model):
    rows = answers(10_000, 1000, seed=1, loss=0.3)
    assert watch(model, rows, alpha=0.3).broken_after < watch(model, rows, alpha=0.001).broken_after


@pytest.mark.parametrize("calibrator", [StepBinning(), TreeBinning(), QABinning(points_per_bin=100)], ids=type)
def test_bins_of_other_calibrators(calibrator):
    options = {"learned_score": None} if not isinstance(calibrator, StepBinning) else {}
    partition = "bisecting:2" if isinstance(calibrator, StepBinning) else Column("subject")
    one = QACalibrator(partition=partition, calibrator=calibrator, **options).fit(answers(0, 3000))
    assert not watch(one, answers(10_000, 1500, seed=1)).is_alarm
    found = watch(one, answers(10_000, 1500, seed=1, loss=0.4))
    assert found.is_alarm
    assert {interval.kind for interval in found.intervals} <= {"bin", "all"}
    if not options:
        return
    named = [interval for interval in found.broken if interval.group is not None]
    assert {interval.group for interval in named} == {"law"}
    assert "in group law" in named[0].name


def test_a_model_without_intervals_is_refused():
    one = QACalibrator(calibrator=PlattScaling()).fit(answers(0, 300))
    with pytest.raises(InputError, match=r"no intervals \(PlattScaling\), so there is nothing to watch"):
        watch(one, answers(1000, 10))


def test_intervals_from_0_to_1_are_refused():
    nothing = _Limits(np.array([-1.0, 0.0]), np.ones(2), bands=1, roots=1)
    with pytest.raises(InputError, match="go from 0 to 1, and cannot be broken"):
        _bets(_Means(*[np.zeros(0, dtype=np.int64)] * 4), nothing, 0, 0.1, has_all=True)


def test_rows_of_the_fit_are_refused(model):
    with pytest.raises(InputError, match=r"the model was fitted on some of these questions.*watch later answers"):
        watch(model, answers(0, 2000))


def test_no_labels_are_an_error(model):
    with pytest.raises(InputError, match="no row has a label"):
        watch(model, [{**row, "correct": None} for row in answers(10_000, 5)])


def test_far_rows_have_no_interval_and_are_counted(learned):
    strange = answers(10_000, 300, seed=1, loss=0.2)
    for row in strange[:100]:
        row["question"] = "zygote mitochondria ribosome enzyme " * 3 + str(row["id"])
    found = watch(learned, strange)
    with pytest.warns(QacalWarning, match="farther from the fit"):
        frame = pl.DataFrame(learned.calibrate(pl.DataFrame(strange)))
    assert found.far == (frame["source"] == "far").sum() > 50
    assert sum(interval.labels for interval in found.intervals if interval.kind == "band") == 300 - found.far
    assert "unlike" in [signal.kind for signal in found.signals if signal.is_notable]


# Documents


def test_a_document_counts_once_for_each_interval(model):
    rows = [{**row, "id": 10_000 + at // 4} for at, row in enumerate(answers(10_000, 800, seed=1))]
    found = watch(model, rows)
    assert found.documents == 200
    assert found.labels == 800
    assert not [interval for interval in found.intervals if interval.kind == "all"]
    law = next(interval for interval in found.intervals if interval.group == "law")
    frame = pl.DataFrame(rows).filter(pl.col("subject") == "law").group_by("id").agg(pl.col("correct").mean())
    assert law.labels == len(frame)
    assert law.accuracy == pytest.approx(frame["correct"].mean())


def test_copies_of_rows_are_no_evidence(model):
    rows = answers(10_000, 60, seed=1, loss=0.3)
    one, copied = watch(model, rows), watch(model, [row for row in rows for _ in range(20)])
    wealth = {interval.name: interval.wealth for interval in one.intervals}
    for interval in copied.intervals:
        assert interval.wealth == pytest.approx(wealth[interval.name])


def test_a_document_is_counted_at_its_last_row():
    document, last = _documents(np.array([7, 5, 7, 9, 5, 3], dtype=np.uint64))
    assert document.tolist() == [0, 2, 0, 1, 2, 3]
    assert last.tolist() == [2, 3, 4, 5]


# Chances


def test_rows_with_other_chances_are_thinned(model):
    """Wrong answers in law are labelled more often, by their confidence alone; thinned, all is well."""
    rows = answers(10_000, 6000, seed=1)
    rng = np.random.default_rng(0)
    drawn = []
    for row in rows:
        chance = 0.9 if row["confidence"] == 0.6 else 0.1
        if rng.random() < chance:
            drawn.append({**row, "label_probability": chance})
    found = watch(model, drawn)
    kept = found.labels
    rare = sum(row["label_probability"] == 0.1 for row in drawn)
    assert found.thinned == len(drawn) - kept
    assert kept - rare == pytest.approx((len(drawn) - rare) / 9, rel=0.25)
    law = next(interval for interval in found.intervals if interval.group == "law")
    assert law.accuracy == pytest.approx(0.75, abs=0.07)
    as_drawn = watch(model, [{**row, "label_probability": 0.5} for row in drawn])
    assert as_drawn.thinned == 0
    assert as_drawn.is_alarm  # the labelled rows are worse than the answers


def test_volunteered_labels_are_left_out(model):
    drawn = [{**row, "label_probability": 0.1} for row in answers(10_000, 300, seed=1)]
    complaints = [{**row, "correct": False, "label_probability": None} for row in answers(20_000, 200, seed=2)]
    found = watch(model, drawn + complaints)
    assert (found.labels, found.volunteered, found.thinned) == (300, 200, 0)
    assert not found.is_alarm
    with pytest.raises(InputError, match="no row has a label_probability above 0"):
        watch(model, complaints)


def test_rows_of_label_next_are_used_as_they_are(model):
    """The chance of a row is that of its document divided by its rows, and the document is what counts."""
    rows = [{**row, "id": 10_000 + at // (1 + at % 3)} for at, row in enumerate(answers(10_000, 1200, seed=1))]
    drawn = label_next(model, rows, 200)
    assert len({row["label_probability"] for row in drawn}) > 1
    found = watch(model, drawn)
    assert (found.labels, found.thinned) == (200, 0)


# Signals


def test_a_change_of_groups_and_confidences_is_a_signal(model):
    found = watch(model, answers(10_000, 400, seed=1, share=0.9))
    (signal,) = (signal for signal in found.signals if signal.is_notable)
    assert signal.kind == "groups"
    assert "in the fit" in signal.text
    sure = [{**row, "confidence": 0.95} for row in answers(10_000, 400, seed=1)]
    assert "Stated confidence: 0.95 on average, and 0.75 in the fit." in str(watch(model, sure))


# Sets, files and saved models


def test_each_model_of_a_set_is_watched(tmp_path):
    rows = [{**row, "model": name} for name in ("one", "two") for row in answers(0, 800)]
    parts = QACalibrator(partition=Column("subject"))
    models = fit_set(parts, rows, "model", Reading())
    later = [
        {**row, "model": name}
        for name, loss in (("one", 0.0), ("two", 0.4))
        for row in answers(10_000, 600, seed=1, loss=loss)
    ]
    found = watches(models, later, Reading())
    assert [found[name].is_alarm for name in ("one", "two")] == [False, True]
    with pytest.raises(InputError, match="this is a set of models"):
        watch(models, later)
    assert watch(models.models["two"], [row for row in later if row["model"] == "two"]) == found["two"]


def test_a_saved_model_says_the_same_of_a_file(model, tmp_path):
    rows = answers(10_000, 500, seed=1, loss=0.3)
    model.save(tmp_path / "model")
    pl.DataFrame(rows).write_ndjson(tmp_path / "rows.jsonl")
    assert watch(load(tmp_path / "model"), tmp_path / "rows.jsonl") == watch(model, rows)


def test_another_llm_is_refused_unless_it_is_allowed():
    one = QACalibrator(partition=Column("subject")).fit(answers(0, 400, model="old"))
    rows = answers(10_000, 300, seed=1, model="new")
    with pytest.raises(InputError, match="fitted on old"):
        watch(one, rows)
    assert watch(one, rows, allow_other_source="model").labels == 300


def test_a_later_row_changes_nothing_about_earlier_ones(model):
    rows = [{**row, "label_probability": 0.5} for row in answers(10_000, 300, seed=1, loss=0.35)]
    before = watch(model, rows)
    late = [{**row, "label_probability": 1e-6} for row in answers(20_000, 40, seed=2)]
    after = watch(model, rows + late)
    assert before.is_alarm
    assert (after.broken_after, after.labels, after.rare, after.thinned) == (before.broken_after, 300, 40, 0)
    assert [one.wealth for one in after.intervals] == [one.wealth for one in before.intervals]


def test_of_the_first_rows_the_smallest_chance_counts(model):
    rows = [
        {**row, "label_probability": 0.1 if at == 5 else 0.5} for at, row in enumerate(answers(10_000, 600, seed=1))
    ]
    found = watch(model, rows)
    assert found.rare == 0
    assert found.labels == pytest.approx(6 + 594 / 5, abs=35)
