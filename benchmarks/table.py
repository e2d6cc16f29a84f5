"""The table: one line per comparison, printed as it becomes known."""

from __future__ import annotations

from dataclasses import dataclass

_COLUMNS = {
    "what": "<55",
    "qacal": ">8",
    "NLL": ">9",
    "beside": "<36",
    "takes": ">8",
    "its NLL": ">9",
    "qacal is": ">14",
    "goal": "<21",
    "met": "<3",
}


@dataclass(frozen=True)
class Line:
    """What qacal takes beside what another takes.

    seconds, other : of qacal, and of the other.
    goal : how many times as fast as the other qacal should be; 1/2 for "at most twice as long".
    condition, holds : what else the goal asks for, and whether it is so; None where that is not known.
    losses : the negative log likelihoods of qacal and of the other, where both fit a likelihood.
    trouble : why the other gave no number.
    is_bound : the other was stopped after `other` seconds: it takes longer than that.
    """

    what: str
    seconds: float
    beside: str
    other: float | None = None
    goal: float | None = None
    condition: str = ""
    holds: bool | None = True
    losses: tuple[float, float] | None = None
    trouble: str = ""
    is_bound: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is none, or no number to judge by."""
        if self.goal is None:
            return self.holds if self.condition else None
        if self.other is None or self.holds is None:
            return None
        return self.holds and self.other >= self.goal * self.seconds

    def text(self, *, is_first: bool = True) -> str:
        """Return the line as it stands in the table; what the line above has said already is left out."""
        ours, theirs = ("", "") if self.losses is None else (f"{loss:.2f}" for loss in self.losses)
        left = (self.what, duration(self.seconds), ours) if is_first else ("", "", "")
        if self.other is None:
            return _row(*left, self.beside, self.trouble)
        bound = "> " if self.is_bound else ""
        ratio = bound + _ratio(self.other / self.seconds)
        verdict = {None: "", True: "yes", False: "NO"}[self.is_met]
        return _row(*left, self.beside, bound + duration(self.other), theirs, ratio, self._goal(), verdict)

    def _goal(self) -> str:
        ratio = (
            "" if self.goal is None else f">= {self.goal:g}x" if self.goal >= 1 else f"<= {1 / self.goal:g}x as long"
        )
        return ", ".join(part for part in (ratio, self.condition) if part)


def header() -> str:
    """Return the names of the columns, underlined."""
    return f"{_row(*_COLUMNS)}\n{_row(*('-' * int(form[1:]) for form in _COLUMNS.values()))}"


def duration(seconds: float) -> str:
    """Return seconds with three digits and a unit that suits them.

    >>> duration(0.01234)
    '12.3 ms'
    """
    return f"{_three_digits(seconds)} s" if seconds >= 1 else f"{_three_digits(seconds * 1e3)} ms"


def _ratio(speed_up: float) -> str:
    return f"{_three_digits(speed_up)}x faster" if speed_up >= 1 else f"{1 / speed_up:.2f}x as long"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:#.3g}"


def _row(*cells: str) -> str:
    return "  ".join(f"{cell:{form}}" for cell, form in zip(cells, _COLUMNS.values(), strict=False)).rstrip()
