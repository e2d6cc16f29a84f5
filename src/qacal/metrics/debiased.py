"""Calibration error without the noise: pairs of different rows, and a jackknife over blocks of questions.

The square of a bin's mean residual is too large on average, since every row is also paired with itself. Without these
pairs the estimate is unbiased: each bin's squared error, averaged over rows.

The jackknife measures the spread at the measured error. If that is near 0, or if all rows are equal, it finds hardly
any, though a larger error would spread more and the next row may be different. So no interval is shorter than the noise
of the residuals allows, with one more row that is off by 1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from qacal.metrics.binned import Binned
from qacal.tally.arrays import Bools, Floats

Estimate = tuple[float, float, float]
"""A value with the ends of its interval."""

_UNKNOWN: Estimate = (float("nan"), float("nan"), float("nan"))


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


def held_out_maximum(binned: Binned, alpha: float, enough: Bools) -> Estimate:
    """Return the error of the bin that is worst in one half of the questions, measured in the other; both averaged."""
    pieces = binned.pieces
    n_bins, n_blocks = len(binned.bins), binned.blocked.n_blocks
    if n_blocks < 2:
        return _UNKNOWN
    half = pieces.block % 2
    S = np.stack([np.bincount(pieces.bin, pieces.residual * (half == k), n_bins) for k in (0, 1)])
    W = np.stack([np.bincount(pieces.bin, pieces.weight * (half == k), n_bins) for k in (0, 1)])
    shared = (W > 0).all(axis=0) & enough
    if not shared.any():
        return _UNKNOWN
    mean = np.where(shared, S / np.where(W > 0, W, 1), 0.0)
    worst = np.abs(mean).argmax(axis=1)
    sign = np.sign(mean[[0, 1], worst])
    held = [sign[k] * mean[1 - k, worst[k]] for k in (0, 1)]
    value = float(np.mean(held))
    variances, blocks = zip(*(_mean_variance(binned, half == 1 - k, int(worst[k])) for k in (0, 1)), strict=True)
    reach = _reach(sum(variances) / 4, min(blocks), alpha)
    return value, value - reach, value + reach


def _mean_variance(binned: Binned, inside: Bools, bin_: int) -> tuple[float, int]:
    """Return the jackknife variance of the mean residual of one bin in one half, and the number of blocks."""
    pieces = binned.pieces
    mine = inside & (pieces.bin == bin_)
    S, W = pieces.residual[mine], pieces.weight[mine]
    rest = W.sum() - W
    # If one block outweighs all others, the rest shows no spread.
    if len(S) < 2 or (rest <= 1e-9 * W.sum()).any():
        return float("inf"), 2
    without = (S.sum() - S) / rest
    return float((len(S) - 1) / len(S) * ((without - without.mean()) ** 2).sum()), len(S)


def _reach(variance: float, blocks: int, alpha: float) -> float:
    """Return half the length of an interval, by Student's distribution, since blocks may be few."""
    return float(-stdtrit(blocks - 1, alpha / 2) * np.sqrt(variance))
