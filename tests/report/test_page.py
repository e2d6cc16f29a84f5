"""The page: valid, safe, self-contained and reproducible."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from qacal.report import Block, Cell, Table, read_contents, render
from qacal.report.style import COLOURS
from tests.report.rows import HOSTILE, content, hostile_rows, model
from tests.sizes import FULL

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Reader(HTMLParser):
    """Checks that a page's tags are closed exactly once."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links, self.tags, self.text = [], [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page():
    return render("Two LLMs", [Block("parrot-1", content()), Block("parrot-2", content("curves"), intro="Curves.")])


@pytest.fixture(scope="module")
def hostile_page():
    found = read_contents(model(), hostile_rows(), groups="kind", allow_other_source=True)[""]
    return render(HOSTILE[0], [Block(HOSTILE[1], found, intro=HOSTILE[2])], intro=HOSTILE[3])


def svgs(page):
    return re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)


def articles(page):
    return re.findall(r"<article.*?</article>", page, flags=re.DOTALL)


def test_tags_are_balanced_and_ids_are_unique(page):
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids))
    assert page.startswith("<!DOCTYPE html>")


def test_it_loads_nothing(page):
    read = Reader(page)
    assert all(link.startswith("#") for link in read.links)
    assert {link[1:] for link in read.links} <= set(read.ids)
    assert "@import" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    assert not [tag for tag, _ in read.tags if tag in ("script", "link", "iframe", "object", "img")]
    outside = set(re.findall(r"https?://[^\"'\s<]+", page))
    assert outside == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_every_figure_has_a_text_alternative(page):
    found = svgs(page)
    assert len(found) == 6 + 4 + 5 + 4
    for svg in found:
        root = ElementTree.fromstring(svg)
        title, text = (root.find(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc"))
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {text.get('id')}"
        assert len(title.text) > 20
        assert len(text.text) > 40
        assert root.get("viewBox")
        assert root.get("width") is None


def test_figures_follow_the_colours_of_the_page(page):
    variables = set(re.findall(r"--(\w+):", page))
    for svg in svgs(page):
        painted = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", svg))
        assert all(paint == "none" or paint.startswith("var(--") for paint in painted)
        assert not re.findall(r"#[0-9a-fA-F]{6}", svg)
        assert set(re.findall(r"var\(--(\w+)\)", svg)) <= variables
        for text in re.findall(r"<text[^>]*>", svg):
            assert "fill: var(--" in text
    light, dark = (set(re.findall(rf"{name}: (#\w+)", page)) for name in ("--paper", "--ink"))
    assert len(light) >= 3
    assert len(dark) >= 3


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_can_be_read_in_every_scheme(page):
    schemes = re.findall(r":root \{(.*?)\}", page, flags=re.DOTALL)
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        for name in ("ink", "quiet", "stated", "pooled", "calibrated"):
            for ground in ("paper", "tint"):
                dark, light = sorted(luminance(colours[one]) for one in (name, ground))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


def test_the_same_content_gives_the_same_bytes(page):
    second = Block("parrot-2", content("curves"), intro="Curves.") if FULL else Block("parrot-2")
    again = render("Two LLMs", [Block("parrot-1", content()), second])
    assert again == page if FULL else articles(again)[0] == articles(page)[0]


def test_hostile_text_stays_text(hostile_page):
    read = Reader(hostile_page)
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "img"}
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    text = "".join(read.text)
    assert "<script>alert(1)</script>" in text
    assert "{{ 7 * 7 }}" in text
    assert "👩‍👩‍👧‍👦" in text
    assert "שלום" in text
    assert "half a pair ?" in text
    hostile_page.encode("utf-8")


def test_long_texts_are_cut_and_can_be_opened(hostile_page):
    long_text = r'<details class="long"><summary dir="auto">(.*?)</summary><p dir="auto">(.*?)</p>'
    opened = re.findall(long_text, hostile_page)
    assert opened
    assert all(short.endswith("…") and len(short) == 140 and 140 < len(full) <= 2000 for short, full in opened)


def test_the_file_stays_small():
    rows = [row | {"kind": f"kind {number % 200}"} for number, row in enumerate(hostile_rows(4000))]
    found = read_contents(model(), rows, groups="kind", allow_other_source=True)[""]
    assert len(found.groups) == 200
    page = render("Many", [Block("One", found)])
    assert len(page.encode()) < 1_500_000
    assert len(svgs(page)) == 6 + 12
    Reader(page)


def test_pages_of_curves_have_no_section_on_guarantees(page):
    bins, curves = articles(page)
    assert "answers without bins, so it has no intervals to test" in curves
    assert "The guarantee: every range of confidences" in bins
    assert "The guarantee: every range of confidences" not in curves


def test_the_glossary_is_on_the_page_and_in_the_docs(page):
    end = page[page.index('<details class="glossary">') :]
    docs = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", end)
    for word, meaning in words:
        assert f"| {word} | {meaning} |" in docs
    assert docs.count("\n| ") == len(words) + 2
    assert 'href="#glossary"' in page


def test_tables_of_a_caller():
    table = Table(
        "Results <1>", ["method", "error"], [["None", "0.41"], ["HS-QAB", Cell("0.03", "±0.01", is_best=True)]]
    )
    page = render("Paper", [Block("OpenBookQA", tables=[table])], tables=[table], intro="All of it.")
    assert page.count("<strong>0.03</strong><small>±0.01</small>") == 2
    assert "Results &lt;1&gt;" in page
    assert '<a href="#table1">' in page
    assert '<a href="#b1">' in page
    assert svgs(page) == []
    Reader(page)


def test_figures_and_page_agree_on_the_light_colours(page):
    first = re.search(r":root \{(.*?)\}", page, flags=re.DOTALL).group(1)
    said = dict(re.findall(r"--(\w+): (#\w{6})", first))
    assert {name: said[name] for name in COLOURS} == COLOURS
