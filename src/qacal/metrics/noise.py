"""The noise floor: what a calibration error would measure if the confidences were perfectly calibrated.

With many groups and few rows, most of a plug-in calibration error is noise. So every one of them comes with its
distribution under perfect calibration, from which follow the floor (its mean) and a p-value.

*Independent 0/1 labels*: labels are redrawn from the confidences themselves, a binomial draw per cell. The p-value is
exact: if the confidences are calibrated, it is below any level as often as that level says, at most.

*Several rows per question, soft targets, or weights*: the distribution of the labels is not known from the confidences,
so the residuals of whole blocks of questions change sign at random. That is approximate, and where the confidences are
far off the floor comes out too high.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qacal.metrics.binned import Binned
from qacal.records import Floats

# As many values at a time as fit in the processor's cache a few times over.
_PORTION = 2**21

Statistic = Callable[[Floats], Floats]
"""From residual sums, one column a bin, to one number a row."""


def redraw(binned: Binned, statistic: Statistic, redraws: int, seed: int) -> Floats:
    """Return `redraws` values of a statistic of the bins' residual sums under perfect calibration."""
    rng = np.random.default_rng(seed)
    draw = _by_signs if needs_signs(binned) else _by_labels
    width = max(len(binned.tally), len(binned.pieces.bin) if needs_signs(binned) else 1)
    portion = max(1, min(redraws, _PORTION // width))
    sizes = [min(portion, redraws - done) for done in range(0, redraws, portion)]
    return np.concatenate([statistic(draw(binned, size, rng)) for size in sizes]) if sizes else np.array([])


def needs_signs(binned: Binned) -> bool:
    """Return whether labels cannot be redrawn from the confidences."""
    rows = binned.blocked
    return binned.is_clustered or (rows.block is not None and (rows.is_soft or rows.is_weighted))


def p_value(observed: float, drawn: Floats) -> float:
    """Return how often perfect calibration would look this bad; never 0, since the observed value counts as a draw."""
    return float((1 + (drawn >= observed - 1e-12).sum()) / (1 + len(drawn)))


def _by_labels(binned: Binned, size: int, rng: np.random.Generator) -> Floats:
    cells = binned.tally
    p = cells.confidence
    rows = cells.rows
    shape = (size, len(cells))
    right = rng.random(shape) < p if cells.n == len(cells) else rng.binomial(rows, p, shape)
    # An unweighted tally has w = rows; a weighted one without blocks comes here too and gives each row its mean weight.
    residual = (right - rows * p) * (cells.w / rows)
    return np.asarray(np.add.reduceat(residual, binned.bins.start, axis=1))


def _by_signs(binned: Binned, size: int, rng: np.random.Generator) -> Floats:
    pieces = binned.pieces
    signs = rng.integers(0, 2, (size, binned.blocked.n_blocks)) * 2.0 - 1.0
    starts = np.flatnonzero(np.append(True, pieces.bin[1:] != pieces.bin[:-1]))
    return np.asarray(np.add.reduceat(signs[:, pieces.block] * pieces.residual, starts, axis=1))
