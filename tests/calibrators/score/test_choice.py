"""The choice among scores: signals that do not help are left out, and few rows do no harm."""

import numpy as np
import pytest
from scipy.special import expit, logit

from qacal.calibrators import PlattScaling
from qacal.calibrators.score import LearnedScore
from tests.sizes import FULL, sized

STATED = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0])


def worth(h):
    return -0.5 + 0.6 * logit(np.clip(h, 0.001, 0.999))


def drawn(rng, n, kind, width=8):
    """Return rows, the probability that each is correct, and labels. Text is informative if `kind` is "text"."""
    Z = rng.normal(size=(n, width))
    h = rng.beta(4, 2, n) if kind == "perfect" else rng.choice(STATED, n)
    truth = h if kind == "perfect" else expit(worth(h) + (1.2 * Z[:, 0] if kind == "text" else 0.0))
    return {"confidence": h, "embedding": Z}, truth, (rng.random(n) < truth).astype(float)


def expected_loss(p, truth):
    """Return the log loss in expectation over labels, so without their noise."""
    p = np.clip(p, 1e-15, 1 - 1e-15)
    return float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean())


def excess(kind, n, seeds, rival):
    """Return for each seed the expected log loss above a rival's, and the chosen score."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rows, _, y = drawn(rng, n, kind)
        new, truth, _ = drawn(rng, 3000, kind)
        score = LearnedScore().fit(rows, y)
        theirs = new["confidence"]
        if rival == "platt":
            theirs = PlattScaling(feature="logit").fit(rows["confidence"], y).predict(theirs)
        found.append((expected_loss(score.predict(new), truth) - expected_loss(theirs, truth), score.chosen))
    return np.array([gap for gap, _ in found]), [name for _, name in found]


def test_a_calibrated_confidence_is_left_alone():
    gaps, chosen = excess("perfect", 1000, 20, "stated")
    assert gaps.mean() < 0.002
    assert sum(name in ("stated confidence", "pooled line") for name in chosen) >= 15


@pytest.mark.parametrize(("n", "most"), [(300, 0.003), (1000, 0.002)])
def test_text_that_is_noise_costs_next_to_nothing(n, most):
    gaps, _ = excess("line", n, sized(20), "platt")
    assert gaps.mean() < most
    assert gaps.max() < 10 * most


@pytest.mark.parametrize(("kind", "n", "most"), [("line", 30, 0.03), ("line", 100, 0.015), ("text", 30, 0.03)])
def test_few_rows_do_no_harm_beside_platt(kind, n, most):
    """Averaged over 50 sets; standard errors are .008, .002 and .006. With 30 rows the choice itself costs .013.

    Were a stated 1.0 passed on as it is, the first average would be .03.
    """
    gaps, _ = excess(kind, n, sized(50), "platt")
    # A quarter of the sets is allowed two of its standard errors.
    assert gaps.mean() < most + (0 if FULL else 2 * gaps.std() / np.sqrt(len(gaps)))


def test_informative_text_is_used():
    gaps, chosen = excess("text", 300, 5, "platt")
    assert gaps.mean() < -0.05
    assert all("text" in name for name in chosen)


def test_a_stated_certainty_is_not_passed_on():
    """A stated 1.0 is lowered even if all of a few rows are correct: one wrong answer would cost 36."""
    score = LearnedScore(text=False).fit({"confidence": [0.9, 1.0]}, [1, 1], ids=["q", "q"])
    assert score.chosen == "stated confidence"
    assert score.predict({"confidence": [0.0, 0.9, 1.0]}).tolist() == [0.001, 0.9, 0.999]


def repeated(seed, times=3, n=250):
    """Return questions whose text is noise, each repeated with the same label."""
    rng = np.random.default_rng(seed)
    rows, truth, y = drawn(rng, n, "line", width=4)
    again = np.repeat(np.arange(n), times)
    return {name: values[again] for name, values in rows.items()}, truth[again], y[again], again


def test_trials_are_measured_on_held_out_questions():
    """A text of the fit reveals its label. Without ids such a score wins every trial, and is bad on new rows."""
    gaps = {"ids": [], "rows": []}
    for seed in range(sized(6)):
        rows, _, y, question = repeated(seed)
        new, truth, _ = drawn(np.random.default_rng(1000 + seed), 2000, "line", width=4)
        plain = PlattScaling(feature="logit").fit(rows["confidence"], y).predict(new["confidence"])
        for how, ids in (("ids", question), ("rows", None)):
            score = LearnedScore().fit(rows, y, ids=ids)
            gaps[how].append(expected_loss(score.predict(new), truth) - expected_loss(plain, truth))
            assert how == "ids" or "text" in score.chosen
    assert np.mean(gaps["ids"]) < 0.02
    assert np.mean(gaps["rows"]) > 0.05


def test_text_is_tried_on_held_out_questions():
    """If rows are few, every row is held out once; folds consist of whole questions."""
    rows, _, y, question = repeated(0, n=60)
    score = LearnedScore().fit(rows, y, ids=question)
    assert {trial.rows for trial in score.tried_} == {180}
    assert sum(trial.is_chosen for trial in score.tried_) == 1


@pytest.mark.parametrize("n", [1, 2, 3, 10, 30])
@pytest.mark.parametrize("label", ["right", "wrong", "both", "soft"])
@pytest.mark.parametrize("ids", ["one", "many"])
def test_few_rows_are_never_an_error(n, label, ids):
    rng = np.random.default_rng(n)
    rows, _, _ = drawn(rng, n, "line", width=3)
    rows |= {"topic": rng.choice(["a", "b"], n).tolist(), "tokens": [None, 0.5, float("nan")] * n}
    rows["tokens"] = rows["tokens"][:n]
    y = {"right": np.ones(n), "wrong": np.zeros(n), "both": np.arange(n) % 2, "soft": np.full(n, 0.3)}[label]
    score = LearnedScore(columns=["topic"], confidences=["tokens"])
    score.fit(rows, y, ids=np.zeros(n, dtype=int) if ids == "one" else np.arange(n))
    found = score.predict(rows)
    assert ((found >= 0) & (found <= 1)).all()
    if ids == "one":
        assert score.chosen == "stated confidence"
        assert score.tried_ == ()


@pytest.mark.parametrize("objective", ["log_loss", "brier"])
def test_the_chosen_score_has_the_lowest_loss(objective):
    rows, _, y = drawn(np.random.default_rng(0), 300, "text")
    score = LearnedScore(objective=objective).fit(rows, y)
    losses = {trial.name: getattr(trial, objective) for trial in score.tried_}
    assert score.chosen == min(losses, key=losses.get)
