"""Columns of a score: numbers and categories, each tried by itself on held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from qacal import InputError, LearnedScore
from qacal.calibrators.score import learned
from qacal.calibrators.score.trials import Candidate, Choice, _tried
from qacal.metrics import log_loss


def world(n=2000, seed=0):
    """Return rows whose correctness depends on a wave of one number and on a category, and labels and truth."""
    rng = np.random.default_rng(seed)
    rows = {
        "confidence": rng.choice([0.7, 0.8, 0.9], n),
        "wave": np.exp(2 * rng.normal(size=n)),
        "noise": rng.normal(size=n),
        "tenant": rng.choice(["acme", "globex"], n),
    }
    eta = 1.5 * np.sin(2 * np.log(rows["wave"])) + np.where(rows["tenant"] == "acme", 1.0, -1.0)
    correct = rng.random(n) < expit(eta)
    rows["verdict"] = np.where(correct, "good", "bad")
    return rows, correct, expit(eta)


def score(**parameters):
    return LearnedScore(**{"text": False, "columns": ["tenant"], "numbers": ["wave", "noise"]} | parameters)


def test_columns_that_help_are_used_and_others_are_not():
    rows, correct, _ = world()
    fitted = score().fit(rows, correct)
    assert fitted.columns_used == ("wave", "tenant")
    tried = {trial.name: trial for trial in fitted.columns_tried_}
    assert tried["wave"].gain > 0.03
    assert tried["tenant"].gain > 0.03
    assert tried["noise"].gain < 0.002
    new, right, truth = world(4000, seed=1)
    assert log_loss(right, fitted.predict(new)) < log_loss(right, truth) + 0.03
    # Columns that are not used may be missing.
    del new["noise"]
    fitted.predict(new)


def test_a_column_made_from_the_label_is_refused_and_a_suspicious_one_is_named():
    rows, correct, _ = world()
    fitted = score(columns=["verdict"], numbers=[]).fit(rows, correct)
    assert fitted.columns_used == ()
    assert fitted.columns_tried_[0].is_leak
    flips = np.random.default_rng(2).random(len(correct)) < 0.03
    rows["verdict"] = np.where(correct ^ flips, "good", "bad")
    (trial,) = score(columns=["verdict"], numbers=[]).fit(rows, correct).columns_tried_
    assert trial.is_used
    assert trial.is_suspect
    assert not trial.is_leak


@pytest.mark.parametrize("scale", [lambda x: x, lambda x: -1e6 * x, np.log], ids=["as is", "large", "log"])
def test_the_scale_of_numbers_is_irrelevant(scale):
    rows, correct, _ = world()
    fitted = score().fit(rows | {"wave": scale(rows["wave"])}, correct)
    new, right, truth = world(4000, seed=1)
    loss = log_loss(right, fitted.predict(new | {"wave": scale(new["wave"])}))
    assert loss < log_loss(right, truth) + 0.03


def test_rows_without_a_number_are_answered_without_it():
    """Rows without the number are no worse off than in a score without the column."""
    rows, correct, _ = world(3000)
    holes = np.random.default_rng(3).random(3000) < 0.3
    fitted = score().fit(rows | {"wave": np.where(holes, np.nan, rows["wave"])}, correct)
    new, right, _ = world(4000, seed=1)
    lacking = log_loss(right, fitted.predict(new | {"wave": np.full(4000, np.nan)}))
    without = log_loss(right, score(numbers=["noise"]).fit(rows, correct).predict(new))
    assert lacking < without + 0.01


def test_contributions_add_up_to_the_logit():
    rows, correct, _ = world()
    maps = score().fit(rows, correct).maps_
    inputs = maps.signals.inputs(rows["confidence"][:, None], None, None, rows)
    parts = maps.contributions(inputs)
    assert {"confidence", "wave", "tenant"} <= parts.keys()
    np.testing.assert_allclose(expit(sum(parts.values())), maps.apply(inputs), atol=1e-12)


def test_values_that_are_not_numbers_are_refused():
    rows, correct, _ = world(200)
    for bad, message in (
        ("high", r"wave\[3\] is 'high'; expected a number"),
        (np.inf, r"wave\[3\] is inf; expected a number"),
    ):
        values = rows["wave"].astype(object)
        values[3] = bad
        with pytest.raises(InputError, match=message):
            score().fit(rows | {"wave": values}, correct)
    with pytest.raises(InputError, match="'wave' is among columns and numbers"):
        score(columns=["wave"]).fit(rows, correct)


def test_the_order_of_rows_does_not_matter():
    rows, correct, _ = world(600)
    order = np.random.default_rng(4).permutation(600)
    one = score().fit(rows, correct)
    other = score().fit({name: column[order] for name, column in rows.items()}, correct[order])
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows))


def test_rows_that_differ_only_in_a_missing_number_or_in_words_have_one_order():
    rng = np.random.default_rng(5)
    wave = rng.choice([-1.0, np.nan, 2.0], 300)
    texts = [f"{word} {other}" for word, other in rng.choice(["ant", "bee", "cow", "dog"], (300, 2))]
    rows = {
        "confidence": np.full(300, 0.8),
        "wave": wave,
        "embedding": rng.normal(size=(5, 3))[rng.integers(0, 5, 300)],
    }
    rows |= {"question": np.array(texts, dtype=object), "answer": np.array(texts[::-1], dtype=object)}
    correct, order = rng.random(300) < 0.5, rng.permutation(300)
    one = LearnedScore(numbers=["wave"]).fit(rows, correct)
    other = LearnedScore(numbers=["wave"]).fit({name: column[order] for name, column in rows.items()}, correct[order])
    assert [trial.log_loss for trial in one.tried_] == [trial.log_loss for trial in other.tried_]


def test_texts_of_other_types_are_refused():
    rows = {"confidence": [0.8] * 4, "embedding": np.eye(4), "question": ["a", None, "b", "c"], "answer": ["d"] * 4}
    with pytest.raises(InputError, match=r"question\[1\] is None; expected text"):
        LearnedScore().fit(rows, [0, 1, 0, 1])


def random_words(seed):
    """Return rows whose words, confidences and labels have nothing to do with each other, and the labels."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(words) for words in rng.choice([f"w{i}" for i in range(60)], (200, 6))]
    texts = {"question": texts, "answer": texts}
    return {"confidence": rng.random(200), "embedding": rng.normal(size=(200, 8))} | texts, rng.random(200) < 0.5


def test_held_out_labels_do_not_reach_a_fold(monkeypatch):
    """The score of the last fold's rows, whose labels all other folds have seen, does not depend on these labels."""
    materials = []

    def keep(material, objective):
        materials.append(material)
        return Choice(material.fit(Candidate("stated"))[0])

    monkeypatch.setattr(learned, "choose", keep)
    LearnedScore().fit(*random_words(0))
    (material,) = materials
    *_, held = material.folds()
    flipped = replace(material, correct=np.where(held, 1 - material.correct, material.correct))
    words = Candidate("line", has_text=True)
    one, other = (_tried(each, words).scores for each in (material, flipped))
    np.testing.assert_array_equal(one[held], other[held])
    assert (one[~held] != other[~held]).all()


def test_random_words_do_not_seem_to_help():
    for seed in range(2):
        losses = {trial.name: trial.log_loss for trial in LearnedScore().fit(*random_words(seed)).tried_}
        text = losses[next(name for name in losses if "text" in name)]
        assert text > min(losses["pooled line"], losses["pooled curve"]) - 0.001
