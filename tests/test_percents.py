"""Percents that may be none."""

import pytest

from qacal.errors import InputError
from qacal.percents import Percents


def counted(*shares):
    percents = Percents()
    percents.add(shares)
    return percents


def test_fractions_among_percents_are_refused():
    with pytest.raises(InputError, match="1 of 100 confidences lie between 0 and 1, and others reach 80"):
        counted(*[0.8] * 99, 0.0075).require()
    counted(*[0.8] * 50, *[0.0] * 25, *[0.01] * 25).require()


def test_fractions_are_no_percents():
    with pytest.raises(InputError, match=r"no confidence is above 0\.9"):
        counted(*[0.009] * 20).require()
    counted(*[0.009] * 19).require()
    Percents().require()
