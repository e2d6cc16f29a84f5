"""The figures of one block, drawn for a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes

from qacal.report.content import Content
from qacal.report.figures.planning import points_per_bin_plot
from qacal.report.figures.reliability import reliability_diagram, small_reliability_diagram
from qacal.report.figures.scatter import recalibration_scatter, sharpness_plot
from qacal.report.figures.selective import risk_coverage_plot, threshold_plot
from qacal.report.figures.validity import realised_error_plot, validity_plot
from qacal.report.groups import FEW_ROWS, Group
from qacal.report.svg import drawing, inline_svg

SMALL_MULTIPLES = 12
"""How many groups get a diagram of their own; the others are in the table."""


@dataclass(frozen=True)
class Drawn:
    """A figure for a page: its title, its text alternative, and its SVG."""

    title: str
    text: str
    svg: str


def draw_block(content: Content, key: str) -> dict[str, Drawn]:
    """Draw the figures of a block by name; `key` is the block's own in its page."""
    with drawing():
        return {name: Drawn(*inline_svg(ax, f"{key}-{name}")) for name, ax in _figures(content)}


def draw_groups(groups: list[Group], key: str) -> list[Drawn]:
    """Draw a small reliability diagram for each group."""
    with drawing():
        axes = (small_reliability_diagram(group.tallies) for group in groups)
        return [Drawn(*inline_svg(ax, f"{key}-group{number}")) for number, ax in enumerate(axes, start=1)]


def pictured(content: Content) -> list[Group]:
    """Return the groups that get a diagram: those that gain most, of those with rows enough to see it."""
    enough = [group for group in content.groups if group.rows >= FEW_ROWS and group.label is not None]
    return (enough or list(content.groups))[:SMALL_MULTIPLES]


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
