"""Random draws that are the same on every machine and in every version of Python."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Numbers that follow from a seed alone; Python's own generator may draw otherwise in its next version.

    >>> draws = Draws("addition-0")
    >>> draws.number(10, 99), draws.pick("abc")
    (93, 'a')
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._drawn = count()

    def number(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        digest = sha256(f"{self._seed}/{next(self._drawn)}".encode()).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.number(0, len(values) - 1)]

    def some(self, values: Sequence[T], size: int) -> list[T]:
        """Return several of the values, each at most once, in a drawn order."""
        left = list(values)
        return [left.pop(self.number(0, len(left) - 1)) for _ in range(size)]
