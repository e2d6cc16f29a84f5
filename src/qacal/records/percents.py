"""Percents that may be none: a person says that confidences are percents, and the numbers contradict it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.errors import InputError
from qacal.tally.arrays import ArrayLike

# So many percents that are all at most one are fractions.
_ENOUGH = 20


@dataclass
class Percents:
    """Counts confidences that were divided by a hundred.

    >>> seen = Percents()
    >>> seen.add([0.0075, 0.8, 0.006])
    >>> seen.require()
    Traceback (most recent call last):
    qacal.errors.InputError: 2 of 3 confidences lie between 0 and 1, and others reach 80: fractions among percents. ...
    """

    rows: int = 0
    small: int = 0
    highest: float = 0.0

    def add(self, shares: ArrayLike) -> None:
        """Add some, as shares."""
        given = np.asarray(shares, dtype=np.float64)
        self.rows += given.size
        self.small += int(np.count_nonzero((given > 0) & (given < 0.01)))
        self.highest = max(self.highest, float(given.max(initial=0.0)))

    def require(self, *, is_assumed: bool = False) -> None:
        """Refuse fractions that were called percents, all of them or some.

        is_assumed : nobody called them percents, so that a single 1 may be a certain answer, or one percent.
        """
        if is_assumed and 0 < self.highest <= 0.01:
            raise InputError(
                f"the model was fitted on percents, and no confidence here is above {100 * self.highest:g}. Are these "
                "percents too? Pass --percent (percent=True). Are they from 0 to 1? Pass --no-percent (percent=False)."
            )
        if self.rows >= _ENOUGH and self.highest <= 0.01:
            raise InputError(
                f"no confidence is above {100 * self.highest:g}, so these are no percents; leave --percent "
                "(percent=True) out."
            )
        if self.small and self.highest > 0.01:
            raise InputError(
                f"{self.small:,} of {self.rows:,} confidences lie between 0 and 1, and others reach "
                f"{100 * self.highest:g}: fractions among percents. Bring them to one scale first."
            )
