"""Count rows that cannot be used, by reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from qacal.errors import BadRowsError
from qacal.records.files import OnFault
from qacal.records.table import Fault

MAX_BAD = 0.2
"""Reading stops if a larger share of the rows is bad; the default."""


@dataclass(frozen=True)
class Reason:
    """One kind of bad row: its count and the first example."""

    kind: str
    count: int
    example: Fault


class BadRows:
    """Counts bad rows by reason. Pass one as `on_fault`; a row that is read again counts once.

    on_fault : called once with each bad row.

    >>> bad = BadRows()
    >>> for line, value in enumerate((85, 90, "high"), 1):
    ...     kind = "confidence in words" if isinstance(value, str) else "confidence above 1"
    ...     bad(Fault("a.csv", f"line {line}", f"confidence is {value!r}.", kind=kind))
    >>> bad.add_rows("a.csv", 10)
    >>> print(bad)
    3 of 10 rows (30%)
      2: confidence above 1, such as a.csv line 1: confidence is 85.
      1: confidence in words, such as a.csv line 3: confidence is 'high'.
    """

    def __init__(self, on_fault: OnFault | None = None) -> None:
        self._on_fault = on_fault
        self._places: set[tuple[str, str]] = set()
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Fault] = {}
        self._rows: Counter[str] = Counter()

    def __call__(self, fault: Fault) -> None:
        if (fault.origin, fault.place) in self._places:
            return
        if self._on_fault is not None:
            self._on_fault(fault)
        self._places.add((fault.origin, fault.place))
        self._counts[fault.kind] += 1
        self._examples.setdefault(fault.kind, fault)

    def add_unread(self, fault: Fault) -> None:
        """Count a bad row that is in no table, such as a line that is not JSON."""
        self.add_rows(fault.origin, 1)
        self(fault)

    def add_rows(self, origin: str, count: int) -> None:
        """Count rows, good and bad."""
        self._rows[origin] += count

    def take_rows(self, other: BadRows) -> None:
        """Take over the row counts of one pass over the rows; a file may be read several times."""
        self._rows |= other._rows

    @property
    def count(self) -> int:
        return len(self._places)

    @property
    def rows(self) -> int:
        """The number of rows, good and bad, in all that was read to the end."""
        return self._rows.total()

    @property
    def reasons(self) -> list[Reason]:
        """The kinds of bad rows, the most frequent first."""
        return [Reason(kind, count, self._examples[kind]) for kind, count in self._counts.most_common()]

    def require(self, max_bad: float) -> None:
        """Raise if more than this share of the rows is bad, or all of them."""
        if self.count and self.count >= self.rows:
            raise BadRowsError(f"No row can be used: {self}")
        if self.count > max_bad * self.rows + 1e-6:
            enough = ceil(100 * self.count / self.rows) / 100
            raise BadRowsError(
                f"Too many rows cannot be used: {self}\nFix them, or go on without them: --max-bad {enough:g} "
                f"(in Python: max_bad={enough:g}). Up to {max_bad:.0%} may be bad now."
            )

    def __str__(self) -> str:
        share = self.count / max(self.rows, 1)
        percent = "under 1%" if 0 < share < 0.005 else f"{share:.0%}"
        lines = [f"{self.count:,} of {self.rows:,} rows ({percent})"]
        return "\n".join(lines + [f"  {one.count:,}: {one.kind}, such as {one.example}" for one in self.reasons])
