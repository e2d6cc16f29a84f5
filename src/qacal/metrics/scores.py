"""Scores of probabilities: proper scores, which only better probabilities improve, and ranking.

:func:`as_tally` is where the rows of every metric enter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qacal.errors import InputError
from qacal.guarantee import check_alpha
from qacal.parameters import is_number, shown
from qacal.tally.arrays import ArrayLike, Floats, require_length, unit_values
from qacal.tally.groups import Paths
from qacal.tally.tally import Tally

# Log loss cuts probabilities off here, as in scikit-learn: a wrong answer at 1.0 costs 36, not infinity.
LOG_CUT = float(np.finfo(np.float64).eps)
SHOWN_CUT = 0.001
"""Log losses of evaluations, and those that choose a score, cut probabilities off here: a wrong 1.0 costs 7."""


def as_tally(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None,
    groups: ArrayLike | Paths | Mapping[str, ArrayLike] | None = None,
    sample_weight: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    n_blocks: int = 1,
) -> Tally:
    """Return the rows as a tally over flat groups; a tally in place of both columns stays as it is."""
    if isinstance(y_true, Tally):
        if any(column is not None for column in (y_prob, groups, sample_weight, ids)):
            raise InputError("a tally already holds y_prob, groups, sample_weight and ids; pass it alone.")
        tally = y_true
    else:
        y_true, y_prob = ordered(y_true, y_prob)
        tally = Tally.of(y_prob, y_true, groups=groups, sample_weight=sample_weight, ids=ids, n_blocks=n_blocks)
    return tally if tally.grouping is None else tally.flat()


def by_confidence(y_true: ArrayLike | Tally, y_prob: ArrayLike | None, sample_weight: ArrayLike | None = None) -> Tally:
    """Return the rows as a tally with one cell per confidence."""
    return as_tally(y_true, y_prob, sample_weight=sample_weight).pooled().without_blocks().without_ties()


def ordered(y_true: ArrayLike, y_prob: ArrayLike | None) -> tuple[Floats, Floats]:
    """Return labels and probabilities, checked; refuse columns that are in the wrong order, where that can be seen.

    >>> ordered([0.9, 0.6], [1, 0])
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: y_true holds 0.9 while y_prob holds only 0 and 1, so the two seem to be swapped; the order
    is (y_true, y_prob). If y_true does hold soft targets, pass Tally.of(y_prob, y_true) instead of both.
    """
    if y_prob is None:
        raise InputError("y_prob is missing; the order is (y_true, y_prob), with one value of each per row.")
    labels, probabilities = unit_values(y_true, "y_true"), unit_values(y_prob, "y_prob")
    require_length(probabilities, len(labels), "y_prob")
    soft = labels[(labels != 0) & (labels != 1)]
    if len(soft) and np.isin(probabilities, (0, 1)).all():
        raise InputError(
            f"y_true holds {soft[0]:g} while y_prob holds only 0 and 1, so the two seem to be swapped; the order is "
            "(y_true, y_prob). If y_true does hold soft targets, pass Tally.of(y_prob, y_true) instead of both."
        )
    return labels, probabilities


# Proper scores


def brier_score(
    y_true: ArrayLike | Tally, y_prob: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the mean squared difference between probability and label.

    >>> round(brier_score([1, 0, 0, 0], [0.9, 0.9, 0.1, 0.1]), 3)
    0.21
    """
    cells = as_tally(y_true, y_prob, sample_weight=sample_weight)
    p = cells.confidence
    # Rounding may leave a tiny negative number, which would be shown as -0.
    return max(float((cells.wtt - 2 * p * cells.wt + p * p * cells.w).sum() / cells.w.sum()), 0.0)


def log_loss(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    cut: float = LOG_CUT,
) -> float:
    """Return the mean negative log likelihood; probabilities are cut off at `cut` and 1 - `cut`.

    >>> round(log_loss([1, 0], [0.9, 0.9]), 4)
    1.204
    """
    if not is_number(cut, LOG_CUT, 0.5):
        raise InputError(f"cut is {shown(cut)}; expected a number from {LOG_CUT:.1e} to 0.5, such as 0.001.")
    tally = as_tally(y_true, y_prob, sample_weight=sample_weight)
    p = np.clip(tally.confidence, cut, 1 - cut)
    return float(-(tally.wt * np.log(p) + (tally.w - tally.wt) * np.log1p(-p)).sum() / tally.w.sum())


def sharpness(y_prob: ArrayLike | Tally, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the variance of the probabilities; labels do not matter.

    >>> sharpness([0.5, 0.5, 1.0, 1.0])
    0.0625
    """
    if isinstance(y_prob, Tally):
        tally = as_tally(y_prob, None, sample_weight=sample_weight)
    else:
        stated = unit_values(y_prob, "y_prob")
        tally = Tally.of(stated, np.zeros(len(stated)), sample_weight=sample_weight)
    mean = (tally.w * tally.confidence).sum() / tally.w.sum()
    return float((tally.w * (tally.confidence - mean) ** 2).sum() / tally.w.sum())


# Ranking: whether correct answers have the higher confidences


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
    from scipy import special

    m, n = float(right.sum()), float(wrong.sum())
    if not m * n > 0:
        return Auroc(float("nan"), 0.0, 1.0)
    value = float((right * (np.cumsum(wrong) - wrong / 2)).sum() / (m * n))
    z = float(special.ndtri(1 - alpha / 2))
    return Auroc(value, _end(value, m, n, -z), _end(value, m, n, z))


def _end(value: float, m: float, n: float, z: float) -> float:
    """Return where the value is just `z` standard errors away."""
    from scipy import optimize

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
    return doubt_of_tally(Tally.of(y_prob, y_true), questions=questions)


def doubt_of_tally(tally: Tally, *, questions: int | None = None) -> Doubt | None:
    """Return what :func:`doubt_of` does, for rows that are counted already."""
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
