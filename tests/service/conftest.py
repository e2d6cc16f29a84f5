import pytest

from qacal import QACalibrator
from tests.answers import answers


@pytest.fixture(scope="session")
def fitted():
    return QACalibrator(features=(), examples=2).fit(answers(500)).set_threshold(0.6)


@pytest.fixture
def folder(fitted, tmp_path):
    """Return the path of a saved model."""
    path = tmp_path / "model"
    fitted.save(path)
    return str(path)
