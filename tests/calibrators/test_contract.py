"""The contract: every calibrator crossed with every property it should have, or declares."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import qacal
from qacal import InputError, MarginBinning, NotFittedError, Paths, StepBinning, Tally
from qacal.tally import ids as identity
from qacal.tally.arrays import seven_decimals
from tests.calibrators.contract import CALIBRATORS, name_of
from tests.sizes import examples

every_calibrator = pytest.mark.parametrize("calibrator", CALIBRATORS, ids=name_of)


def all_that(declared):
    """Parametrize a test with the calibrators that declare a property."""
    found = [calibrator for calibrator in CALIBRATORS if getattr(calibrator.properties, declared)]
    return pytest.mark.parametrize("calibrator", found, ids=name_of)


VALUES = [0.0, 0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0]


@st.composite
def data(draw, min_rows=1, max_rows=80, soft=True, weighted=True):
    """Draw rows with ties, zeros and ones, several groups or none, sometimes soft targets and weights."""
    n = draw(st.integers(min_rows, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    h = rng.choice(VALUES, n) if draw(st.booleans()) else rng.random(n)
    t = rng.random(n) if soft and draw(st.booleans()) else (rng.random(n) < 0.3 + 0.5 * h).astype(float)
    groups = rng.integers(-1, draw(st.integers(0, 4)), n)
    weights = rng.exponential(size=n) + 0.01 if weighted and draw(st.booleans()) else None
    return {"confidence": h, "correct": t, "groups": groups, "sample_weight": weights, "ids": np.arange(n) * 7 + 3}


def asks(rows):
    return {name: rows[name] for name in ("confidence", "groups", "ids")}


def fit(calibrator, rows):
    return clone(calibrator).fit(**rows)


def reordered(rows, order):
    return {name: None if column is None else column[order] for name, column in rows.items()}


@every_calibrator
@examples(25, 5)
@given(rows=data())
def test_answers_are_probabilities_and_fit_predict_explain_agree(calibrator, rows):
    model = fit(calibrator, rows)
    p = model.predict(**asks(rows))
    assert p.shape == rows["confidence"].shape
    assert ((p >= 0) & (p <= 1)).all()
    evidence = model.explain(**asks(rows))
    np.testing.assert_array_equal(evidence.calibrated, p)
    np.testing.assert_array_equal(evidence.confidence, rows["confidence"])
    sources = {"band"} if isinstance(calibrator, MarginBinning) else {"group", "ancestor", "root"}
    assert set(evidence.source) <= sources
    assert (evidence.rows >= 0).all()
    assert len(evidence.to_polars()) == len(p)


@every_calibrator
@examples(25, 5)
@given(rows=data(), seed=st.integers(0, 1000))
def test_row_order_is_irrelevant(calibrator, rows, seed):
    order = np.random.default_rng(seed).permutation(len(rows["confidence"]))
    there = fit(calibrator, rows).predict(**asks(rows))
    back = fit(calibrator, reordered(rows, order)).predict(**asks(rows))
    np.testing.assert_array_equal(there, back)


@every_calibrator
@examples(10, 5)
@given(rows=data(min_rows=20), seed=st.integers(0, 1000))
def test_row_order_is_irrelevant_without_ids(calibrator, rows, seed):
    if getattr(calibrator, "ties", None) == "jitter":
        rows["confidence"] = np.random.default_rng(seed).permutation(len(rows["confidence"])) / len(rows["confidence"])
    rows["ids"] = None
    order = np.random.default_rng(seed).permutation(len(rows["confidence"]))
    there = fit(calibrator, rows).predict(**asks(rows))
    back = fit(calibrator, reordered(rows, order)).predict(**asks(rows))
    np.testing.assert_array_equal(there, back)


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_predicting_changes_nothing(calibrator, rows):
    model = fit(calibrator, rows)
    before = pickle.dumps(model.maps_)
    first = model.predict(**asks(rows))
    model.predict(rows["confidence"], groups=rows["groups"] + 100, ids=rows["ids"])
    model.explain(**asks(rows))
    np.testing.assert_array_equal(model.predict(**asks(rows)), first)
    assert pickle.dumps(model.maps_) == before


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_one_row_at_a_time_is_the_same_as_all_together(calibrator, rows):
    model = fit(calibrator, rows)
    together = model.predict(**asks(rows))
    alone = [model.predict(**reordered(asks(rows), [i]))[0] for i in range(min(10, len(together)))]
    np.testing.assert_array_equal(together[:10], alone)


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_one_group_equals_no_group(calibrator, rows):
    one = {**rows, "groups": np.full(len(rows["confidence"]), 5)}
    none = {**rows, "groups": None}
    alone = clone(calibrator)
    if isinstance(calibrator, StepBinning | MarginBinning):
        # Answers are moved into intervals, and root and group share alpha although they have the same rows.
        alone.set_params(alpha=calibrator.alpha / 2)
    p_one, p_none = fit(calibrator, one).predict(**asks(one)), fit(alone, none).predict(**asks(none))
    np.testing.assert_allclose(p_one, p_none, atol=1e-12)


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_a_tree_of_depth_0_equals_no_group(calibrator, rows):
    n = len(rows["confidence"])
    tree = {**rows, "groups": Paths(np.zeros(n, dtype=int), np.ones(n, dtype=int), 0)}
    none = {**rows, "groups": None}
    np.testing.assert_allclose(
        fit(calibrator, tree).predict(**asks(tree)), fit(calibrator, none).predict(**asks(none)), atol=1e-12
    )


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_names_of_groups_are_irrelevant(calibrator, rows):
    names = np.array([None, "zoology", "art", "law", "bible"], dtype=object)
    named = {**rows, "groups": names[rows["groups"] + 1]}
    numbered, by_name = fit(calibrator, rows), fit(calibrator, named)
    np.testing.assert_allclose(numbered.predict(**asks(rows)), by_name.predict(**asks(named)), atol=1e-6)


@every_calibrator
@examples(15, 5)
@given(rows=data(weighted=False))
def test_weights_of_one_equal_no_weights_and_a_weight_of_zero_is_no_row(calibrator, rows):
    n = len(rows["confidence"])
    plain = fit(calibrator, rows).predict(**asks(rows))
    ones = fit(calibrator, {**rows, "sample_weight": np.ones(n)}).predict(**asks(rows))
    np.testing.assert_allclose(ones, plain, atol=1e-9)
    doubled = {name: None if column is None else np.concatenate([column, column]) for name, column in rows.items()}
    doubled |= {"sample_weight": np.repeat([1.0, 0.0], n), "correct": np.append(rows["correct"], 1 - rows["correct"])}
    np.testing.assert_allclose(fit(calibrator, doubled).predict(**asks(rows)), plain, atol=1e-9)


@every_calibrator
@examples(15, 5)
@given(rows=data(), factor=st.sampled_from([1e-50, 0.001, 3.0, 1000.0, 1e50]))
def test_the_scale_of_weights_is_irrelevant(calibrator, rows, factor):
    rows["sample_weight"] = np.ones(len(rows["confidence"])) if rows["sample_weight"] is None else rows["sample_weight"]
    scaled = {**rows, "sample_weight": rows["sample_weight"] * factor}
    np.testing.assert_allclose(
        fit(calibrator, scaled).predict(**asks(rows)), fit(calibrator, rows).predict(**asks(rows)), atol=1e-6
    )


@every_calibrator
@examples(15, 5)
@given(rows=data(), cut=st.integers(0, 80))
def test_tallies_add(calibrator, rows, cut):
    n = len(rows["confidence"])
    cut = min(cut, n)
    keyed = rows if calibrator.properties.uses_groups else {**rows, "groups": None}
    options = calibrator._tally_options()
    parts = [reordered(keyed, slice(0, cut)), reordered(keyed, slice(cut, n))]
    tallies = [Tally.of(**part, **options) for part in parts if len(part["confidence"])]
    whole = clone(calibrator).fit(**rows).predict(**asks(rows))
    np.testing.assert_allclose(clone(calibrator).fit_tally(sum(tallies)).predict(**asks(rows)), whole, atol=1e-7)


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_predicting_cells_is_predicting_rows(calibrator, rows):
    model = fit(calibrator, rows)
    keeps_ties = bool(calibrator._tally_options().get("ties"))
    tally = Tally.of(rows["confidence"], rows["correct"], groups=rows["groups"], ids=rows["ids"], ties=keeps_ties)
    of_rows = model.predict(**asks(rows))
    of_cells = dict(zip(zip(*_keys(tally), strict=True), model.predict_tally(tally), strict=True))
    ties = identity.as_tie(identity.id_hashes(rows["ids"], len(of_rows))) if keeps_ties else np.zeros(len(of_rows))
    stated = seven_decimals(rows["confidence"]) if keeps_ties else rows["confidence"]
    of = [of_cells[key] for key in zip(rows["groups"].tolist(), stated.tolist(), ties.tolist(), strict=True)]
    np.testing.assert_array_equal(of, of_rows)


def _keys(tally):
    ties = np.zeros(len(tally)) if tally.tie is None else tally.tie
    return tally.grouping.code.tolist(), tally.confidence.tolist(), ties.tolist()


@every_calibrator
@examples(15, 5)
@given(rows=data())
def test_any_tally_of_the_same_rows_gives_the_same_maps(calibrator, rows):
    """Blocks, ties and groups that a calibrator does not need make no difference."""
    options = calibrator._tally_options()
    full = Tally.of(
        **rows,
        n_blocks=256,
        seed=options.get("seed", 0),
        ties=True,
        resolution=None if options.get("ties") else options.get("resolution"),
    )
    there = clone(calibrator).fit_tally(full).predict(**asks(rows))
    np.testing.assert_allclose(there, fit(calibrator, rows).predict(**asks(rows)), atol=1e-7)


# Declared properties


@all_that("keeps_mean")
@examples(25, 5)
@given(rows=data())
def test_keeps_the_mean_where_it_says_so(calibrator, rows):
    model = fit(calibrator, rows)
    evidence = model.explain(**asks(rows))
    w = np.ones(len(rows["correct"])) if rows["sample_weight"] is None else rows["sample_weight"]
    sets = (
        [(rows["groups"] == s) for s in set(evidence.group) - {None}]
        if calibrator.properties.uses_groups
        else [np.ones(len(w), dtype=bool)]
    )
    for mine in sets:
        if calibrator.properties.uses_groups and evidence.source[mine][0] != "group":
            continue
        # Snapping to a grid moves rows between neighbouring bins of the same map, for fit and predict alike.
        p = (evidence.calibrated[mine] * w[mine]).sum() / w[mine].sum()
        assert p == pytest.approx((rows["correct"][mine] * w[mine]).sum() / w[mine].sum(), abs=1e-8)


@all_that("is_monotone")
@examples(25, 5)
@given(rows=data())
def test_is_monotone_where_it_says_so(calibrator, rows):
    model = fit(calibrator, rows)
    grid = np.linspace(0, 1, 101)
    for s in (-1, 0, 1, 2):
        steps = np.diff(model.predict(grid, groups=np.full(101, s), ids=np.arange(101)))
        assert (steps >= -1e-12).all() or (steps <= 1e-12).all()


@all_that("is_discrete")
@examples(25, 5)
@given(rows=data())
def test_is_discrete_where_it_says_so(calibrator, rows):
    model = fit(calibrator, rows)
    grid, ids = np.linspace(0, 1, 501), np.arange(501)
    outputs = {p for s in (-1, 0, 1, 2) for p in model.predict(grid, groups=np.full(501, s), ids=ids)}
    assert outputs <= set(model.maps_.value.tolist())


@every_calibrator
@examples(25, 5)
@given(rows=data())
def test_certifies_where_it_says_so(calibrator, rows):
    evidence = fit(calibrator, rows).explain(**asks(rows))
    if not calibrator.properties.is_certified:
        assert np.isnan(evidence.low).all()
        assert np.isnan(evidence.high).all()
        return
    assert ((evidence.low >= 0) & (evidence.high <= 1) & (evidence.low <= evidence.high)).all()
    assert (evidence.alpha == calibrator.alpha).all()
    if "Scaling" not in type(calibrator).__name__:
        assert (evidence.low <= evidence.calibrated + 1e-12).all()
        assert (evidence.calibrated <= evidence.high + 1e-12).all()


@every_calibrator
def test_groups_matter_exactly_where_it_says_so(calibrator):
    rng = np.random.default_rng(0)
    n = 400
    groups = np.arange(n) % 2
    h = rng.choice([0.6, 0.8], n)
    right = rng.random(n) < np.where(groups == 0, 0.2, 0.9)
    model = clone(calibrator).fit(h, right, groups=groups, ids=range(n))
    p = model.predict([0.8, 0.8], groups=[0, 1], ids=[1, 1])
    if isinstance(calibrator, MarginBinning):  # groups have intervals, and do not move answers
        evidence = model.explain([0.8, 0.8], groups=[0, 1])
        assert evidence.group_high[0] < 0.4 < 0.8 < evidence.group_low[1]
    elif calibrator.properties.uses_groups and getattr(calibrator, "pooling", None) != "full":
        assert p[1] > p[0] + 0.3
    elif not calibrator.properties.uses_groups:
        assert p[0] == p[1]


# scikit-learn's interface and refusals


@every_calibrator
def test_parameters_work_as_in_scikit_learn(calibrator):
    params = calibrator.get_params()
    copy = clone(calibrator)
    assert copy.get_params() == params
    assert not hasattr(copy, "maps_")
    known = {name: getattr(qacal.calibrators, name) for name in qacal.calibrators.__all__}
    assert eval(repr(calibrator), known).get_params() == params
    assert copy.fit([0.2, 0.8], [0, 1], ids=[1, 2]) is copy
    with pytest.raises(InputError, match="no parameter 'colour'"):
        calibrator.set_params(colour=1)
    with pytest.raises(TypeError):
        type(calibrator)(7)  # keyword only
    with pytest.raises(NotFittedError, match="call fit first"):
        clone(calibrator).predict([0.5])


@every_calibrator
def test_survives_pickling(calibrator):
    rng = np.random.default_rng(0)
    rows = {
        "confidence": rng.choice(VALUES, 200),
        "correct": rng.integers(0, 2, 200),
        "groups": rng.integers(0, 3, 200),
    }
    model = clone(calibrator).fit(**rows, ids=range(200))
    asked = {"confidence": rows["confidence"], "groups": rows["groups"], "ids": range(200)}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(**asked), model.predict(**asked))


@every_calibrator
def test_predicts_the_same_from_threads(calibrator):
    rng = np.random.default_rng(0)
    n = 5000
    rows = {"confidence": rng.choice(VALUES, n), "correct": rng.integers(0, 2, n), "groups": rng.integers(0, 9, n)}
    model = clone(calibrator).fit(**rows, ids=range(n))
    asked = {"confidence": rows["confidence"], "groups": rows["groups"], "ids": range(n)}
    expected = model.predict(**asked)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: model.predict(**asked), range(12)):
            np.testing.assert_array_equal(result, expected)


FORMS = {
    "list": list,
    "tuple": tuple,
    "float32": lambda x: np.asarray(x, dtype=np.float32),
    "pandas": pd.Series,
    "pandas, odd index": lambda x: pd.Series(x, index=range(100, 100 + len(x))),
    "pandas, nullable": lambda x: pd.Series(x).convert_dtypes(),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow, chunked": lambda x: pa.chunked_array([x[:50], x[50:]]),
    "not contiguous": lambda x: np.repeat(np.asarray(x), 2)[::2],
}


@every_calibrator
def test_takes_any_column(calibrator):
    rng = np.random.default_rng(0)
    h, t, s = rng.choice(VALUES, 200), rng.integers(0, 2, 200), rng.integers(0, 3, 200)
    expected = clone(calibrator).fit(h, t, groups=s, ids=range(200)).predict(h, groups=s, ids=range(200))
    for form, made in FORMS.items():
        groups = s if form == "float32" else made(s.tolist())
        model = clone(calibrator).fit(made(h.tolist()), made(t.tolist()), groups=groups, ids=range(200))
        found = model.predict(made(h.tolist()), groups=groups, ids=range(200))
        np.testing.assert_array_equal(found, expected, err_msg=form)
    boolean = clone(calibrator).fit(h, t.astype(bool), groups=s, ids=range(200))
    np.testing.assert_array_equal(boolean.predict(h, groups=s, ids=range(200)), expected)


@every_calibrator
def test_the_same_numbers_in_another_precision_get_the_same_answers(calibrator):
    """As 32-bit floats, as 64-bit floats, and with the last bit of another processor."""
    rng = np.random.default_rng(1)
    h, t, s = rng.random(300), rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    h[:100] = h[:100].round(2)
    forms = {"float64": h, "float32": h.astype(np.float32), "a bit more": np.minimum(h * (1 + 2.3e-16), 1)}
    fits = [clone(calibrator).fit(form, t, groups=s, ids=range(300)) for form in forms.values()]
    if isinstance(calibrator, qacal.calibrators.Identity):
        np.testing.assert_array_equal(fits[0].predict(h), h)
        return
    expected = fits[0].predict(h, groups=s, ids=range(300))
    for model in fits:
        for form in forms.values():
            np.testing.assert_array_equal(model.predict(form, groups=s, ids=range(300)), expected)
        tally = Tally.of(h.astype(np.float32), t, groups=s, ids=range(300), **model._tally_options())
        again = clone(calibrator).fit_tally(tally)
        np.testing.assert_array_equal(again.predict(h, groups=s, ids=range(300)), expected)


REFUSED = [
    ({"confidence": [0.5, float("nan")]}, r"confidence\[1\] is nan"),
    ({"confidence": [0.5, float("inf")]}, r"confidence\[1\] is inf"),
    ({"confidence": [85, 90]}, r"confidence\[0\] is 85.0 \(and 1 more\); expected 0 to 1. If these are percents"),
    ({"confidence": [-0.1, 0.5]}, r"confidence\[0\] is -0.1"),
    ({"confidence": ["0.5", "high"]}, r"confidence\[0\] is '0.5'"),
    ({"confidence": [0.5, None]}, r"confidence\[1\] is None"),
    ({"confidence": [[0.5], [0.6]]}, r"shape \(2, 1\)"),
    ({"correct": [1, 2]}, r"correct\[1\] is 2"),
    ({"correct": [1, float("nan")]}, r"correct\[1\] is nan"),
    ({"correct": [1]}, "correct has 1 values and confidence has 2"),
    ({"sample_weight": [1, -1]}, r"sample_weight\[1\] is -1"),
    ({"sample_weight": [1, float("nan")]}, r"sample_weight\[1\] is nan"),
    ({"sample_weight": [0, 0]}, "sample_weight is 0 in every row"),
    ({"sample_weight": [1]}, "sample_weight has 1 values"),
    ({"groups": [1]}, "groups has 1 values"),
    ({"ids": [1]}, "ids has 1 values"),
    ({"ids": [1, 2.5]}, r"ids\[0\] is 1.0; expected text or a whole number"),
    ({"confidence": [], "correct": []}, "confidence is empty"),
]


@every_calibrator
def test_refuses_by_name_and_place(calibrator):
    good = {"confidence": [0.5, 0.9], "correct": [0, 1], "groups": [1, 1], "sample_weight": [1, 1], "ids": [1, 2]}
    for change, message in REFUSED:
        with pytest.raises(InputError, match=message):
            clone(calibrator).fit(**good | change)


@every_calibrator
def test_repeated_questions_raise_a_warning_if_it_certifies(calibrator):
    rng = np.random.default_rng(0)
    rows = {"confidence": rng.random(60), "correct": rng.integers(0, 2, 60), "ids": np.repeat(np.arange(30), 2)}
    if calibrator.properties.counts_documents:
        clone(calibrator).fit(**rows)
        rows["sample_weight"] = np.ones(60)
    if calibrator.properties.is_certified:
        with pytest.warns(qacal.RepeatedQuestionsWarning, match="keep one row per question"):
            clone(calibrator).fit(**rows)
    else:
        clone(calibrator).fit(**rows)


@every_calibrator
def test_prediction_refuses_too(calibrator):
    model = clone(calibrator).fit([0.5, 0.9], [0, 1], groups=[1, 1], ids=[1, 2])
    for bad in ([0.5, float("nan")], [1.5], [], ["a"]):
        with pytest.raises(InputError):
            model.predict(bad)
    with pytest.raises(InputError, match="groups has 2 values"):
        model.predict([0.5], groups=[1, 2])
