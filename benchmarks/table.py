"""The table: one line per comparison, printed as it becomes known."""

from __future__ import annotations

from dataclasses import dataclass

_WIDTHS = (58, 10, 11, 38, 10, 11, 15, 26, 4)
_HEADER = ("what", "qacal", "its NLL", "beside", "takes", "its NLL", "qacal is", "goal", "met")


@dataclass(frozen=True)
class Line:
    """qacal beside one other.

    seconds, other : what qacal takes, and what the other takes.
    goal : how many times as fast as the other qacal should be; 1/2 for "at most twice as long".
    losses : the negative log likelihoods of qacal and of the other, where both fit a likelihood.
    trouble : why the other gave no number.
    is_bound : the other was stopped after `other` seconds, so that it takes longer than that.
    condition, holds : what else the goal asks for, and whether it is so.
    """

    what: str
    seconds: float
    beside: str
    other: float | None = None
    goal: float | None = None
    losses: tuple[float, float] | None = None
    trouble: str = ""
    is_bound: bool = False
    condition: str = ""
    holds: bool = True

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as the other qacal is."""
        return None if self.other is None else self.other / self.seconds

    def text(self) -> str:
        """Return the line as it stands in the table."""
        bound = ">" if self.is_bound else ""
        takes = bound + duration(self.other) if self.other is not None else "-"
        losses = ("", "") if self.losses is None else tuple(f"{loss:.2f}" for loss in self.losses)
        ratio = self.trouble or bound + _ratio(self.speed_up)
        cells = (self.what, duration(self.seconds), losses[0], self.beside, takes, losses[1], ratio, *self._verdict())
        return _row(cells)

    def _verdict(self) -> tuple[str, str]:
        parts = [_goal(self.goal)] if self.goal is not None else []
        parts += [self.condition] if self.condition else []
        if not parts or (self.goal is not None and self.speed_up is None):
            return ", ".join(parts), ""
        is_fast = self.goal is None or (self.speed_up or 0.0) >= self.goal
        return ", ".join(parts), "yes" if is_fast and self.holds else "NO"


def header() -> str:
    """Return the names of the columns, underlined."""
    return f"{_row(_HEADER)}\n{_row(tuple('-' * width for width in _WIDTHS))}"


def duration(seconds: float) -> str:
    """Return seconds with three digits and a unit that suits them.

    >>> duration(0.01234)
    '12.3 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{seconds * 1e6:.0f} us"


def _ratio(speed_up: float | None) -> str:
    if speed_up is None:
        return ""
    return f"{speed_up:#.3g}".rstrip(".") + "x faster" if speed_up >= 1 else f"{1 / speed_up:.2f}x as long"


def _goal(speed_up: float) -> str:
    return f">= {speed_up:g}x faster" if speed_up >= 1 else f"<= {1 / speed_up:g}x as long"


def _row(cells: tuple[str, ...]) -> str:
    is_number = (False, True, True, False, True, True, True, False, False)
    padded = (
        f"{cell:>{width}}" if right else f"{cell:<{width}}"
        for cell, width, right in zip(cells, _WIDTHS, is_number, strict=True)
    )
    return "  ".join(padded).rstrip()
