"""The page in Chromium: clicked through with and without scripts, at two widths, light and dark."""

import pytest

from tests.service.browser import BROWSER, browsing
from tests.service.servers import running
from tests.service.test_app import KEY, ROWS

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium"),
]


@pytest.fixture
def address(fitted, tmp_path):
    """Return the address of a service with a key."""
    fitted.save(tmp_path / "model")
    with running(tmp_path / "model", tmp_path, api_key=KEY) as (_, address):
        yield address


@pytest.fixture
def page(address, tmp_path):
    with browsing(tmp_path / "browser") as page:
        page.look(1200)
        page.open(f"{address}/")
        page.fill("key", KEY)
        page.click("main button")
        assert page.run("document.querySelector('h1').textContent") == "How far to trust an answer"
        yield page


def ask(page):
    page.fill("question", ROWS[0]["question"])
    page.fill("answer", ROWS[0]["answer"])
    page.fill("confidence", "0.95")
    page.click("#try form button")


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_fits_and_follows_the_colour_scheme(page, width, is_dark):
    page.look(width, is_dark=is_dark)
    ask(page)
    assert page.run("document.documentElement.scrollWidth") == width
    red = page.run("Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0])")
    assert (red < 60) is is_dark
    # No style or script was refused by the policy of the page, and no script failed.
    assert page.messages == []


@pytest.mark.parametrize("has_script", [True, False])
def test_answers_and_labels_are_clicked(page, has_script):
    page.look(1200, has_script=has_script)
    ask(page)
    assert "calibrated" in page.run("document.querySelector('#result-title').textContent")
    assert page.run("document.querySelector('.result').getBoundingClientRect().top < innerHeight")
    page.click("button[value=yes]")
    assert "the label is stored" in page.run("document.querySelector('[role=status]').textContent")


def test_the_slider_moves_with_the_keyboard(page):
    page.run("document.getElementById('slider').focus()")
    before = page.run("document.querySelector('output').textContent")
    for _ in range(5):
        page.press("ArrowRight")
    after = page.run("document.querySelector('output').textContent")
    assert (before[:4], after[:4]) == ("0.60", "0.65")
    assert page.run("document.getElementById('slider').getAttribute('aria-valuetext')") == after
    assert page.run("document.getElementById('curve-at').getAttribute('x1')") == "65"
    # The server says the same.
    page.look(1200, has_script=False)
    page.open(page.run("location.origin") + "/?threshold=0.65")
    assert page.run("document.querySelector('output').textContent") == after


def test_every_control_is_reached_by_tab_and_shows_the_focus(page):
    controls = page.run("document.querySelectorAll('a, input, textarea, button:not([hidden]), summary').length")
    seen = set()
    for _ in range(controls + 3):
        page.press("Tab")
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        name = page.run("(e => e.id || e.textContent.slice(0, 40))(document.activeElement)")
        if page.run("document.activeElement !== document.body"):
            assert outline != "none", name
            seen.add(name)
    assert {"question", "answer", "confidence", "Calibrate", "slider"} <= seen
