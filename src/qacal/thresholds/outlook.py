"""Before thresholds are tested, from other rows: where to start, and how many rows are needed."""

from __future__ import annotations

from math import ceil, inf, log, nan

import numpy as np

from qacal.metrics.selective import accepted_sums
from qacal.tally.arrays import Floats
from qacal.thresholds.curve import ThresholdCurve, binomial_tail, relative_entropy
from qacal.thresholds.fit_record import Forecast

# At the start, expect this many times the rows that can show anything: there may be fewer.
_SLACK = 1.25
_POWER = 0.8
# With fewer accepted rows, the number of rows needed cannot be estimated.
_FEWEST_SEEN = 20


def best_start(expected: Forecast, candidates: Floats, rows: int, accuracy: float, alpha: float) -> int:
    """Return the index of the candidate with the strongest expected evidence from `rows` rows.

    >>> seen = Forecast(np.array([0.6, 0.9]), np.array([50.0, 50.0]), np.array([30.0, 48.0]))
    >>> best_start(seen, np.array([0.6, 0.9, 1.0]), 200, 0.9, 0.1)  # 0.6 accepts too many wrong answers, 1.0 none
    1
    """
    seen, right = accepted_sums(expected.score, candidates, expected.rows, expected.right)
    accepted = rows * seen / max(float(expected.rows.sum()), 1e-300)
    has_enough = accepted >= _SLACK * fewest_rows(accuracy, alpha)
    if not has_enough.any():
        return 0
    mean = right / np.maximum(seen, 1e-300)
    evidence = np.sign(mean - accuracy) * accepted * relative_entropy(mean, accuracy)
    evidence = np.where(has_enough, evidence, -np.inf)
    return int(np.flatnonzero(evidence == evidence.max())[-1])


def fewest_rows(accuracy: float, alpha: float) -> int:
    """Return the least k with accuracy^k <= alpha: fewer accepted rows show nothing, even if all are correct.

    >>> fewest_rows(0.9, 0.1), fewest_rows(0.95, 0.05)
    (22, 59)
    """
    return ceil(log(alpha) / log(accuracy) - 1e-9)


def rows_needed(curve: ThresholdCurve, accuracy: float) -> float:
    """Return an estimate of how many rows would certify some threshold in four of five cases.

    Infinity if no threshold reaches the target; NaN if only thresholds that accept a few rows do. The estimate uses the
    shares and accuracies of the curve, with one more row at the target accuracy: 20 correct answers of 20 do not mean
    an accuracy of 1.
    """
    from scipy import special

    means = (curve.right + accuracy) / (curve.accepted + 1)
    # A smaller excess may be rounding, and would need billions of rows.
    able = (curve.accepted > 0) & (means > accuracy + 1e-5)
    if not able.any():
        return inf if (curve.accepted >= _FEWEST_SEEN).any() else nan
    able &= curve.accepted >= _FEWEST_SEEN
    if not able.any():
        return nan
    mean = means[able]
    noise = np.sqrt(accuracy * (1 - accuracy)) * special.ndtri(1 - curve.alpha)
    spread = noise + np.sqrt(mean * (1 - mean)) * special.ndtri(_POWER)
    accepted = np.maximum((spread / (mean - accuracy)) ** 2, fewest_rows(accuracy, curve.alpha))
    best = int(np.argmin(accepted / curve.coverage[able]))
    exact = _accepted_needed(float(accepted[best]), float(mean[best]), accuracy, curve.alpha)
    return ceil(exact / float(curve.coverage[able][best]))


def _accepted_needed(about: float, mean: float, accuracy: float, alpha: float) -> int:
    """Return the exact number of accepted rows, near an approximate one."""
    from scipy import special

    rows = np.unique(np.maximum(np.ceil(about * np.geomspace(0.6, 1.7, 33)), fewest_rows(accuracy, alpha)))
    # The fewest correct answers that pass the test: one more than the least c with P(Bin <= c) >= 1 - alpha.
    passing = np.minimum(np.ceil(special.bdtrik(1 - alpha, rows, accuracy)) + 1, rows)
    power = binomial_tail(passing, rows, mean)
    return int(rows[np.argmax(power >= _POWER)] if (power >= _POWER).any() else rows[-1])
