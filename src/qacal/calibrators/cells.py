"""Bands and groups, planned for a width before any row certifies them (:mod:`~qacal.calibrators.margins`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.calibrators.maps import deepest_level
from qacal.planning import MOST_BANDS, expected_widths, widths
from qacal.tally.arrays import Floats, Ints, seven_decimals
from qacal.tally.groups import GroupColumn
from qacal.tally.tally import Tally

# First scores of the rows that trained them are too far from their mean, by this share of the distance.
_TOO_SURE = 0.1


@dataclass(frozen=True, eq=False)
class Cells:
    """What is certified.

    tops : where bands end; the last has no end.
    depth : of the groups of a tree; 0 for no groups, None for groups that are no tree.
    band_width, group_width : how wide the intervals of half of the answers will be (:func:`expected_widths`). None
        without groups, and for groups that are no tree.
    cut : by how much the mean answer of each band is lower because form adds no more than it may. It stays below the
        accuracy by as much; None for no cut.
    """

    tops: Floats
    depth: int | None
    band_width: float = 1.0
    group_width: float | None = None
    cut: Floats | None = None


def plan_cells(
    scores: Floats,
    column: GroupColumn | None,
    *,
    rows: float,
    alpha: float,
    within: float | None = None,
    bands: int | None = None,
    max_depth: int | None = None,
    repeats: Ints | int = 1,
    are_probabilities: bool = True,
) -> Cells:
    """Return the finest cells that will have the wanted width for half of the answers.

    scores, column : first scores and groups of rows like those that certify.
    rows : the number of rows that will certify.
    bands : their number, whatever the width; fewer if many scores are equal.
    repeats : how often each score and group occurs.
    are_probabilities : scores are about as large as accuracies. If not, as with stated confidences, an accuracy of 0.5
        is assumed, which has the widest intervals, and the mean width counts: half of the rows may state one value.

    >>> cells = plan_cells(np.linspace(0.3, 0.9, 1000), None, rows=3500, alpha=0.1, within=0.05)
    >>> cells.tops.round(2), cells.depth, round(cells.band_width, 3)
    (array([0.45, 0.6 , 0.75,  inf]), 0, 0.044)
    """
    for_bands, for_groups = widths(rows, within)
    scores = np.repeat(seven_decimals(scores), repeats)

    def expected(cell: Ints, alpha: float, *, is_band: bool) -> float:
        """Return the width that answers will have."""
        _, place, count = np.unique(cell, return_inverse=True, return_counts=True)
        n = np.maximum(rows * count / len(cell), 1.0)
        mean = np.bincount(place, scores) / count
        accuracy = mean + _TOO_SURE * (scores.mean() - mean) if are_probabilities else np.full(len(count), 0.5)
        its_widths = expected_widths(n, accuracy, alpha, is_band=is_band, is_fitted=not are_probabilities)[place]
        return float(np.median(its_widths) if are_probabilities else np.mean(its_widths))

    deepest = deepest_level(column, max_depth)
    depth = None if column is not None and column.depth is None else 0
    group_width = None
    if column is not None and depth is not None:
        for trial in range(1, deepest + 1):
            its_width = expected(np.repeat(column.leaves(trial), repeats), alpha / 2, is_band=False)
            if its_width <= for_groups:
                depth, group_width = trial, its_width
    part = alpha if depth == 0 else alpha / 2
    ordered = np.sort(scores)
    tops = [_tops(ordered, count) for count in ([bands] if bands else range(1, MOST_BANDS + 1))]
    width = [expected(np.searchsorted(top, scores), part, is_band=True) for top in tops]
    reached = [k for k, its_width in enumerate(width) if its_width <= for_bands]
    finest = max(reached, key=lambda k: len(tops[k]), default=0)
    return Cells(tops[finest], depth, width[finest], group_width)


def _tops(ordered: Floats, count: int) -> Floats:
    """Return where bands end, if `count` bands share the rows equally; fewer if many scores are equal.

    >>> _tops(np.array([0.5, 0.7, 0.7, 0.7, 0.7, 0.7, 0.8, 0.9]), 4)
    array([0.7, inf])
    """
    least, last, tops = len(ordered) / (2 * count), 0, []
    for top in np.unique(ordered[(len(ordered) - 1) * np.arange(1, count) // count]).tolist():
        through = int(np.searchsorted(ordered, top, side="right"))
        if through - last >= least and len(ordered) - through >= least:
            tops.append(top)
            last = through
    return np.array([*tops, np.inf])


def share_of_documents(tally: Tally) -> float:
    """Return the number of documents for each row: an interval needs as many of them as of independent rows."""
    return 1.0 if tally.block is None else len(np.unique(tally.block)) / tally.n
