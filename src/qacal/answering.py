"""Whatever can answer records: one model, or one for each LLM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import polars as pl

    from qacal.records import Batch, Reading
    from qacal.tables import Table

Progress: TypeAlias = Callable[[str, int], None]
"""Called with what is being done, and for how many rows it is."""


def say_nothing(what: str, rows: int) -> None:
    """Take the place of a progress that nobody asked for."""


class Answering(ABC):
    """Whatever can answer records."""

    @abstractmethod
    def answers(
        self,
        records: Any,
        how: Reading | None = None,
        *,
        needs_labels: bool = False,
        keeps_bad: bool = False,
        any_origin: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[tuple[Batch, pl.DataFrame]]:
        """Yield the records batch after batch, and beside each batch its evidence.

        keeps_bad : also yield batches in which no row can be answered.
        """

    def calibrated(
        self,
        records: Any,
        how: Reading | None = None,
        *,
        any_origin: bool = False,
        prefix: str = "",
        progress: Progress | None = None,
    ) -> Iterator[Table]:
        """Yield all records, batch after batch, with their evidence; see :meth:`QACalibrator.calibrate`."""
        for batch, found in self.answers(records, how, keeps_bad=True, any_origin=any_origin, progress=progress):
            yield batch.with_evidence(found, prefix)
