"""What is measured of a method on the test rows; one number a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.experiment.sample import Sample
from qacal.metrics.calibration import calibration_error, maximum_calibration_error
from qacal.metrics.proper_scores import brier_score, log_loss, sharpness
from qacal.metrics.selective import auac, aurc
from qacal.search import ROWS_A_BIN
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.groups import NO_GROUP, as_grouping

# For the noise floor, which is a mean: a hundred redraws tell it to a few percent.
_REDRAWS = 99

_MOST_BINS = 15


@dataclass(frozen=True)
class Column:
    """A column of the results: its name in the file and in tables, and which way is better."""

    name: str
    title: str
    is_better: str | None = "low"
    is_root: bool = False


COLUMNS = [
    Column("ce_beta", "CE(h;β)"),
    Column("ce_beta_floor", "its noise floor", None),
    Column("ce_beta_debiased", "CE(h;β) debiased", is_root=True),
    Column("ce", "CE(h)"),
    Column("ce_debiased", "CE(h) debiased", is_root=True),
    Column("mce_beta", "β-MCE"),
    Column("auac", "AUAC", "high"),
    Column("aurc", "AURC"),
    Column("brier", "Brier"),
    Column("log_loss", "log loss"),
]

LABEL_COLUMNS = [
    Column("ce_label", "CE by {label}"),
    Column("ce_label_floor", "its noise floor", None),
    Column("ce_label_debiased", "CE by {label} debiased", is_root=True),
]


@dataclass(frozen=True, eq=False)
class TestRows:
    """The rows that fitted and tuned nothing, and the groups that errors are measured within."""

    confidence: Floats
    correct: Floats
    ids: Hashes
    beta: Ints
    label: Any = None

    @staticmethod
    def of(sample: Sample, is_test: Bools, beta: Ints, label: str | None) -> TestRows:
        """Take the test rows of a sample; `beta` has their common groups."""
        kept = np.flatnonzero(is_test).tolist()
        labels = None if label is None else [sample.columns[label][row] for row in kept]
        return TestRows(sample.confidence[is_test], sample.correct[is_test], sample.ids[is_test], beta, labels)

    def measured(self, answers: Floats) -> dict[str, float]:
        """Return every measure of a method's answers."""
        rows = (answers, self.correct)
        within = calibration_error(*rows, groups=self.beta, ids=self.ids, redraws=_REDRAWS)
        worst = maximum_calibration_error(*rows, groups=self.beta, ids=self.ids, redraws=0)
        found = {
            "ce_beta": within.plugin,
            "ce_beta_floor": within.floor,
            "ce_beta_debiased": self._debiased(answers, self.beta),
            "ce": calibration_error(*rows, ids=self.ids, redraws=0).plugin,
            "ce_debiased": self._debiased(answers, None),
            "mce_beta": worst.plugin,
            "auac": auac(*rows),
            "aurc": aurc(*rows).aurc,
            "brier": brier_score(*rows).score,
            "log_loss": log_loss(*rows),
            "sharpness": sharpness(*rows),
            "outputs": len(np.unique(answers)),
        }
        return found if self.label is None else found | self._by_label(answers)

    def _by_label(self, answers: Floats) -> dict[str, float]:
        within = calibration_error(answers, self.correct, groups=self.label, ids=self.ids, redraws=_REDRAWS)
        return {
            "ce_label": within.plugin,
            "ce_label_floor": within.floor,
            "ce_label_debiased": self._debiased(answers, self.label),
        }

    def _debiased(self, answers: Floats, groups: Any) -> float:
        """Return the debiased error, in as many bins for every method: else each has a ruler of its own."""
        count = 1
        if groups is not None:
            count = max(1, len(np.setdiff1d(as_grouping(groups, len(answers)).leaves(), [NO_GROUP])))
        bins = int(np.clip(len(answers) // (count * ROWS_A_BIN), 1, _MOST_BINS))
        return calibration_error(answers, self.correct, groups=groups, ids=self.ids, bins=bins, redraws=0).debiased
