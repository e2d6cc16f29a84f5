"""Keep the default embedder loaded between commands of one process: loading it takes longer than they do."""

import pytest

from qacal.model.pipeline import _shared


@pytest.fixture(scope="session", autouse=True)
def _static():
    embedder = _shared("static")
    yield
    del embedder


@pytest.fixture(autouse=True)
def _wordless(wordless_unless_full):
    """Commands are the point here; fixtures of modules, the demo and the library's tests fit with words."""
