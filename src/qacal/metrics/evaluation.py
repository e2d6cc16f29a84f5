"""How good confidences are before and after calibration, overall and per group."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy import special

from qacal.errors import InputError, QacalWarning
from qacal.metrics.binned import BinChoice
from qacal.metrics.calibration import CalibrationError, calibration_error, estimate_calibration_error
from qacal.metrics.claims import judged
from qacal.metrics.scores import SHOWN_CUT, Doubt, brier_score, doubt_of, log_loss, ordered, sharpness
from qacal.metrics.selective import auac, aurc
from qacal.tally.arrays import ArrayLike, Floats, Hashes, Ints, require_length, unit_values
from qacal.tally.groups import as_grouping
from qacal.tally.ids import id_hashes, one_of_each
from qacal.tally.tally import BLOCKS, Tally

# The same number of bins for both scores: otherwise a score with few values would get other bins.
BINS = 15
# Changes of the Brier score: the largest that counts as none, and the smallest that an interval must exclude before
# "changed little" is said.
_LITTLE, _NOT_MUCH = 0.001, 0.005
# A smaller gap between the mean confidence and the accuracy of a group is no trouble.
_GAP = 0.05

FEWEST_ROWS = 20
"""The error of a group with fewer rows is noise."""

FITTED_ON = "the model was fitted on some of these questions; on those it looks better than it is."
"""The warning about rows of the fit."""


@dataclass(frozen=True)
class Scores:
    """The measures of one column of confidences: stated or calibrated, in an evaluation, a report or an experiment.

    confidence : its mean; compare it with the accuracy.
    error : the calibration error over all rows, CE(h).
    error_by_group : the calibration error within groups, CE(h; beta); None without groups.
    brier, log_loss : proper scores; lower is better. Log loss is cut off at 0.001 and 0.999: see `SHOWN_CUT`.
    aurc : the error rate of the answers given, averaged over how many are given; it measures ranking alone.
    auac : the accuracy above a threshold, averaged over thresholds; higher is better, but stretching improves it.
    sharpness : the variance of the confidences.
    """

    confidence: float
    error: CalibrationError
    error_by_group: CalibrationError | None
    brier: float
    log_loss: float
    aurc: float
    auac: float
    sharpness: float

    @staticmethod
    def of(tally: Tally, *, bins: BinChoice = BINS, redraws: int = 199) -> Scores:
        """Measure the confidences of a tally.

        bins, redraws : of the calibration errors; see :func:`~qacal.metrics.calibration.estimate_calibration_error`.
        """
        error = estimate_calibration_error(tally.pooled(), bins=bins, redraws=redraws)
        within = estimate_calibration_error(tally, bins=bins, redraws=redraws) if tally.partitions else None
        return Scores(
            confidence=mean_confidence(tally),
            error=error,
            error_by_group=within,
            brier=brier_score(tally),
            log_loss=log_loss(tally, cut=SHOWN_CUT),
            aurc=aurc(tally),
            auac=auac(tally),
            sharpness=sharpness(tally),
        )


@dataclass(frozen=True)
class GroupScores:
    """The accuracy of one group, and its mean confidence and debiased error before and after calibration.

    pooled, error_pooled : the same after one correction for all groups; None if that was not measured.
    is_worse : calibration made the probabilities of this group worse.
    is_off : the mean calibrated confidence still differs from the accuracy by more than 0.05. Both are True only if
        chance does not explain it, over all groups. `is_off` is never True if some questions have more rows than
        others: the test is about questions, the means are about rows.
    """

    group: Any
    rows: int
    accuracy: float
    before: float
    after: float | None
    error_before: float
    error_after: float | None
    is_worse: bool = False
    is_off: bool = False
    pooled: float | None = None
    error_pooled: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """The scores of confidences before and, if there are calibrated ones, after calibration.

    pooled : the scores after one correction for all groups; None if that was not measured.
    tallies : the rows with their groups, for figures, by score: "stated", "pooled", "calibrated".
    doubt : what is suspicious about the stated confidences and labels; None if nothing is.
    verdict : whether calibration helped; None without calibrated confidences.
    """

    rows: int
    accuracy: float
    before: Scores
    after: Scores | None
    doubt: Doubt | None
    grouped_by: str | None
    groups: list[GroupScores]
    verdict: Verdict | None
    pooled: Scores | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict, repr=False)

    @property
    def by_score(self) -> dict[str, Scores]:
        """The scores that were measured, by the names of `tallies`."""
        scores = {"stated": self.before, "pooled": self.pooled, "calibrated": self.after}
        return {name: one for name, one in scores.items() if one is not None}

    @property
    def last(self) -> Scores:
        """The scores after calibration, or before it if there are no calibrated confidences."""
        return self.before if self.after is None else self.after

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; what could not be measured is null."""
        plain = asdict(replace(self, tallies={}))
        del plain["tallies"]
        if self.pooled is None:
            for scores in (plain, *plain["groups"]):
                del scores["pooled"]
                scores.pop("error_pooled", None)
        return dict(without_nan(plain))


