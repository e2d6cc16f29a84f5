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
from qacal.report.content import Content
from qacal.report.figures.planning import points_per_bin_plot
from qacal.report.figures.reliability import reliability_diagram, small_reliability_diagram
from qacal.report.figures.scatter import recalibration_scatter, sharpness_plot
from qacal.report.figures.selective import risk_coverage_plot, threshold_plot
from qacal.report.figures.validity import realised_error_plot, validity_plot
from qacal.report.glossary import GLOSSARY
from qacal.report.groups import FEW_ROWS, group_name, group_rows
from qacal.report.sentences import in_short, verdict_of
from qacal.report.style import look_of
from qacal.report.svg import drawing, inline_svg
from qacal.report.tables import Table, headline_table
from qacal.report.words import error_seen, percent

_FOLDER = Path(__file__).parent / "templates"

SMALL_MULTIPLES = 12
"""How many groups get a diagram of their own; the others are in the table."""


@dataclass(frozen=True, eq=False)
class Block:
    """One part of a page, of one LLM or one data set.

    title : its heading, and its name in the table of contents.
    content : what to show of a model; None for a block of tables alone.
    intro : some words under the heading.
    tables : further tables, before everything else of the block.
    """

    title: str
    content: Content | None = None
    intro: str = ""
    tables: Sequence[Table] = ()


def render(title: str, blocks: Sequence[Block], *, intro: str = "", tables: Sequence[Table] = ()) -> str:
    """Return the page: a function of what is given and of nothing else, so the same content gives the same bytes.

    tables : shown before the blocks, such as the results of all of them.

    >>> page = render("Results", [Block("One", tables=[Table("Errors", ["method", "error"], [["None", "<b>0.4"]])])])
    >>> "&lt;b&gt;0.4" in page
    True
    """
    shown = [_shown(block, f"b{number}") for number, block in enumerate(blocks, start=1)]
    # Half of a surrogate pair is text in Python, and in no file.
    always = {"version": __version__, "css": _css(), "glossary": GLOSSARY}
    page = _template().render(title=title, intro=intro, tables=tables, blocks=shown, **always)
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


@cache
def _css() -> Markup:
    return Markup((_FOLDER / "page.css").read_text(encoding="utf-8"))


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
        "figures": figures,
        "small": small,
        "rows": group_rows(content),
        "scores": [(name, look_of(name).label) for name in content.tallies],
        "most": SMALL_MULTIPLES,
        "few": FEW_ROWS,
        "promise": _promise(content),
        "verdict": verdict_of(content),
    }


def _inline(ax: Axes, key: str) -> dict[str, Any]:
    title, _, svg = inline_svg(ax, key)
    # The only markup that is not escaped: matplotlib's, in which text has been escaped by the XML writer.
    return {"title": title, "svg": Markup(svg)}


def _small_multiples(content: Content, key: str) -> list[dict[str, Any]]:
    """Return a small reliability diagram for the groups that gain most, of those with rows enough to see it."""
    enough = [group for group in content.groups if group.rows >= FEW_ROWS and group.label is not None]
    return [
        {
            "name": group_name(group.label),
            "words": ", ".join(group.words[:3]),
            "rows": f"{group.rows:,}",
            "errors": [(name, error_seen(error, 2).removesuffix(" seen")) for name, error in group.errors.items()],
            **_inline(small_reliability_diagram(group.tallies), f"{key}-group{number}"),
        }
        for number, group in enumerate((enough or content.groups)[:SMALL_MULTIPLES], start=1)
    ]


def _promise(content: Content) -> dict[str, str]:
    """Return the numbers of the paragraph on the guarantee, as text."""
    promise, realised = content.promise, content.realised
    if promise is None:
        return {}
    out = {
        "alpha": f"{promise.alpha:g}",
        "sure": percent(1 - promise.alpha),
        "epsilon": f"{promise.epsilon:.2f}",
        "certified": f"{promise.certified:.2f}",
        "largest": f"{promise.largest:.2f}",
        "points": f"{promise.points_per_bin:,}",
        "rows": f"{promise.rows:,}",
    }
    if realised is not None:
        out |= {"bins": f"{len(realised.rows):,}", "realised": f"{realised.typical:.2f}"}
    return out


def _figures(content: Content) -> Iterator[tuple[str, Axes]]:
    tallies, threshold = content.tallies, content.threshold
    yield "reliability", reliability_diagram(tallies)
    yield "scatter", recalibration_scatter(content.pairs)
    yield "sharpness", sharpness_plot(tallies)
    yield "threshold", threshold_plot(tallies, threshold=threshold)
    yield "coverage", risk_coverage_plot(tallies, threshold=threshold)
    if content.promise is not None:
        fit = (content.promise.points_per_bin, content.promise.rows)
        seen = None if content.realised is None else content.realised.typical
        alpha, levels = content.promise.alpha, content.promise.levels
        yield "points", points_per_bin_plot(fit=fit, alpha=alpha, levels=levels, realised=seen)
    if content.realised is not None:
        yield "realised", realised_error_plot(content.realised)
    yield "validity", validity_plot(tallies)
