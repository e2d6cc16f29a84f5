"""What a model stores about the rows of its fit: to recognise their questions, and to choose where thresholds start.

Needs only numpy, like everything that loads a saved model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from qacal.calibrators.base import expit
from qacal.calibrators.curves import fit_logistic
from qacal.parameters import Axes, Between, Offsets, Rising, require
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.ids import distinct, mix
from qacal.tally.tally import Tally

CANDIDATES = np.unique(np.concatenate([np.arange(101) / 100, np.arange(901, 1000) / 1000]))
"""Thresholds to choose from: hundredths, and thousandths above 0.9, where most targets and scores are."""

# Number of hashes to store, the lowest ones: if 2% of the questions occur again, so do about five of these.
MOST_QUESTIONS = 256

# JSON has whole numbers of 53 bits.
_BITS = np.uint64(11)

# In the forecast of a group, all rows together count as this many rows.
_SHARED_ROWS = 20.0


@dataclass(frozen=True, eq=False)
class FitRecord:
    """A sample of the questions of a fit, and the calibrated confidences of its rows.

    questions : hashes of ids, sorted; of texts if the rows had no ids.
    texts : hashes of the texts of questions that had ids, sorted.
    offset : where the cells of all rows, and then those of each group, start and end.
    score, rows, right : of each cell, the score, the number of rows with it, and the number of correct ones.
    """

    questions: Annotated[Ints, Axes("questions"), Rising()]
    texts: Annotated[Ints, Axes("texts"), Rising()]
    groups: tuple[Any, ...]
    offset: Annotated[Ints, Offsets("cells")]
    score: Annotated[Floats, Axes("cells"), Between(0, 1), Rising(within="offset")]
    rows: Annotated[Floats, Axes("cells"), Between(0, 2**53)]
    right: Annotated[Floats, Axes("cells"), Between(0, 2**53)]

    def known(self, ids: Hashes | None, texts: Hashes | None = None) -> int:
        """Return how many of these questions are in the sample: none, if the fit had other questions.

        ids, texts : of the questions of rows. Rows without ids have their texts as ids. Texts are compared where one of
            the two sides has no ids: if both have, different questions may have the same text.

        >>> ids = np.arange(1000, dtype=np.uint64)
        >>> none = np.empty(0, dtype=np.int64)
        >>> record = FitRecord(sample(ids), none, (), np.zeros(2, dtype=np.int64), *[np.empty(0)] * 3)
        >>> record.known(ids), record.known(ids + np.uint64(1000))
        (256, 0)
        """
        names = [column for column in (ids, texts) if column is not None]
        if not names:
            return 0
        count = int(np.isin(self.questions, _marks(np.concatenate(names))).sum())
        has_own_ids = ids is not None and texts is not None and not np.array_equal(ids, texts)
        return count if has_own_ids else count + int(np.isin(self.texts, _marks(names[-1])).sum())

    def outlooks(self) -> Forecasts:
        """Return what to expect of all rows and of each group."""
        pieces = [slice(start, stop) for start, stop in pairwise(self.offset.tolist())]
        every = [Forecast(self.score[piece], self.rows[piece], self.right[piece]) for piece in pieces]
        return Forecasts(every[0], dict(zip(self.groups, every[1:], strict=True)))

    def _validate(self) -> None:
        has_each = len({*self.groups}) == len(self.groups) == len(self.offset) - 2
        require(has_each, "the record of a fit has the cells of all rows, and of each group once.")
        require(bool((self.right <= self.rows).all()), "more rows are correct than there are rows.")


@dataclass(frozen=True, eq=False)
class Forecast:
    """Scores of other rows, in rising order: how many rows have each, and how many of them are correct.

    Only shares and accuracies matter, not the number of rows.
    """

    score: Floats
    rows: Floats
    right: Floats

    def smoothed(self) -> Forecast:
        """Return the same rows with the accuracies of a logistic curve, which is better with few rows."""
        if not len(self.score):
            return self
        intercept, slope = fit_logistic(self.score, self.rows, self.right)
        return Forecast(self.score, self.rows, self.rows * expit(intercept + slope * self.score))

    def within(self, everywhere: Forecast) -> Forecast:
        """Return the forecast of this group, shrunk towards the forecast of all rows."""
        share = _SHARED_ROWS / max(float(everywhere.rows.sum()), 1e-300)
        score = np.concatenate([self.score, everywhere.score])
        order = np.argsort(score, kind="stable")
        rows = np.concatenate([self.rows, everywhere.rows * share])
        right = np.concatenate([self.right, everywhere.right * share])
        return Forecast(score[order], rows[order], right[order])


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What to expect of all rows, and of each known group.

    >>> others = Tally.of([0.6, 0.9, 0.9], [0, 1, 1], groups=["law", "law", "art"])
    >>> Forecasts.of(others).groups["law"].rows
    array([1., 1.])
    """

    everywhere: Forecast
    groups: Mapping[Any, Forecast]

    @staticmethod
    def of(tally: Tally) -> Forecasts:
        """Return the forecasts from a tally of other rows."""
        everywhere = cells_of(tally.pooled()).get(None, NOTHING).smoothed()
        return Forecasts(everywhere, {} if tally.grouping is None else cells_of(tally))

    def expected(self, group: Any) -> Forecast:
        """Return the forecast of a group, or of all rows for None."""
        if group is None:
            return self.everywhere
        return self.groups.get(group, NOTHING).within(self.everywhere)


