"""Rows that lack a signal are answered by a score that was fitted without it."""

import numpy as np
import pytest
from scipy.special import expit

from qacal import LearnedScore
from qacal.metrics import log_loss


def world(seed, n, lacking=()):
    """Return rows whose label depends on the confidence, on tokens and most of all on a price."""
    rng = np.random.default_rng(seed)
    tokens, price, shop = rng.random(n), rng.normal(size=n), rng.integers(0, 4, n)
    inputs = {"confidence": rng.choice([0.6, 0.8, 1.0], n), "tokens": tokens, "price": price, "shop": shop.tolist()}
    eta = 3 * (inputs["confidence"] - 0.8) + 2 * (tokens - 0.5) + 2 * price + (shop - 1.5)
    inputs |= {name: [None] * n for name in lacking}
    return inputs, (rng.random(n) < expit(eta)).astype(float)


def score():
    return LearnedScore(text=False, columns=["shop"], numbers=["price"], confidences=["tokens"])


@pytest.fixture(scope="module")
def fitted():
    return score().fit(*world(0, 2000))


@pytest.mark.parametrize(
    "lacking", [("price",), ("tokens",), ("shop",), ("price", "shop"), ("tokens", "price", "shop")]
)
def test_rows_without_a_signal_are_answered_as_by_a_score_without_it(fitted, lacking):
    rows, y = world(1, 4000, lacking)
    train, labels = world(0, 2000)
    names = {"columns": ["shop"], "numbers": ["price"], "confidences": ["tokens"]}
    names = {kind: [name for name in kept if name not in lacking] for kind, kept in names.items()}
    without = LearnedScore(text=False, **names).fit({k: v for k, v in train.items() if k not in lacking}, labels)
    left = {name: values for name, values in rows.items() if name not in lacking}
    # No row of the fit lacks both, so the score for rows without both may leave out one more.
    loss, best = log_loss(y, fitted.predict(rows)), log_loss(y, without.predict(left))
    assert loss < best + (0.003 if len(lacking) != 2 else 0.15)
    np.testing.assert_allclose(fitted.predict(left), fitted.predict(rows))


def test_rows_get_the_same_answer_alone_and_in_a_batch(fitted):
    rows, _ = world(2, 40)
    for name, every in (("price", 3), ("tokens", 2), ("shop", 5)):
        rows[name] = [None if at % every == 0 else value for at, value in enumerate(list(rows[name]))]
    whole = fitted._read(rows, explains=True)
    for at in range(40):
        one = fitted._read({name: values[at : at + 1] for name, values in rows.items()}, explains=True)
        np.testing.assert_allclose(one.score[0], whole.score[at], atol=1e-12)
        np.testing.assert_allclose(expit(sum(part[0] for part in one.parts.values())), one.score[0], atol=1e-12)


def test_frequent_patterns_of_missing_signals_get_their_own_score():
    rows, y = world(3, 1000)
    for name in ("price", "shop"):
        rows[name] = [None if at % 4 == 0 else value for at, value in enumerate(list(rows[name]))]
    assert ("price", "shop") in [one.without for one in score().fit(rows, y).fallbacks_]


def test_a_score_without_columns_needs_no_further_score():
    rows, y = world(4, 300)
    assert LearnedScore(text=False).fit(rows, y).fallbacks_ == ()
