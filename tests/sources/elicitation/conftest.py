import pytest

from tests.sizes import FULL


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    """Let the client wait a tenth as long before it repeats a request, unless the server says how long."""
    if not FULL:
        monkeypatch.setattr("qacal.sources.elicitation.client._FIRST_WAIT", 0.05)
