"""Choosing when a model answers, on records that it was not fitted on: by a target with a guarantee, or by costs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from qacal.errors import InputError, QacalWarning
from qacal.metrics.ranking import doubt_of
from qacal.model.base import BaseModel, Progress
from qacal.model.evaluating import collect
from qacal.model.model import QACalibrator
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Reading
from qacal.thresholds.certified import (
    CertifiedThreshold,
    as_reachable,
    certified_threshold,
    lower_targets,
    target_accuracy,
)
from qacal.thresholds.costs import CheapestThreshold, cheapest_threshold

if TYPE_CHECKING:
    pass

Choice: TypeAlias = CertifiedThreshold | CheapestThreshold


@dataclass(frozen=True)
class Goal:
    """What a threshold is for: a target accuracy, or the least cost.

    accuracy, risk, wrong, abstain : give accuracy, or risk, or both costs.
    alpha : how often the target may be missed.
    per_group : a threshold for each of the model's groups, at alpha divided by their number.
    """

    accuracy: float | None = None
    risk: float | None = None
    alpha: float = 0.1
    per_group: bool = False
    wrong: float | None = None
    abstain: float | None = None

    def __post_init__(self) -> None:
        costs = [cost for cost in (self.wrong, self.abstain) if cost is not None]
        if not costs:
            target_accuracy(self.accuracy, self.risk)
        elif len(costs) == 1 or self.accuracy is not None or self.risk is not None:
            raise InputError("give a target (accuracy or risk), or both costs (wrong and abstain) and no target.")
        elif self.per_group:
            raise InputError(
                "costs (wrong and abstain) give one threshold for all groups. Leave out --per-group (in Python: "
                "per_group=True), or give a target (accuracy or risk) instead of the costs."
            )


def choices(
    model: BaseModel,
    records: Any,
    reading: Reading,
    goal: Goal,
    *,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> dict[Any, Choice]:
    """Return the choice for a model (under None), or for each model of a set."""
    if goal.per_group:
        _require_groups(model._models)
    rows = collect(records, reading, model, None, model._by, allow_other_source=allow_other_source, progress=progress)
    return {
        value: _choice(one, rows.columns(value), goal, "" if value is None else f"{model._by} {value}: ")
        for value, one in model._models.items()
    }


def _choice(model: QACalibrator, rows: dict[str, Any], goal: Goal, where: str) -> Choice:
    calibrated, correct, ids = rows["calibrated"], rows["correct"], rows["ids"]
    if not len(correct):
        raise InputError(f"{where}there is no row to choose a threshold on.")
    _require_other_rows(model, rows, where)
    doubt = doubt_of(correct, rows["confidence"], questions=None if ids is None else len({*ids}))
    if doubt is not None and doubt.kind == "opposite":
        warnings.warn(f"{where}{doubt.text}", QacalWarning, stacklevel=2)
    if goal.wrong is not None and goal.abstain is not None:
        costs = {"wrong": goal.wrong, "abstain": goal.abstain}
        return cheapest_threshold(correct, calibrated, ids=ids, alpha=goal.alpha, **costs)
    certify = partial(
        certified_threshold,
        correct,
        calibrated,
        groups=rows["groups"] if goal.per_group else None,
        known_groups=[group.group for group in model.describe_groups()] if goal.per_group else None,
        ids=ids,
        others=model.fit_record_.outlooks(),
    )
    found = certify(accuracy=goal.accuracy, risk=goal.risk, alpha=goal.alpha)
    if found.is_certified:
        return found
    lower = lower_targets(found.accuracy)
    others = [certify(accuracy=target, alpha=goal.alpha / len(lower)) for target in lower]
    return replace(found, reachable=tuple(map(as_reachable, others)))


def _require_groups(models: Mapping[Any, QACalibrator]) -> None:
    if any(not model.describe_groups() for model in models.values()):
        raise InputError("this model has no groups; leave out --per-group (in Python: per_group=True).")


def _require_other_rows(model: QACalibrator, rows: dict[str, Any], where: str) -> None:
    known = model.fit_record_.known(rows["ids"], rows["questions"])
    if known:
        raise InputError(
            f"{where}the model was fitted on some of these questions: of the {len(model.fit_record_.questions)} that "
            f"it remembers {known} are here. It looks better on them than it is; choose a threshold on other questions."
        )