@dataclass(frozen=True)
class Verdict:
    """Whether calibration helped.

    kind : "better", "same", "worse", or "unclear" if the rows are too few to tell.
    text : a sentence.
    """

    kind: str
    text: str


def verdict_on(
    stated: Floats, calibrated: Floats, correct: Floats, ids: Hashes | None = None, *, groups: int = 1
) -> Verdict:
    """Return whether calibration helped, by the change of the Brier score: only better probabilities improve it.

    It is better or worse if the 95% interval of the change excludes 0 and the change is more than 0.001. If the
    interval stays within 0.005 of 0, little changed; if not, the rows are too few to tell. Rows of one question are
    treated as dependent. The interval is no narrower than chance would make it if the score that is worse here were
    exact, so that a few rows that are all correct show nothing.

    ids : the hash of each row's question.
    groups : the number of groups that are tested, these rows being one; the interval holds for all at once.

    >>> correct = np.tile([1.0, 1.0, 1.0, 0.0], 100)
    >>> verdict_on(np.full(400, 0.95), np.full(400, 0.75), correct).kind
    'better'
    >>> verdict_on(np.full(4, 0.95), np.full(4, 0.75), correct[:4]).text
    'These rows are too few to tell whether calibration helped (Brier score 0.228 before, 0.188 after; 95% interval of
    the change -0.358 to +0.278).'
    """
    before, after = (stated - correct) ** 2, (calibrated - correct) ** 2
    change = float((after - before).mean())
    code = np.arange(len(correct)) if ids is None else np.unique(ids, return_inverse=True)[1]
    questions = int(code.max()) + 1
    worse = calibrated if change > 0 else stated
    observed = np.bincount(code, after - before - change)
    chance = np.bincount(code, 2 * np.abs(stated - calibrated) * np.sqrt(worse * (1 - worse)))
    squares = max(float(observed @ observed) * questions / max(questions - 1, 1), float(chance @ chance))
    margin = 1.0
    if questions > 1:
        margin = float(special.stdtrit(questions - 1, 1 - 0.025 / groups)) * squares**0.5 / len(correct)
    low, high = max(change - margin, -1.0), min(change + margin, 1.0)
    scores = f"Brier score {before.mean():.3f} before, {after.mean():.3f} after"
    scores += f"; 95% interval of the change {low:+.3f} to {high:+.3f}"
    if low > 0 and change > _LITTLE:
        text = f"Calibration made the probabilities worse ({scores}): do not use it for rows like these."
        return Verdict("worse", text)
    if high < 0 and change < -_LITTLE:
        return Verdict("better", f"Calibration improved the probabilities ({scores}; lower is better).")
    if max(-low, high) <= _NOT_MUCH:
        return Verdict("same", f"Calibration changed little ({scores}).")
    return Verdict("unclear", f"These rows are too few to tell whether calibration helped ({scores}).")


def evaluate(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    calibrated: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    ids: ArrayLike | None = None,
) -> Evaluation:
    """Measure confidences, and calibrated ones with them, on held-out rows.

    Warns (:class:`~qacal.QacalWarning`) if confidences and labels do not seem to belong together.

    groups : a label per row: errors are then also measured within groups, and for each.
    ids : the question's id; several rows of one question are treated as dependent.

    Examples
    --------
    >>> subject, stated = np.repeat(["law", "physics"], 200), np.tile(np.repeat([0.7, 0.8], 100), 2)
    >>> correct = np.repeat([1, 0] * 4, [55, 45, 65, 35, 85, 15, 95, 5])
    >>> result = evaluate(correct, stated, np.where(subject == "law", stated - 0.15, stated + 0.15), groups=subject)
    >>> round(result.before.error.plugin, 2), round(result.before.error_by_group.plugin, 2)
    (0.0, 0.15)
    >>> result.after.brier < result.before.brier
    True
    """
    ordered(y_true, y_prob)
    result = evaluate_rows(y_true, y_prob, calibrated, groups=groups, ids=ids)
    if result.doubt is not None:
        warnings.warn(result.doubt.text, QacalWarning, stacklevel=2)
    return result


