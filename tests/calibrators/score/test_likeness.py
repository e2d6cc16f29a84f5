"""How far rows are from the training rows: ranks are uniform for similar rows and high for others."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from qacal import LearnedScore
from qacal.calibrators.score.likeness import FAR, fit_likeness, weight_of_signals


def test_ranks_of_rows_like_those_of_the_fit_are_uniform():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(6, 6))
    blocks = [rng.normal(size=(4000, 6)) @ mixing, rng.exponential(size=(4000, 3))]
    likeness = fit_likeness(blocks)
    new = np.hstack([rng.normal(size=(4000, 6)) @ mixing, rng.exponential(size=(4000, 3))])
    assert stats.kstest(likeness.rank(new), "uniform").statistic < 0.05
    assert likeness.rank(new + 20).min() == 1.0


def test_the_distance_is_that_of_mahalanobis():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(500, 3)) * [1, 5, 0.2]
    likeness = fit_likeness([points])
    some = points[:350]
    covariance = np.cov(some.T, bias=True)
    covariance += 0.01 * np.trace(covariance) / 3 * np.eye(3)
    new = rng.normal(size=(50, 3))
    centred = new - some.mean(axis=0)
    expected = np.einsum("ij,jk,ik->i", centred, np.linalg.inv(covariance), centred)
    np.testing.assert_allclose(likeness._distances(new), expected, rtol=1e-9)


def test_a_missing_coordinate_counts_as_average():
    likeness = fit_likeness([np.random.default_rng(2).normal(size=(300, 2))])
    there = likeness.rank(np.array([[np.nan, 1.0], [likeness.mean[0], 1.0]]))
    assert there[0] == there[1]


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_have_no_likeness(rows):
    assert fit_likeness([np.zeros((rows, 2))]) is None


def test_signals_of_far_rows_count_half():
    np.testing.assert_allclose(weight_of_signals(np.array([0.0, 0.9, 0.945, FAR, 1.0])), [1, 1, 0.75, 0.5, 0.5])


def rows(rng, n, centre=0.0):
    Z = rng.normal(centre, 1, size=(n, 3))
    number = rng.normal(size=n)
    inputs = {
        "confidence": rng.choice([0.7, 0.8, 0.9], n),
        "embedding": Z,
        "price": number,
        "shop": rng.choice(["a", "b"], n),
    }
    return inputs, (rng.random(n) < expit(Z[:, 0] + number + (inputs["shop"] == "a"))).astype(float)


@pytest.fixture(scope="module")
def fitted():
    inputs, y = rows(np.random.default_rng(3), 2000)
    return LearnedScore(columns=["shop"], numbers=["price"]).fit(inputs, y)


def test_new_text_numbers_and_categories_are_far(fitted):
    rng = np.random.default_rng(4)
    near, _ = rows(rng, 500)
    assert abs(fitted._read(near).unlike.mean() - 0.5) < 0.05
    for change in ({"embedding": near["embedding"] + 8}, {"price": near["price"] + 100}, {"shop": ["c"] * 500}):
        assert fitted._read(near | change).unlike.min() > FAR


def test_scores_of_far_rows_go_halfway_to_the_pooled_map(fitted):
    near, _ = rows(np.random.default_rng(5), 200)
    far = near | {"embedding": near["embedding"] + 8}
    read = fitted._read(far, explains=True)
    np.testing.assert_allclose(expit(sum(read.parts.values())), read.score)
    maps = fitted.maps_
    columns = {name: far[name] for name in ("shop", "price")}
    inputs = maps.signals.inputs(far["confidence"][:, None], far["embedding"], None, columns)
    full = maps.contributions(inputs)
    for name, part in read.parts.items():
        np.testing.assert_allclose(part, full[name] if name == "confidence" else full[name] / 2)
