"""Gather the columns that an evaluation needs, from records of any size: a few numbers per row."""

from __future__ import annotations

import warnings
from typing import Any

from qacal.errors import InputError, QacalWarning
from qacal.metrics.evaluation import Evaluation, evaluate_rows, require_labels
from qacal.model.base import BaseModel
from qacal.model.model_set import rows_by
from qacal.model.pipeline import Progress
from qacal.records.provenance import AllowOtherSource, warn_of_copies
from qacal.records.reading import Batch, Gathered, Reading, read
from qacal.tally.arrays import Floats, is_missing

_NAMES = ("confidence", "correct", "calibrated", "groups", "ids", "questions")


class EvaluationRows:
    """Labelled rows with their calibrated confidences, a few numbers each.

    grouped_by : what the groups are, in words.
    by : the column whose values are evaluated separately.
    """

    def __init__(self, grouped_by: str | None, by: str | None) -> None:
        self.grouped_by, self.by = grouped_by, by
        self._columns = Gathered()

    def add(
        self,
        batch: Batch,
        calibrated: Floats | None,
        groups: list[Any] | None,
        owners: list[Any] | None = None,
        *,
        has_model: bool,
    ) -> None:
        """Take more rows; `owners` are their values of the column that chooses a model of a set."""
        if "confidence" in self._columns and (calibrated is None) != ("calibrated" not in self._columns):
            raise InputError(f"{batch.table.origin}: only some rows have a calibrated confidence.")
        values = None if self.by is None else batch.listed(self.by)
        if values is not None and any(map(is_missing, values)):
            raise InputError(
                f"{batch.table.origin}: {self.by} is missing in some rows; it is the column that --by names."
            )
        self._columns.add(
            confidence=batch.confidence,
            correct=require_labels(batch.correct, batch.table.origin),
            calibrated=calibrated,
            groups=groups,
            ids=batch.ids,
            questions=batch.question_hashes() if has_model else None,
            hashes=batch.row_hashes(),
            values=values,
            owners=owners,
        )

    def columns(self, value: Any = None, of: str = "values") -> dict[str, Any]:
        """Return the columns of the rows with a value in the column `by`; of all rows without such a column.

        of : "owners" to take the value from the column that chooses a model of a set.

        Columns that the rows do not have are None.
        """
        columns = {name: self._columns.get(name) for name in _NAMES}
        if of not in self._columns:
            return columns
        rows = rows_by(self._columns[of]).get(value, [])
        return {name: _taken(values, rows) for name, values in columns.items()}

    def evaluated(self) -> dict[Any, Evaluation]:
        """Return the evaluation of all rows, or one for each value of the column `by`."""
        if self.by is None:
            return {"all": self._evaluate(None)}
        values = sorted(rows_by(self._columns["values"]), key=str)
        return {str(value): self._evaluate(value, f"{self.by} {value}: ") for value in values}

    def _evaluate(self, value: Any, prefix: str = "") -> Evaluation:
        columns = self.columns(value)
        evaluation = evaluate_rows(
            columns["correct"],
            columns["confidence"],
            columns["calibrated"],
            groups=columns["groups"],
            grouped_by=self.grouped_by,
            ids=columns["ids"],
        )
        if evaluation.doubt is not None:
            warnings.warn(f"{prefix}{evaluation.doubt.text}", QacalWarning, stacklevel=3)
        return evaluation

    def count_fit_questions(self, model: BaseModel) -> int:
        """Return how many of the questions that a model stores from its fit are among these rows."""
        parts = ((one, self.columns(value, "owners")) for value, one in model._models.items())
        return sum(one.fit_record_.known(part["ids"], part["questions"]) for one, part in parts)

    def has_ids(self, model: BaseModel) -> bool:
        """Whether rows and model have ids, so that questions of the fit can be recognised."""
        return "ids" in self._columns and all(len(one.fit_record_.questions) for one in model._models.values())

    def warn_of_copies(self) -> None:
        """Warn of rows that are exact copies of earlier ones."""
        warn_of_copies([self._columns.get("hashes")])


def _taken(values: Any, rows: list[int]) -> Any:
    return [values[row] for row in rows] if isinstance(values, list) else values[rows] if values is not None else None


def collect(
    records: Any,
    reading: Reading,
    model: BaseModel | None,
    groups: str | None,
    by: str | None,
    *,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> EvaluationRows:
    """Calibrate the records with a model; without one, use their column `calibrated`, if they have it.

    groups : the column of groups to evaluate within; by default the groups of the model.
    by : evaluate each value of this column separately.
    """
    out = EvaluationRows(groups or ("the model's groups" if model is not None else None), by)
    if model is None:
        for batch in read(records, reading, needs_labels=True, needs_text=False):
            out.add(batch, batch.calibrated(), batch.listed(groups) if groups else None, has_model=False)
    else:
        for batch, evidence in model._explained_batches(
            records, reading, needs_labels=True, allow_other_source=allow_other_source, progress=progress
        ):
            names = batch.listed(groups) if groups else evidence["group"].to_list()
            owners = None if model._by is None else batch.listed(model._by)
            if owners is not None and not groups and by != model._by:  # group 3 of one model is not group 3 of another
                pairs = zip(owners, names, strict=True)
                names = [None if group is None else f"{value}: {group}" for value, group in pairs]
            out.add(batch, evidence["calibrated"].to_numpy(), names, owners, has_model=True)
    out.warn_of_copies()
    return out
