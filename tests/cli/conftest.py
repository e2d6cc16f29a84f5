"""Commands run in this process share the default embedder, as long as somebody holds it; loading it takes longer."""

import pytest

from qacal.model.pipeline import _shared


@pytest.fixture(scope="session", autouse=True)
def _static():
    embedder = _shared("static")
    yield
    del embedder
