"""Categorical columns: which values have effects, and effects of several columns at once."""

import numpy as np
import pytest
from scipy.special import expit

from qacal import Column, InputError, QABinning
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.score.maps import MISSING, UNSEEN, find_levels
from qacal.metrics import calibration_error, log_loss
from qacal.partitions import Product


def test_known_values_have_codes_and_others_have_none():
    levels = find_levels({"topic": ["law", "art", "law", None], "tenant": [2, 2, 1, 7]})
    assert levels.labels == ("law", "art", 2, 1, 7)
    assert levels.column.tolist() == [0, 0, 1, 1, 1]
    codes = levels.codes({"topic": ["art", "chess", None], "tenant": [1, 99, None]})
    assert codes.tolist() == [[1, 3], [UNSEEN, UNSEEN], [MISSING, MISSING]]


def test_the_number_and_the_text_are_two_values():
    levels = find_levels({"tenant": [1, "1", 1, "1", 2.0]})
    codes = levels.codes({"tenant": [1, "1", 2]})
    assert len(levels) == len(set(codes.ravel().tolist())) == 3


def test_a_column_has_effects_for_its_most_frequent_values():
    values = [*range(300), *range(100)]
    levels = find_levels({"tenant": values})
    assert len(levels) == 256
    assert set(range(100)) <= set(levels.labels)
    assert levels.labels == find_levels({"tenant": values[::-1]}).labels


@pytest.mark.parametrize("columns", [{}, {"a": ["x"] * 5}, {"a": [None] * 5}, {"a": ["x", None] * 3}])
def test_columns_without_two_values_have_no_effects(columns):
    assert find_levels(columns) is None


def test_a_single_valued_column_beside_another():
    levels = find_levels({"one": ["x"] * 4, "two": ["a", "b"] * 2})
    assert levels.labels == ("a", "b")
    assert levels.codes({"one": ["x"], "two": ["b"]}).tolist() == [[UNSEEN, 1]]


SIZES = {"topic": 30, "tenant": 20, "language": 6}
EFFECTS = {name: np.random.default_rng(9).normal(0, 0.8, size) for name, size in SIZES.items()}


def crossed(seed, n):
    """Return 2,500 rows with a topic, a tenant and a language; most of the 3,600 combinations have no row."""
    rng = np.random.default_rng(seed)
    columns = {name: np.minimum(rng.geometric(3 / size, n) - 1, size - 1) for name, size in SIZES.items()}
    h = rng.choice([0.6, 0.7, 0.8, 0.9, 1.0], n)
    eta = 4 * (h - 0.7) + sum(EFFECTS[name][values] for name, values in columns.items())
    return {"confidence": h, **columns}, (rng.random(n) < expit(eta)).astype(float), expit(eta)


@pytest.fixture(scope="module")
def simulated():
    rows, y, _ = crossed(0, 2500)
    score = LearnedScore(text=False, columns=list(SIZES)).fit(rows, y)
    return rows, y, score, crossed(1, 40_000)


def error_by(p, new, y, name):
    return calibration_error(y, p, groups=new[name], bins=10)


def test_crossed_effects_are_calibrated_by_every_column_at_once(simulated):
    """One column alone leaves the effects of the others; all combinations have too few rows."""
    rows, y, score, (new, new_y, truth) = simulated
    assert score.columns_used == tuple(SIZES)
    found = score.predict(new)
    rivals = {}
    for name in SIZES:
        model = QABinning(points_per_bin=50).fit(rows["confidence"], y, groups=rows[name])
        rivals[name] = model.predict(new["confidence"], groups=new[name])
    product = Product(*map(Column, SIZES))._fit_rows(rows)
    model = QABinning(points_per_bin=50).fit(rows["confidence"], y, groups=product._groups_of(rows))
    rivals["product"] = model.predict(new["confidence"], groups=product._groups_of(new))
    loss = log_loss(new_y, found)
    assert loss < log_loss(new_y, truth) + 0.02
    for rival in rivals.values():
        assert loss < log_loss(new_y, rival) - 0.04
    for name in SIZES:
        assert error_by(found, new, new_y, name) < 0.06
        others = [rival for of, rival in rivals.items() if of != name]
        assert min(error_by(rival, new, new_y, name) for rival in others) > 0.1


def test_every_value_with_rows_is_calibrated_on_average(simulated):
    rows, _, score, (new, new_y, _) = simulated
    found = score.predict(new)
    for name in SIZES:
        seen, fresh = np.bincount(rows[name], minlength=SIZES[name]), np.bincount(new[name], minlength=SIZES[name])
        gap = np.bincount(new[name], found - new_y, minlength=SIZES[name]) / np.maximum(fresh, 1)
        noise = 4 / np.sqrt(4 * np.maximum(np.minimum(seen, fresh), 1))
        assert (np.abs(gap)[seen > 0] < noise[seen > 0] + 0.02).all()


def test_values_that_were_not_seen_have_no_effect(simulated):
    _, _, score, _ = simulated
    h = np.linspace(0, 1, 5)
    unseen = {name: [at] * 5 for name, at in zip(SIZES, (1000, 1001, 999), strict=True)}
    maps = score.maps_
    c = maps.pooled.logits(h[:, None]) - maps.centre
    np.testing.assert_allclose(
        score.predict({"confidence": h, **unseen}), expit(maps.coefficients[0] + maps.coefficients[1] * c), atol=1e-12
    )


def test_mixed_types_and_missing_values_are_learned_apart():
    rng = np.random.default_rng(0)
    kinds = [1, "1", None, "x"]
    at = rng.integers(0, 4, 4000)
    y = rng.random(4000) < np.array([0.2, 0.9, 0.5, 0.6])[at]
    rows = {"confidence": np.full(4000, 0.7), "tenant": [kinds[k] for k in at]}
    score = LearnedScore(text=False, columns=["tenant"]).fit(rows, y)
    found = score.predict({"confidence": [0.7] * 4, "tenant": kinds})
    np.testing.assert_allclose(found, [0.2, 0.9, 0.5, 0.6], atol=0.06)


def test_dates_and_lists_are_refused():
    rows = {"confidence": [0.5, 0.6], "day": np.array(["2025-01-01", "2025-01-02"], dtype="datetime64[D]")}
    with pytest.raises(InputError, match="dates or times"):
        LearnedScore(text=False, columns=["day"]).fit(rows, [0, 1])
    with pytest.raises(InputError):
        LearnedScore(text=False, columns=["day"]).fit(rows | {"day": [["a"], ["b", "c"]]}, [0, 1])


def test_values_of_another_type_are_refused():
    levels = find_levels({"tenant": ["1", "2", "1"]})
    with pytest.raises(InputError, match="tenant has labels that are numbers; those of the fit are text"):
        levels.codes({"tenant": [1, 2]})
    assert levels.codes({"tenant": [None, 1, "2"]}).tolist() == [[MISSING], [UNSEEN], [1]]


@pytest.mark.parametrize("names", [{"columns": ["correct"]}, {"confidences": ["correct"]}])
def test_a_score_does_not_read_the_label(names):
    with pytest.raises(InputError, match="must not read `correct`"):
        LearnedScore(text=False, **names).fit({"confidence": [0.5, 0.6], "correct": [0, 1]}, [0, 1])


def test_a_column_has_one_kind():
    score = LearnedScore(text=False, columns=["tokens"], confidences=["tokens"])
    with pytest.raises(InputError, match="'tokens' is among columns and confidences"):
        score.fit({"confidence": [0.5, 0.6], "tokens": [0.5, 0.6]}, [0, 1])
