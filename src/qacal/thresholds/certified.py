"""The lowest threshold with a certified accuracy of the accepted answers; `thresholds/__init__.py` has the proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, isinf
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.guarantee import check_alpha
from qacal.metrics.scores import ordered
from qacal.parameters import is_number, shown
from qacal.tally.arrays import ArrayLike, Bools, Floats, Ints, unit_values
from qacal.tally.groups import GroupColumn, as_grouping
from qacal.tally.ids import blocks, distinct, id_hashes
from qacal.tally.tally import Tally
from qacal.thresholds.curve import DocumentCurve, ThresholdCurve, curve_of, document_curve
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import CANDIDATES, NOTHING, Forecasts, at_candidates, cells_of
from qacal.thresholds.outlook import best_start, rows_needed

# One of this many parts of the rows only chooses the start, if there are no other rows for that.
_PILOT_PARTS = 8


@dataclass(frozen=True)
class Certification:
    """The threshold for all rows, or for one group.

    threshold : answer if the confidence reaches it; None if no threshold was certified, which means abstain.
    alpha : probability that a threshold is certified and misses the target.
    start : the strictest threshold that was tested.
    p_value : of the certified threshold, or else of the start.
    rows : number of test rows.
    documents : number of their documents, if some ids have several rows; else None.
    accepted, coverage : number and share of the rows that the threshold accepts.
    accuracy, low, high : accuracy of the accepted rows (of a random accepted row of a random document, if there are
        documents); None if nothing is accepted. Each end of the interval is wrong
        with probability alpha for a threshold fixed in advance; the certificate is about the target.
    withheld, withheld_share : number of correct answers that are not given, and their share of all correct answers.
    rows_needed : number of rows like these that would certify a threshold in four of five cases; None if one was
        certified, or for the reason in `outlook`.
    outlook : "never" if no threshold reached the target, so more rows like these would not help; "unclear" if these
        rows are too few to estimate how many are needed; else None.
    """

    group: Any
    threshold: float | None
    alpha: float
    start: float
    p_value: float
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None
    low: float
    high: float
    withheld: float
    withheld_share: float
    rows_needed: int | None
    outlook: str | None
    documents: int | None = None


@dataclass(frozen=True)
class CertifiedThreshold:
    """Thresholds that all hold at once with probability 1 - alpha.

    accuracy : the target.
    parts : one for all rows, or one for each group.
    pilot_rows : number of rows that only chose the start.
    ungrouped : number of rows in no group.
    documents : number of documents, if some ids have several rows; else None.
    column : the column of the records that has the groups; None for the groups of a model.
    reachable : lower targets on the same rows, if :meth:`qacal.QACalibrator.choose_threshold` could certify nothing.
        Their alphas add up to the requested one, so any of them may be chosen.
    """

    accuracy: float
    alpha: float
    is_grouped: bool
    parts: tuple[Certification, ...]
    pilot_rows: int
    ungrouped: int
    reachable: tuple[CertifiedThreshold, ...] = ()
    documents: int | None = None
    column: str | None = None

    @property
    def threshold(self) -> float | None:
        """The threshold for all rows; None if none was certified."""
        if self.is_grouped:
            raise InputError("there is a threshold for each group; see thresholds.")
        return self.parts[0].threshold

    @property
    def thresholds(self) -> dict[Any, float | None]:
        """The threshold of each group; None where none was certified."""
        return {part.group: part.threshold for part in self.parts}

    @property
    def is_certified(self) -> bool:
        """Whether there is a threshold, at least for one group."""
        return any(part.threshold is not None for part in self.parts)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def coverage(self) -> float:
        """The share of the test rows that is answered."""
        return sum(part.accepted for part in self.parts) / max(self.rows, 1)

    def rule(self) -> DecisionRule:
        about = {"kind": "certified", "accuracy": self.accuracy, "alpha": self.alpha, "rows": self.rows}
        if self.is_grouped:
            return DecisionRule(None, self.thresholds, about, self.column)
        return DecisionRule(self.threshold, None, about)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_certified": self.is_certified}


def certified_threshold(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    accuracy: float,
    alpha: float = 0.1,
    groups: ArrayLike | None = None,
    known_groups: Sequence[Any] | None = None,
    ids: ArrayLike | None = None,
    candidates: ArrayLike = CANDIDATES,
    others: Tally | Forecasts | None = None,
) -> CertifiedThreshold:
    r"""Return the lowest threshold with the target accuracy of accepted answers, with probability :math:`1 - \alpha`.

    Use rows that were not used for fitting, tuning or choosing. Labels are 0/1; soft targets in [0, 1] work, and need
    more rows. The guarantee holds for any score; a bad one only certifies less. It is
    unconditional: if the target is out of reach, certificates are rare, and most of them are false.

    Parameters
    ----------
    y_true, y_prob : a label and a score per row, both in [0, 1].
    accuracy : the target.
    groups : a label per row: then every group has its own threshold, at alpha divided by the number of groups.
    known_groups : the groups that alpha is divided by, also groups without rows; by default the groups of the rows.
    ids : the id of the question or document. Rows with one id may depend on each other; ids are independent. If ids
        repeat, the accuracy is that of a random accepted row of a random document (:class:`DocumentCurve`).
    candidates : the thresholds to choose from, which must not come from these rows; by default hundredths, and
        thousandths above 0.9.
    others : a tally of other rows, such as those of a fit, which only choose the start. By default an eighth of the
        rows does.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([0.6, 0.8, 0.9, 1.0], 4000)
    >>> correct = rng.random(4000) < stated - 0.02
    >>> certified = certified_threshold(correct, stated, accuracy=0.9)
    >>> certified.threshold, certified.parts[0].accepted, round(certified.parts[0].accuracy, 3)
    (0.81, 1757, 0.932)

    With too few rows there is no threshold, but an estimate of the rows that are needed:

    >>> few = certified_threshold(correct[:100], stated[:100], accuracy=0.95)
    >>> few.threshold, few.parts[0].rows_needed
    (None, 216)
    """
    target = target_accuracy(accuracy)
    check_alpha(alpha)
    grid = np.unique(unit_values(candidates, "candidates"))
    t, h = ordered(y_true, y_prob)
    h = at_candidates(h, grid)
    column = None if groups is None else as_grouping(groups, len(h))
    column = None if column is None else GroupColumn(column.leaves(), column.labels)
    hashes = None if ids is None else id_hashes(ids, len(h))
    n_blocks = _PILOT_PARTS if others is None else 1
    tally = Tally.of(h, t, groups=column, ids=hashes, n_blocks=n_blocks)
    tested, expected, pilot_rows = _without_pilot(tally, others)
    is_grouped, cells = tally.grouping is not None, cells_of(tested)
    documents, own = None, dict[Any, Ints]()
    if hashes is not None and tally.is_clustered:
        is_tested = np.ones(len(h), dtype=bool) if others is not None else blocks(hashes, _PILOT_PARTS) > 0
        documents, own = len(distinct(hashes[is_tested])), _rows_of_groups(column, is_tested)
    names = list(dict.fromkeys(cells_of(tally) if known_groups is None else known_groups)) if is_grouped else [None]
    scale = tally.n / max(tested.n, 1)
    parts = []
    for name in names:
        rows = cells.get(name, NOTHING)
        if hashes is None or name not in own:
            curve = curve_of(rows.score, rows.rows, rows.right, grid, alpha / len(names), is_soft=tested.is_soft)
        else:
            at = own[name]
            curve = document_curve(h[at], t[at], hashes[at], grid, alpha / len(names))
        start = best_start(expected.expected(name), grid, getattr(curve, "documents", curve.rows), target, curve.alpha)
        parts.append(_certification(name, curve, start, target, scale))
    ungrouped = tested.n - sum(part.rows for part in parts)
    return CertifiedThreshold(target, alpha, is_grouped, tuple(parts), pilot_rows, ungrouped, documents=documents)


TARGETS = (0.7, 0.8, 0.9, 0.95)
"""The accuracies of a menu."""


@dataclass(frozen=True)
class ThresholdMenu:
    """A certified threshold for each of several accuracies: a menu of accuracy against coverage.

    alpha : the probability that any threshold of the menu misses its target. Each of the lines has an equal part of it,
        so a reader may choose a line after seeing all of them.
    lines : one for each accuracy, the lowest first; those without a threshold are not certified.
    """

    alpha: float
    lines: tuple[CertifiedThreshold, ...]

    @property
    def certified(self) -> tuple[CertifiedThreshold, ...]:
        """The lines with a threshold."""
        return tuple(line for line in self.lines if line.is_certified)

    @property
    def is_certified(self) -> bool:
        return bool(self.certified)

    def to_dict(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "is_certified": self.is_certified, "lines": [one.to_dict() for one in self.lines]}


def threshold_menu(y_true: ArrayLike, y_prob: ArrayLike, *, alpha: float = 0.1, **options: Any) -> ThresholdMenu:
    """Return the certified thresholds of several accuracies, all of which hold at once with probability 1 - alpha.

    options : as in :func:`certified_threshold`.

    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([0.6, 0.8, 0.9, 1.0], 4000)
    >>> menu = threshold_menu(rng.random(4000) < stated - 0.02, stated)
    >>> [(line.accuracy, line.threshold, round(line.coverage, 2)) for line in menu.lines]
    [(0.7, 0.0, 1.0), (0.8, 0.61, 0.75), (0.9, 0.81, 0.51), (0.95, 0.901, 0.26)]
    """
    part = alpha / len(TARGETS)
    lines = (certified_threshold(y_true, y_prob, accuracy=target, alpha=part, **options) for target in TARGETS)
    return ThresholdMenu(alpha, tuple(lines))


def lower_targets(accuracy: float) -> list[float]:
    """Return targets to try instead of one that cannot be certified: the next six steps of 0.05, from 0.5 up.

    >>> lower_targets(0.9), lower_targets(0.52)
    ([0.85, 0.8, 0.75, 0.7, 0.65, 0.6], [0.5])
    """
    steps = range(ceil(20 * accuracy - 1e-9) - 1, 9, -1)
    return [step / 20 for step in steps][:6]


def target_accuracy(accuracy: float | None) -> float:
    """Return a target accuracy; raise unless it is a number between 0 and 1."""
    if not is_number(accuracy, 0, 1) or accuracy in (0, 1):
        raise InputError(f"accuracy is {shown(accuracy)}; expected a number between 0 and 1, such as 0.9.")
    return float(accuracy)


def lowest_rejected(p_values: Floats, start: int, alpha: float) -> int | None:
    """Return the last of the thresholds from the start downwards that are all rejected; None if the start is not.

    >>> lowest_rejected(np.array([0.01, 0.3, 0.04, 0.02, 0.9]), start=3, alpha=0.05)
    2
    """
    passed = p_values[start::-1] <= alpha
    count = len(passed) if passed.all() else int(np.argmin(passed))
    return start - count + 1 if count else None


def _certification(group: Any, curve: ThresholdCurve, start: int, target: float, scale: float) -> Certification:
    """Return the certified threshold of a curve.

    scale : number of rows, with those that choose the start, for each test row.
    """
    p_values = curve.p_values(target)
    lowest = lowest_rejected(p_values, start, curve.alpha)
    needed, outlook = None, None
    if lowest is None:
        estimate = scale * (
            rows_needed(curve.of_documents(), target) * curve.rows / curve.documents
            if isinstance(curve, DocumentCurve)
            else rows_needed(curve, target)
        )
        if isinf(estimate):
            outlook = "never"
        elif estimate > curve.rows * scale:
            needed = ceil(estimate)
        else:
            # The estimate is unknown, or no more than these rows, which were not enough.
            outlook = "unclear"
    # Without a threshold nothing is accepted.
    accepted, right, accuracy, low, high = 0, 0.0, None, 0.0, 1.0
    if lowest is not None:
        accepted, right = int(curve.accepted[lowest]), float(curve.right[lowest])
        accuracy = float(curve.accuracy[lowest]) if accepted else None
        low, high = (float(ends[lowest]) for ends in curve.intervals())
    withheld = curve.all_right - right
    return Certification(
        group=group,
        threshold=None if lowest is None else float(curve.threshold[lowest]),
        alpha=curve.alpha,
        start=float(curve.threshold[start]),
        p_value=float(p_values[start if lowest is None else lowest]),
        rows=curve.rows,
        accepted=accepted,
        coverage=accepted / max(curve.rows, 1),
        accuracy=accuracy,
        low=low,
        high=high,
        withheld=withheld,
        withheld_share=withheld / curve.all_right if curve.all_right else 0.0,
        rows_needed=needed,
        outlook=outlook,
        documents=getattr(curve, "documents", None),
    )


def _rows_of_groups(column: GroupColumn | None, is_tested: Bools) -> dict[Any, Ints]:
    """Return the tested rows of each group; under None if there are no groups."""
    if column is None:
        return {None: np.flatnonzero(is_tested)}
    codes = np.unique(column.code[is_tested])
    return {
        column.label(code): np.flatnonzero(is_tested & (column.code == code)) for code in codes.tolist() if code >= 0
    }


def _without_pilot(tally: Tally, others: Tally | Forecasts | None) -> tuple[Tally, Forecasts, int]:
    """Return the test rows, what to expect of them, and how many rows were set aside to estimate that."""
    if isinstance(others, Tally | Forecasts):
        return tally, Forecasts.of(others) if isinstance(others, Tally) else others, 0
    if others is not None:
        raise InputError(f"others is {shown(others)}; expected a Tally of other rows, or None.")
    pilot = tally.fold(0, _PILOT_PARTS)
    return tally.outside_fold(0, _PILOT_PARTS).without_blocks(), Forecasts.of(pilot), pilot.n
