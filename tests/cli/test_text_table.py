"""Tables on narrow terminals: no word is broken, and nothing is lost."""

import io

import pytest
from rich.console import Console

from qacal.cli.options import show
from qacal.cli.text_table import TextTable

GROUPS = TextTable(
    "3 groups",
    ("group", "threshold", "rows", "answered", "share", "accuracy", "interval", "correct withheld", "rows needed"),
    [
        (name, "abstain", "1,492", "1,000", "0.497", "0.723", "0.701 to 0.745", "264 (33%)", "12,345")
        for name in ("law", "the history of international organisations", "health_insurance")
    ],
)
METHODS = TextTable(
    "methods",
    (
        "",
        "CE(h;β)",
        "its noise floor",
        "CE(h;β) debiased",
        "AUAC",
        "AURC",
        "Brier",
        "log loss",
        "CE by dataset debiased",
    ),
    [("HS-QAB", *["0.123*"] * 8), ("None", *["0.456 "] * 8)],
)


def shown(what, width):
    out = io.StringIO()
    Console(file=out, width=width).print(what, markup=False, highlight=False)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 1000])
@pytest.mark.parametrize("what", [GROUPS, METHODS], ids=["groups", "methods"])
def test_no_word_is_broken_at_any_width(what, width):
    text = shown(what, width)
    assert max(map(len, text.splitlines())) <= width
    words = set(text.replace(":", " ").split())
    expected = " ".join([*what.columns, *(cell for row in what.rows for cell in row)])
    assert set(expected.replace(":", " ").split()) <= words


def test_intervals_stay_whole_and_words_are_broken_sooner():
    header = ("", "mean", "error", "95% interval", "error within", "95% interval", "Brier", "log loss", "AURC")
    line = ("after", "0.547", "none seen", "0.000 to 0.045", "0.0337", "0.000 to 0.106", "0.1469", "0.4497", "0.1806")
    text = shown(TextTable("scores", header, [line]), 80)
    assert "0.000 to 0.045 0.0337 0.000 to 0.106" in text
    assert "none seen" not in text
    header = ("group", "rows", "accuracy", "before", "error before")
    groups = TextTable("groups", header, [("x" * 35, *["0.1"] * 3, "none seen")])
    assert "none seen" in shown(groups, 80)  # wide enough


def test_a_word_that_is_too_long_is_broken_without_loss():
    name = "x" * 300
    text = shown(TextTable("one", ("group", "rows"), [(name, "7")]), 80)
    assert "".join(text.split()).count("x") == 300
    assert max(map(len, text.splitlines())) <= 80


def test_a_pipe_is_as_wide_as_columns_says_and_nothing_is_broken_without_it(monkeypatch, capsys):
    text = "some words " * 20
    widths = {}
    for columns in ("80", "0", "wide", None):
        monkeypatch.delenv("COLUMNS", raising=False) if columns is None else monkeypatch.setenv("COLUMNS", columns)
        show(GROUPS)
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
        show(text)
        out = capsys.readouterr().out
        assert out.split() == text.split()
        assert max(map(len, out.splitlines())) <= 80 if columns == "80" else out == f"{text}\n"
    assert widths["80"] <= 80 < widths["0"] == widths["wide"] == widths[None]