NOTHING = Forecast(np.empty(0), np.empty(0), np.empty(0))
"""The cells of no rows."""


def cells_of(tally: Tally) -> dict[Any, Forecast]:
    """Return the cells of each group; under None if the tally has no groups."""
    tally = tally.without_blocks().without_ties()
    column = tally.grouping
    out = {}
    for code, first, last in zip(*(bound.tolist() for bound in tally.group_runs()), strict=True) if len(tally) else ():
        if column is None or code >= 0:
            name = None if column is None else column.label(code)
            rows = tally.rows[first:last].astype(np.float64)
            out[name] = Forecast(tally.confidence[first:last], rows, tally.wt[first:last])
    return out


def sample(ids: Hashes) -> Ints:
    """Return the sample of questions that a model stores."""
    return distinct(_marks(ids))[:MOST_QUESTIONS]


def sampled(hashes: Hashes) -> Hashes:
    """Return the hashes that :func:`sample` would keep."""
    found = distinct(hashes[hashes != 0])
    return found[np.argsort(_marks(found))[:MOST_QUESTIONS]]


def lowest(ids: Hashes, most: int) -> tuple[Ints, Ints]:
    """Return the lowest marks of questions, and how many rows each of these has.

    The lowest marks of all rows are among those of any parts of them, with all their rows.

    >>> marks, counts = lowest(np.array([7, 8, 7, 0], dtype=np.uint64), 10)
    >>> sorted(counts.tolist())
    [1, 2]
    """
    marks, counts = np.unique(_marks(ids), return_counts=True)
    return marks[:most], counts[:most]


def remembered(ids: Hashes, texts: Hashes, forecasts: Forecasts) -> FitRecord:
    """Return the record of rows with these questions and forecasts; `texts` belong to questions that have ids."""
    every = [forecasts.everywhere, *forecasts.groups.values()]
    score, rows, right = (np.concatenate([getattr(one, name) for one in every]) for name in ("score", "rows", "right"))
    offset = np.cumsum([0, *(len(one.score) for one in every)])
    return FitRecord(sample(ids), sample(texts), tuple(forecasts.groups), offset, score, rows, np.minimum(right, rows))


def _marks(ids: Hashes) -> Ints:
    """Return hashes of 53 bits that are independent of splits; id 0 means no question."""
    return (mix(ids[ids != 0], 2**42) >> _BITS).astype(np.int64)


def at_candidates(score: Floats, candidates: Floats) -> Floats:
    """Return each score as the candidate below it, which decides the same and leaves few cells.

    >>> at_candidates(np.array([0.1, 0.5, 0.77]), np.array([0.5, 0.75]))
    array([0.  , 0.5 , 0.75])
    """
    return np.concatenate([[0.0], candidates])[np.searchsorted(candidates, score, side="right")]
