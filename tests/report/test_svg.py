"""SVG for a page: matplotlib's output without parts that are unsafe or unnecessary there."""

import re
import threading

import matplotlib

from qacal.report import reliability_diagram
from qacal.report.style import COLOURS
from qacal.report.svg import drawing, inline_svg
from tests.report.rows import scored


def drawn(key="a", rows=300):
    with drawing():
        return inline_svg(reliability_diagram(scored(rows)), key)


def test_two_figures_share_no_id():
    first, second = (set(re.findall(r' id="([^"]+)"', drawn(key)[1])) for key in "ab")
    assert len(first) == len(second) > 2
    assert not first & second


def test_the_title_goes_into_the_page():
    title, svg = drawn()
    assert title.startswith("Stated confidence is off by")
    assert svg.count(title) == 1
    assert "<desc" in svg
    assert "<style" not in svg
    assert "metadata" not in svg


def test_colours_are_variables():
    _, svg = drawn()
    for name in ("stated", "pooled", "calibrated", "quiet", "grid"):
        assert f"var(--{name})" in svg
        assert COLOURS[name] not in svg


def test_settings_of_the_user_change_nothing():
    before = drawn()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert drawn() == before


def test_threads_do_not_disturb_each_other():
    expected, found = drawn(), []
    threads = [threading.Thread(target=lambda: found.append(drawn())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
