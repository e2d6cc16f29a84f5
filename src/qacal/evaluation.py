"""How good confidences are before and after calibration, overall and per group."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError, QacalWarning
from qacal.grouping import NO_GROUP, as_grouping
from qacal.identity import id_hashes
from qacal.metrics.calibration import CalibrationError, calibration_error
from qacal.metrics.ranking import Doubt, doubt_of
from qacal.metrics.scores import brier_score, log_loss
from qacal.metrics.selective import aurc
from qacal.values import ArrayLike, Floats, column_of_any, require_length, unit_values

# The same number of bins for both scores, since a score with few values would otherwise be measured by another ruler.
BINS = 15

FITTED_ON = "the model was fitted on some of these questions; on those it looks better than it is."
"""What is said of rows that are not the ones to measure with."""


@dataclass(frozen=True)
class Scores:
    """What one column of confidences is worth.

    confidence : its mean, to be held against the accuracy.
    error : the calibration error over all rows, CE(h).
    error_by_group : that within groups, CE(h; beta); None without groups.
    brier, log_loss : proper scores; lower is better.
    aurc : the error rate of the answers given, averaged over how many are given; it measures ranking alone.
    """

    confidence: float
    error: CalibrationError
    error_by_group: CalibrationError | None
    brier: float
    log_loss: float
    aurc: float


@dataclass(frozen=True)
class GroupScores:
    """One group: how often its answers are right, and what was claimed before and after."""

    group: Any
    rows: int
    accuracy: float
    before: float
    after: float | None
    error_before: float
    error_after: float | None


@dataclass(frozen=True)
class Evaluation:
    """Confidences before and, where there are calibrated ones, after.

    doubt : what is suspicious about the stated confidences beside their labels; None if nothing is.
    """

    rows: int
    accuracy: float
    before: Scores
    after: Scores | None
    doubt: Doubt | None
    grouped_by: str | None
    groups: list[GroupScores]

    @property
    def last(self) -> Scores:
        """The scores after calibration, or those of the raw confidence where there is none."""
        return self.before if self.after is None else self.after

    @property
    def verdict(self) -> Verdict | None:
        """Whether calibration helped; None without calibrated confidences."""
        return None if self.after is None else verdict_on(self.before.brier, self.after.brier)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; what could not be measured is null."""
        verdict = None if self.verdict is None else asdict(self.verdict)
        return dict(without_nan(asdict(self) | {"verdict": verdict}))


@dataclass(frozen=True)
class Verdict:
    """Whether calibration helped.

    kind : "better", "same" or "worse".
    text : a sentence.
    """

    kind: str
    text: str


def verdict_on(before: float, after: float) -> Verdict:
    """Return whether calibration helped, by the Brier scores before and after: only better probabilities improve it.

    >>> verdict_on(0.2, 0.18).text
    'The probabilities got better as a whole (Brier score 0.200 before, 0.180 after; lower is better).'
    """
    scores = f"Brier score {before:.3f} before, {after:.3f} after"
    if after - before > 0.001:
        return Verdict(
            "worse", f"Calibration made the probabilities worse here ({scores}): do not use it for rows like these."
        )
    if after - before > -0.001:
        return Verdict("same", f"Calibration changed little ({scores}).")
    return Verdict("better", f"The probabilities got better as a whole ({scores}; lower is better).")


