"""The learned score as a whole: rows in any order, what it needs, and what it refuses."""

import json
import subprocess
import sys
from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from qacal import InputError, NotFittedError
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.score.kernel import fit_kernel
from qacal.calibrators.score.likeness import weight_of_signals
from qacal.calibrators.score.texts import PairTexts
from qacal.storage import flatten, save, unflatten
from qacal.tally.arrays import seven_decimals
from tests.rebuilt import rebuilt
from tests.sizes import examples


def answers(seed=0, n=400, width=5):
    """Return rows with a text, a topic and two confidences, one sometimes missing; all of them predict the label."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, width)).round(1)
    h = rng.choice([0.6, 0.7, 0.8, 0.9, 1.0], n)
    tokens = np.where(rng.random(n) < 0.2, np.nan, rng.random(n))
    topic = rng.choice(["law", "art", "chess"], n)
    eta = 3 * (h - 0.7) + Z[:, 0] + 2 * (np.nan_to_num(tokens, nan=0.5) - 0.5) + (topic == "law")
    rows = {"confidence": h, "embedding": Z, "topic": topic.tolist(), "tokens": tokens}
    return rows, (rng.random(n) < expit(eta)).astype(float)


def score():
    return LearnedScore(columns=["topic"], confidences=["tokens"])


def at(rows, index):
    return {
        name: [values[k] for k in index] if isinstance(values, list) else values[index] for name, values in rows.items()
    }


@pytest.mark.parametrize("lacking", [(), ("tokens",), ("topic", "tokens")])
def test_sums_in_place_of_coordinates_give_the_same_contributions(lacking):
    rows, y = answers(n=1500)
    rng = np.random.default_rng(1)
    words = ["red", "blue", "Green", "1906", "why?", "because,"]
    texts = {name: [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in y] for name in ("question", "answer")}
    fitted = score().fit(rows | texts, y)
    signals = fitted.maps_.signals
    assert None not in (signals.text, signals.form, signals.words, signals.levels)
    new = rows | texts | {name: [None] * len(y) for name in lacking}
    others = {"topic": np.array(rows["topic"], dtype=object)}
    confidences = seven_decimals(np.column_stack([rows["confidence"], rows["tokens"]]))
    read = signals.inputs(confidences, rows["embedding"], PairTexts.of(*fitted._texts(new, len(y))), others)
    fallback = next((one for one in fitted.fallbacks_ if {*one.without} == {*lacking}), None)
    maps = fitted.maps_ if fallback is None else fallback.maps(fitted.maps_)
    seen = signals.seen(read, text=True, columns=[name for name in signals.columns if name not in lacking])
    found = fitted._read(new, explains=True)
    slow = maps.contributions(seen, weight_of_signals(found.unlike))
    assert slow.keys() == found.parts.keys() >= {"text", "form", "words"}
    mine = ~np.isnan(rows["tokens"]) if "tokens" not in lacking else slice(None)  # others have another fallback
    for name, part in slow.items():
        np.testing.assert_allclose(found.parts[name][mine], part[mine], atol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from(["none", "each", "four rows each", "equal confidence"]))
@examples(8)
def test_the_order_of_rows_does_not_matter(seed, how):
    rows, y = answers(seed % 3)
    n = len(y)
    ids = {"none": None, "each": np.arange(n)}.get(how, np.arange(n) // 4)
    if how == "equal confidence":
        # Rows of one question that differ only in text and topic.
        rows |= {"confidence": np.full(n, 0.8), "tokens": np.full(n, 0.5)}
    order = np.random.default_rng(seed).permutation(n)
    one = score().fit(rows, y, ids=ids)
    two = score().fit(at(rows, order), y[order], ids=None if ids is None else ids[order])
    assert one.tried_ == two.tried_
    np.testing.assert_array_equal(one.predict(rows), two.predict(rows))
    np.testing.assert_allclose(one.predict(at(rows, order)), one.predict(rows)[order], atol=1e-12)


def test_landmarks_come_from_many_questions_however_many_rows_each_has():
    """Once the first rows were taken, sorted by question: these were 19 of 400 questions."""
    rng = np.random.default_rng(0)
    question = np.repeat(np.arange(400), 20)
    Z = rng.normal(size=(400, 6))[question] + 0.01 * rng.normal(size=(8000, 6))
    fitted = LearnedScore().fit(
        {"confidence": np.full(8000, 0.8), "embedding": Z}, rng.random(8000) < expit(2 * Z[:, 0]), ids=question
    )
    kernel = fitted.maps_.signals.text
    centre = (Z[::20] - kernel.mean) @ kernel.axes
    nearest = ((kernel.landmarks[:, None] - centre) ** 2).sum(axis=2).argmin(axis=1)
    assert len(set(nearest.tolist())) > 150


def test_columns_of_any_type_are_read_alike():
    rows, y = answers()
    expected = score().fit(rows, y).predict(rows)
    tokens = [None if np.isnan(value) else value for value in rows["tokens"].tolist()]
    kinds = {
        "lists": {**rows, "confidence": rows["confidence"].tolist(), "tokens": tokens},
        "polars": {**rows, "tokens": pl.Series(tokens), "topic": pl.Series(rows["topic"])},
        "pandas": {**rows, "tokens": pd.Series(tokens, dtype="Float64"), "topic": pd.Series(rows["topic"])},
        "objects": {**rows, "tokens": np.array(tokens, dtype=object)},
    }
    for same in kinds.values():
        np.testing.assert_array_equal(score().fit(same, y).predict(same), expected)


def test_float32_is_read_as_its_shortest_decimal():
    rows, y = answers()
    rows["tokens"] = rows["tokens"].round(2)
    short = rows | {"tokens": rows["tokens"].astype(np.float32), "confidence": rows["confidence"].astype(np.float32)}
    np.testing.assert_array_equal(score().fit(short, y).predict(short), score().fit(rows, y).predict(rows))


def test_fitting_again_forgets_and_predicting_changes_nothing():
    rows, y = answers()
    fitted = score().fit(*answers(1))
    before = fitted.predict(rows)
    np.testing.assert_array_equal(fitted.predict(rows), before)
    np.testing.assert_array_equal(fitted.fit(rows, y).predict(rows), score().fit(rows, y).predict(rows))


def test_equal_texts_are_like_no_text():
    rows, y = answers()
    alike = rows | {"embedding": np.ones((400, 5))}
    assert not score().fit(alike, y).reads_text
    np.testing.assert_allclose(
        score().fit(alike, y, ids=np.arange(400)).predict(alike),
        score().set_params(text=False).fit(rows, y, ids=np.arange(400)).predict(rows),
        atol=1e-9,
    )


def test_pooled_is_the_accuracy_at_a_confidence():
    rows, y = answers(n=3000)
    fitted = score().fit(rows, y)
    for h in (0.6, 0.8, 1.0):
        assert fitted.pooled(np.array([h]))[0] == pytest.approx(y[rows["confidence"] == h].mean(), abs=0.08)


@cache
def once_fitted():
    """Return a score that no test changes."""
    fitted = score().fit(*answers())
    assert fitted.chosen.endswith("text + topic")
    return fitted


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("needs 'topic', and the rows have", {"topic": ...}),
        ("needs 'embedding'", {"embedding": ...}),
        ("needs 'confidence'", {"confidence": ...}),
        ("needs 'tokens'", {"tokens": ...}),
        ("confidence\\[0\\] is 80", {"confidence": [80.0] * 400}),
        ("tokens\\[0\\] is 1.5", {"tokens": [1.5] * 400}),
        ("tokens\\[0\\] is '0.5'", {"tokens": ["0.5"] * 400}),
        ("tokens has 3 values", {"tokens": [0.5] * 3}),
        ("topic has 3 values", {"topic": ["a"] * 3}),
        ("embedding has 3 values", {"embedding": np.zeros((3, 5))}),
        ("embedding has 1 values", {"embedding": np.zeros((1, 5))}),
        ("row 0 has nan", {"embedding": np.full((400, 5), np.nan)}),
    ],
)
def test_rows_that_cannot_be_read_are_refused_in_fit_and_predict(message, change):
    rows, y = answers()
    broken = {name: change.get(name, values) for name, values in rows.items() if change.get(name) is not ...}
    with pytest.raises(InputError, match=message):
        score().fit(broken, y)
    if change.get("topic", change.get("tokens")) is not ...:  # a column that no row has may be left out
        with pytest.raises(InputError, match=message):
            once_fitted().predict(broken)


@pytest.mark.parametrize(
    "parameters",
    [
        {"columns": "topic"},
        {"columns": [1]},
        {"columns": ["topic", "topic"]},
        {"columns": ["embedding"]},
        {"confidences": ["confidence"]},
        {"confidences": "tokens"},
        {"text": "yes"},
        {"objective": "accuracy"},
        {"objective": None},
    ],
)
def test_invalid_parameters_are_refused(parameters):
    rows, y = answers()
    with pytest.raises(InputError, match="expected"):
        LearnedScore(**parameters).fit(rows, y)


def test_labels_and_ids_are_one_per_row():
    rows, y = answers()
    with pytest.raises(InputError, match="correct has 3"):
        score().fit(rows, y[:3])
    with pytest.raises(InputError, match="ids has 3"):
        score().fit(rows, y, ids=[1, 2, 3])
    with pytest.raises(NotFittedError):
        score().predict(rows)


def test_wide_texts_of_few_rows_and_one_coordinate():
    rows, y = answers(n=60)
    for width in (1, 200):
        Z = np.random.default_rng(0).normal(size=(60, width))
        assert fit_kernel(Z).width <= 60
        found = score().fit(rows | {"embedding": Z}, y).predict(rows | {"embedding": Z})
        assert np.isfinite(found).all()


ALONE = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"scipy", "sklearn", "polars", "narwhals", "pandas", "pyarrow", "threadpoolctl"}:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Absent())
import numpy as np
from qacal.calibrators.score import LearnedScore
from qacal.storage import load

rows = json.loads(sys.stdin.read())
print(json.dumps(load(sys.argv[1], LearnedScore, [LearnedScore]).predict(rows).tolist()))
"""


