"""Numbers of any scale as smooth columns."""

from functools import partial

import numpy as np
import pytest

from qacal.calibrators.score import numbers as module
from qacal.calibrators.score.numbers import first_cosines
from tests.rebuilt import rebuilt

fit_numbers = partial(module.fit_numbers, together=True)


@pytest.mark.parametrize("scale", [np.exp, lambda x: 1e12 * x, lambda x: x**3], ids=["exp", "large", "cube"])
def test_the_scale_does_not_matter(scale):
    """Ranks are interpolated between quantiles, with an error of at most 1/64."""
    x = np.random.default_rng(0).normal(size=(500, 1))
    plain, scaled = (fit_numbers(values).cosines(values) for values in (x, scale(x)))
    assert np.abs(first_cosines(plain) - first_cosines(scaled)).max() < np.sqrt(2) * np.pi / 64


def test_cosines_are_those_of_interpolated_ranks():
    """A slow version: each number by itself, and each cosine."""
    rng = np.random.default_rng(6)
    x = np.column_stack(
        [rng.normal(size=400), rng.integers(0, 4, 400), 1e300 * rng.normal(size=400), 5e-324 * rng.integers(0, 9, 400)]
    )
    numbers = fit_numbers(x)
    new = np.vstack([x[:50], x[:50] * 3 - 1, [[np.nan] * 4, [np.inf, -np.inf, 1.0, 2.0]], numbers.quantiles.T])
    ranks = np.empty(new.shape)
    for at, quantiles in enumerate(numbers.quantiles):
        places = np.unique(quantiles)
        middle = [np.flatnonzero(quantiles == place).mean() / 64 for place in places]
        ranks[:, at] = np.interp(new[:, at], places, middle)
    slow = [np.sqrt(2) * np.cos(np.pi * j * ranks) / j for j in range(1, 6)]
    slow = np.where(np.isfinite(new)[:, :, None], np.stack(slow, axis=2), 0.0).reshape(len(new), -1)
    np.testing.assert_allclose(numbers.cosines(new), slow, atol=1e-12)


def test_many_rows_have_the_cosines_of_one_at_a_time():
    """Small whole numbers are looked up if there are many."""
    rng = np.random.default_rng(7)
    x = np.column_stack([rng.poisson(40, 900), rng.poisson(200, 900), rng.normal(0, 50, 900).round(1)]).astype(float)
    numbers = fit_numbers(x)
    x[:9] = np.array([[-0.0, -3.0, 255.0, 256.0, 1e300, -1e300, np.inf, -np.inf, np.nan]]).T
    singly = np.vstack([numbers.cosines(row) for row in x[:, None]])
    np.testing.assert_allclose(numbers.cosines(x), singly, rtol=0, atol=1e-13)


def test_equal_numbers_have_the_middle_rank():
    x = np.array([[0.0]] * 60 + [[1.0]] * 40)
    ranks = np.arccos(first_cosines(fit_numbers(x).cosines(x)) / np.sqrt(2)) / np.pi
    np.testing.assert_allclose(np.unique(ranks.round(2)), [0.29, 0.8], atol=0.02)


def test_a_missing_number_has_the_average_rank_and_changes_no_other():
    x = np.random.default_rng(1).normal(size=(300, 2))
    numbers = fit_numbers(x)
    holes = x.copy()
    holes[::3, 0] = np.nan
    cosines, full = numbers.cosines(holes), numbers.cosines(x)
    assert not cosines[::3, : numbers.width // 2].any()
    np.testing.assert_array_equal(cosines[:, numbers.width // 2 :], full[:, numbers.width // 2 :])
    assert np.abs(full.mean(axis=0)).max() < 0.05


@pytest.mark.parametrize("value", [3.0, np.nan])
def test_a_constant_is_uninformative(value):
    x = np.full((50, 1), value)
    numbers = fit_numbers(x)
    cosines = numbers.cosines(x)
    assert np.ptp(cosines) == 0 or np.abs(np.ptp(cosines, axis=0)).max() == 0
    assert numbers.together(cosines).shape == (50, 0)
    rebuilt(numbers)


def test_numbers_beyond_those_of_the_fit_have_the_ranks_of_the_ends():
    numbers = fit_numbers(np.arange(10.0)[:, None])
    np.testing.assert_array_equal(numbers.cosines(np.array([[-1e9], [1e9]])), numbers.cosines(np.array([[0.0], [9.0]])))
