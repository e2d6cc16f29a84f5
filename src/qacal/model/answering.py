"""Whatever can answer records: one model, or one for each LLM."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from qacal.errors import InputError
from qacal.records.files import OnFault, refuse
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Batch, ReadAs, Reading, as_source
from qacal.records.table import Fault, Table, require_polars
from qacal.tally.arrays import Floats

if TYPE_CHECKING:
    import polars as pl

    from qacal.model.model import QACalibrator

Progress: TypeAlias = Callable[[str, int], None]
"""Called with what is being done, and for how many rows it is."""


def no_progress(what: str, rows: int) -> None:
    """Take the place of a progress that nobody asked for."""


class Answering(ABC):
    """Whatever can answer records."""

    _by: str | None = None
    """The column that says which model answers a row; None for a single model."""

    @property
    @abstractmethod
    def _models(self) -> Mapping[Any, QACalibrator]:
        """The models by their value of the column `by`; a single one by None."""

    @property
    @abstractmethod
    def _needs(self) -> dict[str, Any]:
        """What rows must have beside a confidence, as :func:`qacal.records.reading.read` takes it."""

    @abstractmethod
    def _parts(self, batch: Batch) -> Iterator[tuple[Any, QACalibrator, Batch]]:
        """Yield each value of the column `by` with its model and its rows; rows without a model are faults."""

    @property
    @abstractmethod
    def _read_as(self) -> ReadAs:
        """How the rows of the fit were read."""

    def _reading(
        self,
        records: Any,
        columns: Mapping[str, str] | None = None,
        percent: bool | None = None,
        expressions: Mapping[str, float] | None = None,
        **others: Any,
    ) -> Reading:
        """Return how to read records: as those of the fit, unless the arguments say otherwise.

        others : as :class:`~qacal.records.reading.Reading` takes them.
        """
        names: list[str] = []
        if self._read_as.columns:
            # What is wrong with the rows is said when they are read.
            first = next(iter(as_source(records).batches(lambda fault: None)), None)
            names = [] if first is None else [name for name in self._read_as.columns.values() if first.has(name)]
        words = expressions or self._read_as.expressions
        found, is_percent = self._read_as.for_rows(names, columns, percent)
        is_assumed = is_percent and percent is None
        return Reading(found, is_percent, expressions=words, assumes_percent=is_assumed, **others)

    def calibrate(
        self,
        records: Any,
        *,
        columns: Mapping[str, str] | None = None,
        percent: bool | None = None,
        expressions: Mapping[str, float] | None = None,
        allow_other_source: AllowOtherSource = False,
        prefix: str = "",
        on_fault: OnFault | None = None,
        max_bad: float = 1.0,
        progress: Progress | None = None,
    ) -> Any:
        """Return the records with the evidence behind every answer: what came in, with more columns.

        Rows that cannot be used are kept too, if `on_fault` lets them pass; their new columns are empty.

        allow_other_source : go on with rows of another origin than those of the fit: "model", "prompt",
            "confidence_source", several of them, or True for all.
        prefix : put before the names of the new columns.
        columns, percent, expressions : as in :meth:`QACalibrator.fit`. What is not given is as it was there, if the
            records have those columns.
        on_fault, max_bad, progress : as in :meth:`QACalibrator.fit`.
        """
        reading = self._reading(records, columns, percent, expressions, on_fault=on_fault or refuse, max_bad=max_bad)
        tables = list(
            self._calibrated(records, reading, allow_other_source=allow_other_source, prefix=prefix, progress=progress)
        )
        if len(tables) == 1 and not isinstance(records, str | Path):
            return tables[0].native
        import polars as pl

        require_polars()
        return pl.concat([table.frame() for table in tables], how="diagonal_relaxed")

    def explain(self, question: str, answer: str, confidence: float, **others: Any) -> dict[str, Any]:
        """Return the evidence for one answer; `others` are further columns that the groups need.

        >>> from qacal import QACalibrator
        >>> QACalibrator().explain("2 + 2?", "4", 0.9)
        Traceback (most recent call last):
        ...
        qacal.errors.NotFittedError: this QACalibrator is not fitted yet; call fit first, or load a saved model.
        """
        row = {"question": question, "answer": answer, "confidence": confidence, **others}
        prefix = "qacal_"
        found = next(self._calibrated([row], Reading(on_fault=_refuse_answer), prefix=prefix)).row(0)
        evidence = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
        return {"confidence": float(confidence), **evidence}

    def predict(self, records: Any) -> Floats:
        """Return the calibrated confidence of each row as an array; the records are read as those of the fit."""
        return np.concatenate([found["calibrated"].to_numpy() for _, found in self._answers(records)])

    @abstractmethod
    def _answers(
        self,
        records: Any,
        reading: Reading | None = None,
        *,
        needs_labels: bool = False,
        keeps_bad: bool = False,
        allow_other_source: AllowOtherSource = False,
        progress: Progress | None = None,
    ) -> Iterator[tuple[Batch, pl.DataFrame]]:
        """Yield the records batch after batch, and beside each batch its evidence.

        keeps_bad : also yield batches in which no row can be answered.
        """

    @abstractmethod
    def _rows_to_warm_with(self) -> list[dict[str, Any]]:
        """Return made-up rows that have all that is read of a row."""

    def _warm(self) -> None:
        """Load all that answers need (packages, embedder), by answering made-up rows as objects and as frames."""
        import polars as pl

        rows = self._rows_to_warm_with()
        forms = [rows, pl.DataFrame(rows)]
        if "pandas" in sys.modules:
            forms.append(sys.modules["pandas"].DataFrame(rows))
        for records in forms:
            list(self._calibrated(records, Reading(), allow_other_source=True, prefix="warm_"))

    def _calibrated(
        self,
        records: Any,
        reading: Reading | None = None,
        *,
        allow_other_source: AllowOtherSource = False,
        prefix: str = "",
        progress: Progress | None = None,
    ) -> Iterator[Table]:
        """Yield all records, batch after batch, with their evidence; see :meth:`QACalibrator.calibrate`."""
        for batch, found in self._answers(
            records, reading, keeps_bad=True, allow_other_source=allow_other_source, progress=progress
        ):
            yield batch.with_evidence(found, prefix)


def _refuse_answer(fault: Fault) -> None:
    """Stop at a single answer that cannot be used: it has no place in a file, and cannot be skipped."""
    raise InputError(fault.problem)
