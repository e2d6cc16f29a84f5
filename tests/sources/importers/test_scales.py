"""Scores and confidences in logs: which values are read, and which show another scale."""

import pytest

from qacal.errors import InputError
from qacal.sources.importers import Selection
from qacal.sources.importers.base import Log
from qacal.sources.importers.confidences import Scored, Unscored


def log(**selection):
    return Log([], Selection(**selection), print)


@pytest.mark.parametrize("number", [95, "95"])
def test_a_confidence_on_another_scale_is_refused(number):
    """Dropping only this row would keep rows with 1, which means one percent."""
    with pytest.raises(InputError) as refused:
        log().confidence(number)
    assert str(refused.value) == (
        "the confidence in the metadata is 95; expected 0 to 1. On another scale a 1 may mean anything, so nothing is "
        "imported. If these are percents, pass --percent. Another source is chosen with --confidence-from."
    )
    assert log(percent=True).confidence(number).value == 0.95
    with pytest.raises(InputError, match=r"is 150; .*It is not a percent either\."):
        log(percent=True).confidence(150)
    with pytest.raises(InputError, match=r"is 8; .*If these are grades, as from 0 to 10 or 1 to 5, convert them"):
        log().confidence(8)
    with pytest.raises(InputError, match=r"is -1; .*If -1 or the like means no value, leave it empty\."):
        log().confidence(-1)


def test_a_grade_on_another_scale_is_refused():
    with pytest.raises(InputError, match=r"the score is 2; expected 0 to 1\. .* Pass the lowest score .*--correct-at"):
        log().grade(2)
    assert [log(correct_at=4).grade(grade) for grade in (1, 2, 5, 4)] == [0.0, 0.0, 1.0, 1.0]


def test_rounding_errors_are_not_another_scale():
    assert (log().confidence(1.0000001192).value, log().grade(-1e-9)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "read"),
    [("0.95", 0.95), ("95%", 0.95), ("8/10", 0.8), (" .5 ", 0.5), ("1e-2", 0.01), ("0,8", 0.8), ("1%", 0.01)],
)
def test_confidences_as_text_are_read_like_those_in_replies(text, read):
    assert log().confidence(text) == Scored(read, "metadata")


@pytest.mark.parametrize("text", ["0.95%", "1.0%", "0.", "0.7-0.9", ">0.9", "high", "nan", "", None])
def test_ambiguous_text_is_not_read(text):
    assert isinstance(log().confidence(text), Unscored)
