"""Tables for terminals of any width: lines break between words; if the columns do not fit, each row is a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_TEXTS = ("", "words")


@dataclass(frozen=True)
class TextTable:
    """A table that adapts to the width; the first column is text, the others are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table with wide or narrow gaps; if neither fits, yield one list of values for each row."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        yield Text(self.title, style="bold")
        for gap in (3, 1):
            widths = self._widths(options.max_width - gap * (len(self.columns) - 1) - 2)
            if widths is not None:
                table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, (gap - 1) // 2))
                for place, (name, width) in enumerate(zip(self.columns, widths, strict=True)):
                    justify = "left" if self._is_text(place) else "right"
                    table.add_column(name, justify=justify, overflow="fold", width=max(width, 1))  # type: ignore[arg-type]
                for row in self.rows:
                    table.add_row(*row)
                yield table
                return
        for row in self.rows:
            names = zip(self.columns[1:], row[1:], strict=True)
            lines = [f"  {name}: {value}" for name, value in names if value.strip()]
            yield Text("\n".join(["", f"{self.columns[0]} {row[0]}".strip(), *lines]), overflow="fold")

    def _widths(self, room: int) -> list[int] | None:
        """Return widths of columns that break no word, and no cell with a number; None if there is no room."""
        cells = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        needed = []
        for place, (name, texts) in enumerate(zip(self.columns, cells, strict=True)):
            whole = [] if self._is_text(place) else [text for text in texts if any(map(str.isdigit, text))]
            needed.append(_longest([*name.split(), *" ".join(texts).split(), *whole]))
        if sum(needed) > room:
            return None
        # The names of columns are wrapped before the cells.
        least = [max(need, _longest(texts)) for need, texts in zip(needed, cells, strict=True)]
        widths = [max(_longest([name]), most) for name, most in zip(self.columns, least, strict=True)]
        while sum(widths) > room:
            able = [at for at in range(len(widths)) if widths[at] > least[at]]
            able = able or [at for at in range(len(widths)) if widths[at] > needed[at]]
            widths[max(able, key=lambda at: widths[at])] -= 1
        return widths

    def _is_text(self, place: int) -> bool:
        return place == 0 or self.columns[place] in _TEXTS


def _longest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)
