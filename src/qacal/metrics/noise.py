"""The noise floor: the calibration error that would be measured if the confidences were perfectly calibrated.

With many groups and few rows, most of a plug-in calibration error is noise. So each comes with its distribution under
perfect calibration, which gives the floor (its mean) and a p-value.

*Independent 0/1 labels*: labels are redrawn from the confidences themselves, a binomial draw per cell. The p-value is
exact: if the confidences are calibrated, it is below a level at most as often as the level says. With weights a cell's
draw has the variance that its weights give it, which is exact for cells of one row.

*Several rows per question, or soft targets*: the confidences do not say how much the rows of a question have in common,
so the residuals of whole blocks of questions change sign at random. Signs make the residuals of small bins more even
than labels do, so the result is scaled by that effect on redrawn labels. This is approximate: if the confidences are
far off, the floor comes out too high.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.metrics.binned import Binned
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import Floats

# The number of values at a time, a few times the size of the processor's cache.
_PORTION = 2**21
_MOST_REDRAWS = 1_000_000

Statistic = Callable[[Floats], Floats]
"""From residual sums, one column a bin, to one number a row, from 0 to 1."""


def redraw(binned: Binned, statistic: Statistic, redraws: int, seed: int) -> Floats:
    """Return `redraws` values of a statistic of the bins' residual sums under perfect calibration.

    The result is empty for dependent rows without blocks, which would say which rows depend on each other.
    """
    if not is_whole(redraws, 0, _MOST_REDRAWS):
        raise InputError(f"redraws is {shown(redraws)}; expected a whole number from 0 to {_MOST_REDRAWS:,}.")
    if not is_whole(seed, 0):
        raise InputError(f"seed is {shown(seed)}; expected a whole number of 0 or more.")
    rng = np.random.default_rng(seed)
    needs_signs = binned.is_clustered or binned.blocked.is_soft
    if redraws == 0 or (needs_signs and binned.blocked.block is None):
        return np.array([])
    draw, width = (_by_signs, len(binned.pieces.bin)) if needs_signs else (_by_labels, len(binned.tally))
    portion = max(1, min(redraws, _PORTION // width))
    sizes = [min(portion, redraws - done) for done in range(0, redraws, portion)]
    drawn = np.concatenate([statistic(draw(binned, size, rng)) for size in sizes])
    # Scaled, a share could pass 1.
    return np.minimum(drawn * _unevenness(binned, statistic, rng), 1.0) if needs_signs else drawn


def p_value(observed: float, drawn: Floats) -> float:
    """Return how often perfect calibration would look this bad; never 0, since the observed value counts as a draw."""
    return float((1 + (drawn >= observed - 1e-12).sum()) / (1 + len(drawn)))


def _by_labels(binned: Binned, size: int, rng: np.random.Generator) -> Floats:
    """Return residual sums of the bins for labels that are drawn from the confidences."""
    cells = binned.tally
    p, shape = cells.confidence, (size, len(cells))
    if cells.is_weighted:
        rows = np.maximum(np.rint(cells.w**2 / cells.ww), 1).astype(np.int64)
        residual = (rng.binomial(rows, p, shape) - rows * p) * np.sqrt(cells.ww / rows)
    else:
        right = rng.random(shape) < p if cells.n == len(cells) else rng.binomial(cells.rows, p, shape)
        residual = right - cells.rows * p
    return np.asarray(np.add.reduceat(residual, binned.bins.start, axis=1))


def _by_signs(binned: Binned, size: int, rng: np.random.Generator) -> Floats:
    signs = rng.integers(0, 2, (size, binned.blocked.n_blocks)) * 2.0 - 1.0
    return _sum_pieces(binned, signs[:, binned.pieces.block] * binned.pieces.residual)


def _unevenness(binned: Binned, statistic: Statistic, rng: np.random.Generator) -> float:
    """Return the ratio of the statistic for redrawn labels to the statistic for signs of the same labels.

    Rows of one block and one confidence get one label, as if they were the same answer: the most uneven case.
    """
    pieces, cells, draws = binned.pieces, binned.blocked, 20
    residuals = ((rng.random((draws, len(cells))) < cells.confidence) - cells.confidence) * cells.w
    of_pieces: Any = np.stack([np.bincount(pieces.of_cell, row, len(pieces.bin)) for row in residuals])
    signs = rng.integers(0, 2, (draws, binned.blocked.n_blocks)) * 2.0 - 1.0
    by_labels = statistic(_sum_pieces(binned, of_pieces)).mean(axis=0)
    by_signs = statistic(_sum_pieces(binned, np.asarray(signs[:, pieces.block] * of_pieces))).mean(axis=0)
    return float(by_labels / by_signs) if np.ndim(by_labels) == 0 and by_signs > 0 else 1.0


def _sum_pieces(binned: Binned, residuals: Floats) -> Floats:
    at = binned.pieces.bin
    return np.asarray(np.add.reduceat(residuals, np.flatnonzero(np.append(True, at[1:] != at[:-1])), axis=1))
