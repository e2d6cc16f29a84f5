"""One run of the protocol, and the methods that it compares: split the questions, make groups, fit, tune, test.

The parts are the paper's: 20% make the groups (beta), 60% calibrate, 10% choose depth and points per bin, 10% test.
All rows of a question are in the same part. Each seed is another split.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.base import Calibrator
from qacal.calibrators.bin_maps import Ties
from qacal.calibrators.binning import BinningCalibrator, QABinning, ScalingBinning, ScalingQABinning, UniformMassBinning
from qacal.calibrators.identity import Identity
from qacal.calibrators.isotonic import IsotonicCalibration
from qacal.calibrators.platt import PlattScaling
from qacal.errors import InputError, RepeatedQuestionsWarning
from qacal.experiment.groups import Beta, Groups, at_cut, common_groups, only
from qacal.experiment.measures import TestRows
from qacal.experiment.sample import Sample
from qacal.planning import Ranges, paper_ranges, search_ranges, wide_ranges
from qacal.search import Search, Tuned
from qacal.tally.arrays import Bools, Floats, Ints
from qacal.tally.ids import id_hashes, split, tie_order
from qacal.tally.tally import BLOCKS, Tally

SHARES = (0.2, 0.6, 0.1, 0.1)
BETA, CALIBRATION, TUNING, TEST = range(4)

_NONE = Ranges((), None, "")

# With fewer rows in a part, what is measured on it is noise.
SMALLEST_PART = 20

METHODS: dict[str, Calibrator] = {
    "QAB": QABinning(),
    "HS-QAB": ScalingQABinning(pooling="partial"),
    "S-QAB": ScalingQABinning(pooling="full"),
    "S-B": ScalingBinning(),
    "S": PlattScaling(),
    "B": UniformMassBinning(),
    "None": Identity(),
    "Iso": IsotonicCalibration(),
    "QA-Iso": IsotonicCalibration(pooling="none"),
}
"""Each method by its name in the tables: the seven of the paper, and isotonic curves."""

MEANING = {
    "QAB": "QA binning",
    "HS-QAB": "hierarchical scaling, then QA binning",
    "S-QAB": "Platt scaling, then QA binning",
    "S-B": "scaling-binning",
    "S": "Platt scaling",
    "B": "uniform-mass binning",
    "None": "the confidence as stated",
    "Iso": "one isotonic curve",
    "QA-Iso": "an isotonic curve per group",
}


def methods(ties: Ties) -> dict[str, Calibrator]:
    """Return the methods; `ties` says what those with bins do with equal confidences."""
    copies = {name: type(method)(**method.get_params()) for name, method in METHODS.items()}
    for method in copies.values():
        if isinstance(method, BinningCalibrator):
            method.set_params(ties=ties)
    return copies


@dataclass(frozen=True)
class Protocol:
    """What is the same for all seeds and blocks.

    search : which points per bin are tried: "paper" (those that promise `epsilon`), "wide" (from 10 up), or "auto", the
        paper's where the rows allow.
    objective : what the tuning rows decide by: "log_loss", "brier", "auac" (the paper's), "error".
    label : a column that no method has seen, to measure errors within.
    ties : what bins do with equal confidences: "merge" keeps them together, "jitter" orders them by the hash of the id,
        as the paper's randomised ties do.
    """

    search: str = "auto"
    objective: str = "log_loss"
    epsilon: float = 0.1
    alpha: float = 0.1
    label: str | None = None
    ties: Ties = "merge"

    def ranges(self, rows: int, groups: list[int]) -> Ranges:
        """Return the points per bin to try."""
        if self.search == "paper":
            return paper_ranges(rows, epsilon=self.epsilon, alpha=self.alpha)
        if self.search == "wide":
            return wide_ranges(rows, alpha=self.alpha)
        return search_ranges(rows, groups, epsilon=self.epsilon, alpha=self.alpha)


@dataclass(frozen=True, eq=False)
class Split:
    """One seed's parts and groups, and what was learned from them."""

    sample: Sample
    part: Ints
    groups: Groups
    search: Search
    test: TestRows
    common: Any

    def rows(self, part: int) -> Bools:
        """Return which rows are in a part."""
        return np.asarray(self.part == part)

    def answers(self, tuned: Tuned) -> Floats:
        """Return what a tuned method answers the test rows."""
        groups = at_cut(only(self.groups, self.rows(TEST)), tuned.best.cut)
        return tuned.calibrator.predict(self.test.confidence, groups=groups, ids=self.test.ids)


def deal(sample: Sample, beta: Beta, seed: int, protocol: Protocol) -> Split:
    """Deal the questions of a sample, make groups from the first part, and get ready to search."""
    part = split(sample.ids, SHARES, seed)
    groups = beta.groups(sample, part == BETA, seed)
    calibration, tuning = (_tally(sample, groups, part == which, protocol.ties) for which in (CALIBRATION, TUNING))
    # What points per bin promise, they promise of questions: several rows of one are not independent.
    questions = len(np.unique(sample.ids[part == CALIBRATION]))
    ranges = protocol.ranges(questions, [count for _, count in Search(calibration, tuning, ranges=_NONE).sizes])
    search = Search(calibration, tuning, objective=protocol.objective, ranges=ranges)
    is_test = part == TEST
    cut, codes = common_groups(only(groups, is_test), int(is_test.sum()))
    return Split(sample, part, groups, search, TestRows.of(sample, is_test, codes, protocol.label), cut)


def run_method(dealt: Split, name: str, method: Calibrator) -> dict[str, Any]:
    """Tune a method, and return what it is worth on the test rows."""
    with warnings.catch_warnings():
        # Several rows of a question make intervals too narrow, and none is used here.
        warnings.simplefilter("ignore", RepeatedQuestionsWarning)
        tuned = dealt.search.tune(method)
    cut = tuned.best.cut
    return {
        "method": name,
        "groups": dict(dealt.search.sizes)[cut] if method.properties.uses_groups else None,
        "cut": str(cut) if method.properties.uses_groups else None,
        "depth": cut if method.properties.uses_groups and isinstance(cut, int) else None,
        "points_per_bin": tuned.best.points_per_bin,
        "tuning": tuned.best.score,
        **dealt.test.measured(dealt.answers(tuned)),
    }


def require_enough(sample: Sample, seeds: int, ties: Ties) -> None:
    """Refuse a sample that cannot be dealt with every seed, or on which there is nothing to learn."""
    if ties == "jitter":
        tie_order(id_hashes(sample.ids, len(sample)), sample.confidence)
    questions = np.unique(sample.ids)
    counts = [np.bincount(split(questions, SHARES, seed), minlength=4).tolist() for seed in range(seeds)]
    smallest = min(counts, key=min)
    if min(smallest) < SMALLEST_PART:
        raise InputError(
            f"{len(questions):,} questions are too few: the parts (20:60:10:10) have {smallest} of them, and each "
            f"needs {SMALLEST_PART} or more. Give rows of some {20 * SMALLEST_PART} different questions."
        )
    if len(np.unique(sample.correct)) == 1:
        raise InputError(f"all answers are {'right' if sample.correct[0] else 'wrong'}; there is nothing to calibrate.")


def _tally(sample: Sample, groups: Groups, rows: Bools, ties: Ties) -> Tally:
    ids = sample.ids[rows]
    return Tally.of(
        sample.confidence[rows],
        sample.correct[rows],
        groups=only(groups, rows),
        ids=ids,
        # Halves, or enough blocks for the errors of dependent rows.
        n_blocks=BLOCKS if len(np.unique(ids)) < len(ids) else 2,
        ties=ties == "jitter",
    )
