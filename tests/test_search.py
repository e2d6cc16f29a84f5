"""The search gives the answers of the calibrators for every setting it tries, and chooses well."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal import InputError, Paths, QABinning, RepeatedQuestionsWarning, Search, Tally
from qacal.calibrators import (
    HierarchicalScaling,
    Identity,
    IsotonicCalibration,
    PlattScaling,
    ScalingBinning,
    ScalingQABinning,
    TreeScaling,
    UniformMassBinning,
)
from qacal.metrics import auac, brier_score, log_loss
from qacal.planning import Ranges
from qacal.search import Trial, best_of
from tests.calibrators.contract import name_of
from tests.sizes import examples

METHODS = [
    Identity(),
    PlattScaling(),
    UniformMassBinning(n_bins=7),
    ScalingBinning(),
    QABinning(),
    QABinning(resolution=0.05),
    QABinning(ties="jitter"),
    ScalingQABinning(pooling="full"),
    ScalingQABinning(pooling="partial"),
    ScalingQABinning(pooling="partial", cross_fit=True),
    HierarchicalScaling(),
    TreeScaling(),
    IsotonicCalibration(),
    IsotonicCalibration(pooling="none", rows_per_group=10),
]

WIDE = Ranges((60, 20, 7), None, "")


def tree_rows(n, seed, depth=3):
    rng = np.random.default_rng(seed)
    path = rng.integers(0, 2**depth, n) & rng.integers(0, 2**depth, n)
    exits = np.where(rng.random(n) < 0.1, rng.integers(1, depth + 1, n), depth + 1)
    h = rng.choice([0.0, 0.3, 0.55, 0.8, 0.9, 1.0], n)
    right = rng.random(n) < np.clip(0.1 + 0.6 * h + 0.05 * path - 0.1, 0, 1)
    return h, right.astype(float), Paths(path, exits, depth)


def halves(n, seed, soft=False, weighted=False):
    """Calibration and tuning rows of one tree, as arrays and as tallies."""
    h, right, paths = tree_rows(n, seed)
    rng = np.random.default_rng(seed + 1)
    if soft:
        right = np.clip(right * 0.8 + 0.1 * rng.random(n), 0, 1)
    parts = []
    for rows in (np.arange(n) % 4 > 0, np.arange(n) % 4 == 0):
        weights = rng.choice([0.5, 1.0, 2.0], rows.sum()) if weighted else None
        groups = Paths(paths.path[rows], paths.exit[rows], paths.depth)
        ids = np.flatnonzero(rows)
        parts.append(
            Tally.of(h[rows], right[rows], groups=groups, sample_weight=weights, ids=ids, n_blocks=2, ties=True)
        )
    return parts


def by_hand(method, calibration, tuning, cut, b):
    """Fit the calibrator itself on the whole tree, and predict every tuning cell."""
    params = method.get_params()
    params |= {"points_per_bin": b} if b is not None else {}
    params |= {"max_depth": cut} if "max_depth" in params else {}
    params |= {"n_bins": None} if "n_bins" in params else {}
    fitted = type(method)(**params).fit_tally(calibration)
    return tuning.with_confidence(fitted.predict_tally(tuning))


@pytest.mark.parametrize("method", METHODS, ids=name_of)
@pytest.mark.parametrize("kind", ["plain", "soft", "weighted"])
def test_every_trial_is_what_the_calibrator_answers(method, kind):
    calibration, tuning = halves(400, 3, soft=kind == "soft", weighted=kind == "weighted")
    found = Search(calibration, tuning, ranges=WIDE).tune(method)
    has_bins = "points_per_bin" in method.get_params()
    assert len(found.trials) == (4 if method.properties.uses_groups else 1) * (3 if has_bins else 1)
    for trial in found.trials:
        expected = log_loss(by_hand(method, calibration, tuning, trial.cut, trial.points_per_bin))
        assert trial.score == pytest.approx(expected, rel=1e-9), trial
    assert found.best.score == pytest.approx(min(trial.score for trial in found.trials))
    answered = log_loss(tuning.with_confidence(found.calibrator.predict_tally(tuning)))
    assert answered == pytest.approx(found.best.score, rel=1e-9)


@examples(40, 8)
@given(st.integers(8, 150), st.integers(0, 10**6), st.lists(st.integers(1, 80), min_size=1, max_size=3, unique=True))
def test_quick_answers_are_the_calibrators_for_any_rows(n, seed, points):
    calibration, tuning = halves(n, seed)
    ranges = Ranges(tuple(points), None, "")
    for method in (QABinning(), ScalingQABinning(pooling="full"), ScalingQABinning()):
        for trial in Search(calibration, tuning, ranges=ranges, objective="brier").tune(method).trials:
            expected = by_hand(method, calibration, tuning, trial.cut, trial.points_per_bin)
            assert trial.score == pytest.approx(brier_score(expected), abs=1e-9)


def flat_rows(n, seed, names):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 12, n)
    h = rng.choice([0.5, 0.7, 0.9], n)
    right = rng.random(n) < h - 0.3 + 0.05 * kind
    groups = {"3": kind // 4, "12": kind, "names": [names[k] for k in kind]}
    return Tally.of(h, right, groups=groups, ids=range(seed * n, seed * n + n), n_blocks=2)


def test_one_of_several_flat_partitions_is_chosen():
    names = [f"topic {k}" for k in range(12)]
    # Two topics that only one of the samples has.
    calibration, tuning = flat_rows(3000, 1, names), flat_rows(1000, 2, [*names[:10], "unseen", "other"])
    for method in (QABinning(), ScalingQABinning(), HierarchicalScaling()):
        found = Search(calibration, tuning, ranges=WIDE).tune(method)
        assert {trial.cut for trial in found.trials} == {0, "3", "12", "names"}
        assert found.best.cut in ("12", "names")
        for trial in found.trials:
            if trial.cut == 0:
                continue
            mine, theirs = calibration.only(trial.cut), tuning.only(trial.cut)
            expected = log_loss(by_hand(method, mine, theirs, None, trial.points_per_bin))
            assert trial.score == pytest.approx(expected, rel=1e-9)


def test_without_groups_the_root_is_all_there_is():
    rng = np.random.default_rng(0)
    h = rng.choice([0.5, 0.9], 500)
    right = rng.random(500) < h
    found = Search(Tally.of(h[:400], right[:400]), Tally.of(h[400:], right[400:]), ranges=WIDE).tune(QABinning())
    assert {trial.cut for trial in found.trials} == {0}


@pytest.mark.parametrize(
    ("objective", "measure"),
    [("log_loss", log_loss), ("brier", lambda t: brier_score(t)), ("auac", lambda t: -auac(t))],
)
def test_objectives_are_the_metrics(objective, measure):
    calibration, tuning = halves(600, 9)
    found = Search(calibration, tuning, ranges=WIDE, objective=objective).tune(QABinning())
    for trial in found.trials:
        assert trial.score == pytest.approx(
            measure(by_hand(QABinning(), calibration, tuning, trial.cut, trial.points_per_bin))
        )


def test_the_error_within_groups_is_measured_in_the_same_groups_for_all():
    """Groups that differ by 0.5 at the same confidence: pooled maps miss, maps of depth 1 and more do not."""
    rng = np.random.default_rng(5)
    n = 8000
    path, h = rng.integers(0, 4, n), np.full(n, 0.7)
    right = rng.random(n) < np.where(path < 2, 0.2, 0.7)
    groups = [Paths(path[k::2], np.full(n // 2, 3), 2) for k in (0, 1)]
    tallies = [Tally.of(h[k::2], right[k::2], groups=groups[k]) for k in (0, 1)]
    search = Search(*tallies, ranges=Ranges((100,), None, ""), objective="error")
    assert search.common_cut == 2
    scores = {trial.cut: trial.score for trial in search.tune(QABinning()).trials}
    assert scores[0] == pytest.approx(0.25, abs=0.02)
    assert max(scores[1], scores[2]) < 0.05
    # A method without groups is measured in the same groups.
    assert search.tune(UniformMassBinning()).best.score == pytest.approx(scores[0])


def test_equal_scores_prefer_fewer_groups_and_more_points_per_bin():
    calibration, tuning = halves(300, 2)
    found = Search(calibration, tuning, ranges=Ranges((5000, 1000), None, "")).tune(QABinning())
    assert (found.best.cut, found.best.points_per_bin) == (0, 5000)


def test_progress_counts_the_cuts():
    calibration, tuning = halves(200, 2)
    seen = []
    Search(calibration, tuning, ranges=WIDE, progress=lambda done, total: seen.append((done, total))).tune(QABinning())
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_refusals():
    calibration, tuning = halves(200, 2)
    with pytest.raises(InputError, match=r"objective is 'accuracy'; expected one of log_loss, brier, auac, error"):
        Search(calibration, tuning, objective="accuracy")
    with pytest.raises(InputError, match="needs a tally with such blocks"):
        Search(calibration.without_blocks(), tuning, ranges=WIDE).tune(ScalingQABinning())


def test_settings_that_cannot_be_measured_are_not_chosen():
    nan = float("nan")
    assert best_of([Trial(0, 10, nan), Trial(1, 10, 0.5)]).cut == 1
    with pytest.raises(InputError, match="no setting could be scored"):
        best_of([Trial(0, 10, nan)])


def test_repeated_questions_warn_once_and_not_in_every_trial():
    h, right, paths = tree_rows(400, 1)
    calibration = Tally.of(h[:300], right[:300], groups=paths.path[:300], ids=np.arange(300) // 2)
    tuning = Tally.of(h[300:], right[300:], groups=paths.path[300:])
    with pytest.warns(RepeatedQuestionsWarning) as told:
        Search(calibration, tuning, ranges=WIDE).tune(QABinning())
    assert len(told) == 1
