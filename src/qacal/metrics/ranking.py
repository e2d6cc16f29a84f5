"""Ranking: whether correct answers have the higher confidences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from qacal.guarantee import check_alpha
from qacal.metrics.binned import by_confidence
from qacal.tally.arrays import ArrayLike, Floats
from qacal.tally.tally import Tally


@dataclass(frozen=True)
class Auroc:
    """The probability that a correct answer has a higher confidence than a wrong one, with its interval.

    value : 0.5 is chance, lower is worse than chance; NaN without correct or without wrong answers.
    low, high : the interval; 0 and 1 if nothing is known.
    """

    value: float
    low: float
    high: float


def auroc(
    y_true: ArrayLike | Tally, y_prob: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the area under the ROC curve; among equal probabilities, one half counts as the higher.

    NaN without correct or without wrong answers.

    >>> auroc([1, 1, 0, 0], [0.9, 0.8, 0.7, 0.6])
    1.0
    """
    return estimate_auroc(y_true, y_prob, sample_weight=sample_weight).value


def estimate_auroc(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    alpha: float = 0.05,
) -> Auroc:
    r"""Return the area under the ROC curve with its (1 - alpha) interval.

    The interval inverts the score test, with the variance of Hanley and McNeil (1982) at the tested value (Newcombe's
    method 5, 2006), so that a few rows in perfect order still have a wide interval:

    .. math:: V(\theta) = \frac{\theta (1 - \theta)}{m n}
        \left[1 + (N - 1) \left(\frac{1 - \theta}{2 - \theta} + \frac{\theta}{1 + \theta}\right)\right],
        \quad N = \frac{m + n}{2}

    for :math:`m` correct and :math:`n` wrong answers, assumed independent. Many equal confidences make it too wide.

    Examples
    --------
    >>> estimate_auroc([1, 1, 0, 0], [0.9, 0.8, 0.7, 0.6])
    Auroc(value=1.0, low=0.385..., high=1.0)
    >>> estimate_auroc([1, 0, 1], [0.8, 0.8, 0.8]).value
    0.5
    """
    check_alpha(alpha)
    tally = by_confidence(y_true, y_prob, sample_weight)
    # Weighted rows count as their effective number.
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


# An AUROC this close to 0.5 is next to chance.
_HARDLY = 0.05


@dataclass(frozen=True)
class Doubt:
    """A reason to suspect confidences or labels.

    kind : "constant", "opposite" or "unrelated", for programs.
    text : a sentence for people, without a capital letter and with a full stop.
    """

    kind: str
    text: str


def doubt_of(y_true: ArrayLike, y_prob: ArrayLike, *, questions: int | None = None) -> Doubt | None:
    """Return what is suspicious about confidences and labels; None if nothing is, or the rows are too few to tell.

    - constant: all confidences are the same, in 50 rows or more: some LLMs state 0.9 for nearly everything.
    - opposite: the AUROC is at most 0.45, and its 95% interval lies below 0.5.
    - unrelated: the interval includes 0.5 and lies within 0.45 to 0.55. A wider interval is no sign, even if it ends
      below 0.55: the confidences may be opposite.

    Simulated with 20 to 3,000 rows, half or 90% of them correct, and distinct or tied confidences: of sound files with
    an AUROC of 0.55 at most 4% are called unrelated and 1.5% opposite, with an AUROC of 0.6 none and at most 0.5%.
    Random confidences are called unrelated in 60% of the files with 1,000 rows and 95% with 2,000, if half are correct;
    if 90% are, in 30% with 2,000 and 60% with 3,000. It takes more than 500 rows.

    questions : how many there are, where some have several rows; such rows count for less.

    >>> doubt_of([1, 0, 1] * 20, [0.9] * 60).text
    'all 60 confidences are 0.9, so they do not separate correct from wrong answers.'
    >>> doubt_of([0] * 20 + [1] * 20, [0.9] * 20 + [0.6] * 20).kind
    'opposite'
    >>> doubt_of([0, 1, 1], [0.9, 0.6, 0.7])
    """
    tally = Tally.of(y_prob, y_true)
    if len(tally) == 1:
        value = f"all {tally.n:,} confidences are {tally.confidence[0]:g}"
        text = f"{value}, so they do not separate correct from wrong answers."
        return Doubt("constant", text) if tally.n >= 50 else None
    share = 1.0 if questions is None else min(questions / tally.n, 1.0)
    area = auroc_of_counts(share * tally.wt, share * (tally.w - tally.wt))
    measured = f"AUROC {area.value:.2f}, 95% interval {area.low:.2f} to {area.high:.2f}; 0.5 is chance"
    if area.value <= 0.5 - _HARDLY and area.high < 0.5:
        return Doubt(
            "opposite",
            f"answers with higher confidence are more often wrong ({measured}). Are labels or confidences "
            "inverted? correct is 1 for a correct answer, confidence 1 for a certain one.",
        )
    if 0.5 - _HARDLY < area.low <= 0.5 and area.high < 0.5 + _HARDLY:
        return Doubt(
            "unrelated",
            f"confidences do not separate correct from wrong answers ({measured}). Check that confidence and correct "
            "belong to the same answers.",
        )
    return None
