"""A figure as SVG for a page: colours are CSS variables, text stays text, ids are unique, and bytes are reproducible.

matplotlib's SVG has fixed colours, a style sheet that leaks into the page, and ids that clash as soon as two figures
are in one page. Here the colours of :data:`qacal.report.style.COLOURS` become ``var(--name)``, ids are numbered under
the figure's key, coordinates are rounded to a hundredth of a point, and unused elements are removed.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from matplotlib import style as matplotlib_style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qacal.report.style import COLOURS

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_DRAWING = threading.Lock()
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "qacal", "path.simplify": True}
_VARIABLES = {value: f"var(--{name})" for name, value in COLOURS.items()}
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
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
    root = ElementTree.fromstring(_saved(ax))
    _prune(root)
    _number_ids(root, key)
    for element in root.iter():
        _restyle(element)
    _announce(root, key, title, text)
    return title, ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _saved(ax: Axes) -> bytes:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    out = io.BytesIO()
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


def _number_ids(root: ElementTree.Element, key: str) -> None:
    """Remove ids without references, and number the others under the key."""
    source = ElementTree.tostring(root, encoding="unicode")
    names = dict.fromkeys(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", source))
    new = {name: f"{key}-{number}" for number, name in enumerate(names, start=1)}
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in new:
            element.set("id", new[name])
        target = element.attrib.pop(_HREF, None)
        if target is not None:
            element.set("href", f"#{new[target[1:]]}")
        clip = element.get("clip-path")
        if clip is not None:
            element.set("clip-path", f"url(#{new[clip[5:-1]]})")


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
