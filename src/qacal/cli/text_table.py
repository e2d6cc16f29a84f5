"""Tables for terminals of any width: lines break between words; if the columns do not fit, each row is a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_TEXTS = ("", "words")
# A longer word, such as the name of a file, may be broken if the table then fits.
_LONG = 24


@dataclass(frozen=True)
class TextTable:
    """A table that adapts to the width; the first column is text, the others are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table with wide or narrow gaps; if neither fits, yield one list of values for each row."""
        from rich.text import Text

        for gap, is_tight, longest in ((3, False, None), (1, False, None), (1, True, None), (1, True, _LONG)):
            widths = self._widths(options.max_width, gap, is_tight, longest)
            if widths is not None:
                yield Text(self.title, style="bold")
                yield self._table(widths, gap)
                return
        yield Text(f"{self.title}\n", style="bold")
        for row in self.rows:
            names = zip(self.columns[1:], row[1:], strict=True)
            lines = [f"  {name}: {value}" for name, value in names if value.strip()]
            yield Text("\n".join([f"{self.columns[0]} {row[0]}".strip(), *lines, ""]), overflow="fold")

    def _widths(self, width: int, gap: int, is_tight: bool, longest: int | None) -> list[int] | None:
        """Return widths of columns that break no word up to `longest`; None if there is no room."""
        from rich.cells import cell_len

        cells = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        needed = [self._needed(place, texts, is_tight, longest) for place, texts in enumerate(cells)]
        room = width - gap * (len(cells) - 1) - 2
        if sum(needed) > room:
            return None
        # Wrap the names of columns before the cells.
        whole = [max(need, _longest(texts)) for need, texts in zip(needed, cells, strict=True)]
        widths = [max(cell_len(name), most) for name, most in zip(self.columns, whole, strict=True)]
        while sum(widths) > room:
            able = [at for at in range(len(widths)) if widths[at] > whole[at]]
            able = able or [at for at in range(len(widths)) if widths[at] > needed[at]]
            widths[max(able, key=lambda at: widths[at])] -= 1
        return widths

    def _needed(self, place: int, texts: list[str], is_tight: bool, longest: int | None) -> int:
        """Return the least width of a column.

        is_tight : wrap cells without numbers; cells with numbers, such as intervals, are never wrapped.
        """
        name = _longest(self.columns[place].split())
        if self._is_text(place):
            need = max(name, _longest(" ".join(texts).split()))
            return need if longest is None else min(need, longest)
        kept = [text for text in texts if not is_tight or any(map(str.isdigit, text))]
        return max(name, _longest(kept), _longest(" ".join(texts).split()))

    def _is_text(self, place: int) -> bool:
        return place == 0 or self.columns[place] in _TEXTS

    def _table(self, widths: list[int], gap: int) -> RenderableType:
        from rich import box
        from rich.table import Table

        out = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, (gap - 1) // 2))
        for place, (name, width) in enumerate(zip(self.columns, widths, strict=True)):
            justify = "left" if self._is_text(place) else "right"
            out.add_column(name, justify=justify, overflow="fold", width=max(width, 1))  # type: ignore[arg-type]
        for row in self.rows:
            out.add_row(*row)
        return out


def _longest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)
