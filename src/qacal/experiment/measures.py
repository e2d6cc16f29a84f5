"""The measures of a method on the test rows: one number per column of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.metrics.calibration import (
    calibration_error,
    estimate_calibration_error,
    estimate_maximum_calibration_error,
)
from qacal.metrics.evaluation import Scores
from qacal.search import ROWS_A_BIN
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.groups import NO_GROUP
from qacal.tally.tally import BLOCKS, Tally

# For the noise floor, which is a mean: a hundred redraws tell it to a few percent.
_REDRAWS = 99

_MOST_BINS = 15


@dataclass(frozen=True)
class Column:
    """A column of the results: its name in the file and in tables, and which values are better.

    is_root : a debiased error, which is the signed root of an unbiased square.
    """

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
    """Held-out rows, and the groups that errors are measured within: common ones (beta), and a label of the records."""

    confidence: Floats
    correct: Floats
    ids: Hashes
    beta: Ints
    label: Any = None

    def measured(self, answers: Floats) -> dict[str, float]:
        """Return every measure of a method's answers."""
        tally, within_beta = self._tally(answers), self._tally(answers, self.beta)
        scores = Scores.of(tally, within_beta, bins=None, redraws=_REDRAWS)
        assert scores.error_by_group is not None
        measures = {
            "ce_beta": scores.error_by_group.plugin,
            "ce_beta_floor": scores.error_by_group.floor,
            "ce_beta_debiased": _debiased(within_beta),
            "ce": scores.error.plugin,
            "ce_debiased": _debiased(tally),
            "mce_beta": estimate_maximum_calibration_error(within_beta).plugin,
            "auac": scores.auac,
            "aurc": scores.aurc,
            "brier": scores.brier,
            "log_loss": scores.log_loss,
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

    def _tally(self, answers: Floats, groups: Any = None) -> Tally:
        return Tally.of(answers, self.correct, groups=groups, ids=self.ids, n_blocks=BLOCKS)


def _debiased(tally: Tally) -> float:
    """Return the debiased error, in the same number of bins for every method, so that methods can be compared."""
    groups = 1 if tally.grouping is None else max(1, len(np.setdiff1d(tally.grouping.leaves(), [NO_GROUP])))
    bins = int(np.clip(tally.n // (groups * ROWS_A_BIN), 1, _MOST_BINS))
    return calibration_error(tally, bins=bins)
