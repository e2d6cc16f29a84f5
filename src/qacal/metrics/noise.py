"""The noise floor: what a calibration error would measure if the confidences were perfectly calibrated.

With many groups and few rows, most of a plug-in calibration error is noise. So every one of them comes with its
distribution under perfect calibration, from which follow the floor (its mean) and a p-value.

*Independent 0/1 labels*: labels are redrawn from the confidences themselves, a binomial draw per cell. The p-value is
exact: if the confidences are calibrated, it is below any level as often as that level says, at most. Under weights a
cell's draw has the variance that its weights give it, which is exact for cells of one row.

*Several rows per question, or soft targets*: what is common to the rows of a question cannot be told from the
confidences, so the residuals of whole blocks of questions change sign at random. Signs make the residuals of small bins
more even than labels do, so the result is scaled by how much that matters for redrawn labels. This is approximate,
and where the confidences are far off, the floor comes out too high.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.metrics.binned import Binned
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import Floats
from qacal.tally.tally import Tally

# As many values at a time as fit in the processor's cache a few times over.
_PORTION = 2**21
_MOST_REDRAWS = 1_000_000

Statistic = Callable[[Floats], Floats]
"""From residual sums, one column a bin, to one number a row, from 0 to 1."""


def redraw(binned: Binned, statistic: Statistic, redraws: int, seed: int) -> Floats:
    """Return `redraws` values of a statistic of the bins' residual sums under perfect calibration.

    None at all if the rows are known to be dependent and nothing tells which.
    """
    if not is_whole(seed, 0):
        raise InputError(f"seed is {shown(seed)}; expected a whole number of 0 or more.")
    rng = np.random.default_rng(seed)
    needs_signs = binned.is_clustered or binned.blocked.is_soft
    if redraws == 0 or (needs_signs and binned.blocked.block is None):
        return np.array([])
    if not needs_signs:
        return _in_portions(lambda size: statistic(_by_labels(binned, size, rng)), redraws, len(binned.tally))
    drawn = _in_portions(lambda size: statistic(_by_signs(binned, size, rng)), redraws, len(binned.pieces.bin))
    # Scaled, a share could pass 1.
    return np.minimum(drawn * _unevenness(binned, statistic, rng), 1.0)


def _in_portions(draw: Callable[[int], Floats], redraws: int, width: int) -> Floats:
    portion = max(1, min(redraws, _PORTION // width))
    return np.concatenate([draw(min(portion, redraws - done)) for done in range(0, redraws, portion)])


def check_redraws(redraws: int) -> None:
    """Refuse what is no number of redraws, or one that no machine would get done with."""
    if not is_whole(redraws, 0, _MOST_REDRAWS):
        raise InputError(f"redraws is {shown(redraws)}; expected a whole number from 0 to {_MOST_REDRAWS:,}.")


def p_value(observed: float, drawn: Floats) -> float:
    """Return how often perfect calibration would look this bad; never 0, since the observed value counts as a draw."""
    return float((1 + (drawn >= observed - 1e-12).sum()) / (1 + len(drawn)))


def _by_labels(binned: Binned, size: int, rng: np.random.Generator) -> Floats:
    residual = _label_residuals(binned.tally, size, rng)
    return np.asarray(np.add.reduceat(residual, binned.bins.start, axis=1))


def _label_residuals(cells: Tally, size: int, rng: np.random.Generator) -> Floats:
    """Return residual sums of cells whose labels are drawn from their confidences."""
    p, shape = cells.confidence, (size, len(cells))
    if not cells.is_weighted:
        right = rng.random(shape) < p if cells.n == len(cells) else rng.binomial(cells.rows, p, shape)
        return np.asarray(right - cells.rows * p)
    rows = np.maximum(np.rint(cells.w**2 / cells.ww), 1).astype(np.int64)
    return np.asarray((rng.binomial(rows, p, shape) - rows * p) * np.sqrt(cells.ww / rows))


def _by_signs(binned: Binned, size: int, rng: np.random.Generator) -> Floats:
    signs = rng.integers(0, 2, (size, binned.blocked.n_blocks)) * 2.0 - 1.0
    return _sum_pieces(binned, signs[:, binned.pieces.block] * binned.pieces.residual)


def _unevenness(binned: Binned, statistic: Statistic, rng: np.random.Generator) -> float:
    """Return what redrawn labels measure over what signs make of the same labels.

    Rows of one block and one confidence get one label, as if they were the same answer: more uneven than they can be.
    """
    pieces, cells, draws = binned.pieces, binned.blocked, 20
    residuals = ((rng.random((draws, len(cells))) < cells.confidence) - cells.confidence) * cells.w
    of_pieces: Any = np.stack([np.bincount(binned.piece_of_cell, row, len(pieces.bin)) for row in residuals])
    signs = rng.integers(0, 2, (draws, binned.blocked.n_blocks)) * 2.0 - 1.0
    by_labels = statistic(_sum_pieces(binned, of_pieces)).mean(axis=0)
    by_signs = statistic(_sum_pieces(binned, np.asarray(signs[:, pieces.block] * of_pieces))).mean(axis=0)
    return float(by_labels / by_signs) if np.ndim(by_labels) == 0 and by_signs > 0 else 1.0


def _sum_pieces(binned: Binned, residuals: Floats) -> Floats:
    at = binned.pieces.bin
    return np.asarray(np.add.reduceat(residuals, np.flatnonzero(np.append(True, at[1:] != at[:-1])), axis=1))
