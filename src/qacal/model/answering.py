"""Whatever can answer records: one model, or one for each LLM."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import polars as pl

    from qacal.model.model import QACalibrator
    from qacal.records.provenance import AllowOtherSource
    from qacal.records.reading import Batch, ReadAs, Reading
    from qacal.records.table import Table

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
        from qacal.records.reading import Reading, as_source

        names: list[str] = []
        if self._read_as.columns:
            # What is wrong with the rows is said when they are read.
            first = next(iter(as_source(records).batches(lambda fault: None)), None)
            names = [] if first is None else [name for name in self._read_as.columns.values() if first.has(name)]
        words = expressions or self._read_as.expressions
        found, is_percent = self._read_as.for_rows(names, columns, percent)
        is_assumed = is_percent and percent is None
        return Reading(found, is_percent, expressions=words, assumes_percent=is_assumed, **others)

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

        from qacal.records.reading import Reading

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
