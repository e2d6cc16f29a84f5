"""One run of the protocol, and the methods that it compares: split the questions, make groups, fit, tune, test.

The parts are the paper's: 20% make the groups (beta), 60% calibrate, 10% choose depth and points per bin, 10% test.
All rows of a question are in the same part. Each seed is another split.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from qacal.calibrators.base import Calibrator
from qacal.calibrators.binning import (
    BinningCalibrator,
    QABinning,
    ScalingBinning,
    ScalingQABinning,
    Ties,
    UniformMassBinning,
)
from qacal.calibrators.curves import PlattScaling
from qacal.calibrators.identity import Identity
from qacal.calibrators.isotonic import IsotonicCalibration
from qacal.errors import InputError, NotEnoughRowsError, RepeatedQuestionsWarning
from qacal.experiment.groups import Beta, Groups, at_cut, common_groups, only
from qacal.experiment.sample import Sample
from qacal.guarantee import check_alpha
from qacal.metrics.calibration import (
    calibration_error,
    estimate_calibration_error,
    estimate_maximum_calibration_error,
)
from qacal.metrics.evaluation import Scores
from qacal.metrics.scores import log_loss
from qacal.planning import Ranges, paper_ranges, search_ranges, wide_ranges
from qacal.search import ROWS_A_BIN, Search, require_objective
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.groups import NO_GROUP, as_grouping
from qacal.tally.ids import id_hashes, split, tie_order
from qacal.tally.tally import BLOCKS, Tally

SEEDS = 8
SHARES = (0.2, 0.6, 0.1, 0.1)
BETA, CALIBRATION, TUNING, TEST = range(4)

_NONE = Ranges((), None, "")

# With fewer rows in a part, measures are noise.
SMALLEST_PART = 20

# For the noise floor, which is a mean: a hundred redraws tell it to a few percent.
_REDRAWS = 99

_MOST_BINS = 15

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
    """The settings of a run, which are the same for all seeds and blocks.

    search : which points per bin are tried: "paper" (those that guarantee `epsilon`), "wide" (from 10 up), or "auto",
        the paper's where the rows allow.
    objective : the measure on the tuning rows: "log_loss", "brier", "auac" (the paper's), "error".
    seeds : how many times the questions are split.
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
    seeds: int = SEEDS

    def validate(self) -> None:
        """Raise an error for unknown settings."""
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise InputError(f"seeds is {self.seeds!r}; expected a whole number of 1 or more.")
        if self.search not in ("auto", "paper", "wide"):
            raise InputError(f"search is {self.search!r}; expected auto, paper or wide.")
        if self.ties not in ("merge", "jitter"):
            raise InputError(f"ties is {self.ties!r}; expected merge or jitter.")
        if self.label is not None and not isinstance(self.label, str):
            raise InputError(f"label is {self.label!r:.60}; expected the name of a column.")
        if self.label in ("correct", "confidence"):
            raise InputError(
                f"errors cannot be measured within {self.label}; choose a column that tells kinds of questions apart."
            )
        require_objective(self.objective)
        check_alpha(self.alpha)

    def ranges(self, rows: int, groups: list[int]) -> Ranges:
        """Return the points per bin to try."""
        if self.search == "paper":
            return paper_ranges(rows, epsilon=self.epsilon, alpha=self.alpha)
        if self.search == "wide":
            return wide_ranges(rows, alpha=self.alpha)
        return search_ranges(rows, groups, epsilon=self.epsilon, alpha=self.alpha)


@dataclass(frozen=True, eq=False)
class TestRows:
    """Held-out rows, and the groups that errors are measured within: common ones (beta), and a label of the records."""

    confidence: Floats
    correct: Floats
    ids: Hashes
    beta: Ints
    label: Any = None

    def measured(self, answers: Floats) -> dict[str, float]:
        """Return every measure of a method's answers."""
        within_beta = self._tally(answers, self.beta)
        scores = Scores.of(within_beta, bins=None, redraws=_REDRAWS)
        assert scores.error_by_group is not None
        measures = {
            "ce_beta": scores.error_by_group.plugin,
            "ce_beta_floor": scores.error_by_group.floor,
            "ce_beta_debiased": _debiased(within_beta),
            "ce": scores.error.plugin,
            "ce_debiased": _debiased(within_beta.pooled()),
            "mce_beta": estimate_maximum_calibration_error(within_beta).plugin,
            "auac": scores.auac,
            "aurc": scores.aurc,
            "brier": scores.brier,
            "log_loss": log_loss(within_beta),  # as it was tuned, without the cut of what other commands print
            "sharpness": scores.sharpness,
            "outputs": len(np.unique(answers)),
        }
        if self.label is None:
            return measures
        within_label = self._tally(answers, self.label)
        error = estimate_calibration_error(within_label, redraws=_REDRAWS)
        return measures | {
            "ce_label": error.plugin,
            "ce_label_floor": error.floor,
            "ce_label_debiased": _debiased(within_label),
        }

    def _tally(self, answers: Floats, groups: Any) -> Tally:
        return Tally.of(answers, self.correct, groups=groups, ids=self.ids, n_blocks=BLOCKS)


def _debiased(tally: Tally) -> float:
    """Return the debiased error, in the same number of bins for every method, so that methods can be compared."""
    groups = 1 if tally.grouping is None else max(1, len(np.setdiff1d(tally.grouping.leaves(), [NO_GROUP])))
    bins = int(np.clip(tally.n // (groups * ROWS_A_BIN), 1, _MOST_BINS))
    return calibration_error(tally, bins=bins)


@dataclass(frozen=True, eq=False)
class Split:
    """The parts of one seed: `part` is the number of each row's part."""

    part: Ints
    search: Search
    test: TestRows
    test_groups: Groups


def deal(sample: Sample, beta: Beta, seed: int, protocol: Protocol) -> Split:
    """Split the questions of a sample, make groups from the first part, and prepare the search."""
    part = split(sample.ids, SHARES, seed)
    groups = beta.groups(sample, part == BETA, seed)
    calibration, tuning = (_tally(sample, groups, part == which, protocol.ties) for which in (CALIBRATION, TUNING))
    # Points per bin give their guarantee for questions: several rows of one are not independent.
    questions = len(np.unique(sample.ids[part == CALIBRATION]))
    ranges = protocol.ranges(questions, [count for _, count in Search(calibration, tuning, ranges=_NONE).sizes])
    search = Search(calibration, tuning, objective=protocol.objective, ranges=ranges)
    is_test = part == TEST
    test_groups = only(groups, is_test)
    common = common_groups(test_groups, int(is_test.sum()))
    labels = None if protocol.label is None else list(compress(sample.columns[protocol.label], is_test))
    rows = TestRows(sample.confidence[is_test], sample.correct[is_test], sample.ids[is_test], common, labels)
    return Split(part, search, rows, test_groups)


def run_method(parts: Split, name: str, method: Calibrator) -> dict[str, Any]:
    """Tune a method, and return its measures on the test rows."""
    with warnings.catch_warnings():
        # Several rows of a question make intervals too narrow, and none is used here.
        warnings.simplefilter("ignore", RepeatedQuestionsWarning)
        tuned = parts.search.tune(method)
    cut = tuned.best.cut
    groups = at_cut(parts.test_groups, cut)
    answers = tuned.calibrator.predict(parts.test.confidence, groups=groups, ids=parts.test.ids)
    return {
        "method": name,
        "groups": dict(parts.search.sizes)[cut] if method.properties.uses_groups else None,
        "cut": str(cut) if method.properties.uses_groups else None,
        "depth": cut if method.properties.uses_groups and isinstance(cut, int) else None,
        "points_per_bin": tuned.best.points_per_bin,
        "tuning": tuned.best.score,
        **parts.test.measured(answers),
    }


def require_enough(sample: Sample, protocol: Protocol, columns: Sequence[str]) -> None:
    """Raise an error for a sample that some seed cannot split, or whose answers are all correct or all wrong.

    columns : columns that are groups, or that errors are measured within.
    """
    if protocol.ties == "jitter":
        tie_order(id_hashes(sample.ids, len(sample)), sample.confidence)
    questions = np.unique(sample.ids)
    counts = [np.bincount(split(questions, SHARES, seed), minlength=4).tolist() for seed in range(protocol.seeds)]
    smallest = min(counts, key=min)
    if min(smallest) < SMALLEST_PART:
        raise InputError(
            f"{len(questions):,} questions are too few: the parts (20:60:10:10) have {smallest} of them, and each "
            f"needs {SMALLEST_PART} or more. Give rows of some {20 * SMALLEST_PART} different questions."
        )
    if len(np.unique(sample.correct)) == 1:
        raise InputError(
            f"all answers are {'correct' if sample.correct[0] else 'wrong'}; there is nothing to calibrate."
        )
    try:
        protocol.ranges(int(0.55 * len(questions)), [1, 2])
    except NotEnoughRowsError as error:
        raise InputError(f"{error} Or search widely (--search wide).") from None
    for column in columns:
        groups = len(np.unique(as_grouping(sample.columns[column], len(sample)).leaves()))
        # On a tenth of the rows each group needs a pair, or it shows no error.
        if 20 * groups > len(sample):
            raise InputError(
                f"the column {column} has {groups:,} values in {len(sample):,} rows; errors within groups need some "
                "tens of rows for each. Choose a coarser column."
            )


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
