"""Training on a judge's labels and certification on human labels: the guarantee is about human labels."""

import numpy as np
import polars as pl
import pytest

from qacal import LearnedScore, QACalibrator, StepBinning, Tally
from qacal.calibrators.cells import Cells
from qacal.calibrators.margins import Judged, fit_margins
from tests.sizes import sized
from tests.theory.lab import assert_breaks, assert_holds, failure_rate
from tests.theory.test_learned_score import ALPHA, STEP, World, true_shares


def records(rows, labels, prefix):
    """Return records with an embedding each."""
    ids = [f"{prefix}{number}" for number in range(len(labels))]
    columns = {"id": ids, "question": ids, "answer": ids, "confidence": rows["confidence"]}
    return pl.DataFrame(columns | {"embedding": rows["embedding"], "correct": labels})


def by_judge(rng, labels, rows):
    """Return a judge's labels; the judge accepts most wrong answers to some kinds of questions."""
    passes = (labels == 0) & (rows["embedding"][:, 1] > 0) & (rng.random(len(labels)) < 0.7)
    return np.where(passes, 1.0, labels)


def is_broken(rng, by_people):
    """Return whether an interval of any map misses the accuracy by human labels."""
    world = World(rng, tenants=1)
    rows, _, labels = world.answers(500 if by_people else 2_000)
    judged = records(rows, by_judge(rng, labels, rows), "j")
    steps = StepBinning(step=STEP, rows_per_map=30, alpha=ALPHA)
    model = QACalibrator("column:embedding", calibrator=steps, learned_score=LearnedScore(words=False))
    if by_people:
        rows, _, labels = world.answers(150)
        model.fit(judged, certify_records=records(rows, labels, "p"))
    else:
        model.fit(judged)
    new, truth, _ = world.answers(4_000)
    maps, score = model.calibrator_.maps_, model.learned_score_.predict(new)
    means, errors = true_shares(maps, score, model.partition_.paths(new["embedding"]), truth)
    return ((maps.low > means + 3 * errors) | (maps.high < means - 3 * errors)).any()


def test_intervals_from_human_labels_hold_for_a_score_trained_on_a_judge():
    trials = 60
    assert_holds(lambda rng: is_broken(rng, by_people=True), ALPHA, trials)


def test_intervals_from_a_judges_labels_fail():
    """They are about the judge's labels, not about correctness."""
    assert failure_rate(lambda rng: is_broken(rng, by_people=False), sized(10)) > 0.5


@pytest.mark.parametrize("by_people", [True, False])
def test_the_certifying_rows_are_those_given(by_people):
    rng = np.random.default_rng(0)
    world = World(rng, tenants=1)
    (rows, _, labels), (few, _, own) = world.answers(400), world.answers(90)
    people = records(few, own, "p") if by_people else None
    model = QACalibrator("column:embedding").fit(records(rows, labels, "j"), certify_records=people)
    assert model.rows_ == (90 if by_people else pytest.approx(280, abs=40))


def judged_bands(rng, *, believes=False):
    """Return whether an interval misses the accuracy of a band, with a judge that is wrong more often in one of them.

    believes : count the judge's disagreements with people as agreement.
    """
    few, many, tops = 90, 500, np.array([0.6, np.inf])
    score = rng.choice([0.5, 0.8], few + many)
    right = rng.random(few + many) < score
    judge = np.where(rng.random(few + many) < np.where(score > 0.6, 0.05, 0.2), True, right)
    apart = np.zeros(few) if believes else right[:few].astype(float) - judge[:few]
    judged = Judged(*(Tally.of(score[:few], apart * sign > 0) for sign in (1, -1)), Tally.of(score[few:], judge[few:]))
    maps = fit_margins(Tally.of(score[:few], right[:few]), Cells(tops, 0), alpha=ALPHA, judged=judged)
    truth = np.array([0.5, 0.8])
    return ((maps.cells.low > truth) | (maps.cells.high < truth)).any()


def test_a_judges_labels_narrow_the_intervals_of_bands_and_keep_them_valid():
    assert_holds(judged_bands, ALPHA, 200)


def test_intervals_that_believe_a_judge_fail():
    assert_breaks(lambda rng: judged_bands(rng, believes=True), ALPHA, 60)
