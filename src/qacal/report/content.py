"""Everything that one block of the report shows, as plain values; the page depends on nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from qacal.calibrators.maps import BinMaps
from qacal.calibrators.margins import MarginMaps
from qacal.errors import InputError, QacalWarning
from qacal.metrics.evaluation import FITTED_ON, Evaluation, evaluate_rows, without_group, without_nan
from qacal.metrics.scores import Doubt
from qacal.model.base import BaseModel
from qacal.model.pipeline import Progress
from qacal.partitions import Column
from qacal.records.provenance import AllowOtherSource, copies_among
from qacal.records.reading import Reading
from qacal.report.data import Gathered, Pairs, Scored, gather
from qacal.report.groups import Group, groups_of
from qacal.report.promise import Promise, Realised, promise_of, realised_errors, why_not_judged
from qacal.report.sentences import Fact, facts_of
from qacal.thresholds.certified import ThresholdMenu, threshold_menu


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that is shown of one model on its test rows.

    facts : what was fitted and on what.
    evaluation : the measures of each score: "stated", "pooled" (if groups are used) and "calibrated".
    pairs : stated and recalibrated confidences, for each recalibrated score.
    groups : those with the largest gain first.
    is_uneven : some questions have more rows than others, so neither the guarantee nor the groups are tested.
    without_group : which rows are in no group; empty if there are none.
    promise : the guarantee; None for calibrators without bins.
    realised : the test of the guarantee; None without one, or if these rows cannot test it: `why_not` says why.
    threshold : the chosen threshold, if any.
    menu : certified thresholds for several accuracies; None if the model was fitted on some of these rows.
    has_ids : whether rows of the fit can be detected among these.
    doubts : why these rows may be unsuitable, in sentences.
    """

    facts: tuple[Fact, ...]
    evaluation: Evaluation
    pairs: dict[str, Pairs]
    groups: tuple[Group, ...]
    is_uneven: bool
    without_group: str
    promise: Promise | None
    realised: Realised | None
    why_not: str
    has_texts: bool
    threshold: float | None
    menu: ThresholdMenu | None
    has_ids: bool
    doubts: tuple[str, ...]

    @property
    def has_intervals(self) -> bool:
        """Whether some group that is shown has a certified interval of its accuracy."""
        return any(group.certified is not None for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them."""
        promise = None if self.promise is None else asdict(self.promise)
        broken = None if self.realised is None else int(self.realised.is_broken.sum())
        own = {
            "promise": promise,
            "intervals_broken": broken,
            "threshold": self.threshold,
            "menu": None if self.menu is None else self.menu.to_dict(),
            "doubts": [*self.doubts],
        }
        return self.evaluation.to_dict() | dict(without_nan(own))


def read_contents(
    model: BaseModel,
    records: Any,
    reading: Reading | None = None,
    *,
    groups: str | None = None,
    by: str | None = None,
    threshold: float | None = None,
    examples: int = 4,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> dict[str, Content]:
    """Measure a model on labelled records that it was not fitted on; one content for each model of a set.

    Warns (:class:`~qacal.QacalWarning`) of rows of the fit, of exact copies, and of confidences that do not seem to
    belong to their labels.

    Parameters
    ----------
    records : anything with `confidence`, `correct` and the columns that the model needs; read once, as a stream.
    groups : measure within the values of this column; by default within the model's own groups.
    by : one content for each value of this column; without it, one content under "".
    threshold : the threshold to mark; by default the one stored in the model, if any.
    examples : number of question-answer pairs to show for each group; 0 shows no text of the records.
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold}; expected 0 to 1.")
    parts = gather(
        model, records, reading, groups=groups, by=by, allow_other_source=allow_other_source, progress=progress
    )
    contents = {name: content_of(part, threshold=threshold, examples=examples) for name, part in parts.items()}
    for name, content in contents.items():
        for doubt in content.doubts:
            warnings.warn(f"{name}: {doubt}" if name else doubt, QacalWarning, stacklevel=2)
    return contents


def content_of(gathered: Gathered, *, threshold: float | None = None, examples: int = 4) -> Content:
    """Measure the rows that were gathered for one model."""
    correct, scores, labels = gathered.column("correct"), gathered.scores(), gathered.labels()
    accuracy = float(correct.mean())
    if accuracy in (0.0, 1.0):
        raise InputError(
            f"all {len(correct):,} rows are {'correct' if accuracy else 'wrong'}; a report needs correct and "
            "wrong answers. Use more rows, or check the column `correct`."
        )
    model = gathered.model
    own_groups = model.partition_.name if isinstance(model.partition_, Column) else "the model’s groups"
    evaluation = evaluate_rows(
        correct,
        scores["stated"],
        scores["calibrated"],
        pooled=scores.get("pooled"),
        groups=labels,
        grouped_by=gathered.grouped_by or own_groups,
        ids=gathered.column("ids"),
    )
    maps, rule = model.calibrator_._fitted_maps(), model.decision_rule_
    groups = groups_of(gathered, evaluation, examples)
    promise, realised = None, None
    if isinstance(maps, BinMaps | MarginMaps):
        promise, why_not = promise_of(gathered, maps), why_not_judged(gathered, maps)
        if not why_not:
            names = ("bins", "levels", "correct", "ids", "calibrated")
            realised = realised_errors(maps, *(gathered.column(name) for name in names))
    else:
        why_not = (
            f"{type(model.calibrator_).__name__} answers without bins, so it has no intervals to test. The default "
            "model, QABinning and TreeBinning have intervals."
        )
    menu = None
    if not gathered.is_familiar:
        others = model.fit_record_.outlooks()
        menu = threshold_menu(correct, scores["calibrated"], ids=gathered.column("ids"), others=others)
    return Content(
        facts=facts_of(gathered),
        evaluation=evaluation,
        pairs=Scored(correct, scores).pairs(),
        groups=groups,
        is_uneven=gathered.is_uneven,
        without_group=without_group(gathered.grouped_by) if any(group.group is None for group in groups) else "",
        promise=promise,
        realised=realised,
        why_not=why_not,
        has_texts=gathered.has_texts and examples > 0,
        threshold=rule.threshold if threshold is None and rule is not None else threshold,
        menu=menu,
        has_ids=gathered.has_ids,
        doubts=tuple(_doubts(gathered, evaluation.doubt)),
    )


def _doubts(gathered: Gathered, doubt: Doubt | None) -> Iterator[str]:
    if gathered.is_familiar:
        yield FITTED_ON
    if doubt is not None:
        yield doubt.text
    copies = copies_among(gathered.hashes)
    if copies:
        yield copies
