"""Noise in calibration errors: estimates without it, their intervals, and the noise floor.

Debiased estimates come from pairs of different rows, with a jackknife over blocks of questions. The square of a bin's
mean residual is too large on average, since every row is also paired with itself. Without these pairs the estimate is
unbiased: each bin's squared error, averaged over rows.

The jackknife measures the spread at the measured error. If that is near 0, or if all rows are equal, it finds hardly
any, though a larger error would spread more and the next row may be different. So no interval is shorter than the noise
of the residuals allows, with one more row that is off by 1.

The noise floor is the calibration error that would be measured if the confidences were perfectly calibrated. With many
groups and few rows, most of a plug-in calibration error is noise. So each comes with its distribution under perfect
calibration, which gives the floor (its mean) and a p-value.

*Independent 0/1 labels*: labels are redrawn from the confidences themselves, a binomial draw per cell. The p-value is
exact: if the confidences are calibrated, it is below a level at most as often as the level says. With weights a cell's
draw has the variance that its weights give it, which is exact for cells of one row.

*Several rows per question, or soft targets*: the confidences do not say how much the rows of a question have in common,
so the residuals of whole blocks of questions change sign at random. Signs make the residuals of small bins more even
than labels do, so the result is scaled by that effect on redrawn labels. This is approximate: if the confidences are
far off, the floor comes out too high.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtrit

from qacal.errors import InputError
from qacal.metrics.binned import Binned
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import Bools, Floats

Estimate = tuple[float, float, float]
"""A value with the ends of its interval."""

_UNKNOWN: Estimate = (float("nan"), float("nan"), float("nan"))

# The number of values at a time, a few times the size of the processor's cache.
_PORTION = 2**21
_MOST_REDRAWS = 1_000_000


def plugin_error(binned: Binned, residuals: Floats) -> Floats:
    """Return the plug-in calibration error of residual sums; their last axis is the bins."""
    return np.asarray(np.abs(residuals).sum(axis=-1) / binned.weight.sum())


def debiased_square(binned: Binned, alpha: float) -> Estimate:
    """Return the debiased squared error and its interval."""
    pieces = binned.pieces
    n_bins, n_blocks = len(binned.bins), binned.blocked.n_blocks
    # A row paired with itself is not a pair; nor are, if rows depend on each other, two rows of one block.
    is_clustered = binned.is_clustered
    if is_clustered and binned.blocked.block is None:
        return _UNKNOWN
    own = pieces.residual**2 if is_clustered else pieces.squares
    own_weight = pieces.weight**2 if is_clustered else pieces.weight_squares

    def per_bin(column: Floats) -> Floats:
        return np.asarray(np.bincount(pieces.bin, weights=column, minlength=n_bins), dtype=np.float64)

    S, W, Q, V = per_bin(pieces.residual), per_bin(pieces.weight), per_bin(own), per_bin(own_weight)
    share, usable = _pair_terms(S, W, Q, V)
    if not usable.any():
        return _UNKNOWN
    value = float(share.sum() / W[usable].sum())
    if n_blocks == 1:
        return value, float("nan"), float("nan")

    # Leaving out a block changes the bins that it has rows in, and only those.
    at = pieces.bin
    left, left_usable = _pair_terms(S[at] - pieces.residual, W[at] - pieces.weight, Q[at] - own, V[at] - own_weight)
    change = np.bincount(pieces.block, weights=left - share[at], minlength=n_blocks)
    weight_change = np.where(left_usable, W[at] - pieces.weight, 0) - np.where(usable, W, 0)[at]
    weights = W[usable].sum() + np.bincount(pieces.block, weights=weight_change, minlength=n_blocks)
    present = np.flatnonzero(np.bincount(pieces.block, minlength=n_blocks))
    present = present[weights[present] > 0]
    without = (share.sum() + change[present]) / weights[present]
    blocks = len(without)
    if blocks < 2:
        return value, float("nan"), float("nan")
    reach = _reach((blocks - 1) / blocks * ((without - without.mean()) ** 2).sum(), blocks, alpha)
    one_more = _one_more(binned, blocks) / W.sum() ** 2
    least, most = _noise_ends(value, Q.sum() / W.sum() ** 2 + one_more, one_more, blocks, alpha)
    return value, min(value - reach, least), max(value + reach, most)


def _pair_terms(S: Floats, W: Floats, Q: Floats, V: Floats) -> tuple[Floats, Bools]:
    """Return W times the debiased squared residual mean of each bin, 0 for bins without a pair."""
    pairs = W * W - V
    usable = pairs > 1e-9 * W * W
    return np.where(usable, W * (S * S - Q) / np.where(usable, pairs, 1), 0.0), usable


def _one_more(binned: Binned, blocks: int) -> float:
    """Return the squared weight of a typical row, or of a question if rows depend on each other."""
    pieces = binned.pieces
    # If some blocks are empty, the others have about one question each. Else a tally does not know how many.
    if binned.is_clustered and blocks < binned.blocked.n_blocks:
        return float((np.bincount(pieces.block, weights=pieces.weight) ** 2).sum() / blocks)
    return float(pieces.weight_squares.sum() / binned.tally.n)


def _noise_ends(value: float, noise: float, one_more: float, blocks: int, alpha: float) -> tuple[float, float]:
    r"""Return the ends of the shortest interval that the noise allows, as signed squares.

    A true error :math:`\theta` spreads its estimate :math:`v` of :math:`\theta^2` by up to :math:`2 \theta \tau`, with
    :math:`\tau^2` the variance of the mean residual. The largest that fits solves
    :math:`\theta^2 - 2 z \theta \tau = v`. The lower end takes only the one more row into account.

    Fifty rows of confidence 1, all correct; the error may be 0.08: with it, 50 rows are all correct one time in 64:

    >>> low, high = _noise_ends(0.0, 0.0 + 1 / 50**2, 1 / 50**2, 50, alpha=0.05)
    >>> round(high**0.5, 2)
    0.08
    """
    reach, unseen = _reach(noise, blocks, alpha), _reach(one_more, blocks, alpha)
    low = max(np.sign(value) * np.sqrt(abs(value)) - 2 * unseen, -1.0)
    high = min(reach + np.sqrt(reach**2 + max(value, 0.0)), 1.0)
    return float(np.sign(low) * low**2), float(high**2)


def held_out_maximum(binned: Binned, enough: Bools) -> float:
    """Return the error of the bin that is worst in one half of the questions, measured in the other; both averaged."""
    pieces, n_bins = binned.pieces, len(binned.bins)
    half = pieces.block % 2
    S = np.stack([np.bincount(pieces.bin, pieces.residual * (half == k), n_bins) for k in (0, 1)])
    W = np.stack([np.bincount(pieces.bin, pieces.weight * (half == k), n_bins) for k in (0, 1)])
    shared = (W > 0).all(axis=0) & enough
    if not shared.any():
        return float("nan")
    mean = np.where(shared, S / np.where(W > 0, W, 1), 0.0)
    worst = np.abs(mean).argmax(axis=1)
    sign = np.sign(mean[[0, 1], worst])
    return float(np.mean([sign[k] * mean[1 - k, worst[k]] for k in (0, 1)]))


def _reach(variance: float, blocks: int, alpha: float) -> float:
    """Return half the length of an interval, by Student's distribution, since blocks may be few."""
    return float(-stdtrit(blocks - 1, alpha / 2) * np.sqrt(variance))


