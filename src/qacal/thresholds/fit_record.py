"""What a model stores about the rows of its fit: to recognise their questions, and to choose where thresholds start.

Needs only numpy, like everything that loads a saved model.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from qacal.parameters import Axes, Between, Offsets, Rising, require
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.ids import mix

if TYPE_CHECKING:
    from qacal.thresholds.outlook import Forecasts

# Number of hashes to store, the lowest ones: if 2% of the questions occur again, so do about five of these.
_MOST = 256

# JSON has whole numbers of 53 bits.
_BITS = np.uint64(11)


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
        """Return what to expect of each threshold."""
        from qacal.thresholds.outlook import Forecast, Forecasts

        pieces = [slice(start, stop) for start, stop in pairwise(self.offset.tolist())]
        every = [Forecast(self.score[piece], self.rows[piece], self.right[piece]) for piece in pieces]
        return Forecasts(every[0], dict(zip(self.groups, every[1:], strict=True)))

    def _validate(self) -> None:
        has_each = len({*self.groups}) == len(self.groups) == len(self.offset) - 2
        require(has_each, "the record of a fit has the cells of all rows, and of each group once.")
        require(bool((self.right <= self.rows).all()), "more rows are correct than there are rows.")


def sample(ids: Hashes) -> Ints:
    """Return the sample of questions that a model stores."""
    return np.unique(_marks(ids))[:_MOST]


def sampled(hashes: Hashes) -> Hashes:
    """Return the hashes that :func:`sample` would keep."""
    distinct = np.unique(hashes[hashes != 0])
    return distinct[np.argsort(_marks(distinct))[:_MOST]]


def remembered(ids: Hashes, texts: Hashes, outlooks: Forecasts) -> FitRecord:
    """Return the record of rows with these questions and forecasts; `texts` belong to questions that have ids."""
    every = [outlooks.everywhere, *outlooks.groups.values()]
    score, rows, right = (np.concatenate([getattr(one, name) for one in every]) for name in ("score", "rows", "right"))
    offset = np.cumsum([0, *(len(one.score) for one in every)])
    return FitRecord(sample(ids), sample(texts), tuple(outlooks.groups), offset, score, rows, np.minimum(right, rows))


def _marks(ids: Hashes) -> Ints:
    """Return hashes of 53 bits that are independent of splits; id 0 means no question."""
    return (mix(ids[ids != 0], 2**42) >> _BITS).astype(np.int64)
