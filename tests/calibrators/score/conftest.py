import pytest

from qacal.partitions.base import one_thread


@pytest.fixture(autouse=True, scope="session")
def _alone():
    """Fit small matrices in one thread, as LearnedScore does."""
    with one_thread():
        yield