def redraw(binned: Binned, redraws: int, seed: int) -> Floats:
    """Return `redraws` plug-in errors under perfect calibration.

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
    drawn = np.concatenate([plugin_error(binned, draw(binned, size, rng)) for size in sizes])
    # Scaled, a share could pass 1.
    return np.minimum(drawn * _unevenness(binned, rng), 1.0) if needs_signs else drawn


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


def _unevenness(binned: Binned, rng: np.random.Generator) -> float:
    """Return the ratio of the error for redrawn labels to the error for signs of the same labels.

    Rows of one block and one confidence get one label, as if they were the same answer: the most uneven case.
    """
    pieces, cells, draws = binned.pieces, binned.blocked, 20
    residuals = ((rng.random((draws, len(cells))) < cells.confidence) - cells.confidence) * cells.w
    of_pieces: Any = np.stack([np.bincount(pieces.of_cell, row, len(pieces.bin)) for row in residuals])
    signs = rng.integers(0, 2, (draws, binned.blocked.n_blocks)) * 2.0 - 1.0
    by_labels = plugin_error(binned, _sum_pieces(binned, of_pieces)).mean()
    by_signs = plugin_error(binned, _sum_pieces(binned, np.asarray(signs[:, pieces.block] * of_pieces))).mean()
    return float(by_labels / by_signs) if by_signs > 0 else 1.0


def _sum_pieces(binned: Binned, residuals: Floats) -> Floats:
    at = binned.pieces.bin
    return np.asarray(np.add.reduceat(residuals, np.flatnonzero(np.append(True, at[1:] != at[:-1])), axis=1))
