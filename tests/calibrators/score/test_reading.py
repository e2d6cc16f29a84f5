"""Scores that are read together say what each of them says alone."""

import pickle
from copy import deepcopy
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from qacal import InputError, LearnedScore, NotFittedError
from qacal.calibrators.score import ScoreReader, reading

WORDS = ("red", "blue", "Green", "1906", "why?", "because,", "Mont-Blanc", "if")
KINDS = ("all", "no words", "no text", "two confidences", "stated", "far mean")


def rows(seed, n):
    """Return rows whose label depends on everything; some lack a number, a confidence or a shop."""
    rng = np.random.default_rng(seed)
    out = {
        "confidence": rng.choice([0.6, 0.8, 0.9], n),
        "embedding": rng.normal(size=(n, 6)).astype(np.float32),
        "price": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
        "tokens": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
        "shop": rng.choice(np.array(["a", "b", None], dtype=object), n).tolist(),
        "question": [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(n)],
        "answer": [" ".join(rng.choice(WORDS[:6], rng.integers(0, 4))) for _ in range(n)],
    }
    eta = 4 * (out["confidence"] - 0.75) + 1.5 * out["embedding"][:, 0] + np.nan_to_num(out["price"])
    eta += 2 * np.nan_to_num(out["tokens"]) - 1 + np.array([{"a": 1.0, "b": -1.0}.get(shop, 0) for shop in out["shop"]])
    eta += np.array([1.0 if "red" in text else -0.5 for text in out["question"]])
    return out, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)


@cache
def fitted(kind):
    inputs, correct = rows(KINDS.index(kind), 900)
    options = {
        "all": {"columns": ["shop"], "numbers": ["price"], "confidences": ["tokens"]},
        "no words": {"words": False, "numbers": ["price"]},
        "no text": {"text": False, "columns": ["shop"]},
        "two confidences": {"confidences": ["tokens"]},
        "stated": {"text": False},
        "far mean": {},
    }[kind]
    if kind == "far mean":  # its kernel has another middle than those of the others
        inputs["embedding"][:3] *= 1e3
    if kind == "stated":
        correct = (np.random.default_rng(9).random(900) < inputs["confidence"]).astype(float)
    return LearnedScore(**options).fit(inputs, correct)


@pytest.mark.parametrize("pair", list(permutations(KINDS, 2)))
@pytest.mark.parametrize("n", [1, 600])
def test_two_scores_at_once(pair, n):
    inputs, _ = rows(77, n)
    scores = [fitted(kind) for kind in pair]
    texts = inputs["question"], inputs["answer"]
    for score, found in zip(scores, ScoreReader(scores).read(inputs, texts, explains=True), strict=True):
        alone = score._read(inputs, explains=True)
        np.testing.assert_allclose(found.score, alone.score, rtol=1e-12)
        np.testing.assert_allclose(found.unlike, alone.unlike, atol=1e-12)
        assert found.parts.keys() == alone.parts.keys()
        for name, part in alone.parts.items():
            np.testing.assert_allclose(found.parts[name], part, atol=1e-11)


def test_scores_of_these_tests_differ_in_what_they_read():
    signals = {kind: fitted(kind).maps_.signals for kind in KINDS}
    assert None not in (signals["all"].text, signals["all"].form, signals["all"].words, signals["all"].levels)
    assert signals["all"].columns == ("tokens", "price", "shop")
    assert signals["no words"].text is not None
    assert not signals["no words"].reads_texts
    assert signals["no text"].text is None
    assert signals["two confidences"].columns == ("tokens",)
    assert not len(fitted("stated").maps_.coefficients)
    assert signals["far mean"].text is not None


@pytest.fixture
def short_portions(monkeypatch):
    monkeypatch.setattr(reading, "_MOST_ROWS", 512)


@pytest.mark.usefixtures("short_portions")
def test_rows_of_many_portions_are_read_as_one_by_one():
    inputs, _ = rows(5, 1100)
    whole = fitted("all")._read(inputs, explains=True)
    for at in (0, 511, 512, 1099):
        one = fitted("all")._read({name: values[at : at + 1] for name, values in inputs.items()}, explains=True)
        np.testing.assert_allclose(one.score, whole.score[at : at + 1], rtol=1e-12)
        for name, part in one.parts.items():
            np.testing.assert_allclose(part, whole.parts[name][at : at + 1], atol=1e-12)


@pytest.mark.usefixtures("short_portions")
def test_labels_of_another_kind_in_one_portion_are_unknown_values():
    inputs, correct = rows(6, 1200)
    shops = [None if shop is None else ord(shop) for shop in inputs["shop"]]
    score = LearnedScore(columns=["shop"]).fit({**inputs, "shop": shops}, correct)
    assert "shop" in score.columns_used
    mixed = [97] * 600 + ["97"] * 600
    assert len(score.predict({**inputs, "shop": mixed})) == 1200
    with pytest.raises(InputError, match="shop has labels that are text"):
        score.predict({**inputs, "shop": ["97"] * 1200})


@pytest.mark.usefixtures("short_portions")
def test_a_bad_vector_is_named_by_its_row():
    inputs, _ = rows(7, 800)
    inputs["embedding"][700, 2] = np.nan
    with pytest.raises(InputError, match="vector of row 700"):
        fitted("all").predict(inputs)


def test_no_more_effects_are_kept_than_there_are_fallbacks():
    reader = ScoreReader([fitted("all"), fitted("no words")])
    inputs, _ = rows(8, 600)
    reader.read(inputs, (inputs["question"], inputs["answer"]))
    kept = len(reader._fitted)
    reader.read({name: inputs[name] for name in ("confidence", "embedding")}, (inputs["question"], inputs["answer"]))
    most = np.prod([len(fitted(kind).fallbacks_) + 1 for kind in ("all", "no words")])
    assert 1 < kept <= len(reader._fitted) <= most


def test_no_rows_and_scores_that_are_not_fitted():
    inputs, _ = rows(8, 0)
    (read,) = ScoreReader([fitted("no text")]).read(inputs)
    assert len(read.score) == len(read.unlike) == 0
    with pytest.raises(NotFittedError):
        ScoreReader([LearnedScore()])


def test_a_copy_has_no_reader_and_a_new_fit_another_one():
    inputs, correct = rows(9, 500)
    score = LearnedScore(numbers=["price"]).fit(inputs, correct)
    before = score.predict(inputs)
    for copied in (deepcopy(score), pickle.loads(pickle.dumps(score))):
        assert "_reader" not in vars(copied)
        np.testing.assert_array_equal(copied.predict(inputs), before)
    score.fit(inputs, 1 - correct)
    assert not np.allclose(score.predict(inputs), before)
