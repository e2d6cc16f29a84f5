"""`qacal evaluate --fail-above`: how often a gate is wrong, on few rows and on many."""

import numpy as np
import pytest

from qacal.cli.evaluate import _is_above
from qacal.metrics import noise
from qacal.metrics.calibration import estimate_calibration_error
from tests.sizes import sized
from tests.theory.lab import at_most, failure_rate

LIMIT, TRIALS = 0.05, sized(400)


def measured(rng, n, confidence, off):
    """Return the measured error of one stated confidence that is too high by `off`."""
    h = np.full(n, confidence)
    return estimate_calibration_error(rng.random(n) < h - off, h, ids=np.arange(n), bins=15, redraws=0)


def fails_though_calibrated(n, confidence):
    return failure_rate(lambda rng: _is_above(measured(rng, n, confidence, 0.0), LIMIT, is_strict=False), TRIALS)


def passes_though_off(n, confidence, off):
    return failure_rate(lambda rng: not _is_above(measured(rng, n, confidence, off), LIMIT, is_strict=True), TRIALS)


@pytest.fixture
def jackknife_alone(monkeypatch):
    """Use the intervals of the jackknife alone."""
    monkeypatch.setattr(noise, "_noise_ends", lambda *_: (np.inf, -np.inf))


@pytest.mark.parametrize(("n", "confidence"), [(2, 0.9), (6, 0.9), (10, 0.9), (20, 0.95), (50, 0.97), (200, 0.6)])
def test_a_gate_rarely_fails_calibrated_scores(n, confidence):
    assert fails_though_calibrated(n, confidence) <= at_most(0.025, TRIALS)


@pytest.mark.parametrize(("n", "confidence"), [(6, 0.97), (20, 0.9), (50, 0.99), (100, 0.6), (100, 1.0), (500, 0.9)])
def test_a_strict_gate_rarely_passes_miscalibrated_scores(n, confidence):
    """Neither far off nor just above the limit, where it is hardest."""
    assert passes_though_off(n, confidence, 0.2) <= at_most(0.025, TRIALS)
    assert passes_though_off(n, confidence, LIMIT + 1e-9) <= at_most(0.05, TRIALS)


def test_a_strict_gate_opens_for_calibrated_scores():
    """A bound that is always high would be safe and useless."""
    assert passes_though_off(1600, 0.7, 0.0) > 0.7
    assert passes_though_off(400, 0.97, 0.0) > 0.7


@pytest.mark.usefixtures("jackknife_alone")
def test_the_jackknife_alone_makes_a_bad_gate():
    assert fails_though_calibrated(6, 0.9) > 0.4
    assert fails_though_calibrated(20, 0.95) > 0.3
    assert passes_though_off(6, 0.97, 0.2) > 0.1
    assert passes_though_off(100, 0.6, LIMIT) > 0.1
