"""Why an answer has its probability: what moved it from the stated confidence, and similar examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.base import feature_values
from qacal.tally.arrays import is_missing

if TYPE_CHECKING:
    from qacal.calibrators.score import ScoreReading
    from qacal.model.model import QACalibrator
    from qacal.records.reading import Batch

NEAREST = 3
"""The number of similar examples."""

STATED, WORTH, STEP = "stated", "confidence", "step"
"""Parts of an answer that are no signals: stated confidence, its worth over all rows, the move into an interval."""


def reasons(
    model: QACalibrator, batch: Batch, evidence: list[dict[str, Any]], read: ScoreReading, vectors: Any
) -> Iterator[dict[str, Any]]:
    """Yield the parts of each row's calibrated probability, the nearest examples, and the columns that it lacks.

    evidence, read, vectors : the evidence of the rows, what the score says of them, and their vectors.
    """
    lacking = lacking_columns(model, batch)
    for row, one in enumerate(evidence):
        yield {
            "parts": _parts(model, read, row, one["confidence"], one["calibrated"]),
            "nearest": _nearest(model, vectors[row]) if vectors is not None else [],
            "lacking": lacking[row],
        }


def lacking_columns(model: QACalibrator, batch: Batch) -> list[list[str]]:
    """Return the columns that the score would read and each row does not have."""
    names = [feature.name for feature in model.pipeline_.features]
    columns = {name: batch.listed(name) for name in names if batch.reading.has(name, batch.table.names)}
    return [
        [name for name in names if name not in columns or is_missing(columns[name][row])] for row in range(len(batch))
    ]


def _parts(model: QACalibrator, read: ScoreReading, row: int, confidence: float, calibrated: float) -> dict[str, float]:
    """Return logits that add up to that of the calibrated probability.

    Probabilities are cut as those of the score are: a logit of 0 or 1 is infinite.
    """
    stated, result = feature_values(np.array([confidence, calibrated]), "logit").tolist()
    if model.pipeline_.score is None:
        return {STATED: stated, WORTH: result - stated}
    signals = {name: float(part[row]) for name, part in read.parts.items()}
    worth = signals.pop(WORTH) - stated
    return {STATED: stated, WORTH: worth, **signals, STEP: result - stated - worth - sum(signals.values())}


def _nearest(model: QACalibrator, vector: Any) -> list[dict[str, Any]]:
    """Return the examples of the model that are most similar to a row, the nearest first."""
    if not model.pipeline_.vectors.read_text:
        return []
    examples, vectors = model._examples
    return (
        [examples[at] for at in np.argsort(-(vectors @ vector), kind="stable")[:NEAREST].tolist()] if examples else []
    )
