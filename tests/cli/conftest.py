"""Keep the default embedder loaded between commands of one process: loading it takes longer than they do."""

import pytest

from qacal.model.pipeline import _shared


@pytest.fixture(scope="session", autouse=True)
def _static():
    embedder = _shared("static")
    yield
    del embedder
