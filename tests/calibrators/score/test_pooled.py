"""The pooled map from confidence to accuracy: lines, curves, several confidences, missing ones."""

import numpy as np
import pytest
from scipy.special import expit, logit

from qacal import Tally
from qacal.calibrators import PlattScaling
from qacal.calibrators.curves import isotonic_shape
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.score.pooled import fit_pooled
from tests.rebuilt import rebuilt

NAN = np.nan


def rows(seed=0, n=1500):
    """Return two confidences that carry different information, and labels."""
    rng = np.random.default_rng(seed)
    one, two = rng.normal(0.5, 1, (2, n))
    y = (rng.random(n) < expit(0.2 + 0.7 * one + 1.1 * two)).astype(float)
    return np.column_stack([expit(one), expit(two)]).round(7), y


def test_as_stated():
    h, y = rows()
    np.testing.assert_allclose(fit_pooled(h[:, :1], y, "stated").logits(h[:, :1]), logit(h[:, 0]))


def test_a_line_is_platts():
    h, y = rows()
    platt = PlattScaling(feature="logit").fit(h[:, 0], y).predict(h[:, 0])
    np.testing.assert_allclose(expit(fit_pooled(h[:, :1], y, "line").logits(h[:, :1])), platt, atol=1e-9)


def test_a_curve_is_the_isotonic_one():
    h, y = rows()
    shape = isotonic_shape(Tally.of(h[:, 0], y))
    np.testing.assert_allclose(fit_pooled(h[:, :1], y, "curve").logits(h[:, :1]), shape.apply(h[:, 0]))


def test_two_lines_are_a_logistic_regression_of_both():
    h, y = rows(n=40_000)
    pooled = fit_pooled(h, y, "line")
    np.testing.assert_allclose([pooled.intercept, *pooled.slopes], [0.2, 0.7, 1.1], atol=0.06)


@pytest.mark.parametrize("kind", ["line", "curve"])
def test_two_equal_confidences_count_as_one(kind):
    h, y = rows()
    once, twice = (fit_pooled(h[:, columns], y, kind) for columns in ([0], [0, 0]))
    found = expit(twice.logits(h[:, [0, 0]]))
    np.testing.assert_allclose(found, expit(once.logits(h[:, :1])), atol=0.02)


@pytest.mark.parametrize("difference", [1e-7, 1e-6, 1e-5])
@pytest.mark.parametrize("kind", ["line", "curve"])
def test_many_rows_whose_confidences_are_nearly_equal(kind, difference):
    """Their curvature has no Cholesky factor in single precision."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        one = rng.random(20_000)
        h = np.column_stack([one, np.clip(one + difference * rng.normal(size=20_000), 0, 1)])
        y = (rng.random(20_000) < one).astype(float)
        assert np.abs(expit(fit_pooled(h, y, kind).logits(h)) - one).mean() < 0.02


@pytest.mark.parametrize("kind", ["line", "curve"])
def test_a_missing_confidence_has_its_own_effect(kind):
    """Rows without it are correct far less often, and there are enough of them to show it."""
    h, y = rows(n=4000)
    h[:1500, 1] = NAN
    y[:1500] = np.random.default_rng(1).random(1500) < expit(-2 + 0.7 * logit(h[:1500, 0]))
    pooled = fit_pooled(h, y, kind)
    found = expit(pooled.logits(h))
    assert found[:1500].mean() == pytest.approx(y[:1500].mean(), abs=0.01)
    assert found[1500:].mean() == pytest.approx(y[1500:].mean(), abs=0.01)


@pytest.mark.parametrize("kind", ["line", "curve"])
@pytest.mark.parametrize("n_missing", [0, 1])
def test_a_rarely_missing_confidence_is_taken_as_average(kind, n_missing):
    """With an accuracy of 0.69, a row without its second confidence once got 0.12 or 0.99 by chance."""
    rng = np.random.default_rng(0)
    x = rng.normal(3, 1, 3000)
    y = (rng.random(3000) < expit(x - 2)).astype(float)
    h = np.column_stack([rng.choice([0.6, 0.8, 0.9], 3000), expit(x)])
    h[:n_missing, 1], y[:n_missing] = NAN, 1.0
    lacking = np.column_stack([[0.6, 0.8, 0.9], [NAN] * 3])
    assert np.abs(expit(fit_pooled(h, y, kind).logits(lacking)) - y.mean()).max() < 0.08


@pytest.mark.parametrize("kind", ["line", "curve"])
def test_a_confidence_that_every_row_lacks_changes_nothing(kind):
    h, y = rows()
    h[:, 1] = NAN
    alone = fit_pooled(h[:, :1], y, kind)
    both = fit_pooled(h, y, kind)
    rebuilt(both)
    np.testing.assert_allclose(expit(both.logits(h)), expit(alone.logits(h[:, :1])), atol=0.02)
    assert np.isfinite(both.logits(np.array([[0.3, 0.9], [1.0, 0.0]]))).all()


@pytest.mark.parametrize("kind", ["stated", "line", "curve"])
@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_few_rows_of_one_label(kind, label, n):
    h = np.linspace(0, 1, n)[:, None]
    pooled = fit_pooled(h, np.full(n, label), kind)
    rebuilt(pooled)
    assert np.isfinite(pooled.logits(np.array([[0.0], [0.5], [1.0]]))).all()


def test_knots_that_are_too_close_for_a_slope():
    h = np.array([0.0, 5e-324, 1e-323, 1.5e-323] * 50)[:, None]
    y = np.tile([0.0, 0.0, 1.0, 1.0], 50)
    assert np.isfinite(fit_pooled(h, y, "curve").logits(h)).all()


def test_both_confidences_are_better_than_either():
    """Stated and token confidence carry different information."""
    from qacal.metrics import log_loss

    h, y = rows(n=3000)
    new, new_y = rows(seed=1, n=20_000)

    def loss(columns, confidences):
        score = LearnedScore(text=False, confidences=confidences)
        inputs = dict(zip(("confidence", "tokens"), h.T[columns], strict=False))
        fresh = dict(zip(("confidence", "tokens"), new.T[columns], strict=False))
        return log_loss(new_y, score.fit(inputs, y).predict(fresh))

    both, first, second = loss([0, 1], ["tokens"]), loss([0], []), loss([1], [])
    assert both < min(first, second) - 0.02
    assert abs(loss([1, 0], ["tokens"]) - both) < 0.002


def test_a_missing_confidence_adds_nothing_to_a_curve_of_one_knot():
    """A constant confidence has a curve of one knot, which numpy's interpolation returns for NaN, too."""
    rng = np.random.default_rng(0)
    stated = rng.choice([0.6, 0.8, 0.9], 400)
    further = np.where(np.arange(400) % 2, 0.7, np.nan)
    pooled = fit_pooled(np.column_stack([stated, further]), (rng.random(400) < stated).astype(float), "curve")
    assert pooled.parts(np.array([[0.8, np.nan]]))[0, 1] == 0.0
    assert pooled.parts(np.array([[0.8, 0.7]]))[0, 1] != 0.0
