import functools
import gc
import os

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from qacal import LearnedScore
from tests.sizes import FULL

# The same examples on every machine and every run: a failure can always be repeated.
settings.register_profile(
    "qacal",
    derandomize=True,
    deadline=None,
    max_examples=60 if FULL else 20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("qacal")


@pytest.fixture
def undrawn(monkeypatch):
    """Leave the figures of pages empty but for titles and text alternatives: drawing takes most of a report's time."""
    empty = b'<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt" viewBox="0 0 1 1"/>'
    monkeypatch.setattr("qacal.report.svg._saved", lambda ax, key: empty)


@pytest.fixture
def undrawn_unless_full(request):
    if not FULL:
        request.getfixturevalue("undrawn")


@pytest.fixture
def wordless_unless_full(monkeypatch):
    """Let the default score read no words, as `LearnedScore(words=False)`: they take most of a fit's time."""
    if not FULL:
        monkeypatch.setitem(LearnedScore.__init__.__kwdefaults__, "words", False)


# typer makes its commands again for each run of the command line, which takes longer than most runs: keep them.
typer.main.get_command = functools.cache(typer.main.get_command)


# Modules and collected tests are a million objects that stay: leave them out of garbage collections.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


# Tables are as wide as their content unless a test says otherwise; workers of pytest-xdist set a width.
os.environ.pop("COLUMNS", None)
