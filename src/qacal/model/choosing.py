"""Choose a threshold on records that were not in the fit: by a target with a guarantee, or by costs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from qacal.errors import InputError, QacalWarning
from qacal.guarantee import check_alpha
from qacal.metrics.scores import doubt_of
from qacal.model.base import BaseModel
from qacal.model.evaluating import collect
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.parameters import shown
from qacal.records.provenance import AllowOtherSource
from qacal.records.reading import Reading
from qacal.thresholds.certified import CertifiedThreshold, certified_threshold, lower_targets, target_accuracy
from qacal.thresholds.costs import CheapestThreshold, cheapest_threshold

Choice: TypeAlias = CertifiedThreshold | CheapestThreshold


@dataclass(frozen=True)
class Goal:
    """The goal of a threshold: a target accuracy, or the lowest cost.

    accuracy, wrong, abstain : pass accuracy, or both costs.
    alpha : the probability that the target is missed.
    per_group : a threshold for each of the model's groups, with alpha divided by their number.
    groups : instead, a threshold for each value of this column of the records.
    """

    accuracy: float | None = None
    alpha: float = 0.1
    per_group: bool = False
    wrong: float | None = None
    abstain: float | None = None
    groups: str | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        costs = [cost for cost in (self.wrong, self.abstain) if cost is not None]
        if (self.accuracy is None and len(costs) < 2) or (self.accuracy is not None and costs):
            raise InputError("give an accuracy (such as 0.9), or both costs (wrong and abstain) and no accuracy.")
        if not costs:
            target_accuracy(self.accuracy)
        elif self.alpha != Goal.alpha:
            raise InputError(
                "costs (wrong and abstain) come without a guarantee. Leave out --alpha (in Python: alpha), or give an "
                "accuracy instead of the costs."
            )
        elif self.per_group or self.groups is not None:
            raise InputError(
                "costs (wrong and abstain) give one threshold for all groups. Leave out --per-group and --groups (in "
                "Python: per_group, groups), or give an accuracy instead of the costs."
            )
        if self.groups is not None and (self.per_group or not isinstance(self.groups, str)):
            raise InputError(
                f"groups is {shown(self.groups)}; expected the name of a column, without --per-group (in Python: "
                "per_group=True), which uses the groups of the model."
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
    if goal.per_group and any(not one.describe_groups() for one in model._models.values()):
        raise InputError("this model has no groups; leave out --per-group (in Python: per_group=True).")
    rows = collect(
        records, reading, model, goal.groups, model._by, allow_other_source=allow_other_source, progress=progress
    )
    return {
        value: _choice(one, rows.columns(value), goal, "" if value is None else f"{model._by} {value}: ")
        for value, one in model._models.items()
    }


def require_unseen(model: QACalibrator, ids: Any, questions: Any, remedy: str, where: str = "") -> None:
    """Raise if the model was fitted on some of these questions."""
    shared = model.fit_record_.known(ids, questions)
    if shared:
        raise InputError(
            f"{where}the model was fitted on some of these questions: {shared} of the "
            f"{len(model.fit_record_.questions)} that it stores are here. It looks better on them than it is; {remedy}."
        )


def _choice(model: QACalibrator, rows: dict[str, Any], goal: Goal, where: str) -> Choice:
    calibrated, correct, ids = rows["calibrated"], rows["correct"], rows["ids"]
    if not len(correct):
        raise InputError(f"{where}there are no rows to choose a threshold on.")
    require_unseen(model, ids, rows["questions"], "choose a threshold on other questions", where)
    doubt = doubt_of(correct, rows["confidence"], questions=None if ids is None else len({*ids}))
    if doubt is not None and doubt.kind == "opposite":
        warnings.warn(f"{where}{doubt.text}", QacalWarning, stacklevel=2)
    if goal.wrong is not None and goal.abstain is not None:
        return cheapest_threshold(correct, calibrated, wrong=goal.wrong, abstain=goal.abstain, ids=ids)
    others = model.fit_record_.outlooks()
    if goal.groups is not None:  # the fit knows its own groups, and these are others
        others = replace(others, groups={})
    certify = partial(
        certified_threshold,
        correct,
        calibrated,
        groups=rows["groups"] if goal.per_group or goal.groups is not None else None,
        known_groups=[group.group for group in model.describe_groups()] if goal.per_group else None,
        ids=ids,
        others=others,
    )
    threshold = replace(certify(accuracy=target_accuracy(goal.accuracy), alpha=goal.alpha), column=goal.groups)
    if threshold.is_certified:
        return threshold
    lower = lower_targets(threshold.accuracy)
    reachable = tuple(certify(accuracy=target, alpha=goal.alpha / len(lower)) for target in lower)
    return replace(threshold, reachable=reachable)