def evaluate_rows(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    calibrated: ArrayLike | None = None,
    *,
    pooled: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    grouped_by: str | None = None,
    ids: ArrayLike | None = None,
) -> Evaluation:
    """Measure columns that were read by name, and so cannot be swapped; for `evaluate`, the report and the model.

    pooled : confidences after one correction for all groups, to be measured too.
    """
    h, t = unit_values(y_prob, "y_prob"), unit_values(y_true, "y_true")
    require_length(t, len(h), "y_true")
    scores = {"stated": h}
    for name, column in (("pooled", pooled), ("calibrated", calibrated)):
        if column is not None:
            scores[name] = unit_values(column, name)
            require_length(scores[name], len(h), name)
    hashes = None if ids is None else id_hashes(ids, len(h))
    tallies = {name: Tally.of(score, t, groups=groups, ids=ids, n_blocks=BLOCKS) for name, score in scores.items()}
    measured = {name: Scores.of(tally) for name, tally in tallies.items()}
    p = scores.get("calibrated")
    return Evaluation(
        rows=len(h),
        accuracy=float(t.mean()),
        before=measured["stated"],
        after=measured.get("calibrated"),
        doubt=doubt_of(t, h, questions=None if hashes is None else len(np.unique(hashes))),
        grouped_by=grouped_by if groups is not None else None,
        groups=[] if groups is None else list(_per_group(t, scores, tallies, groups, hashes)),
        verdict=None if p is None else verdict_on(h, p, t, hashes),
        pooled=measured.get("pooled"),
        tallies=tallies,
    )


def _per_group(
    t: Floats, scores: Mapping[str, Floats], tallies: Mapping[str, Tally], groups: ArrayLike, hashes: Hashes | None
) -> Iterator[GroupScores]:
    """Yield the measures of each group, the largest first."""
    leaves = as_grouping(groups, len(t)).leaves()
    codes, counts = np.unique(leaves, return_counts=True)
    parts = {name: list(tally) for name, tally in tallies.items()}
    h, p = scores["stated"], scores.get("calibrated")
    off = set() if p is None else _groups_that_are_off(p, t, leaves, hashes)
    for at in np.argsort(-counts, kind="stable").tolist():
        own = {name: part[at][1] for name, part in parts.items()}
        means = {name: mean_confidence(tally) for name, tally in own.items()}
        # The error of a single row is unknown.
        errors = {name: calibration_error(tally, bins=BINS) if tally.n > 1 else np.nan for name, tally in own.items()}
        is_worse = False
        if p is not None:
            inside = leaves == codes[at]
            own_hashes = None if hashes is None else hashes[inside]
            verdict = verdict_on(h[inside], p[inside], t[inside], own_hashes, groups=len(codes))
            is_worse = verdict.kind == "worse"
        yield GroupScores(
            group=parts["stated"][at][0],
            rows=int(counts[at]),
            accuracy=own["stated"].mean,
            before=means["stated"],
            after=means.get("calibrated"),
            error_before=errors["stated"],
            error_after=errors.get("calibrated"),
            is_worse=is_worse,
            is_off=int(codes[at]) in off,
            pooled=means.get("pooled"),
            error_pooled=errors.get("pooled"),
        )


def _groups_that_are_off(p: Floats, t: Floats, codes: Ints, hashes: Hashes | None) -> set[int]:
    """Return the groups with a gap of more than 0.05 that chance does not explain; each question counts once.

    If the calibrated confidences are right within every group, any group is returned with probability at most 0.05.
    """
    if is_uneven(hashes):
        return set()
    kept = slice(None) if hashes is None else one_of_each(hashes, t, p, codes)
    t, p = t[kept], p[kept]
    tested, at = np.unique(codes[kept], return_inverse=True)
    rows, right, squares, total = (
        np.bincount(at, column).astype(np.float64) for column in (np.ones(len(t)), t, t * t, p)
    )
    claim = total / rows
    is_off = judged(rows, right, squares, (claim, claim)).is_contradicted & (np.abs(claim - right / rows) > _GAP)
    return set(tested[is_off].tolist())


def is_uneven(hashes: Hashes | None) -> bool:
    """Return whether some questions have more rows than others; then a mean over rows is not one over questions."""
    return hashes is not None and len(set(np.unique(hashes, return_counts=True)[1].tolist())) > 1


def mean_confidence(tally: Tally) -> float:
    """Return the mean confidence of the rows of a tally."""
    return float(tally.w @ tally.confidence / tally.w.sum())


def without_group(column: str | None) -> str:
    """Describe the rows without a group: by a column, or by the model's own groups.

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
