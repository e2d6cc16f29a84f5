"""A refit with labels of served answers: volunteered ones train, and only a random sample with known chances certifies.

Wrong answers are reported ten times as often as correct ones. An audit draws answers to hard questions more often.
"""

import dataclasses

import numpy as np
import polars as pl
import pytest

from qacal import LearnedScore, MarginBinning, QACalibrator
from qacal.model import refitting
from qacal.model.refitting import LabelledAnswer, refit
from qacal.partitions.base import one_thread
from qacal.records.reading import read
from tests.theory.lab import assert_breaks, assert_holds
from tests.theory.test_learned_score import ALPHA, World

SERVED = 1200


@pytest.fixture(autouse=True)
def _alone():
    with one_thread():
        yield


def frame(rows, labels, prefix):
    ids = [f"{prefix}{number}" for number in range(len(labels))]
    columns = {"id": ids, "question": ids, "answer": ids, "confidence": rows["confidence"]}
    return pl.DataFrame(columns | {"embedding": rows["embedding"], "correct": labels})


def unfitted():
    return QACalibrator(
        "column:embedding",
        "bisecting:2",
        MarginBinning(alpha=ALPHA),
        learned_score=LearnedScore(words=False),
        features=(),
    )


FIRST = World(np.random.default_rng(5), tenants=1)
FITTED = unfitted().fit(frame(*(FIRST.answers(300)[at] for at in (0, 2)), "f"))


def served(rng, world):
    """Return labelled answers: those that an audit drew, and those that were reported."""
    rows, _, labels = world.answers(SERVED)
    chance = np.where(rows["embedding"][:, 0] < 0, 0.6, 0.15)
    is_drawn = rng.random(SERVED) < chance
    is_reported = ~is_drawn & (rng.random(SERVED) < np.where(labels == 0, 0.5, 0.05))
    for row, record in enumerate(frame(rows, labels, "s").to_dicts()):
        if is_drawn[row] or is_reported[row]:
            yield LabelledAnswer(rng.bytes(16).hex(), record, chance[row] if is_drawn[row] else None)


def misses(model, world):
    """Return whether an interval of a band or group misses its accuracy among fresh answers."""
    rows, truth, labels = world.answers(20_000)
    (batch,) = read(frame(rows, labels, "n"), needs_labels=True)
    pipeline, cells = model.pipeline_, model.calibrator_.maps_.cells
    scores, groups = pipeline.inputs(batch)
    bins = cells.bins_by_level(pipeline.rows_of(scores, groups, batch.ids))
    row, level = np.nonzero(bins >= 0)
    place, count = bins[row, level], len(cells.low)
    number = np.maximum(np.bincount(place, minlength=count), 1)
    mean, square = (np.bincount(place, values[row], count) / number for values in (truth, truth**2))
    error = np.where(number < 20, 1.0, 3 * np.sqrt(np.maximum(square - mean**2, 0) / number))
    return bool(((cells.low > mean + error) | (cells.high < mean - error)).any())


def is_broken(rng, certifies=lambda one: one):
    world = World(rng, tenants=1)
    return misses(refit(FITTED, [certifies(one) for one in served(rng, world)]).model, world)


def test_intervals_hold_with_reported_answers_and_unequal_chances():
    assert_holds(is_broken, ALPHA, 60)


def test_reported_answers_must_not_certify():
    """As if they were drawn, like the rarest of an audit: answers look worse than they are."""

    def as_audit(one):
        return dataclasses.replace(one, probability=one.probability or 0.15)

    assert_breaks(lambda rng: is_broken(rng, as_audit), ALPHA, 40)


def test_unequal_chances_must_be_thinned(monkeypatch):
    monkeypatch.setattr(refitting, "thinned", lambda keys, chance: np.ones(len(keys), dtype=bool))
    assert_breaks(is_broken, ALPHA, 40)


def test_a_thinned_sample_has_equal_chances():
    """Of answers with the chances 0.6 and 0.15, about as many of each stay as there are answers of each."""
    rng = np.random.default_rng(0)
    chance = rng.choice([0.15, 0.6], 20_000)
    drawn = chance[rng.random(20_000) < chance]
    stays = refitting.thinned([rng.bytes(16).hex() for _ in drawn], drawn)
    assert np.count_nonzero(stays) == pytest.approx(3000, abs=250)
    assert drawn[stays].mean() == pytest.approx(0.375, abs=0.03)
    assert stays[drawn == 0.15].all()
