"""How rows become cells: one sort of the rows (none if their values are few) and one sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.parameters import is_number, shown
from qacal.tally.arrays import Bools, Floats, Hashes, Ints, seven_decimals

SUMS = ("rows", "w", "wt", "wtt", "ww", "wwt", "wwtt")
"""The columns of a cell; the text of :mod:`qacal.tally.tally` says what each is."""

Sums = dict[str, Any]
"""Columns by name, one value per row (or, summed, per cell)."""

Ranked = tuple[Ints, Floats, Hashes | None]
"""Each row's rank among the distinct (confidence, tie), and these in order."""

# Stated confidences are round numbers: with this many slots in the unit interval, no two of them share one.
_SLOTS = 4096


@dataclass(frozen=True)
class Cells:
    """Distinct (keys..., confidence, tie) in sorted order, and the sums over the rows of each."""

    keys: list[Ints]
    confidence: Floats
    tie: Hashes | None
    sums: Sums


def count_plain(h: Floats, t: Floats) -> Cells:
    """Count ungrouped, unweighted 0/1 rows.

    A confidence in [0, 1] leaves the sign bit of its float free. Shifted by one bit, it has room for the label in the
    lowest place, so that one plain sort orders rows by (confidence, label).
    """
    one = np.uint64(1)
    packed = h.view(np.uint64) << one
    packed |= t == 1
    packed.sort()
    # Through bool: seven times as fast as from a 64-bit number.
    right = (packed & one).astype(bool).astype(np.float64)
    packed >>= one
    values = packed.view(np.float64)
    new = values[1:] != values[:-1]
    if new.all():
        sums = {"rows": np.broadcast_to(np.int64(1), len(h)), "w": np.broadcast_to(1.0, len(h)), "wt": right}
        return Cells([], values, None, sums)
    starts = _starts(new)
    sums = {"rows": np.diff(starts, append=len(h)), "wt": np.add.reduceat(right, starts)}
    return Cells([], values[starts], None, sums)


def gather(keys: list[Ints], confidence: Floats, tie: Hashes | None, columns: Sums, *, is_exact: bool) -> Cells:
    """Sum columns over equal (keys, confidence, tie).

    `columns` hold one value per row; ``"rows"`` may be missing and is then one each. Sums of whole numbers do not
    depend on their order; others (`is_exact` False) are added in the order of their own values, so that rows in another
    order give the same bits.
    """
    ranked = _few_values(confidence) if is_exact and tie is None else None
    if ranked is None:
        if is_exact and tie is None:
            order = np.argsort(confidence)
        else:
            inner = [] if is_exact else [column for name, column in sorted(columns.items())]
            order = np.lexsort([*inner, *([] if tie is None else [tie]), confidence])
        keys = [key[order] for key in keys]
        columns = {name: column[order] for name, column in columns.items()}
        tie = None if tie is None else tie[order]
        ranked = _sorted_values(confidence[order], tie)
    rank, values, ties = ranked
    key, sizes, lows = _combine(keys, rank, len(values))
    # Cells, unlike rows, are often all different.
    if "rows" in columns and (places := _order_of_distinct(key)) is not None:
        sums = {name: column[places] for name, column in columns.items()}
        sums["rows"] = sums["rows"].astype(np.int64, copy=False)
        at = rank[places]
        return Cells([one[places] for one in keys], values[at], None if ties is None else ties[at], sums)
    sums, cell_keys = _sums(key, columns)
    sums["rows"] = sums["rows"].astype(np.int64, copy=False)
    rest, at = np.divmod(cell_keys, len(values))
    decoded: list[Ints] = []
    for size, low in zip(reversed(sizes), reversed(lows), strict=True):
        rest, digit = np.divmod(rest, size)
        decoded.insert(0, low[digit] if isinstance(low, np.ndarray) else digit + low)
    return Cells(decoded, values[at], None if ties is None else ties[at], sums)


def _few_values(h: Floats) -> Ranked | None:
    """Rank rows in any order without sorting them; None if two values share a slot."""
    # The first of many rows nearly always show whether two do.
    if not (h.min() >= 0 and h.max() <= 1) or (len(h) > 16 * _SLOTS and _few_values(h[:_SLOTS]) is None):
        return None
    slot = (h * _SLOTS).astype(np.int64)
    value = np.full(_SLOTS + 1, np.nan)
    value[slot] = h
    if not np.array_equal(value[slot], h):
        return None
    taken = np.flatnonzero(value == value)
    rank = np.zeros(_SLOTS + 1, dtype=np.int64)
    rank[taken] = np.arange(len(taken))
    return rank[slot], value[taken], None


