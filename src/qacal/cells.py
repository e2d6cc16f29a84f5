"""One sort of the rows, one sum: how rows become cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.values import Bools, Floats, Hashes, Ints

SUMS = ("rows", "w", "wt", "wtt", "ww", "wwt", "wwtt")
"""The columns of a cell; the text of :mod:`qacal.tally` says what each is."""

Sums = dict[str, Any]
"""Columns by name, one value per row (or, summed, per cell)."""


@dataclass(frozen=True)
class Cells:
    """Distinct (keys..., confidence, tie) in sorted order, and the sums over the rows of each."""

    keys: list[Ints]
    confidence: Floats
    tie: Hashes | None
    sums: Sums


def count_plain(h: Floats, t: Floats) -> Cells:
    """Count ungrouped, unweighted 0/1 rows.

    A confidence in [0, 1] leaves the sign bit of its float free. The label rides there, in the lowest place
    of a whole number, so that one plain sort orders rows by (confidence, label) and nothing has to be gathered.
    """
    one = np.uint64(1)
    packed = h.view(np.uint64) << one
    packed |= t == 1
    packed.sort()
    # By way of bool: seven times as fast as from a 64-bit number.
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

    `columns` hold one value per row; ``"rows"`` may be missing and is then one each. Sums of whole numbers do
    not depend on their order; others (`is_exact` False) are added in the order of their own values, so that
    rows in another order give the same bits.
    """
    order = _order(confidence, tie, columns, is_exact)
    h = confidence[order]
    new = h[1:] != h[:-1]
    if tie is not None:
        tie = tie[order]
        new |= tie[1:] != tie[:-1]
    starts = _starts(new)
    rank = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(h)))
    key, sizes, lows = _combine([key[order] for key in keys], rank, len(starts))
    cell, cell_keys = _number(key, sizes)
    count = len(cell_keys)
    sums: Sums = {}
    if "rows" not in columns:
        sums["rows"] = np.bincount(cell, minlength=count)
    for name, column in columns.items():
        sums[name] = np.bincount(cell, weights=column[order], minlength=count)
    sums["rows"] = sums["rows"].astype(np.int64)
    rest, at = np.divmod(cell_keys, len(starts))
    decoded: list[Ints] = []
    for size, low in zip(reversed(sizes), reversed(lows), strict=True):
        rest, digit = np.divmod(rest, size)
        decoded.insert(0, low[digit] if isinstance(low, np.ndarray) else digit + low)
    return Cells(decoded, h[starts][at], None if tie is None else tie[starts][at], sums)


def _order(h: Floats, tie: Hashes | None, columns: Sums, is_exact: bool) -> Ints:
    if is_exact and tie is None:
        return np.argsort(h)
    inner = [] if is_exact else [column for name, column in sorted(columns.items())]
    return np.lexsort([*inner, *([] if tie is None else [tie]), h])


def _combine(keys: list[Ints], rank: Ints, n_ranks: int) -> tuple[Ints, list[int], list[Any]]:
    """Write (keys..., rank) as one whole number, the first key highest."""
    sizes: list[int] = []
    lows: list[Any] = []
    total = n_ranks
    combined = np.zeros(len(rank), dtype=np.int64)
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


def _number(key: Ints, sizes: list[int]) -> tuple[Ints, Ints]:
    """Give the distinct keys numbers in their order; return each row's number, and the keys."""
    if not sizes:
        return key, np.arange(int(key[-1]) + 1)
    top = int(key.max()) + 1
    if top <= 4 * len(key) + 65536:
        present = np.zeros(top, dtype=bool)
        present[key] = True
        return (np.cumsum(present) - 1)[key], np.flatnonzero(present)
    order = np.argsort(key)
    in_order = key[order]
    new = np.concatenate([[True], in_order[1:] != in_order[:-1]])
    cell = np.empty(len(key), dtype=np.int64)
    cell[order] = np.cumsum(new) - 1
    return cell, in_order[new]


def _starts(new: Bools) -> Ints:
    return np.concatenate([[0], np.flatnonzero(new) + 1])


def snap(confidence: Floats, resolution: float) -> Floats:
    """Round confidences to the grid 0, resolution, ..., 1.

    >>> snap(np.array([0.123, 0.3, 1.0]), 0.1)
    array([0.1, 0.3, 1. ])
    """
    if not isinstance(resolution, int | float) or not 0 < resolution <= 1:
        raise InputError(f"resolution is {resolution!r}; expected 1/k for a whole number k, such as 0.01.")
    steps = round(1 / resolution)
    if abs(steps * resolution - 1) > 1e-9:
        raise InputError(f"resolution is {resolution}; expected 1/k for a whole number k, such as 0.01.")
    # Division by a whole number gives the float nearest to the decimal; multiplying by 0.1 gives 0.30000000000000004.
    return np.rint(confidence * steps) / steps
