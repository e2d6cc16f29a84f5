"""The columns that an evaluation needs, gathered from records of any size: a few numbers per row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qacal.errors import InputError
from qacal.metrics.evaluation import Evaluation, evaluate, require_labels
from qacal.model.answering import Progress
from qacal.model.model import QACalibrator
from qacal.model.model_set import ModelSet, rows_by
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Batch, Reading, read, warn_of_copies
from qacal.tally.arrays import Bools, Floats, Hashes


@dataclass
class EvaluationRows:
    """What has been read so far."""

    grouped_by: str | None
    by: str | None
    confidence: list[Floats] = field(default_factory=list)
    correct: list[Floats] = field(default_factory=list)
    calibrated: list[Floats] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)
    ids: list[Hashes] = field(default_factory=list)
    questions: list[Hashes] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    rows: list[Hashes | None] = field(default_factory=list)

    def evaluated(self) -> dict[Any, Evaluation]:
        """Return the evaluation of all rows, or one for each value of the column `by`."""
        if self.by is None:
            return {"all": self._evaluate(np.ones(sum(map(len, self.confidence)), dtype=bool))}
        values = np.array([str(value) for value in self.values])
        names = np.unique(values).tolist()
        return {value: self._evaluate(values == value, f"{self.by} {value}: ") for value in names}

    def count_fit_questions(self, model: QACalibrator | ModelSet) -> int:
        """Return how many of the questions that a model remembers from its fit are among these rows."""
        if isinstance(model, QACalibrator):
            return model.fit_record_.known(self.names())
        mine = rows_by(self.values)
        asked = [(one, mine[value]) for value, one in model.models.items() if value in mine]
        return sum(one.fit_record_.known(self.names(rows)) for one, rows in asked)

    def names(self, mine: Bools | list[int] | None = None) -> Hashes:
        """Return the hashes of all that questions of (some of) the rows may be remembered by: ids, and texts."""
        kept = slice(None) if mine is None else mine
        columns = [np.concatenate(column)[kept] for column in (self.ids, self.questions) if column]
        return np.concatenate([np.empty(0, dtype=np.uint64), *columns])

    def has_ids(self, model: QACalibrator | ModelSet) -> bool:
        """Whether these rows and the model have what tells questions again; if not, :meth:`familiar` says nothing."""
        models = [model] if isinstance(model, QACalibrator) else list(model.models.values())
        return bool(self.ids) and all(len(one.fit_record_.questions) for one in models)

    def _evaluate(self, mine: Any, whose: str = "") -> Evaluation:
        kept = np.flatnonzero(mine).tolist()
        return evaluate(
            np.concatenate(self.confidence)[mine],
            np.concatenate(self.correct)[mine],
            np.concatenate(self.calibrated)[mine] if self.calibrated else None,
            groups=[self.groups[row] for row in kept] if self.groups else None,
            grouped_by=self.grouped_by,
            ids=np.concatenate(self.ids)[mine] if self.ids else None,
            whose=whose,
        )


def collect(
    records: Any,
    how: Reading,
    model: QACalibrator | ModelSet | None,
    groups: str | None,
    by: str | None,
    *,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> EvaluationRows:
    """Read the records through a model, or with the column `calibrated` they may have.

    groups : the column to measure within; the model's own groups by default.
    by : measure each value of this column by itself.
    """
    out = EvaluationRows(groups or ("the model's groups" if model is not None else None), by)
    if model is None:
        for batch in read(records, how, needs_labels=True, needs_text=False):
            _add(out, batch, batch.calibrated(), batch.listed(groups) if groups else None)
    else:
        for batch, found in model.answers(
            records, how, needs_labels=True, allow_other_source=allow_other_source, progress=progress
        ):
            out.questions.append(batch.question_hashes())
            own = found["group"].to_list()
            if isinstance(model, ModelSet) and by != model.by:  # group 3 of one model is not group 3 of another
                pairs = zip(batch.listed(model.by), own, strict=True)
                own = [None if group is None else f"{value}: {group}" for value, group in pairs]
            _add(out, batch, found["calibrated"].to_numpy(), batch.listed(groups) if groups else own)
    warn_of_copies(out.rows)
    return out


def _add(out: EvaluationRows, batch: Batch, calibrated: Floats | None, groups: list[Any] | None) -> None:
    out.confidence.append(batch.confidence)
    out.rows.append(batch.row_hashes())
    out.correct.append(require_labels(batch.correct, batch.table.origin))
    if (calibrated is None) != (not out.calibrated) and len(out.confidence) > 1:
        raise InputError(f"{batch.table.origin}: only some rows have a calibrated confidence.")
    if calibrated is not None:
        out.calibrated.append(calibrated)
    if groups is not None:
        out.groups.extend(groups)
    if batch.ids is not None:
        out.ids.append(batch.ids)
    if out.by is not None:
        values = batch.listed(out.by)
        if any(value is None for value in values):
            raise InputError(
                f"{batch.table.origin}: {out.by} is missing in some rows; it is the column that --by names."
            )
        out.values.extend(values)
