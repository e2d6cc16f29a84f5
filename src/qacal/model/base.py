"""What one model (`model.py`) and a set of models (`model_set.py`) share: reading records and adding evidence."""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.base import Evidence
from qacal.calibrators.score.likeness import FAR
from qacal.errors import InputError, QacalWarning
from qacal.model.pipeline import Pipeline, Progress
from qacal.partitions import Column
from qacal.records.files import OnFault, refuse
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Batch, Reading, as_source, read
from qacal.records.table import Fault, Table, require_polars
from qacal.tally.arrays import Floats

if TYPE_CHECKING:
    import polars as pl

    from qacal.model.model import QACalibrator

# Rows are compared with the fit from this many on; a difference is told if it is this many standard errors, and large:
# the ranks of a small fit are rough.
_FEWEST, _DEVIATIONS = 30, 4.0
_MANY, _FEWEST_FAR, _SHIFTED = 0.1, 10, 0.57
# Of values that a model does not know, so many are named.
_EXAMPLES = 3


class BaseModel(ABC):
    """A fitted model, or a set of models with one for each LLM."""

    _by: str | None = None
    """The column whose value chooses the model of a row; None for a single model."""

    @property
    @abstractmethod
    def _models(self) -> Mapping[Any, QACalibrator]:
        """The fitted models by their value of the column `by`; a single one by None."""

    def _fitted_on(self, column: str) -> set[Any]:
        """Return the values that a column of provenance has in the rows of the fit; "model" names the LLMs."""
        return {value for part in self._models.values() for value in part.origins_.get(column, ())}

    @abstractmethod
    def _parts(self, batch: Batch) -> Iterator[tuple[Any, QACalibrator, Batch]]:
        """Yield each value of the column `by` with its model and its rows; rows without a model are faults."""

    @property
    def _needs(self) -> dict[str, Any]:
        """The columns that rows must have beside a confidence, as arguments of :func:`qacal.records.reading.read`."""
        all_needs = [model.pipeline_.needs for model in self._models.values()]
        numbers = {name: most for needs in all_needs for name, most in needs["numbers"].items()}
        return {"needs_text": any(needs["needs_text"] for needs in all_needs), "numbers": numbers}

    @property
    def _orders_ties(self) -> bool:
        """Whether a calibrator orders equal confidences by the hashes of ids."""
        return any(model.calibrator_._tally_options().get("ties") for model in self._models.values())

    def _reading(
        self,
        records: Any,
        columns: Mapping[str, str] | None = None,
        percent: bool | None = None,
        expressions: Mapping[str, float] | None = None,
        **others: Any,
    ) -> Reading:
        """Return how to read records: like those of the fit, unless the arguments say otherwise.

        others : further arguments of :class:`~qacal.records.reading.Reading`.
        """
        fit = next(iter(self._models.values())).read_as_
        names: list[str] = []
        if fit.columns:
            # Faults are reported later, when all rows are read.
            first = next(iter(as_source(records).batches(lambda fault: None)), None)
            names = [] if first is None else [name for name in fit.columns.values() if first.has(name)]
        columns, is_percent = fit.for_rows(names, columns, percent)
        is_assumed = is_percent and percent is None
        words = expressions or fit.expressions
        return Reading(columns, is_percent, expressions=words, assumes_percent=is_assumed, **others)

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
        """Return the records with calibrated confidences and their evidence as further columns.

        Rows that cannot be used are kept too, if `on_fault` does not raise; their new columns are empty.

        allow_other_source : accept rows that differ from those of the fit in "model", "prompt" or "confidence_source",
            in several of these, or in any (True).
        prefix : opens the names of the new columns.
        columns, percent, expressions : as in :meth:`QACalibrator.fit`. The default is what the fit used, if the records
            have those columns.
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
        """Return the evidence for one answer of the LLM, and what it rests on.

        others : further columns that groups or score read.

        `parts` are logits that add up to the calibrated probability: of the stated confidence, of what it is worth over
        all rows, of each signal, and of the move into an interval or to a step. `nearest` are the most similar examples
        that the model keeps, `lacking` the columns that the score would read.

        >>> from qacal import QACalibrator
        >>> QACalibrator().explain("2 + 2?", "4", 0.9)
        Traceback (most recent call last):
        ...
        qacal.errors.NotFittedError: this QACalibrator is not fitted yet; call fit first, or load a saved model.
        """
        row = {"question": question, "answer": answer, "confidence": confidence, **others}
        return self._explained_rows([row], why=True)[0]

    def _explained_rows(self, rows: list[dict[str, Any]], *, why: bool, cells: bool = False) -> list[dict[str, Any]]:
        """Return the evidence of each row as an object, with `why` as :meth:`explain` does; raise for a bad row.

        cells : also return the intervals that each row is about: the model of a set (else None), and the numbers of its
            cells.
        """
        found: list[dict[str, Any]] = [{}] * len(rows)
        for batch in read(rows, _ONE_ANSWER, needs_labels=False, hashes_ids=self._orders_ties, **self._needs):
            for value, model, part in self._parts(batch):
                for place, one in zip(part.kept.tolist(), model._explained(part, why=why, cells=cells), strict=True):
                    found[place] = {**one, "cells": [value, *one.get("cells", ())]} if cells else one
        return found

    def predict(self, records: Any) -> Floats:
        """Return the calibrated confidence of each row as an array."""
        explained = self._explained_batches(records, needs_ids=False)
        return np.concatenate([evidence["calibrated"].to_numpy() for _, evidence in explained])

    def _explained_batches(
        self,
        records: Any,
        reading: Reading | None = None,
        *,
        needs_labels: bool = False,
        needs_ids: bool = True,
        keeps_bad: bool = False,
        allow_other_source: AllowOtherSource = False,
        progress: Progress | None = None,
    ) -> Iterator[tuple[Batch, pl.DataFrame]]:
        """Yield the records batch by batch, each batch with its evidence.

        needs_ids : False if the caller does not read the hashes of ids; calibrators that order ties by id have them.
        keeps_bad : also yield batches without a usable row.
        """
        done = 0
        pipelines = [model.pipeline_ for model in self._models.values()]
        # Commands that read labels tell about groups by themselves.
        seen = Notices({feature.name for pipeline in pipelines for feature in pipeline.features})
        needs = {"needs_labels": needs_labels, "hashes_ids": needs_ids or self._orders_ties, **self._needs}
        for batch in read(records, reading, keeps_bad=keeps_bad, **needs):
            parts = []
            for _, model, part in self._parts(batch):
                tell = (progress, done)
                found = model._evidence_frame(part, allow_other_source, uses_labels=needs_labels, tell=tell)
                parts.append((part, found))
                if not needs_labels:
                    seen.add_groups(part, found, model.pipeline_)
            usable, evidence = parts[0] if len(parts) == 1 else _joined(batch, parts)
            seen.add(usable, evidence)
            if len(usable) or keeps_bad:
                yield usable, evidence
            done += len(batch.whole)
            if progress is not None:
                progress("calibrating", done)
        seen.warn()

    def _warm(self) -> None:
        """Load packages and embedder by calibrating made-up rows, as objects and as frames, one and several."""
        import polars as pl

        rows = [
            {**model.pipeline_.values_seen(), "question": "Is it warm?", "answer": "Yes", "confidence": 0.5}
            | ({} if self._by is None else {self._by: value})
            | ({} if (rule := model.decision_rule_) is None or rule.column is None else {rule.column: None})
            for value, model in self._models.items()
        ]
        forms = [rows, rows * 2, pl.DataFrame(rows)]
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
        """Yield all records batch by batch, with their evidence as further columns."""
        for batch, evidence in self._explained_batches(
            records,
            reading,
            needs_ids=False,
            keeps_bad=True,
            allow_other_source=allow_other_source,
            progress=progress,
        ):
            yield batch.with_evidence(evidence, prefix)


class Notices:
    """What users are told after rows were calibrated: columns that they lack, and how unlike the fit they are.

    lacking : the columns that scores read; those that no row has stay.
    """

    def __init__(self, lacking: set[str]) -> None:
        self.lacking = lacking
        self._columns, self._all, self._unknown, self._examples = set[str](), 0, 0, dict[str, None]()
        self._rows = 0
        self._far = 0
        self._total = 0.0

    def add(self, batch: Batch, evidence: pl.DataFrame) -> None:
        self.lacking -= {name for name in self.lacking if batch.reading.has(name, batch.table.names)}
        self._all += len(evidence)
        unlike = evidence["unlike"].to_numpy()
        unlike = unlike[~np.isnan(unlike)]
        self._rows += len(unlike)
        self._far += int(np.count_nonzero(unlike >= FAR))
        self._total += float(unlike.sum())

    def add_groups(self, batch: Batch, evidence: pl.DataFrame, pipeline: Pipeline) -> None:
        """Count rows whose group the model does not know, if it groups by a column."""
        column = pipeline.partition
        if not (pipeline.uses_groups and isinstance(column, Column)):
            return
        has_none = evidence["group"].is_null().to_numpy()
        if has_none.any():
            # Of the whole batch: some rows alone may lack the column.
            unknown = batch.only(has_none & (column.assign(batch.column(column.name)) == None))  # noqa: E711
            self._unknown += len(unknown)
            self._columns.add(column.name)
            if len(self._examples) < _EXAMPLES:
                values = unknown.values_of(column.name)[:_EXAMPLES]
                self._examples |= dict.fromkeys(f"{value!r:.40}" for value in values)

    def warn(self) -> None:
        if self.lacking and self._rows > 1:
            names = " and ".join(sorted(self.lacking))
            warnings.warn(
                f"the rows have no column {names}, which the score reads; they are calibrated by a score that was "
                "fitted without it, and the intervals were certified on rows that have it.",
                QacalWarning,
                stacklevel=2,
            )
        if self._unknown:
            names = " or ".join(sorted(self._columns))
            # Python keeps the text of each warning, so a few rows have none of their own.
            values = ", ".join([*self._examples][:_EXAMPLES]) if self._all >= _FEWEST else ""
            warnings.warn(
                f"{self._unknown:,} of {self._all:,} rows have no {names} that the model knows"
                f"{f' (such as {values})' if values else ''}; they are calibrated as all rows are, without a group.",
                QacalWarning,
                stacklevel=2,
            )
        if self._rows < _FEWEST:
            return
        share, average = self._far / self._rows, self._total / self._rows
        # Of rows like those of the fit, 1% are far, and the average rank is one half.
        is_shifted = average > 0.5 + _DEVIATIONS / np.sqrt(12 * self._rows)
        if share >= _MANY and self._far >= _FEWEST_FAR:
            warnings.warn(
                f"{share:.0%} of these rows are farther from the fit than {FAR:.0%} of the fit. They have no interval, "
                "and their text counts half. Fit on such rows, too.",
                QacalWarning,
                stacklevel=2,
            )
        elif is_shifted and average >= _SHIFTED:
            warnings.warn(
                f"these rows are unlike those of the fit: on average farther from it than {average:.0%} of the fit "
                "(50% is usual). The intervals may not hold for them: label some of them and use qacal evaluate.",
                QacalWarning,
                stacklevel=2,
            )


def _joined(batch: Batch, parts: list[tuple[Batch, pl.DataFrame]]) -> tuple[Batch, pl.DataFrame]:
    """Return the rows of all parts in the order of the batch, with their evidence."""
    import polars as pl

    require_polars()
    if not parts:
        none = batch.only(np.zeros(len(batch), dtype=bool))
        return none, Evidence.of(none.confidence, none.confidence).to_polars()
    places = np.concatenate([part.kept for part, _ in parts])
    evidence = pl.concat([frame for _, frame in parts], how="vertical_relaxed")
    return batch.only(np.isin(batch.kept, places)), evidence[np.argsort(places).tolist()]


def _refuse_answer(fault: Fault) -> None:
    """Raise for a single answer that cannot be used, without naming a row of a file."""
    raise InputError(fault.problem)


_ONE_ANSWER = Reading(on_fault=_refuse_answer)
