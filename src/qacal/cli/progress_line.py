"""Progress on a terminal: one line on standard error, which the next output replaces. Nothing in a pipe or a file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from qacal.errors import printable

# More often than this, nobody can read.
_SECONDS = 0.1
_CLEAR = "\r\x1b[2K"

is_quiet = False
"""Set by ``qacal --quiet``."""
_shown: list[str] = []


@contextmanager
def showing(total: Callable[[], int | None] = lambda: None) -> Iterator[Callable[[str, int], None] | None]:
    """Yield a callback that takes the name of a step and the number of its rows so far; None without a terminal.

    total : returns the number of rows of a step, if it is known; called when a step begins.
    """
    if is_quiet or not sys.stderr.isatty():
        yield None
        return
    pace, last = Pace(), 0.0

    def tell(what: str, rows: int) -> None:
        nonlocal last
        now = monotonic()
        is_new = pace.add(what, rows, now)
        if is_new:
            pace.total = total()
        if is_new or now - last >= _SECONDS:
            last = now
            show(pace.line())

    try:
        yield tell
    finally:
        clear()


def show(line: str) -> None:
    """Replace the line on the terminal; it is cut where the terminal ends."""
    _shown[:] = [line]
    sys.stderr.write(_CLEAR + printable(line)[: shutil.get_terminal_size().columns - 1])
    sys.stderr.flush()


def clear() -> None:
    """Remove the line, before other output."""
    if _shown:
        _shown.clear()
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


class Pace:
    """How far a step is, and how fast.

    >>> pace = Pace(total=2000)
    >>> for rows in (0, 500):
    ...     is_new = pace.add("embedding", rows, now=rows / 100)
    >>> pace.line()
    'embedding: 500 of 2,000 rows, 100 a second, 15 s left'
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self._what = ""
        self._rows = self._first = 0
        self._began = self._now = 0.0
        # When each step began, with which row, and how far it is: steps may take turns, batch by batch.
        self._steps: dict[str, tuple[float, int, int]] = {}

    def add(self, what: str, rows: int, now: float) -> bool:
        """Note how far a step is; return whether it is a new one. A step that starts again is new."""
        self._began, self._first, before = self._steps.get(what, (0.0, 0, -1))
        is_new = before < 0 or rows < before
        if is_new:
            # The step began when the one before it was last heard of.
            self._began, self._first = (self._now or now), 0 if self._now else rows
        self._steps[what] = self._began, self._first, rows
        self._what, self._rows, self._now = what, rows, now
        return is_new

    def line(self) -> str:
        seconds, done = self._now - self._began, self._rows - self._first
        has_total = self.total is not None and self._rows <= self.total
        line = f"{self._what}: {self._rows:,}{f' of {self.total:,}' if has_total else ''} rows"
        if seconds <= 0 or done <= 0:
            return line
        rate = done / seconds
        left = f", {duration((self.total - self._rows) / rate)} left" if has_total and self.total else ""
        return f"{line}, {f'{rate:,.0f}' if rate >= 10 else f'{rate:.1f}'} a second{left}"


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(15), duration(600), duration(7200)
    ('15 s', '10 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
