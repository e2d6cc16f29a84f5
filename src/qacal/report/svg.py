"""A figure as SVG for a page: colours are CSS variables, text stays text, ids are unique, and bytes are reproducible.

matplotlib's SVG has fixed colours, a style sheet that leaks into the page, and ids that clash as soon as two figures
are in one page. Here the colours of :data:`qacal.report.style.COLOURS` become ``var(--name)``, ids differ from
figure to figure, coordinates are rounded to a hundredth of a point, and unused elements are removed.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib import style as matplotlib_style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qacal.report.style import COLOURS

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_DRAWING = threading.Lock()
_SETTINGS = {"svg.fonttype": "none", "path.simplify": True}
_VARIABLES = {value: f"var(--{name})" for name, value in COLOURS.items()}
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_TARGET = re.compile(r"#([\w-]+)")
_UNUSED = ("metadata", "style")

ElementTree.register_namespace("", "http://www.w3.org/2000/svg")


@contextmanager
def drawing() -> Iterator[None]:
    """Draw figures with matplotlib's defaults, whatever the user's settings are; one thread at a time.

    matplotlib's settings are global, and some of them cannot be passed in another way.
    """
    with _DRAWING, matplotlib_style.context(["default", _SETTINGS]):
        yield


def inline_svg(ax: Axes, key: str) -> tuple[str, str]:
    """Return the title of a figure, which goes into the page, and its SVG with a text alternative for screen readers.

    key : prefix of every id, unique in the page.
    """
    title, text = ax.get_title(loc="left"), str(ax.get_label())
    ax.set_title("", loc="left")
    root = ElementTree.fromstring(_saved(ax, key))
    _prune(root)
    _keep_used_ids(root)
    for element in root.iter():
        _restyle(element)
    _announce(root, key, title, text)
    return title, ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _saved(ax: Axes, key: str) -> bytes:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    out = io.BytesIO()
    # The ids of markers and clips are hashes that begin with this salt.
    with rc_context({"svg.hashsalt": key}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    return out.getvalue()


def _prune(parent: ElementTree.Element) -> None:
    for child in list(parent):
        if child.tag.rpartition("}")[2] in _UNUSED or child.tag.startswith("{http://www.w3.org/1999/02/22"):
            parent.remove(child)
            continue
        _prune(child)
        if child.tag in (f"{_SVG}defs", f"{_SVG}g") and not len(child):
            parent.remove(child)


def _keep_used_ids(root: ElementTree.Element) -> None:
    """Remove ids without references; the others are hashes, different in every figure (`_saved`)."""
    used = {target for element in root.iter() for _, value in element.items() for target in _TARGET.findall(value)}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        if _HREF in element.attrib:
            element.set("href", element.attrib.pop(_HREF))


def _restyle(element: ElementTree.Element) -> None:
    for name, value in element.items():
        if name == "style":
            value = _COLOUR.sub(lambda match: _VARIABLES.get(match.group(), "var(--ink)"), value)
            value = re.sub(
                r"font-family:[^;]+;?|font:\s*([\d.]+px)[^;]*;?",
                lambda match: f"font-size:{match.group(1)};" if match.group(1) else "",
                value,
            ).strip()
        element.set(name, _NUMBER.sub(lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), value))


def _announce(root: ElementTree.Element, key: str, title: str, text: str) -> None:
    """Make the figure as wide as its column, and add title and text alternative for screen readers."""
    root.attrib.pop("version", None)
    del root.attrib["width"], root.attrib["height"]
    root.set("role", "img")
    root.set("aria-labelledby", f"{key}-title {key}-text")
    for place, (tag, name, content) in enumerate((("title", "title", title), ("desc", "text", text))):
        element = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{key}-{name}"})
        element.text = content
        root.insert(place, element)
