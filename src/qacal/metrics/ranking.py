"""Ranking: whether right answers have the higher confidences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from qacal.guarantee import check_alpha
from qacal.metrics.binned import as_tally
from qacal.tally import Tally
from qacal.values import ArrayLike, Floats


@dataclass(frozen=True)
class Auroc:
    """The probability that a right answer has a higher confidence than a wrong one, with its interval.

    value : 0.5 if the confidence says nothing, below it if it points the wrong way; NaN without right or wrong answers.
    low, high : the interval; 0 and 1 if nothing is known.
    """

    value: float
    low: float
    high: float


def auroc(
    confidence: ArrayLike | Tally,
    correct: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    alpha: float = 0.05,
) -> Auroc:
    r"""Return the area under the ROC curve; of equal confidences, one half is taken as the higher.

    The interval inverts the score test, with the variance of Hanley and McNeil (1982) at the tested value (Newcombe's
    method 5, 2006), so a few rows in perfect order are not taken for certainty:

    .. math:: V(\theta) = \frac{\theta (1 - \theta)}{m n}
        \left[1 + (N - 1) \left(\frac{1 - \theta}{2 - \theta} + \frac{\theta}{1 + \theta}\right)\right],
        \quad N = \frac{m + n}{2}

    for :math:`m` right and :math:`n` wrong answers, taken as independent. Many equal confidences make it too wide.

    Examples
    --------
    >>> auroc([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0])
    Auroc(value=1.0, low=0.385..., high=1.0)
    >>> auroc([0.8, 0.8, 0.8], [1, 0, 1]).value
    0.5
    """
    check_alpha(alpha)
    tally = as_tally(confidence, correct, weights=weights).pooled().without_blocks().without_ties()
    # Weights count for as many rows as make the same noise.
    scale = float(tally.w.sum() / tally.ww.sum())
    return auroc_of_counts(scale * tally.wt, scale * (tally.w - tally.wt), alpha=alpha)


def auroc_of_counts(right: Floats, wrong: Floats, *, alpha: float = 0.05) -> Auroc:
    """Return the area under the ROC curve of counts of right and wrong answers, by rising confidence.

    >>> auroc_of_counts(np.array([0.0, 40.0]), np.array([40.0, 0.0])).value
    1.0
    """
    m, n = float(right.sum()), float(wrong.sum())
    if not m * n > 0:
        return Auroc(float("nan"), 0.0, 1.0)
    value = float((right * (np.cumsum(wrong) - wrong / 2)).sum() / (m * n))
    z = float(special.ndtri(1 - alpha / 2))
    return Auroc(value, _end(value, m, n, -z), _end(value, m, n, z))


def _end(value: float, m: float, n: float, z: float) -> float:
    """Return where the value is just `z` standard errors away."""

    def apart(theta: float) -> float:
        noise = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) * (1 + max((m + n) / 2 - 1, 0.0) * noise) / (m * n)
        return float(theta - value - z * np.sqrt(variance))

    far, near = (0.0, value - 1e-9) if z < 0 else (1.0, value + 1e-9)
    if not 0 < near < 1 or apart(far) * apart(near) > 0:
        return value
    return float(optimize.brentq(apart, far, near))
