"""One model for each LLM (or for each value of another column): fitted, saved and applied together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.model.base import BaseModel
from qacal.model.fitting import FitInputs, FittedFor
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.records.columns import listed
from qacal.records.files import OnFault, refuse
from qacal.records.reading import Batch, Reading, Source, as_source, tables_of
from qacal.records.table import Table, joined
from qacal.tally.arrays import Bools, is_missing

# Rows in memory at once while models are fitted: about half a gigabyte with 2,000 characters each.
_MOST_ROWS = 200_000


class ModelSet(BaseModel):
    """One model for each value of a column; each row goes to the model of its value.

    models : the models by their values.
    """

    def __init__(self, by: str, models: dict[Any, QACalibrator]) -> None:
        self._by: str = by
        self.models = models
        for value, model in models.items():
            model.fitted_for_ = FittedFor(by, value)

    @property
    def _models(self) -> dict[Any, QACalibrator]:
        return self.models

    def _parts(self, batch: Batch) -> Iterator[tuple[Any, QACalibrator, Batch]]:
        values = batch.listed(self._by)
        has_model = np.array([isinstance(value, str | int) and value in self.models for value in values], dtype=bool)
        names = ", ".join(map(str, self.models))
        for row in np.flatnonzero(~has_model).tolist():
            problem = f"{self._by} is {values[row]!r}, and there are models for {names}. Fit one for it."
            batch.reading.on_fault(batch.table.fault(row, problem, f"{self._by} without a model"))
        usable = batch.only(has_model)
        named = [value for value, is_named in zip(values, has_model.tolist(), strict=True) if is_named]
        for value, rows in rows_by(named).items():
            yield value, self.models[value], usable.only(mask(rows, len(usable)))

    def set_threshold(self, threshold: float | None) -> None:
        """Set one threshold for all models; see :meth:`QACalibrator.set_threshold`."""
        for model in self.models.values():
            model.set_threshold(threshold)

    def save(self, path: str | Path) -> None:
        """Write the models as folders within one folder, which is complete or absent."""
        from qacal.model.saved import save_set

        save_set(self, path)


def rows_by(values: Iterable[Any]) -> dict[Any, list[int]]:
    """Return, for each value of a column, the rows that have it.

    >>> rows_by(["a", "b", "a"])
    {'a': [0, 2], 'b': [1]}
    """
    out: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        if isinstance(value, list | dict):
            raise InputError(f"{value!r:.80} cannot separate rows; expected a column of text or whole numbers.")
        out.setdefault(value, []).append(row)
    return out


def mask(rows: list[int], count: int) -> Bools:
    """Return for each of `count` rows whether it is in `rows`."""
    out = np.zeros(count, dtype=bool)
    out[rows] = True
    return out


def fit_set(
    model: QACalibrator,
    records: Any,
    by: str,
    reading: Reading | None = None,
    *,
    group_records: Any = None,
    allow_mixed: bool = False,
    progress: Progress | None = None,
) -> ModelSet:
    """Fit one model like `model` for each value of the column `by`."""
    reading = reading or Reading()
    source = as_source(records)
    models: dict[Any, QACalibrator] = {}
    counts = _counts(source, reading, by)
    for value, part in _sources(source, reading.name(by), counts):

        def tell(what: str, rows: int, value: Any = value) -> None:
            if progress is not None:
                progress(f"fitted {len(models):,} of {len(counts):,}; {value}: {what}", rows)

        one = QACalibrator(**model.get_params(deep=False))
        try:
            models[value] = one._fit_inputs(
                FitInputs(
                    part,
                    replace(reading, prefix=f"{by} {value}: "),
                    group_records,
                    allow_mixed=allow_mixed,
                    apart=(by,),
                ),
                tell,
            )
        except InputError as error:
            raise type(error)(f"{by} {value}: {error}") from None
    return ModelSet(by, models)


def _sources(source: Source, column: str, counts: list[tuple[Any, int]]) -> Iterator[tuple[Any, Source]]:
    """Yield each value of a column with its rows.

    The source is read once for as many values as fit into memory together. A value with more rows than fit is read from
    the source each time.
    """
    block: list[Any] = []
    rows = 0
    for value, count in [*counts, (None, _MOST_ROWS + 1)]:
        if block and rows + count > _MOST_ROWS:
            only = _Only(source, column, frozenset(block))
            parts = {block[0]: only} if rows > _MOST_ROWS else only.parted()
            yield from ((value, parts[value]) for value in block)
            block, rows = [], 0
        block.append(value)
        rows += count


@dataclass(frozen=True)
class _Only:
    """The rows of a source with one of `values` in a column. Unreadable lines were reported before, and are skipped."""

    source: Source
    column: str
    values: frozenset[Any]

    def batches(self, on_fault: OnFault = refuse) -> Iterator[Table]:
        for table in self.source.batches(lambda fault: None):
            table.require(self.column)
            # A value that is no name may have a type that cannot be looked up.
            values = listed(table.column(self.column))
            is_wanted = [isinstance(value, str | int) and value in self.values for value in values]
            if any(is_wanted):
                yield table.only(np.array(is_wanted, dtype=bool))

    def parted(self) -> dict[Any, Source]:
        """Return the rows of each value, in memory."""
        out: dict[Any, list[Table]] = {}
        for table in self.batches():
            for value, rows in rows_by(listed(table.column(self.column))).items():
                out.setdefault(value, []).append(table.only(mask(rows, len(table))))
        return {value: as_source(joined(tables)) for value, tables in out.items()}


def _counts(source: Source, reading: Reading, by: str) -> list[tuple[Any, int]]:
    """Return the values of a column with their numbers of rows."""
    counts: Counter[Any] = Counter()
    for table, counting in tables_of(source, reading):
        table.require(reading.name(by), "It is the column that --by names.")
        for row, value in enumerate(listed(table.column(reading.name(by)))):
            if isinstance(value, str | int) and value != "":
                counts[value] += 1
            else:
                problem = f"{by} is {value!r}; expected text, to choose its model."
                counting.on_fault(
                    table.fault(row, problem, f"no {by}" if is_missing(value) else f"{by} that is no name")
                )
    if not counts:
        raise InputError("there are no rows to fit on: the records are empty.")
    return sorted(counts.items(), key=lambda item: str(item[0]))