def _sorted_values(h: Floats, tie: Hashes | None) -> Ranked:
    """Rank sorted rows."""
    new = h[1:] != h[:-1]
    if tie is not None:
        new |= tie[1:] != tie[:-1]
    starts = _starts(new)
    rank = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(h)))
    return rank, h[starts], None if tie is None else tie[starts]


def _combine(keys: list[Ints], rank: Ints, n_ranks: int) -> tuple[Ints, list[int], list[Any]]:
    """Write (keys..., rank) as one whole number, the first key highest."""
    sizes: list[int] = []
    lows: list[Any] = []
    total = n_ranks
    combined: Any = 0
    for key in keys:
        low: Any = int(key.min())
        lookup: Any = low
        size = int(key.max()) - low + 1
        if total * size < 2**62 and size <= 4 * len(key) + 65536:
            digits = key - low
        else:
            lookup, digits = np.unique(key, return_inverse=True)
            size = len(lookup)
        if total * size >= 2**62:
            raise InputError("these partitions have too many combinations of groups for one tally; keep fewer of them.")
        total *= size
        combined = combined * size + digits
        sizes.append(size)
        lows.append(lookup)
    return combined * n_ranks + rank, sizes, lows


def _order_of_distinct(key: Ints) -> Ints | None:
    """Return the order of keys that are all different, without sorting them; None if some are equal, or far apart."""
    top = int(key.max()) + 1
    if top > 4 * (len(key) + _SLOTS):
        return None
    place = np.full(top, -1, dtype=np.int64)
    place[key] = np.arange(len(key))
    order = place[place >= 0]
    return order if len(order) == len(key) else None


def _sums(key: Ints, columns: Sums) -> tuple[Sums, Ints]:
    """Return the sums over equal keys, in the order of the keys, and the keys."""
    top = int(key.max()) + 1
    if top <= 4 * (len(key) + _SLOTS):
        # Few enough to count all possible keys.
        counts = np.bincount(key)
        used = np.flatnonzero(counts)
        sums = {name: np.bincount(key, weights=column)[used] for name, column in columns.items()}
        return {"rows": counts[used]} | sums, used
    order = np.argsort(key)
    in_order = key[order]
    starts = _starts(in_order[1:] != in_order[:-1])
    cell = np.empty(len(key), dtype=np.int64)
    cell[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(key)))
    sums = {name: np.bincount(cell, weights=column) for name, column in columns.items()}
    return {"rows": np.bincount(cell)} | sums, in_order[starts]


def _starts(new: Bools) -> Ints:
    return np.concatenate([[0], np.flatnonzero(new) + 1])


def grid_steps(resolution: float) -> int:
    """Return the number of steps of the grid 0, resolution, ..., 1; raise if it is not a whole number."""
    # Confidences have seven decimals: the points of a finer grid than 10^-6 could not be told apart.
    steps = round(1 / resolution) if is_number(resolution, 1e-6, 1) else 0
    if not steps or abs(steps * resolution - 1) > 1e-9:
        raise InputError(
            f"resolution is {shown(resolution)}; expected 1/k for a whole number k up to 10^6, such as 0.01."
        )
    return steps


def snap(confidence: Floats, resolution: float) -> Floats:
    """Round confidences, read to seven decimals, to the grid 0, resolution, ..., 1.

    >>> snap(np.array([0.123, 0.3, 1.0]), 0.1)
    array([0.1, 0.3, 1. ])
    """
    steps = grid_steps(resolution)
    # Division by a whole number gives the float nearest to the decimal; multiplying by 0.1 gives 0.30000000000000004.
    return np.rint(seven_decimals(confidence) * steps) / steps


def last_read_as(top: Floats, read: Callable[[Floats], Floats]) -> Floats:
    """Return the largest number in [0, 1] that is read as `top` or less.

    Reading keeps the order of numbers, so the rows of a bin are those up to some number. Databases may round halves
    differently from numpy; the number found here divides columns of 32 and of 64 bits at the same place. The bits of
    positive floats are in the order of the floats, so bisection on the bits finds it in 62 steps.
    """
    low = np.zeros(len(top), dtype=np.int64)
    high = np.full(len(top), np.float64(1.0).view(np.int64))
    while (low < high).any():
        middle = high - (high - low) // 2
        stays = read(middle.view(np.float64)) <= top
        low, high = np.where(stays, middle, low), np.where(stays, high, middle - 1)
    return low.view(np.float64)
