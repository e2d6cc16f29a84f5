"""Percents that may be none."""

import pytest

from qacal.errors import InputError
from qacal.percents import Percents


def counted(*shares):
    percents = Percents()
    percents.add(shares)
    return percents


def test_a_few_small_percents_are_usual():
    assert counted(*[0.8] * 95, *[0.005] * 5).remark() is None
    assert counted(*[0.8] * 94, *[0.005] * 6).remark().startswith("6 of 100 confidences lie between 0 and 1")
    assert counted(*[0.8] * 50, *[0.0] * 25, *[0.01] * 25).remark() is None


def test_fractions_are_no_percents():
    with pytest.raises(InputError, match=r"no confidence is above 0\.9"):
        counted(*[0.009] * 20).require()
    counted(*[0.009] * 19).require()
    counted(*[0.009] * 19, 0.02).require()
    Percents().require()
