"""Who is compared. A contender learns from one frame and answers another; to add one, give it a name below.

Frames have `id`, `model`, `question`, `answer`, `confidence`, `embedding` (vectors of 32 bits), and `part`; the fitting
frame has `correct` too. All have the same 80% of the questions to learn from, and use them as they need to: those with
groups make these on 20% (part BETA) and calibrate and tune on the others; those without need no such rows and calibrate
on all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from sklearn.ensemble import HistGradientBoostingClassifier

import qacal
from benchmarks.combinations import BETA, TUNING
from benchmarks.features import GROUP_DEPTH, bisecting_groups, components, logits, vectors
from benchmarks.multicalibration import Multicalibration
from benchmarks.practitioner import boosted_trees_with_form, tfidf_regression
from qacal.calibrators.base import Calibrator
from qacal.experiment import METHODS
from qacal.experiment.groups import Beta, Groups, only
from qacal.planning import wide_ranges
from qacal.tally.groups import Paths

Contender: TypeAlias = Callable[[pl.DataFrame, pl.DataFrame], np.ndarray]

# The best of six settings on the LLMs to develop on, by log loss: small steps, large leaves, few features a split.
_TUNED = {
    "learning_rate": 0.04,
    "max_leaf_nodes": 16,
    "min_samples_leaf": 80,
    "max_features": 0.3,
    "l2_regularization": 10.0,
    "max_iter": 400,
    "n_iter_no_change": 30,
    "validation_fraction": 0.15,
}


def _whole_model(make: Callable[[], qacal.QACalibrator], fitting: pl.DataFrame, testing: pl.DataFrame) -> np.ndarray:
    model = make().fit(fitting.drop("part"))
    return model.calibrate(testing.drop("part"))["calibrated"].to_numpy()


def _paper_method(method: Calibrator, fitting: pl.DataFrame, testing: pl.DataFrame) -> np.ndarray:
    """Choose depth (of a kd-tree on principal axes) and points per bin by log loss, then fit on tuning rows too."""
    part = fitting["part"].to_numpy()
    used, theirs, asked = np.ones(len(part), dtype=bool), None, None
    if method.properties.uses_groups:
        used = part != BETA
        tree = Beta("embedding", "kdtree").partitions(int((~used).sum()))
        assert isinstance(tree, qacal.partitions.KDTree)
        tree.fit(vectors(fitting)[~used])
        theirs, asked = (tree.paths(vectors(rows)) for rows in (fitting, testing))
    is_tuning = part == TUNING
    calibration, tuning = (_tally(fitting, theirs, rows) for rows in (used & ~is_tuning, is_tuning))
    chosen = qacal.Search(calibration, tuning, ranges=wide_ranges(calibration.n)).tune(method).calibrator
    final = type(method)(**chosen.get_params()).fit_tally(_tally(fitting, theirs, used))
    return final.predict(testing["confidence"], groups=asked, ids=testing["id"])


def _tally(rows: pl.DataFrame, groups: Paths | None, kept: np.ndarray) -> qacal.Tally:
    mine = rows.filter(kept)
    theirs: Groups | None = None if groups is None else only(groups, kept)
    return qacal.Tally.of(mine["confidence"], mine["correct"], groups=theirs, ids=mine["id"], n_blocks=2)


def _boosted_trees(settings: dict[str, Any], fitting: pl.DataFrame, testing: pl.DataFrame) -> np.ndarray:
    trees = HistGradientBoostingClassifier(early_stopping=True, random_state=0, **settings)
    pairs = zip((fitting, testing), components(fitting, testing), strict=True)
    X, asked = (np.column_stack([logits(rows["confidence"]), given]) for rows, given in pairs)
    return trees.fit(X, fitting["correct"].to_numpy()).predict_proba(asked)[:, 1]


def _multicalibrated(fitting: pl.DataFrame, testing: pl.DataFrame) -> np.ndarray:
    """Patch a pooled isotonic map within all nodes of a bisecting tree, the root too; tuning rows choose alpha.

    From the stated confidence, with 30 rows a set or with 10 levels it does worse on the LLMs to develop on.
    """
    h, correct, asked = (
        fitting["confidence"].to_numpy(),
        fitting["correct"].to_numpy(),
        testing["confidence"].to_numpy(),
    )
    nodes, theirs = (np.pad(found, [(0, 0), (1, 0)]) for found in bisecting_groups(fitting, testing, GROUP_DEPTH))
    is_tuning = fitting["part"].to_numpy() == TUNING

    def answers(method: Multicalibration, rows: np.ndarray, asked: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        start = qacal.calibrators.IsotonicCalibration().fit(h[rows], correct[rows])
        patches = list(method.patches(start.predict(h[rows]), correct[rows], nodes[rows]))
        return method.play(patches, start.predict(asked), theirs)

    def loss(method: Multicalibration) -> float:
        found = answers(method, ~is_tuning, h[is_tuning], nodes[is_tuning])
        return qacal.metrics.log_loss(correct[is_tuning], found, cut=0.001)

    best = min((Multicalibration(alpha) for alpha in (0.02, 0.05, 0.1)), key=loss)
    return answers(best, np.ones(len(h), dtype=bool), asked, theirs)


CONTENDERS: dict[str, Contender] = {
    "default": partial(_whole_model, lambda: qacal.QACalibrator("column:embedding")),
    "continuous": partial(_whole_model, lambda: qacal.QACalibrator("column:embedding", output="continuous")),
    "tree": partial(
        _whole_model, lambda: qacal.QACalibrator("column:embedding", "bisecting:8", qacal.calibrators.TreeScaling())
    ),
    **{name: partial(_paper_method, method) for name, method in METHODS.items()},
    "hkrr": _multicalibrated,
    "boosted": partial(_boosted_trees, {}),
    "boosted-tuned": partial(_boosted_trees, _TUNED),
    "tfidf": tfidf_regression,
    "boosted-form": partial(boosted_trees_with_form, _TUNED),
}
"""Everyone who runs in this process, by the name in tables; MCGrad has an environment of its own."""
