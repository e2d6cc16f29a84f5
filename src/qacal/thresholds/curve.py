"""The effect of each threshold on these rows: accepted rows, correct ones among them, and withheld correct answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qacal.guarantee import (
    binomial_interval,
    bounded_interval,
    check_alpha,
    counted_shares,
    document_intervals,
    document_p_values,
)
from qacal.metrics.scores import by_confidence
from qacal.metrics.selective import GRID, accepted_sums
from qacal.tally.arrays import ArrayLike, Floats, Hashes, Ints, require_sorted
from qacal.tally.ids import drawn_labels
from qacal.tally.tally import Tally

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """For each threshold, in rising order: how many rows it accepts, and how many of them are correct.

    rows, all_right : number of rows, and number of correct ones.
    alpha : each end of an interval is wrong with at most this probability.
    is_soft : some targets are neither 0 nor 1; `right` is their sum.
    """

    threshold: Floats
    accepted: Floats
    right: Floats
    rows: int
    all_right: float
    alpha: float
    is_soft: bool = False

    @property
    def coverage(self) -> Floats:
        """The share of rows that is accepted."""
        return self.accepted / max(self.rows, 1)

    @property
    def accuracy(self) -> Floats:
        """The accuracy of the accepted rows; NaN if nothing is accepted."""
        accuracy = np.full(len(self.accepted), np.nan)
        np.divide(self.right, self.accepted, out=accuracy, where=self.accepted > 0)
        return accuracy

    @property
    def withheld(self) -> Floats:
        """The number of correct answers that are not given."""
        return np.maximum(self.all_right - self.right, 0.0)

    @property
    def low(self) -> Floats:
        """The lower end of the accuracy; 0 if nothing is accepted."""
        return self.intervals()[0]

    @property
    def high(self) -> Floats:
        """The upper end of the accuracy; 1 if nothing is accepted."""
        return self.intervals()[1]

    def p_values(self, accuracy: float) -> Floats:
        """Return the p-value of each threshold, for the hypothesis that its accuracy misses the target."""
        if not self.is_soft:
            return binomial_tail(self.right, self.accepted, accuracy)
        mean = self.right / np.maximum(self.accepted, 1)
        hoeffding = np.where(mean > accuracy, np.exp(-self.accepted * relative_entropy(mean, accuracy)), 1.0)
        bentkus = np.e * binomial_tail(np.floor(self.right), self.accepted, accuracy)
        return np.minimum(hoeffding, bentkus)

    def to_polars(self) -> pl.DataFrame:
        """Return the curve as a table with a row for each threshold."""
        import polars as pl

        names = ("threshold", "accepted", "coverage", "accuracy", "low", "high", "right", "withheld")
        return pl.DataFrame({name: getattr(self, name) for name in names}).fill_nan(None)

    def intervals(self) -> tuple[Floats, Floats]:
        """Return both ends of the accuracy."""
        rows = np.maximum(self.accepted, 1)
        if self.is_soft:
            low, high = bounded_interval(np.clip(self.right / rows, 0, 1), rows, self.alpha)
        else:
            low, high = binomial_interval(self.right, rows, self.alpha)
        is_empty = self.accepted == 0
        return np.where(is_empty, 0.0, low), np.where(is_empty, 1.0, high)


@dataclass(frozen=True, eq=False, kw_only=True)
class DocumentCurve(ThresholdCurve):
    """A curve of rows that belong to documents, which are independent of each other.

    A threshold accepts rows of some documents. `accepted`, `right`, `rows` and `all_right` count rows; the accuracy is
    that of a random accepted row of a random document with accepted rows: the mean, over these, of the share of
    accepted rows that are correct.

    documents : the number of documents.
    share, count, place : the distinct shares, how many documents have each, and the number of the threshold.
    drawn : for each threshold, how many of these documents are correct in one accepted row, drawn by hash.
    """

    documents: int
    share: Floats
    count: Floats
    place: Ints
    drawn: Floats

    @property
    def accepted_documents(self) -> Floats:
        """The number of documents with accepted rows."""
        return np.asarray(np.bincount(self.place, self.count, len(self.threshold)), dtype=np.float64)

    @property
    def accuracy(self) -> Floats:
        total, accepted = np.bincount(self.place, self.count * self.share, len(self.threshold)), self.accepted_documents
        return np.asarray(np.divide(total, accepted, out=np.full(len(total), np.nan), where=accepted > 0))

    def p_values(self, accuracy: float) -> Floats:
        return document_p_values(self.share, self.count, self.place, self.drawn, accuracy, self.alpha)

    def intervals(self) -> tuple[Floats, Floats]:
        tail = np.full(len(self.threshold), self.alpha)
        return document_intervals(self.share, self.count, self.place, self.drawn, tail)

    def of_documents(self) -> ThresholdCurve:
        """Return the curve of rows that stand for a document each, to estimate how many documents are needed."""
        accepted = self.accepted_documents
        right = np.nan_to_num(self.accuracy) * accepted
        return ThresholdCurve(self.threshold, accepted, right, self.documents, float(right.max()), self.alpha)


def document_curve(score: Floats, correct: Floats, hashes: Hashes, thresholds: Floats, alpha: float) -> DocumentCurve:
    """Return the curve of rows in documents, by the hashes of their ids."""
    ids, document = np.unique(hashes, return_inverse=True)
    order = np.argsort(score)
    accepted, right = accepted_sums(score[order], thresholds, np.ones(len(score)), correct[order])
    shares, drawn = [], []
    for threshold in thresholds.tolist():
        is_accepted = score >= threshold
        rows = np.bincount(document[is_accepted], minlength=len(ids))
        share = np.bincount(document[is_accepted], correct[is_accepted], len(ids))[rows > 0] / rows[rows > 0]
        shares.append(share)
        drawn.append(drawn_labels(share, ids[rows > 0]).sum())
    place = np.repeat(np.arange(len(thresholds)), [len(share) for share in shares])
    share, count, place = counted_shares(np.concatenate(shares), place)
    return DocumentCurve(
        threshold=thresholds,
        accepted=accepted,
        right=right,
        rows=len(score),
        all_right=float(correct.sum()),
        alpha=alpha,
        documents=len(ids),
        share=share,
        count=count,
        place=place,
        drawn=np.array(drawn),
    )


def threshold_curve(
    y_true: ArrayLike | Tally,
    y_prob: ArrayLike | None = None,
    *,
    thresholds: ArrayLike = GRID,
    alpha: float = 0.1,
) -> ThresholdCurve:
    """Return coverage and accuracy of the answers with ``y_prob >= threshold``, for every threshold.

    The intervals are exact for a threshold that was fixed in advance, not for one chosen by looking at the curve; for
    that, use :func:`qacal.certified_threshold`.

    Examples
    --------
    >>> curve = threshold_curve([1, 0, 1, 1], [0.5, 0.5, 0.9, 0.9], thresholds=[0, 0.9, 1])
    >>> curve.coverage, curve.accuracy, curve.withheld
    (array([1. , 0.5, 0. ]), array([0.75, 1.  , nan]), array([0., 1., 3.]))
    """
    check_alpha(alpha)
    tally = by_confidence(y_true, y_prob)
    return curve_of(
        tally.confidence, tally.rows, tally.wt, require_sorted(thresholds, "thresholds"), alpha, is_soft=tally.is_soft
    )


def curve_of(
    score: Floats, rows: ArrayLike, right: Floats, thresholds: Floats, alpha: float, *, is_soft: bool
) -> ThresholdCurve:
    """Return the curve of cells with rising scores."""
    accepted, right_ones = accepted_sums(score, thresholds, rows, right)
    total = float(right.sum())
    return ThresholdCurve(thresholds, accepted, right_ones, int(np.sum(rows)), total, alpha, is_soft)


def binomial_tail(right: Floats, rows: Floats, accuracy: float) -> Floats:
    """Return P(Bin(rows, accuracy) >= right); 1 where there are no rows.

    >>> binomial_tail(np.array([0.0, 2.0]), np.array([0.0, 2.0]), 0.5)
    array([1.  , 0.25])
    """
    from scipy import special

    return np.where(right <= 0, 1.0, special.betainc(np.maximum(right, 1), rows - right + 1, accuracy))


def relative_entropy(mean: Floats, accuracy: float) -> Floats:
    """Return kl(mean, accuracy) between 0/1 variables: the evidence of one row, in nats."""
    from scipy import special

    mean = np.clip(mean, 0, 1)
    return np.asarray(special.rel_entr(mean, accuracy) + special.rel_entr(1 - mean, 1 - accuracy))
