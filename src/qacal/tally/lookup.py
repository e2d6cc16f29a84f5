"""Finding the group and the bin of a row, in fitting and predicting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from qacal.parameters import MOST, Axes, Between, Rising
from qacal.tally.arrays import Ints

# A table of a million entries is still small; codes beyond it are searched.
_LARGEST_TABLE = 2**20

# Rows are searched in portions that stay in the processor's cache.
_PORTION = 2**14


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """The entry of each group's code; unknown codes, and no group, have entry 0.

    codes : sorted.
    entries : one per code.
    """

    codes: Annotated[Ints, Axes("groups"), Between(0, 2**63 - 1), Rising()]
    entries: Annotated[Ints, Axes("groups"), Between(0, MOST)]
    table: Ints | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = None
        if len(self.codes) == 0 or self.codes[-1] < _LARGEST_TABLE:
            table = np.zeros(int(self.codes[-1]) + 2 if len(self.codes) else 1, dtype=np.int64)
            table[self.codes] = self.entries
        object.__setattr__(self, "table", table)

    def find(self, codes: Ints) -> Ints:
        """Return the entry of each code."""
        if self.table is not None:
            # Seen as unsigned, -1 is larger than all: it reads the table's last place, which is 0.
            return self.table[np.minimum(codes.view(np.uint64), np.uint64(len(self.table) - 1)).view(np.int64)]
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[place] == codes, self.entries[place], 0)


def search_within(ordered: NDArray[Any], values: NDArray[Any], start: Ints, stop: Ints, side: str = "left") -> Ints:
    """Return where each value belongs in its own stretch ``ordered[start:stop]``: many `numpy.searchsorted` at once.

    >>> search_within(np.array([.2, .8, .5, .6]), np.array([.7, .7]), np.array([0, 2]), np.array([2, 4]))
    array([1, 4])
    """
    out, last = np.empty(len(values), dtype=np.int64), len(ordered) - 1
    for first in range(0, len(values), _PORTION):
        part = slice(first, first + _PORTION)
        value, low, high = values[part], start[part], stop[part]
        # All stretches are halved at once, until the longest is done.
        for _ in range(int((high - low).max()).bit_length()):
            middle = (low + high) >> 1
            at = ordered[np.minimum(middle, last)]
            goes_right = (at < value if side == "left" else at <= value) & (low < high)
            low = np.where(goes_right, middle + 1, low)
            high = np.where(goes_right, high, middle)
        out[part] = low
    return out
