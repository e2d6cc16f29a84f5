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

from qacal.calibrators.score.kernel import Kernel, fit_kernel
from qacal.errors import InputError
from qacal.parameters import Axes, Between, Rising
from qacal.tally.arrays import ArrayLike, Floats, column_of_any, is_missing

LARGEST = 1e300
_QUANTILES = 65
_COSINES = 5
_COORDINATES = 64
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
        return self.count * _COSINES

    def only(self, kept: Sequence[bool]) -> Numbers:
        """Return some of the numbers, each by itself."""
        return Numbers(self.quantiles[np.asarray(kept)], None)

    def cosines(self, values: Floats) -> Floats:
        """Return the cosines of each number's rank, those of one number side by side; 0 where a number is missing."""
        ranks = np.empty(values.shape)
        for at, (places, middle) in enumerate(self._ranks):
            ranks[:, at] = np.interp(values[:, at], places, middle)
        j = np.arange(1, _COSINES + 1)
        waves = np.sqrt(2) * np.cos(np.pi * ranks[:, :, None] * j) / j
        waves[~np.isfinite(values)] = 0.0
        return np.asarray(waves.reshape(len(values), -1))

    @cached_property
    def _ranks(self) -> list[tuple[Floats, Floats]]:
        """The distinct quantiles of each number, and their ranks from 0 to 1: of equal ones, the middle one counts."""
        out = []
        for quantiles in self.quantiles:
            places, first = np.unique(quantiles, return_index=True)
            last = np.append(first[1:], len(quantiles)) - 1
            out.append((places, (first + last) / 2 / (len(quantiles) - 1)))
        return out

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
    return np.ascontiguousarray(cosines[:, ::_COSINES])


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
