"""What a model remembers of the rows it was fitted on: enough to tell them again, and what thresholds they expect.

Needs numpy alone, so that a saved model loads without anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.storage.soundness import require, require_between, require_columns, rises
from qacal.tally.arrays import Floats, Hashes, Ints
from qacal.tally.ids import mix

if TYPE_CHECKING:
    from qacal.thresholds.outlook import Forecasts

# Of the hashes of all questions, so many of the lowest: if a fiftieth of the questions comes again, so do five of them.
_MOST = 256

# Readers of JSON agree on whole numbers of 53 bits.
_BITS = np.uint64(11)


@dataclass(frozen=True, eq=False)
class FitRecord:
    """The questions of a fit, a sample of their hashes, and the calibrated confidences that its rows got.

    questions : sorted.
    cells : for all rows (None) and each group: scores, rows, right answers.
    """

    questions: Ints
    cells: dict[Any, tuple[Floats, Floats, Floats]]

    def known(self, ids: Hashes) -> int:
        """Return how many of these questions are among the sample: none, if they are others than those of the fit.

        >>> ids = np.arange(1000, dtype=np.uint64)
        >>> FitRecord(sample(ids), {}).known(ids), FitRecord(sample(ids), {}).known(ids + np.uint64(1000))
        (256, 0)
        """
        return int(np.isin(self.questions, _marks(ids)).sum())

    def outlooks(self) -> Forecasts | None:
        """Return what to expect of thresholds; None if nothing is remembered."""
        from qacal.thresholds.outlook import Forecast, Forecasts

        if None not in self.cells:
            return None
        groups = {name: Forecast(*columns) for name, columns in self.cells.items() if name is not None}
        return Forecasts(Forecast(*self.cells[None]), groups)

    def to_plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        cells = [[name, *(column.tolist() for column in columns)] for name, columns in self.cells.items()]
        return {"questions": self.questions.tolist(), "cells": cells}

    @staticmethod
    def from_plain(plain: Any) -> FitRecord:
        """Return the memory that :meth:`to_plain` gave; refuse any other content."""
        is_memory = isinstance(plain, dict) and set(plain) == {"questions", "cells"}
        require(is_memory, f"what is remembered of the rows is {plain!r:.80}; expected questions and cells.")
        questions = _numbers(plain["questions"], int, "questions")
        require(len(questions) <= _MOST and rises(questions), "the questions of the fit must be few and rise.")
        are_cells = isinstance(plain["cells"], list) and all(map(_is_entry, plain["cells"]))
        require(are_cells, "the cells of the fit must be lists of a group, scores, rows and right answers.")
        names = [entry[0] for entry in plain["cells"]]
        require(len(set(names)) == len(names), "the cells of a group are given twice.")
        return FitRecord(questions, {entry[0]: _columns(entry[1:]) for entry in plain["cells"]})


NO_RECORD = FitRecord(np.empty(0, dtype=np.int64), {})
"""That of a model which was saved before models remembered."""


def sample(ids: Hashes) -> Ints:
    """Return the sample of questions that a model keeps."""
    return np.unique(_marks(ids))[:_MOST]


def remembered(ids: Hashes, outlooks: Forecasts) -> FitRecord:
    """Return the memory of rows with these questions, of which this is to be expected."""
    every = {None: outlooks.everywhere, **outlooks.groups}
    return FitRecord(sample(ids), {name: (own.score, own.rows, own.right) for name, own in every.items()})


def _marks(ids: Hashes) -> Ints:
    """Return hashes of hashes, which have nothing to do with splits, in 53 bits; 0 is no question."""
    return (mix(ids[ids != 0], 2**42) >> _BITS).astype(np.int64)


def _is_entry(entry: Any) -> bool:
    is_named = (
        isinstance(entry, list) and len(entry) == 4 and (entry[0] is None or type(entry[0]) in (str, int, bool, float))
    )
    return is_named and all(isinstance(column, list) for column in entry[1:])


def _columns(columns: list[Any]) -> tuple[Floats, Floats, Floats]:
    score, rows, right = (_numbers(column, float, "cells") for column in columns)
    require_columns(len(score), score=score, rows=rows, right=right)
    require_between(0, 1, score=score)
    require(rises(score), "the scores of a group must rise.")
    require_between(0, 2**53, rows=rows, right=right)
    return score, rows, np.minimum(right, rows)


def _numbers(values: Any, kind: type, name: str) -> Any:
    are_numbers = isinstance(values, list) and all(type(value) in (int, kind) for value in values)
    require(are_numbers, f"{name} holds {values!r:.80}; expected numbers.")
    try:
        return np.array(values, dtype=np.int64 if kind is int else np.float64)
    except OverflowError:
        raise InputError(f"{name} holds a number that is too large.") from None
