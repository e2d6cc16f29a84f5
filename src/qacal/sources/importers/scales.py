"""Numbers that should lie in 0 to 1, and sources in which one does not.

On another scale a 1 is one percent, or the worst of five grades. A row alone cannot tell; one number outside of 0 to 1
tells it of all the others of its source. To drop that row would keep just those that are misread, so the source is
refused as a whole, once all of it was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from qacal.errors import InputError
from qacal.sources.importers.base import OffScale

# A softmax in single precision may come to 1.0000001; no scale goes that far and no further.
_ROUNDING = 1e-6


def is_unit(number: float) -> bool:
    """Return whether a number lies in 0 to 1, but for rounding."""
    return -_ROUNDING <= number <= 1 + _ROUNDING


def unit(number: float) -> float:
    """Return a number that lies in 0 to 1 but for rounding as one that does."""
    return min(max(number + 0.0, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class _Seen:
    count: int
    lowest: float
    highest: float

    def __str__(self) -> str:
        if self.count == 1:
            return f"1 number lies outside ({self.lowest:g})"
        return f"{self.count:,} numbers lie outside (from {self.lowest:g} to {self.highest:g})"


@dataclass(frozen=True)
class Scales:
    """Remembers which sources are on another scale.

    >>> scales = Scales()
    >>> for number in (95, 80):
    ...     scales.note(OffScale("the confidence in the metadata", number, "If these are percents, say --percent."))
    >>> scales.require()
    Traceback (most recent call last):
    qacal.errors.InputError: the confidence in the metadata is not on a scale from 0 to 1: 2 numbers lie outside ...
    """

    _seen: dict[OffScale, _Seen] = field(default_factory=dict)

    def note(self, off_scale: OffScale) -> None:
        """Add a number that lies outside of 0 to 1."""
        source, number = replace(off_scale, number=0.0), off_scale.number
        before = self._seen.get(source, _Seen(0, number, number))
        seen = _Seen(before.count + 1, min(before.lowest, number), max(before.highest, number))
        self._seen[source] = seen

    def require(self) -> None:
        """Refuse a log in which a source that is used is on another scale."""
        faults = [_fault(source, seen) for source, seen in self._seen.items() if source.column is None]
        if faults:
            raise InputError("\n".join(faults))

    @property
    def unused_columns(self) -> Iterator[str]:
        """Columns with numbers of sources that were not asked for, and are on another scale."""
        return (source.column for source in self._seen if source.column is not None)


def _fault(source: OffScale, seen: _Seen) -> str:
    is_small = 1 < seen.highest <= 10 and "percents" in source.remedy
    of_grades = (
        "None is above 10, as on a scale from 0 to 10 or 1 to 5, which are no percents: bring them to 0 to 1 first."
    )
    said = (
        f"{source.source} is not on a scale from 0 to 1: {seen}. A 1 may mean anything then, so nothing is imported.",
        of_grades if is_small else source.remedy,
        "What stands for no value, such as -1, has to be empty." if seen.lowest < 0 else "",
    )
    return " ".join(filter(None, said))
