"""Margin binning without a score: bands of the stated confidence, and answers of the curves of tree scaling."""

import numpy as np
import pytest

from qacal import InputError, MarginBinning, Paths, QACalibrator
from qacal.calibrators import TreeScaling
from qacal.guarantee import mixed_binomial_interval

STATED = [0.5, 0.7, 0.75, 0.8, 0.9, 0.95, 1.0]


def answers(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    stated, subject = rng.choice(STATED, n, p=[0.02, 0.1, 0.03, 0.2, 0.3, 0.05, 0.3]), rng.integers(0, 5, n)
    return stated, rng.random(n) < 0.1 + 0.5 * stated + 0.06 * subject, subject


def test_answers_are_the_curves_moved_with_their_bands_which_ignore_labels():
    stated, correct, subject = answers()
    model = MarginBinning().fit(stated, correct, groups=subject)
    curves = TreeScaling().fit(stated, correct, groups=subject)
    moved, plain = (one.predict(stated, groups=subject) for one in (model, curves))
    np.testing.assert_allclose(moved, plain, atol=0.005)
    band = np.searchsorted(model.maps_.cells.top[: len(model.maps_.shift)], stated)
    mean, plain, accuracy = (np.bincount(band, one) / np.bincount(band) for one in (moved, plain, correct))
    assert (np.abs(mean - accuracy) <= np.abs(plain - accuracy) + 1e-9).all()
    other = MarginBinning().fit(stated, ~correct, groups=subject)
    np.testing.assert_array_equal(model.maps_.cells.top, other.maps_.cells.top)
    np.testing.assert_array_equal(model.maps_.cells.rows, other.maps_.cells.rows)


def test_intervals_are_those_of_the_counts():
    stated, correct, subject = answers()
    model = MarginBinning(alpha=0.2).fit(stated, correct, groups=subject)
    evidence = model.explain(stated, groups=subject)
    bands = len(model.maps_.shift)
    band = np.searchsorted(model.maps_.cells.top[:bands], stated)
    assert bands > 2
    for at in range(bands):
        rows = band == at
        # Half of alpha for the bands, shared among them, and half of that for each end.
        low, high = mixed_binomial_interval(correct[rows].sum(), rows.sum(), 0.2 / 2 / bands / 2)
        mean = evidence.calibrated[rows].mean()
        np.testing.assert_allclose(evidence.low[rows], np.maximum(evidence.calibrated[rows] - (mean - low), 0))
        np.testing.assert_allclose(evidence.high[rows], np.minimum(evidence.calibrated[rows] + (high - mean), 1))
    for group in range(5):
        rows = subject == group
        low, high = mixed_binomial_interval(correct[rows].sum(), rows.sum(), 0.2 / 2 / 5 / 2)
        np.testing.assert_allclose(evidence.group_low[rows], low)
        np.testing.assert_allclose(evidence.group_high[rows], high)


def test_answers_that_are_wrong_on_average_are_moved():
    """The LLM is more often right where it is less sure, and curves only rise."""
    rng = np.random.default_rng(0)
    stated, subject = rng.choice([0.5, 0.9], 6000), rng.integers(0, 3, 6000)
    correct = rng.random(6000) < np.where(stated == 0.5, 0.95, 0.3) - 0.1 * (subject == 1)
    model = MarginBinning().fit(stated, correct, groups=subject)
    evidence = model.explain(stated, groups=subject)
    assert np.abs(model.maps_.shift).min() > 0.1
    for at, value in enumerate([0.5, 0.9]):
        rows = stated == value
        assert evidence.calibrated[rows].mean() == pytest.approx(correct[rows].mean(), abs=0.005)
        assert model.maps_.cells.low[at] < evidence.calibrated[rows].mean() < model.maps_.cells.high[at]
    assert ((evidence.low <= evidence.calibrated) & (evidence.calibrated <= evidence.high)).all()


def test_small_and_new_groups_have_no_interval_by_group():
    stated, correct, subject = answers()
    subject[:29], subject[29:59] = 7, 8
    model = MarginBinning().fit(stated, correct, groups=subject)
    evidence = model.explain([0.8] * 4, groups=[7, 8, 99, None])
    np.testing.assert_array_equal(np.isnan(evidence.group_low), [True, False, True, True])
    np.testing.assert_array_equal(evidence.group_rows, [0, 30, 0, 0])
    assert np.isfinite(evidence.low).all()


def test_bands_have_enough_rows():
    """Values that few rows state share a band; a wider interval allows more bands."""
    stated, correct, _ = answers(20_000)
    rows, tops = {}, {}
    for within in (0.2, 0.016, 0.013):
        maps = MarginBinning(within=within).fit(stated, correct).maps_
        bands = len(maps.shift)
        rows[within], tops[within] = maps.cells.rows[:bands], maps.cells.top[:bands]
        average = np.average((maps.cells.high - maps.cells.low)[:bands] / 2, weights=rows[within])
        assert average <= within
    assert len(tops[0.2]) > len(tops[0.016]) > len(tops[0.013])
    assert all((some > 0).all() for some in rows.values())
    assert set(tops[0.2][:-1]) < set(STATED)


def test_a_tree_uses_the_same_depth_for_curves_and_intervals():
    stated, correct, subject = answers(8000)
    leaves = subject % 4 * 4 + np.arange(8000) % 4
    model = MarginBinning(max_depth=2).fit(stated, correct, groups=Paths(leaves, np.full(8000, 5), 4))
    evidence = model.explain([0.8] * 16, groups=np.arange(16))
    assert model.maps_.curves.max_depth == model.maps_.max_depth == 2
    assert len(set(evidence.calibrated)) == len(set(evidence.group_low)) == 4


def test_a_model_on_a_column_is_certified_on_all_rows(tmp_path):
    stated, correct, subject = answers(1500)
    rows = [
        {"id": str(at), "subject": f"s{group}", "confidence": float(value), "correct": int(right)}
        for at, (value, right, group) in enumerate(zip(stated, correct, subject, strict=True))
    ]
    model = QACalibrator(partition="column:subject").fit(rows)
    assert model.rows_ == 1500
    found = model.calibrate(rows[:50])
    direct = MarginBinning().fit(stated, correct, groups=subject).explain(stated[:50], groups=subject[:50])
    for name in ("calibrated", "low", "high", "group_low", "group_high"):
        np.testing.assert_allclose([row[name] for row in found], getattr(direct, name))
    assert {row["source"] for row in found} == {"band"}
    model.save(tmp_path / "model")
    assert QACalibrator.load(tmp_path / "model").calibrate(rows[:50]) == found
    with pytest.raises(InputError, match="MarginBinning needs bins and depth that are fixed before the fit"):
        QACalibrator(partition="column:subject", tune="brier").fit(rows)
