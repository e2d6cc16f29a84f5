"""The page in a browser: it fits a phone, follows dark mode, and prints completely."""

import re
import shutil
import subprocess
from html import escape

import pytest

from qacal.report import Block, Cell, Table, read_contents, render
from tests.report.rows import content, hostile_rows, model

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium"),
]

# A headless window is wider than a phone, so the page is in a frame. It forbids scripts, so the parent measures it.
_FRAME = """<!DOCTYPE html><html><body>
<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>{measure}</body></html>"""
_MEASURE = """<script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, found = document.body.dataset;
  const box = element => element.getBoundingClientRect();
  const texts = [...page.querySelectorAll("figure svg text")].map(text => [box(text), box(text.closest("svg"))]);
  found.wide = page.documentElement.scrollWidth;
  found.room = frame.contentWindow.innerWidth;
  found.smallest = Math.min(...texts.map(([text]) => text.height));
  found.outside = texts.filter(([text, svg]) => text.right > svg.right + 2 || text.left < svg.left - 2).length;
});
</script>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    hostile = read_contents(model(), hostile_rows(), groups="kind", allow_other_source=True)[""]
    wide = Table("Wide", [f"column {n}" for n in range(30)], [["row", *[Cell("0.123", "±0.004")] * 29]])
    whole = {"plain": [Block("parrot-1", content())], "hostile": [Block("One", hostile, tables=[wide])]}
    for name, blocks in whole.items():
        page = render("A title with oneverylongwordthatcannotbebrokenanywhereatallbutmustbe", blocks)
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


def browse(*arguments):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()


def measured(page, width):
    framed = page.with_suffix(f".{width}.html")
    content = escape(page.read_text(encoding="utf-8"), quote=True)
    framed.write_text(_FRAME.format(width=width, page=content, measure=_MEASURE), encoding="utf-8")
    dom = browse("--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom", framed.as_uri())
    return {name: float(value) for name, value in re.findall(r"data-(wide|room|smallest|outside)=\"([\d.]+)\"", dom)}


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(pages, name, width):
    found = measured(pages / f"{name}.html", width)
    assert found["wide"] <= found["room"]
    assert found["outside"] == 0


def test_figures_can_be_read_on_a_phone(pages):
    found = measured(pages / "plain.html", 390)
    assert found["room"] == 390
    assert found["smallest"] >= 10


@pytest.mark.parametrize(("scheme", "is_dark"), [(0, True), (1, False)])
def test_the_page_follows_the_readers_colour_scheme(pages, tmp_path, scheme, is_dark):
    from PIL import Image

    shot = tmp_path / "shot.png"
    scheme_of = f"--blink-settings=preferredColorScheme={scheme}"
    browse(scheme_of, f"--screenshot={shot}", "--window-size=1000,2400", (pages / "plain.html").as_uri())
    with Image.open(shot) as image:
        grey = image.convert("L")
        corner, light = grey.getpixel((3, 3)), grey.point(lambda value: 255 * (value > 128)).histogram()[255]
    assert (corner < 60) is is_dark
    assert (light < 0.25 * grey.width * grey.height) is is_dark


def test_it_prints_with_its_examples_open(pages, tmp_path):
    paper = tmp_path / "paper.pdf"
    browse(f"--print-to-pdf={paper}", (pages / "plain.html").as_uri())
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000
