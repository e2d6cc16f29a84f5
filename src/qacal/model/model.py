"""The whole model: from question, answer and stated confidence to the probability that the answer is right.

The parts and the path of a row through them are in `pipeline.py`; the default parts in `defaults.py`; how they are
fitted in `fitting.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from qacal.calibrators.base import Calibrator, Rows
from qacal.calibrators.evidence import Evidence
from qacal.calibrators.score import LearnedScore
from qacal.embedders import Embedder
from qacal.errors import InputError, NotFittedError
from qacal.metrics.proper_scores import log_loss
from qacal.model.base import BaseModel, Progress, no_progress
from qacal.model.defaults import Defaults, Output
from qacal.model.fitting import FitInputs, Fitted, fit_model
from qacal.model.groups import GroupSummary
from qacal.model.pipeline import Pipeline
from qacal.model.samples import Overview
from qacal.parameters import HasParameters
from qacal.partitions import Partition
from qacal.records.bad_rows import MAX_BAD
from qacal.records.files import OnFault, refuse
from qacal.records.provenance import AllowOtherSource, require_known_origin
from qacal.records.reading import Batch, ReadAs, Reading, is_records
from qacal.tally.arrays import ArrayLike, Floats, unit_values
from qacal.tally.tally import Tally
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import FitRecord

if TYPE_CHECKING:
    import polars as pl

    from qacal.search import Tuned
    from qacal.thresholds.certified import CertifiedThreshold
    from qacal.thresholds.costs import CheapestThreshold


def require_no_target(y: Any) -> None:
    """Refuse labels beside the records; scikit-learn passes y=None."""
    if y is not None:
        raise InputError("y is given; labels are the column correct of the records. Leave y out.")


class QACalibrator(HasParameters, BaseModel):
    r"""Calibrate the confidences of question-answer pairs, group by group.

    Parameters
    ----------
    embedder : from text to vectors: "static" (the default; fast), "minilm" (better groups, slower), "onnx:DIR",
        "hf:ID", or "column:NAME" for vectors that the records carry.
    partition : from vectors or columns to groups. By default a :class:`~qacal.BisectingTree`, of depth 4 with a score
        and 6 without; calibrators that count points per bin use the deepest level at which groups have rows for four
        bins. Choose :class:`~qacal.Column` if the records say which kind of question each is;
        :class:`~qacal.partitions.LearnedTree` to learn from labels where the LLM is miscalibrated.
    calibrator : the correction per group. By default :class:`~qacal.StepBinning` of a learned score;
        :class:`~qacal.TreeBinning` where groups are columns and no text is read. Another calibrator corrects the
        confidence itself, as the paper has it.
    learned_score : the calibrator's input in place of the confidence: a :class:`~qacal.LearnedScore`, which also takes
        columns to read and further confidences. By default ("auto") one that reads the text and the columns of the
        partition, if the calibrator is left to choose and groups are made from the text; None for none.
    output : "certified" answers in steps, each with an interval from rows of its own. "continuous" learns from all
        rows (50,000 at most) and answers with the score itself: better by about .001 in log loss.
        Nothing is promised of it, and there are no groups.
    train_share : the share of the questions that groups and score are learned from; the others calibrate. By default .8
        with a score (.9 of fewer than 200 rows), and .25 without, which is the paper's 20:60.
    tune : choose by "log_loss" or "brier" among scores (always done, by log loss unless this says otherwise); with a
        calibrator, depth and points per bin by "log_loss", "brier", "auac" or "error" on a seventh of the calibration
        questions (the paper's 60:10), then fit on all of them.
    examples : how many rows of each group the model keeps to show what is in it; 0 keeps no text of the records.
    seed : decides which questions are in which part.

    Examples
    --------
    An LLM that says 0.8 or 0.9 to everything, and is right about capitals and wrong about sums:

    >>> rng = np.random.default_rng(0)
    >>> sums = [{"question": f"What is {i} plus {i}?", "answer": str(i), "correct": rng.random() < 0.2}
    ...         for i in range(500)]
    >>> capitals = [{"question": f"Which city is the capital of country {i}?", "answer": f"City {i}",
    ...              "correct": rng.random() < 0.8} for i in range(500)]
    >>> records = [{**row, "confidence": 0.9 if rng.random() < (0.6 if row["correct"] else 0.4) else 0.8}
    ...            for row in sums + capitals]
    >>> model = QACalibrator(partition="bisecting:1").fit(records)
    >>> said = model.explain("What is 5 plus 7?", "13", 0.9)
    >>> round(said["calibrated"], 1), said["low"] < 0.2 < said["high"]
    (0.2, True)
    >>> [round(group.accuracy, 1) for group in model.describe_groups()]
    [0.2, 0.8]
    """

    pipeline_: Pipeline
    tuned_: Tuned | None
    rows_: int
    origins_: dict[str, list[Any]]
    groups_: Iterable[GroupSummary]
    fit_record_: FitRecord
    overviews_: tuple[Overview, ...]
    decision_rule_: DecisionRule | None
    fitted_for_: dict[str, Any] | None
    read_as_: ReadAs

    def __init__(
        self,
        embedder: str | Embedder = "static",
        partition: Partition | str | Callable[..., Any] | None = None,
        calibrator: Calibrator | None = None,
        *,
        learned_score: LearnedScore | Literal["auto"] | None = "auto",
        output: Output = "certified",
        train_share: float | None = None,
        tune: str | None = None,
        examples: int = 3,
        seed: int = 0,
    ) -> None:
        self.embedder = embedder
        self.partition = partition
        self.calibrator = calibrator
        self.learned_score = learned_score
        self.output = output
        self.train_share = train_share
        self.tune = tune
        self.examples = examples
        self.seed = seed

    # Learning

    def fit(
        self,
        records: Any,
        y: None = None,
        *,
        group_records: Any = None,
        certify_records: Any = None,
        columns: Mapping[str, str] | None = None,
        percent: bool = False,
        expressions: Mapping[str, float] | None = None,
        allow_mixed: bool = False,
        on_fault: OnFault | None = None,
        max_bad: float = MAX_BAD,
        progress: Progress | None = None,
    ) -> Self:
        """Make the groups from one part of the records and the corrections from the other.

        Parameters
        ----------
        records : a path (Parquet, JSONL, CSV), a frame of pandas, polars or Arrow, a list of objects. They need
            `correct`; `id` keeps the rows of one question together (the question's text does where there is none).
        y : always None; scikit-learn passes it. Labels are the column `correct` of the records.
        group_records : make the groups from these rows instead; all of `records` calibrate, or, with a score, those
            that it was not learned from. These need no `correct`, unless groups are learned from it
            (:class:`~qacal.partitions.LearnedTree`).
        certify_records : certify on these rows, and learn groups and score from all of `records`: for labels by a judge
            in `records`, and by people here. What is answered, and its interval, then speak of people's labels alone.
        columns : ``{"confidence": "score"}`` where the records use other names.
        percent : confidences are percents.
        expressions : what a confidence in words stands for: ``{"high": 0.85, "low": 0.3}``.
        allow_mixed : go on if the records come from several LLMs or prompts; one model for each is usually better.
        on_fault : called with each row that cannot be used; by default the first is an error. A :class:`qacal.BadRows`
            counts them by reason.
        max_bad : the largest share of such rows; if there are more, it is an error that counts them by reason.
        progress : called with what is being done and the number of rows.
        """
        require_no_target(y)
        reading = Reading(columns or {}, percent, on_fault or refuse, max_bad, expressions or {})
        return self._fit_inputs(FitInputs(records, reading, group_records, certify_records, allow_mixed), progress)

    def _fit_inputs(self, inputs: FitInputs, progress: Progress | None = None) -> Self:
        """Do what :meth:`fit` does, with one object that says what to read, and how."""
        self._set_fitted(fit_model(Defaults(**self.get_params(deep=False)), inputs, progress or no_progress))
        self.read_as_ = ReadAs(dict(inputs.reading.columns), inputs.reading.percent, dict(inputs.reading.expressions))
        return self

    def _set_fitted(self, fitted: Fitted, decision_rule: DecisionRule | None = None) -> Self:
        """Take over the results of a fit, or of a saved model."""
        self.pipeline_ = fitted.pipeline
        self.tuned_ = fitted.tuned
        self.rows_ = fitted.rows
        self.origins_ = fitted.origins
        self.groups_ = fitted.groups
        self.fit_record_ = fitted.fit_record
        self.overviews_ = fitted.overviews
        self.decision_rule_ = decision_rule
        self.fitted_for_ = None
        self.read_as_ = ReadAs()
        return self

    @property
    def partition_(self) -> Partition:
        """The fitted partition."""
        return self.pipeline_.partition

    @property
    def learned_score_(self) -> LearnedScore | None:
        """The fitted score; None if the calibrator reads the confidence itself."""
        return self.pipeline_.score

    @property
    def calibrator_(self) -> Calibrator:
        """The fitted calibrator."""
        return self.pipeline_.calibrator

    @property
    def _models(self) -> dict[Any, QACalibrator]:
        return {None: self}

    @property
    def _needs(self) -> dict[str, Any]:
        self._require_fitted()
        return self.pipeline_.needs

    @property
    def _read_as(self) -> ReadAs:
        self._require_fitted()
        return self.read_as_

    # Calibrating

    def _with_model(self, batch: Batch) -> Batch:
        return batch

    def _parts(self, batch: Batch) -> Iterator[tuple[Any, QACalibrator, Batch]]:
        yield None, self, batch

    def _explain(
        self,
        batch: Batch,
        *,
        allow_other_source: AllowOtherSource = False,
        uses_labels: bool = False,
        progress: Progress | None = None,
    ) -> pl.DataFrame:
        """Return the evidence for validated rows."""
        if not len(batch):
            return Evidence.of(batch.confidence, batch.confidence).to_polars()
        require_known_origin(batch, self.origins_, allow_other_source, uses_labels=uses_labels)
        with self.pipeline_.vectors.telling(progress):
            rows = self.pipeline_.rows(batch)
        return self._evidence(rows, batch.confidence).to_polars()

    def _evidence_of_arrays(
        self, confidence: ArrayLike, *, groups: Any = None, vectors: Any = None, ids: ArrayLike | None = None
    ) -> Evidence:
        self._require_fitted()
        stated = unit_values(confidence, "confidence")
        return self._evidence(self.pipeline_.rows_from_arrays(stated, groups, vectors, ids), stated)

    def _evidence(self, rows: Rows, stated: Floats) -> Evidence:
        found = replace(self.calibrator_._fitted_maps().explain(rows), confidence=stated)
        return found if self.decision_rule_ is None else self.decision_rule_.decide(found)

    def predict(self, records: Any, *, groups: Any = None, vectors: Any = None, ids: ArrayLike | None = None) -> Floats:
        """Return the calibrated confidence of each row as an array.

        records : as in :meth:`calibrate`, read as those of the fit. Or an array of confidences: no text is read then
            and nothing is embedded, so it needs `groups`, as :meth:`describe_groups` and calibrated rows name them, or
            `vectors`; a learned score needs vectors.
        ids : of the questions, for arrays and calibrators that order equal confidences by them.
        """
        if not is_records(records):
            return self._evidence_of_arrays(records, groups=groups, vectors=vectors, ids=ids).calibrated
        if any(column is not None for column in (groups, vectors, ids)):
            raise InputError("groups, vectors and ids go with an array of confidences; records have their own columns.")
        return super().predict(records)

    def score(self, records: Any, y: None = None) -> float:
        """Return minus the log loss on labelled records, so that higher is better, as scikit-learn expects.

        y : always None; labels are the column `correct` of the records.
        """
        from qacal.metrics.evaluation import require_labels  # needs scipy, and answering does not

        require_no_target(y)
        answers = list(self._explained_batches(records, needs_labels=True))
        correct = np.concatenate([require_labels(batch.correct, "records") for batch, _ in answers])
        calibrated = np.concatenate([found["calibrated"].to_numpy() for _, found in answers])
        return -log_loss(Tally.of(calibrated, correct))

    def describe_groups(self) -> list[GroupSummary]:
        """Return what is in each group, the largest first."""
        self._require_fitted()
        return list(self.groups_)

    def _rows_to_warm_with(self) -> list[dict[str, Any]]:
        """Return one made-up row."""
        return [{**self.pipeline_.values_seen(), "question": "Is it warm?", "answer": "Yes", "confidence": 0.5}]

    # When to answer

    def choose_threshold(
        self,
        records: Any,
        *,
        accuracy: float | None = None,
        risk: float | None = None,
        alpha: float = 0.1,
        per_group: bool = False,
        wrong: float | None = None,
        abstain: float | None = None,
        columns: Mapping[str, str] | None = None,
        percent: bool | None = None,
        expressions: Mapping[str, float] | None = None,
        allow_other_source: AllowOtherSource = False,
        on_fault: OnFault | None = None,
        max_bad: float = MAX_BAD,
        progress: Progress | None = None,
    ) -> CertifiedThreshold | CheapestThreshold:
        """Return when the model should answer, by labelled records that it was not fitted on.

        accuracy, risk, alpha : the lowest threshold whose accepted answers are right that often, with probability
            1 - alpha; see :func:`qacal.certified_threshold`.
        per_group : one for each group of the model.
        wrong, abstain : instead, the threshold that costs least; see :func:`qacal.cheapest_threshold`.
        columns, percent, expressions, allow_other_source, on_fault, max_bad, progress : as in
            :meth:`calibrate`.

        Records of the fit are refused where the model can tell: it remembers some of its questions. Records that the
        model was tuned on must not be used either, and no model can tell those.

        Examples
        --------
        >>> from qacal.calibrators import PlattScaling
        >>> rng = np.random.default_rng(0)
        >>> def answers(first, n):
        ...     return [{"id": first + i, "confidence": h, "correct": rng.random() < h ** 2}
        ...             for i, h in enumerate(rng.choice([0.5, 0.7, 0.9, 0.99], n).tolist())]
        >>> model = QACalibrator(calibrator=PlattScaling()).fit(answers(0, 2000))
        >>> found = model.choose_threshold(answers(2000, 1000), accuracy=0.9)
        >>> found.threshold, round(found.parts[0].coverage, 2)
        (0.86, 0.24)
        >>> model.set_threshold(found).explain("2 + 2?", "4", 0.99)["decision"]
        'answer'
        """
        from qacal.model.choosing import Goal, choices

        self._require_fitted()
        goal = Goal(accuracy, risk, alpha, per_group, wrong, abstain)
        reading = self._reading(records, columns, percent, expressions, on_fault=on_fault or refuse, max_bad=max_bad)
        return choices(self, records, reading, goal, allow_other_source=allow_other_source, progress=progress)[None]

    def set_threshold(
        self, threshold: float | Mapping[Any, float | None] | CertifiedThreshold | CheapestThreshold | None
    ) -> Self:
        """Answer where the calibrated confidence reaches a threshold, from now on; `decision` says so of every row.

        threshold : what :meth:`choose_threshold` found; or a number, by hand; or one for each group, where None
            abstains, as do rows of all other groups; None takes the threshold away. It is saved with the model.
        """
        self._require_fitted()
        if isinstance(threshold, Mapping):
            unknown = [name for name in threshold if name not in {group.group for group in self.groups_}]
            if unknown:
                raise InputError(f"there is no group {unknown[0]!r}; see describe_groups (qacal groups).")
            self.decision_rule_ = DecisionRule(None, dict(threshold))
        elif threshold is None or isinstance(threshold, int | float | np.number):
            self.decision_rule_ = None if threshold is None else DecisionRule(threshold)
        else:
            self.decision_rule_ = threshold.rule()
        return self

    # Keeping it

    def save(self, path: str | Path) -> None:
        """Write the model as a directory: plain JSON and arrays, no code; whole or not at all."""
        from qacal.model.saved import save

        self._require_fitted()
        save(self, path)

    @classmethod
    def load(cls, path: str | Path, *, embedder: str | Embedder | None = None, warm: bool = False) -> QACalibrator:
        """Return a saved model; see :func:`qacal.load`."""
        from qacal.model.saved import load

        return load(path, embedder=embedder, warm=warm)

    def _repr_html_(self) -> str:
        """Return what `qacal fit` prints, for notebooks."""
        from qacal.model.summary import described

        text = repr(self) if not hasattr(self, "pipeline_") else f"{self!r}\n\n{described(self)}"
        return f"<pre>{escape(text)}</pre>"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _require_fitted(self) -> None:
        if not hasattr(self, "pipeline_"):
            raise NotFittedError("this QACalibrator is not fitted yet; call fit first, or load a saved model.")
