r"""Numbers of any scale as columns of a regression: smooth functions of each, and of all of them together.

A number is replaced by its rank :math:`r \in [0, 1]` among the rows of the fit, so its scale does not matter. A smooth
function of the rank is :math:`\sum_j a_j \sqrt2 \cos(\pi j r) / j` with independent :math:`a_j \sim N(0, \sigma^2)`:
wiggles have little weight. What several numbers say only together is a smooth function of their ranks (`kernel.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from qacal.calibrators.score.kernel import Kernel, fit_kernel
from qacal.errors import InputError
from qacal.parameters import Axes, Between, Rising
from qacal.tally.arrays import ArrayLike, Floats, Ints, column_of_any, is_missing

LARGEST = 1e300
_QUANTILES = 65
COSINES = 5
_HEIGHTS = np.sqrt(2) / np.arange(1, COSINES + 1)
_COORDINATES = 64
# From so many rows on, whole numbers below the second are looked up.
_MANY, _WHOLE = 64, 256
# In quartile ranges from the median.
_FARTHEST = 30.0


@dataclass(frozen=True, eq=False)
class Numbers:
    """A map from numbers to columns.

    quantiles : of each number among the rows of the fit, a row for each.
    kernel : of the ranks; None if the numbers count by themselves only, or are constant.
    """

    quantiles: Annotated[
        Floats, Axes("numbers", "shares", may_be_empty=False), Between(-LARGEST, LARGEST), Rising(strictly=False)
    ]
    kernel: Kernel | None

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return len(self.quantiles)

    @property
    def width(self) -> int:
        """How many cosines there are."""
        return self.count * COSINES

    def only(self, kept: Sequence[bool]) -> Numbers:
        """Return some of the numbers, each by itself."""
        return Numbers(self.quantiles[np.asarray(kept)], None)

    def cosines(self, values: Floats) -> Floats:
        """Return the cosines of each number's rank, those of one number side by side; 0 where a number is missing."""
        if len(values) < _MANY:
            return self._waves(values, np.arange(self.count)).reshape(len(values), -1)
        # Most numbers are small and whole, such as counts of characters.
        place = np.fmin(np.fmax(values, 0), _WHOLE - 1).astype(np.intp)
        out = self._of_whole[np.arange(self.count), place]
        others = np.nonzero(place != values)
        out[others] = self._waves(values[others], others[1])
        return out.reshape(len(values), -1)

    @cached_property
    def _of_whole(self) -> Floats:
        """The cosines of small whole numbers: (column, number, cosine)."""
        numbers = np.repeat(np.arange(float(_WHOLE))[:, None], self.count, axis=1)
        return np.ascontiguousarray(self._waves(numbers, np.arange(self.count)).swapaxes(0, 1))

    def _waves(self, values: Floats, columns: Ints) -> Floats:
        """Return the cosines of numbers in a further axis; `columns` says which number each is."""
        is_known = np.isfinite(values)
        is_whole = is_known.all()
        waves = np.empty((*values.shape, COSINES))
        np.cos(np.pi * self._ranks(values if is_whole else np.where(is_known, values, 0.0), columns), out=waves[..., 0])
        twice = 2 * waves[..., 0]
        for j in range(1, COSINES):  # cos (j + 1)x = 2 cos x cos jx - cos (j - 1)x
            np.multiply(twice, waves[..., j - 1], out=waves[..., j])
            waves[..., j] -= waves[..., j - 2] if j > 1 else 1.0
        waves *= _HEIGHTS
        if not is_whole:
            waves[~is_known] = 0.0
        return waves

    def _ranks(self, values: Floats, columns: Ints) -> Floats:
        """Return the rank of each number, from 0 to 1."""
        keys, places, ranks, gaps, rises, first = self._steps
        # One search for all numbers, the column being the first part of the key: a search for each would take longer.
        at = np.maximum(np.searchsorted(keys, columns + 1j * values, side="right") - 1, first[columns])
        return np.asarray(ranks[at] + rises[at] * (np.maximum(values - places[at], 0.0) / gaps[at]))

    @cached_property
    def _steps(self) -> tuple[NDArray[np.complex128], Floats, Floats, Floats, Floats, Ints]:
        """The distinct quantiles of all numbers, as keys (column, quantile) and as they are, and their ranks.

        Of equal quantiles, the middle one counts. Then follow the distances to the next quantile and to its rank, and
        where each column begins.
        """
        steps = []
        for column, quantiles in enumerate(self.quantiles):
            places, first = np.unique(quantiles, return_index=True)
            last = np.append(first[1:], len(quantiles)) - 1
            ranks = (first + last) / 2 / (len(quantiles) - 1)
            gaps, rises = np.append(np.diff(places), 1.0), np.append(np.diff(ranks), 0.0)
            steps.append((column + 1j * places, places, ranks, gaps, rises))
        begin = np.cumsum([0, *(len(step[0]) for step in steps)])[:-1]
        keys, places, ranks, gaps, rises = (np.concatenate(part) for part in zip(*steps, strict=True))
        return keys, places, ranks, gaps, rises, begin

    def standard(self, values: Floats) -> Floats:
        """Return numbers in quartile ranges from their median: these tell how far out a number is, and ranks do not."""
        low, middle, high = self.quantiles[:, [_QUANTILES // 4, _QUANTILES // 2, -_QUANTILES // 4]].T
        spread = np.where(high > low, high - low, np.maximum(np.ptp(self.quantiles, axis=1), 1e-300))
        return np.asarray(np.clip((values - middle) / spread, -_FARTHEST, _FARTHEST))

    def together(self, cosines: Floats) -> Floats:
        """Return coordinates in which a smooth function of all ranks is a weighted sum."""
        if self.kernel is None:
            return np.empty((len(cosines), 0))
        return self.kernel.at(self.kernel.components(first_cosines(cosines)))


def first_cosines(cosines: Floats) -> Floats:
    """Return the first cosine of each number, which falls with its rank."""
    return np.ascontiguousarray(cosines[:, ::COSINES])


def fit_numbers(values: Floats, *, together: bool) -> Numbers:
    """Return the map for numbers, a column each; NaN where one is missing.

    together : whether to give coordinates for a function of all of them.
    """
    shares = np.linspace(0, 1, _QUANTILES)
    known = [column[np.isfinite(column)] for column in values.T]
    quantiles = np.array([np.quantile(column, shares) if len(column) else np.zeros(_QUANTILES) for column in known])
    numbers = Numbers(quantiles, None)
    if not together:
        return numbers
    return Numbers(quantiles, fit_kernel(first_cosines(numbers.cosines(values)), coordinates=_COORDINATES))


def numbers_of(values: ArrayLike, name: str) -> Floats:
    """Return a column as numbers, NaN where one is missing; raise for anything else.

    >>> numbers_of([3, None, 0.5], "retrieval")
    array([3. , nan, 0.5])
    >>> numbers_of([3, "many"], "retrieval")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: retrieval[1] is 'many'; expected a number, at most 1e+300.
    """
    column = column_of_any(values, name)
    if column.dtype.kind in "biuf":
        out = column.astype(np.float64)
    else:
        listed = column.tolist()
        out = np.full(len(listed), np.nan)
        for row, value in enumerate(listed):
            if not is_missing(value):
                try:
                    out[row] = float(value) if isinstance(value, int | float | Decimal) else np.inf
                except OverflowError:
                    out[row] = np.inf
                if abs(out[row]) > LARGEST:
                    raise InputError(f"{name}[{row}] is {value!r:.60}; expected a number, at most {LARGEST:g}.")
    large = np.abs(out) > LARGEST
    if large.any():
        row = int(np.argmax(large))
        raise InputError(f"{name}[{row}] is {out[row]:g}; expected a number, at most {LARGEST:g}.")
    return out
