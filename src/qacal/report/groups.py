"""The groups of the test rows: what each score claims of them, and which of them it is wrong about beyond chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.metrics.calibration import calibration_error
from qacal.metrics.evaluation import BINS
from qacal.report.chance import judged
from qacal.report.gathering import Gathered
from qacal.tally.arrays import Floats, Ints
from qacal.tally.ids import one_of_each
from qacal.tally.tally import Tally

# Below this many test rows the error of a group is mostly noise, and it is shown after those that have more.
FEW_ROWS = 50


@dataclass(frozen=True, eq=False)
class Group:
    """One group of test rows: how often it is right, what each score claims, and how far each is off.

    is_off : the mean calibrated confidence is further from the share of right answers than chance explains. Of no
        group where some questions have more rows than others: the test is of questions, and the means are of rows.
    words, examples : what sets it apart, and some of its rows; empty where the records have no texts.
    """

    label: Any
    rows: int
    accuracy: float
    confidence: dict[str, float]
    errors: dict[str, float]
    tallies: dict[str, Tally]
    is_off: bool = False
    words: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def gap(self) -> float:
        """How far the mean calibrated confidence is from the share of right answers."""
        return abs(self.confidence["calibrated"] - self.accuracy)

    @property
    def gain(self) -> float:
        """By how much the debiased error falls; what is below noise counts as none."""
        before, after = (np.nan_to_num(max(self.errors[name], 0.0)) for name in ("stated", "calibrated"))
        return float(before - after)


def groups_of(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> tuple[Group, ...]:
    """Return the groups that gain most first, and those with few rows last."""
    return tuple(sorted(_found(gathered, tallies, examples), key=_place))


def _place(group: Group) -> tuple[bool, float, str]:
    return (group.rows < FEW_ROWS, -group.gain, str(group.label))


def _found(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> Iterator[Group]:
    if not gathered.labels:
        return
    labels = {code: label for label, code in gathered.labels.items()}
    off = set() if gathered.is_uneven else _codes_that_are_off(gathered)
    words, pairs = gathered.sampler.words(), gathered.sampler.examples(examples)
    columns = {name: dict(iter(tally)) for name, tally in tallies.items()}
    for code, first in columns["stated"].items():
        mine = {name: column[code] for name, column in columns.items()}
        yield Group(
            label=labels.get(code),
            rows=first.n,
            accuracy=first.mean,
            confidence={name: float(tally.w @ tally.confidence / tally.w.sum()) for name, tally in mine.items()},
            errors={name: _debiased(tally) for name, tally in mine.items()},
            tallies={name: tally.without_blocks() for name, tally in mine.items()},
            is_off=(-1 if code is None else code) in off,
            words=words.get(code, ()) if examples else (),
            examples=pairs.get(code, ()),
        )


def _debiased(tally: Tally) -> float:
    return calibration_error(tally, bins=BINS, redraws=0).debiased if tally.n > 1 else float("nan")


def _codes_that_are_off(gathered: Gathered) -> set[int]:
    """Return the groups whose mean calibrated confidence chance does not explain, one row of each question counted.

    If the calibrated confidences are right within every group, some group is here with probability 0.05 at most.
    """
    correct, claimed, codes, ids = (gathered.column(name) for name in ("correct", "calibrated", "groups", "ids"))
    kept = slice(None) if ids is None else one_of_each(ids, correct, claimed, codes)
    known, where = np.unique(codes[kept], return_inverse=True)
    t, p = correct[kept], claimed[kept]
    rows, right, squares, total = (_sums(where, column) for column in (np.ones(len(t)), t, t * t, p))
    found = judged(rows, right, squares, (total / rows, total / rows))
    return set(known[found.is_contradicted].tolist())


def _sums(where: Ints, column: Floats) -> Floats:
    return np.asarray(np.bincount(where, column), dtype=np.float64)