def test_a_saved_score_answers_with_numpy_alone(tmp_path):
    rows, y = answers()
    fitted = score().fit(rows, y)
    save(tmp_path / "score", fitted, [LearnedScore])
    few = {name: list(values)[:9] for name, values in rows.items()}
    few["embedding"] = np.array(few["embedding"]).tolist()
    few["tokens"] = [None if value != value else float(value) for value in few["tokens"]]
    command = [sys.executable, "-c", ALONE, tmp_path / "score"]
    done = subprocess.run(command, input=json.dumps(few), capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(done.stdout), fitted.predict(few), atol=1e-12)


def curved():
    """Confidence and correctness bent so that curves win."""
    rng = np.random.default_rng(0)
    h = rng.choice(np.linspace(0, 1, 11), 2000)
    tokens = rng.choice(np.linspace(0, 1, 11), 2000)
    y = rng.random(2000) < np.where(h > 0.75, 0.85, 0.35) * np.where(tokens > 0.35, 1, 0.3)
    return LearnedScore(text=False, confidences=["tokens"]).fit({"confidence": h, "tokens": tokens}, y)


def test_saved_scores_come_back_as_they_were():
    rows, y = answers()
    kinds = [1, "1", 2.5, True, "x"]
    mixed = rows | {"topic": [kinds[k] for k in np.random.default_rng(0).integers(0, 5, 400)]}
    for fitted, asked in (
        (score().fit(rows, y), rows),
        (LearnedScore().fit(rows, y), rows),
        (LearnedScore(text=False, columns=["topic"]).fit(mixed, y), mixed),
        (curved(), rows),
        (LearnedScore().fit(rows, y, ids=np.zeros(400, dtype=int)), rows),
    ):
        plain, numbers = flatten(fitted, [LearnedScore])
        again = unflatten(LearnedScore, json.loads(json.dumps(plain, allow_nan=False)), numbers, [LearnedScore])
        np.testing.assert_array_equal(again.predict(asked), fitted.predict(asked))
        assert (again.tried_, again.chosen, again.rows_) == (fitted.tried_, fitted.chosen, fitted.rows_)
        assert again._needs == fitted._needs


def test_scores_that_no_fit_makes_are_refused():
    def changed(**changes):
        other = copy(once_fitted())
        vars(other).update(changes)
        return other

    maps, tried = once_fitted().maps_, once_fitted().tried_
    signals = maps.signals
    kernel = replace(signals.text, mean=np.zeros(4))
    for bad, match in (
        (changed(columns=()), "read inputs that its parameters do not name"),
        (changed(confidences=()), "read inputs that its parameters do not name"),
        (changed(text=False), "read inputs that its parameters do not name"),
        (changed(columns=("embedding",)), "columns is"),
        (changed(rows_=0), "rows_ is 0; expected 1 to"),
        (changed(tried_=tuple(replace(trial, is_chosen=True) for trial in tried)), "must be the chosen one"),
        (changed(maps_=replace(maps, coefficients=maps.coefficients * 1e60)), r"coefficients\[0\] is"),
        (changed(maps_=replace(maps, coefficients=np.zeros(3))), "one effect for each term and word"),
        (changed(maps_=replace(maps, words=np.zeros(3))), "one effect for each term and word"),
        (changed(maps_=replace(maps, signals=replace(signals, text=kernel))), "axes has shape"),
    ):
        with pytest.raises(InputError, match=match):
            rebuilt(bad)
