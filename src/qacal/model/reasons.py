"""Why an answer has its probability: what moved it from the stated confidence, and similar examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.base import feature_values

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.records.reading import Batch

NEAREST = 3
"""The number of similar examples."""

STATED, WORTH, STEP = "stated", "confidence", "step"
"""Parts of an answer that are no signals: stated confidence, its worth over all rows, the move into an interval."""


def reasons(model: QACalibrator, batch: Batch, calibrated: float) -> dict[str, Any]:
    """Return the parts of a row's calibrated probability, the nearest examples, and the columns that it lacks."""
    lacking = [
        feature.name for feature in model.pipeline_.features if not batch.reading.has(feature.name, batch.table.names)
    ]
    return {"parts": _parts(model, batch, calibrated), "nearest": _nearest(model, batch), "lacking": lacking}


def _parts(model: QACalibrator, batch: Batch, calibrated: float) -> dict[str, float]:
    """Return logits that add up to that of the calibrated probability.

    Probabilities are cut as those of the score are: a logit of 0 or 1 is infinite.
    """
    stated, result = (float(feature_values(np.array([p]), "logit")[0]) for p in (batch.confidence[0], calibrated))
    if model.pipeline_.score is None:
        return {STATED: stated, WORTH: result - stated}
    read, _ = model.pipeline_.inputs(batch, explains=True)
    signals = {name: float(part[0]) for name, part in read.parts.items()}
    worth = signals.pop(WORTH) - stated
    return {STATED: stated, WORTH: worth, **signals, STEP: result - stated - worth - sum(signals.values())}


def _nearest(model: QACalibrator, batch: Batch) -> list[dict[str, Any]]:
    """Return the examples of the model that are most similar to a row, the nearest first."""
    if not (model.pipeline_.needs_vectors and model.pipeline_.vectors.read_text):
        return []
    examples = [example for group in model.describe_groups() for example in group.examples]
    if not examples:
        return []
    embed = model.pipeline_.vectors.load().embed
    vectors = embed([one["question"] for one in examples], [one["answer"] for one in examples])
    mine = embed(batch.question or [], batch.answer or [])
    likeness = (vectors @ mine[0]) / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    return [examples[at] for at in np.argsort(-likeness, kind="stable")[:NEAREST].tolist()]
