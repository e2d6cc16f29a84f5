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
    scores, repeats = seven_decimals(scores), np.broadcast_to(repeats, len(scores))
    total = int(repeats.sum())
    average = float((scores * repeats).sum() / total)

    def expected(count: Ints, score: Floats, alpha: float, *, is_band: bool) -> float:
        """Return the width that answers will have, from the number of rows in each cell and the sum of their scores."""
        n = np.maximum(rows * count / total, 1.0)
        mean = score / count
        accuracy = mean + _TOO_SURE * (average - mean) if are_probabilities else np.full(len(count), 0.5)
        its_widths = expected_widths(n, accuracy, alpha, is_band=is_band, is_fitted=not are_probabilities)
        return _median(its_widths, count) if are_probabilities else float(its_widths @ count / total)

    deepest = deepest_level(column, max_depth)
    depth = None if column is not None and column.depth is None else 0
    group_width = None
    if column is not None and depth is not None:
        for trial in range(1, deepest + 1):
            _, place = np.unique(column.leaves(trial), return_inverse=True)
            count = np.bincount(place, repeats).astype(np.int64)
            score = np.bincount(place, scores * repeats).astype(np.float64)
            its_width = expected(count, score, alpha / 2, is_band=False)
            if its_width <= for_groups:
                depth, group_width = trial, its_width
    part = alpha if depth == 0 else alpha / 2
    # Bands depend on the distinct scores, and on how many rows have each: not on the number of rows.
    values, place = np.unique(scores, return_inverse=True)
    counts = np.bincount(place, repeats).astype(np.int64)
    tops = [_tops(values, np.cumsum(counts), count) for count in ([bands] if bands else range(1, MOST_BANDS + 1))]
    width = []
    for top in tops:
        start = np.append(0, np.searchsorted(values, top[:-1], side="right"))
        count, score = np.add.reduceat(counts, start), np.add.reduceat(values * counts, start)
        width.append(expected(count, score, part, is_band=True))
    reached = [k for k, its_width in enumerate(width) if its_width <= for_bands]
    finest = max(reached, key=lambda k: len(tops[k]), default=0)
    return Cells(tops[finest], depth, width[finest], group_width)


def _tops(values: Floats, through: Ints, count: int) -> Floats:
    """Return where bands end, if `count` bands share the rows equally; fewer if many scores are equal.

    values, through : the distinct scores in order, and how many rows have these scores or lower ones.

    >>> _tops(np.array([0.5, 0.7, 0.8, 0.9]), np.array([1, 6, 7, 8]), 4)
    array([0.7, inf])
    """
    total = int(through[-1])
    least, last, tops = total / (2 * count), 0, []
    places = np.searchsorted(through, (total - 1) * np.arange(1, count) // count, side="right")
    for place in np.unique(places).tolist():
        below = int(through[place])
        if below - last >= least and total - below >= least:
            tops.append(values[place])
            last = below
    return np.array([*tops, np.inf])


def _median(values: Floats, count: Ints) -> float:
    """Return the median of values that occur `count` times each.

    >>> _median(np.array([0.3, 0.1, 0.2]), np.array([1, 2, 1])), _median(np.array([0.3, 0.1]), np.array([1, 2]))
    (0.15000000000000002, 0.1)
    """
    order = np.argsort(values)
    through = np.cumsum(count[order])
    middle = [np.searchsorted(through, through[-1] / 2, side=side) for side in ("left", "right")]
    return float(np.mean(values[order][middle]))


def share_of_documents(tally: Tally) -> float:
    """Return the number of documents for each row: an interval needs as many of them as of independent rows."""
    return 1.0 if tally.block is None else len(np.unique(tally.block)) / tally.n
