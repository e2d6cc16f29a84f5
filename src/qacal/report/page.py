"""One HTML file with everything inside: no network, no scripts; light, dark, phone and print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from matplotlib.axes import Axes

from qacal import __version__
from qacal.metrics.words import error_seen, percent
from qacal.planning import shown_bound
from qacal.report.content import Content
from qacal.report.figures.intervals import band_plot, group_plot
from qacal.report.figures.reliability import reliability_diagram, small_reliability_diagram
from qacal.report.figures.scatter import realised_error_plot, recalibration_scatter, sharpness_plot
from qacal.report.figures.selective import risk_coverage_plot, threshold_plot
from qacal.report.groups import FEW_ROWS, group_name, group_numbers, longest_text
from qacal.report.sentences import in_short, verdict_of
from qacal.report.style import look_of
from qacal.report.svg import drawing, inline_svg
from qacal.report.tables import Table, headline_table, menu_table

_FOLDER = Path(__file__).parent / "templates"
STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")
"""The style sheet of all pages."""

SMALL_MULTIPLES = 12
"""Number of groups with a diagram of their own; the others are only in the table."""


@dataclass(frozen=True, eq=False)
class Block:
    """One part of a page, about one LLM or one data set.

    content : what to show of a model; None for a block of tables.
    tables : shown before the content.
    """

    title: str
    content: Content | None = None
    intro: str = ""
    tables: Sequence[Table] = ()


def render(title: str, blocks: Sequence[Block], *, intro: str = "", tables: Sequence[Table] = ()) -> str:
    """Return the page; the same content gives the same bytes.

    tables : shown before the blocks, such as the results of all of them.

    >>> page = render("Results", [Block("One", tables=[Table("Errors", ["method", "error"], [["None", "<b>0.4"]])])])
    >>> "&lt;b&gt;0.4" in page
    True
    """
    shown = [_shown(block, f"b{number}") for number, block in enumerate(blocks, start=1)]
    page = _template().render(title=title, intro=intro, tables=tables, blocks=shown)
    # A lone surrogate is possible in a Python string, but not in a file.
    return page.encode("utf-8", "replace").decode("utf-8")


def templates(folder: Path) -> Environment:
    """Return the templates in a folder; what they show is text, never HTML."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    return environment


@cache
def _template() -> Template:
    environment = templates(_FOLDER)
    environment.globals.update(css=Markup(STYLE), few=FEW_ROWS)
    environment.filters.update(bound=shown_bound, percent=percent, group_name=group_name, group_numbers=group_numbers)
    return environment.get_template("page.html")


def _shown(block: Block, key: str) -> dict[str, Any]:
    """Return what the template reads of a block."""
    shown: dict[str, Any] = {"key": key, "title": block.title, "intro": block.intro, "tables": block.tables}
    content = block.content
    if content is None:
        return shown | {"content": None}
    with drawing():
        figures = {name: _inline(ax, f"{key}-{name}") for name, ax in _figures(content)}
        small = _small_multiples(content, key)
    return shown | {
        "content": content,
        "sentences": in_short(content),
        "headline": headline_table(content),
        "menu": None if content.menu is None else menu_table(content.menu, has_ids=content.has_ids),
        "figures": figures,
        "small": small,
        "longest": longest_text(content.groups),
        "scores": [(name, look_of(name).label) for name in content.evaluation.tallies],
        "verdict": verdict_of(content),
    }


def _inline(ax: Axes, key: str) -> dict[str, Any]:
    title, svg = inline_svg(ax, key)
    # The only unescaped markup is matplotlib's; the XML writer has escaped the text in it.
    return {"title": title, "svg": Markup(svg)}


def _small_multiples(content: Content, key: str) -> list[dict[str, Any]]:
    """Return small reliability diagrams of the groups with the largest gain, among those with enough rows."""
    enough = [group for group in content.groups if group.rows >= FEW_ROWS and group.group is not None]
    return [
        {
            "name": group_name(group.group),
            "words": ", ".join(group.words[:3]),
            "rows": f"{group.rows:,}",
            "errors": [(name, error_seen(error, 2).removesuffix(" seen")) for name, error in group.errors.items()],
            **_inline(small_reliability_diagram(group.tallies), f"{key}-group{number}"),
        }
        for number, group in enumerate((enough or content.groups)[:SMALL_MULTIPLES], start=1)
    ]


def _figures(content: Content) -> Iterator[tuple[str, Axes]]:
    tallies, threshold = content.evaluation.tallies, content.threshold
    yield "reliability", reliability_diagram(tallies)
    yield "scatter", recalibration_scatter(content.pairs)
    yield "sharpness", sharpness_plot(tallies)
    yield "threshold", threshold_plot(tallies, threshold=threshold)
    yield "coverage", risk_coverage_plot(tallies, threshold=threshold)
    realised = content.realised
    if realised is None:
        return
    if not realised.has_bands:
        yield "realised", realised_error_plot(realised)
        return
    yield "bands", band_plot(realised)
    if realised.is_group.any():
        yield "groups", group_plot(realised)