def evaluate(
    confidence: ArrayLike,
    correct: ArrayLike,
    calibrated: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    grouped_by: str | None = None,
    ids: ArrayLike | None = None,
    whose: str = "",
) -> Evaluation:
    """Measure confidences, and calibrated ones beside them, on rows that neither was fitted on.

    Warns (:class:`~qacal.QacalWarning`) if confidences and labels do not look as if they belonged together.

    groups : a label per row: errors are then also measured within groups, and for each.
    ids : the question's id; where questions have several rows these are taken as dependent.
    whose : stands before a warning, such as "model gpt-4: ".

    Examples
    --------
    >>> subject, said = np.repeat(["law", "physics"], 200), np.tile(np.repeat([0.7, 0.8], 100), 2)
    >>> right = np.repeat([1, 0] * 4, [55, 45, 65, 35, 85, 15, 95, 5])
    >>> found = evaluate(said, right, np.where(subject == "law", said - 0.15, said + 0.15), groups=subject)
    >>> round(found.before.error.plugin, 2), round(found.before.error_by_group.plugin, 2)
    (0.0, 0.15)
    >>> found.after.brier < found.before.brier
    True
    """
    h, t = unit_values(confidence, "confidence"), unit_values(correct, "correct")
    require_length(t, len(h), "correct")
    p = None if calibrated is None else unit_values(calibrated, "calibrated")
    if p is not None:
        require_length(p, len(h), "calibrated")
    doubt = doubt_of(h, t, questions=None if ids is None else len(np.unique(id_hashes(ids, len(h)))))
    if doubt is not None:
        warnings.warn(f"{whose}{doubt.text}", QacalWarning, stacklevel=2)
    return Evaluation(
        rows=len(h),
        accuracy=float(t.mean()),
        before=_scores(h, t, groups, ids),
        after=None if p is None else _scores(p, t, groups, ids),
        doubt=doubt,
        grouped_by=grouped_by if groups is not None else None,
        groups=[] if groups is None else list(_per_group(h, t, p, groups, ids)),
    )


def _scores(h: Floats, t: Floats, groups: ArrayLike | None, ids: ArrayLike | None) -> Scores:
    grouped = None if groups is None else calibration_error(h, t, groups=groups, ids=ids, bins=BINS)
    return Scores(
        confidence=float(h.mean()),
        error=calibration_error(h, t, ids=ids, bins=BINS),
        error_by_group=grouped,
        brier=brier_score(h, t).score,
        log_loss=log_loss(h, t),
        aurc=aurc(h, t).aurc,
    )


def _per_group(
    h: Floats, t: Floats, p: Floats | None, groups: ArrayLike, ids: ArrayLike | None
) -> Iterable[GroupScores]:
    column = as_grouping(groups, len(h))
    codes, counts = np.unique(column.leaves(), return_counts=True)
    hashes = None if ids is None else column_of_any(ids, "ids")
    for code in codes[np.argsort(-counts, kind="stable")].tolist():
        mine = column.leaves() == code
        of = None if hashes is None else hashes[mine]
        yield GroupScores(
            group=None if code == NO_GROUP else column.label(code),
            rows=int(mine.sum()),
            accuracy=float(t[mine].mean()),
            before=float(h[mine].mean()),
            after=None if p is None else float(p[mine].mean()),
            error_before=_debiased(h[mine], t[mine], of),
            error_after=None if p is None else _debiased(p[mine], t[mine], of),
        )


def _debiased(h: Floats, t: Floats, ids: Any) -> float:
    return calibration_error(h, t, ids=ids, bins=BINS, redraws=0).debiased if len(h) > 1 else float("nan")


def without_group(column: str | None) -> str:
    """Say who the rows without a group are: of a column that was named, or of the model's own groups.

    >>> without_group("subject"), without_group(None)
    ('rows whose subject is empty', 'rows whose group had no rows in the fit')
    """
    return "rows whose group had no rows in the fit" if column is None else f"rows whose {column} is empty"


def require_labels(correct: Floats | None, origin: str) -> Floats:
    """Refuse rows without labels: nothing can be measured on them."""
    if correct is None or np.isnan(correct).any():
        raise InputError(f"{origin}: every row needs `correct` to be measured.")
    return correct


def without_nan(value: Any) -> Any:
    """Return a value for JSON, which has no NaN: what could not be measured is None."""
    if isinstance(value, dict):
        return {name: without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and np.isnan(value) else value
