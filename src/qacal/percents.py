"""Percents that may be none: a person says that confidences are percents, and the numbers belie it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.errors import InputError
from qacal.values import ArrayLike

# So many percents that are all at most one are fractions; and of percents, few are between nothing and one.
_ENOUGH, _MIXED = 20, 0.05


@dataclass
class Percents:
    """Counts confidences that were divided by a hundred.

    >>> seen = Percents()
    >>> seen.add([0.007, 0.8, 0.006])
    >>> print(seen.remark())
    2 of 3 confidences lie between 0 and 1 and were read as less than one percent, while others reach 80. ...
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

    def require(self) -> None:
        """Refuse fractions that were called percents."""
        if self.rows >= _ENOUGH and self.highest <= 0.01:
            raise InputError(
                f"no confidence is above {100 * self.highest:g}, so these are no percents; leave --percent "
                "(percent=True) out."
            )

    def remark(self) -> str | None:
        """Return what to say if fractions and percents may be mixed; None if they are not."""
        if self.small <= _MIXED * self.rows:
            return None
        return (
            f"{self.small:,} of {self.rows:,} confidences lie between 0 and 1 and were read as less than one percent, "
            f"while others reach {100 * self.highest:g}. If the rows mix fractions and percents, bring them to one "
            "scale first."
        )
