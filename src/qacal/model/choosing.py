"""Choose a threshold on records that were not in the fit: by a target with a guarantee, or by costs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
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
from qacal.thresholds.certified import (
    CertifiedThreshold,
    ThresholdMenu,
    certified_threshold,
    lower_targets,
    target_accuracy,
    threshold_menu,
)
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
    parts = _rows_of_models(model, records, reading, goal, allow_other_source, progress)
    return {value: _choice(model._models[value], rows, goal, where) for value, (rows, where) in parts.items()}


def menus(
    model: BaseModel,
    records: Any,
    reading: Reading,
    goal: Goal,
    *,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> dict[Any, ThresholdMenu]:
    """Return a menu of certified thresholds, as `choices` does; the accuracy of the goal is not used."""
    parts = _rows_of_models(model, records, reading, goal, allow_other_source, progress)
    out = {}
    for value, (rows, where) in parts.items():
        columns, options = _certifying(model._models[value], rows, goal, where)
        menu = threshold_menu(*columns, alpha=goal.alpha, **options)
        out[value] = replace(menu, lines=tuple(replace(line, column=goal.groups) for line in menu.lines))
    return out


def _rows_of_models(
    model: BaseModel,
    records: Any,
    reading: Reading,
    goal: Goal,
    allow_other_source: AllowOtherSource,
    progress: Progress | None,
) -> dict[Any, tuple[dict[str, Any], str]]:
    """Return the rows of each model, and where they are, in words."""
    if goal.per_group and any(not one.describe_groups() for one in model._models.values()):
        raise InputError("this model has no groups; leave out --per-group (in Python: per_group=True).")
    rows = collect(
        records, reading, model, goal.groups, model._by, allow_other_source=allow_other_source, progress=progress
    )
    return {value: (rows.columns(value), "" if value is None else f"{model._by} {value}: ") for value in model._models}


def require_unseen(model: QACalibrator, ids: Any, questions: Any, remedy: str, where: str = "") -> None:
    """Raise if the model was fitted on some of these questions."""
    shared = model.fit_record_.known(ids, questions)
    if shared:
        raise InputError(
            f"{where}the model was fitted on some of these questions: {shared} of the "
            f"{len(model.fit_record_.questions)} that it stores are here. It looks better on them than it is; {remedy}."
        )


def _choice(model: QACalibrator, rows: dict[str, Any], goal: Goal, where: str) -> Choice:
    columns, options = _certifying(model, rows, goal, where)
    if goal.wrong is not None and goal.abstain is not None:
        return cheapest_threshold(*columns, wrong=goal.wrong, abstain=goal.abstain, ids=options["ids"])

    def certified(accuracy: float, alpha: float) -> CertifiedThreshold:
        found = certified_threshold(*columns, accuracy=accuracy, alpha=alpha, **options)
        return replace(found, column=goal.groups)

    threshold = certified(target_accuracy(goal.accuracy), goal.alpha)
    if threshold.is_certified:
        return threshold
    lower = lower_targets(threshold.accuracy)
    return replace(threshold, reachable=tuple(certified(target, goal.alpha / len(lower)) for target in lower))


def _certifying(
    model: QACalibrator, rows: dict[str, Any], goal: Goal, where: str
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Return the labels and probabilities of rows, and the options of a certified threshold; refuse unfit rows."""
    correct, ids = rows["correct"], rows["ids"]
    if not len(correct):
        raise InputError(f"{where}there are no rows to choose a threshold on.")
    require_unseen(model, ids, rows["questions"], "choose a threshold on other questions", where)
    doubt = doubt_of(correct, rows["confidence"], questions=None if ids is None else len({*ids}))
    if doubt is not None and doubt.kind == "opposite":
        warnings.warn(f"{where}{doubt.text}", QacalWarning, stacklevel=2)
    others = model.fit_record_.outlooks()
    if goal.groups is not None:  # the fit knows its own groups, and these are others
        others = replace(others, groups={})
    options = {
        "groups": rows["groups"] if goal.per_group or goal.groups is not None else None,
        "known_groups": [group.group for group in model.describe_groups()] if goal.per_group else None,
        "ids": ids,
        "others": others,
    }
    return (correct, rows["calibrated"]), options
