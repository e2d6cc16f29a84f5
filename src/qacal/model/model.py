"""The whole model: from question, answer and stated confidence to the probability that the answer is right.

The parts and the path of a row through them are in `pipeline.py`; the default parts in `defaults.py`; how they are
fitted in `fitting.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from qacal.calibrators.base import FROM_FAR, SOURCES, Calibrator, Evidence, Rows
from qacal.calibrators.maps import BinMaps
from qacal.calibrators.margins import MarginMaps
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.score.likeness import FAR
from qacal.embedders import Embedder
from qacal.errors import InputError, NotFittedError
from qacal.metrics.scores import log_loss
from qacal.model.base import BaseModel
from qacal.model.defaults import Output
from qacal.model.fitting import FitInputs, Fitted, FittedFor, fit_model
from qacal.model.groups import GroupSummary
from qacal.model.pipeline import Pipeline, Progress, no_progress
from qacal.model.reasons import lacking_columns, reasons
from qacal.model.samples import Overview
from qacal.model.widths import Widths
from qacal.parameters import HasParameters
from qacal.partitions import Partition
from qacal.records.files import OnFault, refuse
from qacal.records.provenance import AllowOtherSource, require_known_origin
from qacal.records.reading import MAX_BAD, Batch, ReadAs, Reading, is_records
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
    r"""Calibrate the confidences of question-answer pairs: a learned score, guaranteed by probability and by group.

    By default 30% of the questions train a first score and fix what is certified: bands of similar answers, and groups
    of similar texts. The other 70% certify how far the answers of a band are off on average, and how accurate the
    answers of a group are. The score that answers is trained on 90%: the guarantee is about bands and groups, which the
    certifying rows do not shape. docs/guarantees.md has the proof.

    Parameters
    ----------
    embedder : turns text into vectors: "static" (the default; fast), "minilm" (better groups, slower), "onnx:DIR",
        "hf:ID", or "column:NAME" for vectors that the records carry.
    partition : assigns groups from vectors or columns. By default a :class:`~qacal.BisectingTree`, of depth 4 with a
        score and 6 without; calibrators that count points per bin use the deepest level at which groups have rows for
        four bins. Choose :class:`~qacal.Column` if a column has the kind of question.
    calibrator : turns scores into probabilities. By default :class:`~qacal.MarginBinning`, which keeps the score and
        certifies it by probability and by group; if groups are columns and no text is read, it certifies curves of the
        confidence in each group. :class:`~qacal.StepBinning` certifies each probability of a score within each group,
        with wider intervals. Any other calibrator corrects the confidence in each group, as in the paper, unless you
        pass a `learned_score`.
    learned_score : the calibrator's input in place of the confidence: a :class:`~qacal.LearnedScore`, which can also
        read columns and further confidences. By default ("auto") one that reads the text and the columns of the
        partition, if `calibrator` is left out and groups are made from the text; None for no score.
    features : columns that the score reads beside the text: names such as "tenant", with a kind where it is not clear
        from the values ("price:numeric", or category, confidence, logprobs, context). By default ("auto") every column
        that looks useful is tried on held-out questions, and used if it helps clearly; () for none. Rows may lack
        features later: they are then answered by a score that was fitted without these.
    output : "certified" has intervals from labelled rows. "continuous" trains on all rows (at most 50,000) and predicts
        the score itself: better by about .001 in log loss, without groups and guarantee.
    train_share : the share of the questions that train the score, by default .9; a third of them makes bands and
        groups, and all other questions certify these. With :class:`~qacal.StepBinning` .8 (.9 below 200 rows), and
        only the others certify. Without a score, the share that makes groups: .25, which is the paper's 20:60.
    tune : the objective that chooses the score: "log_loss" (default) or "brier". With a calibrator and no score, choose
        depth and points per bin by "log_loss", "brier", "auac" or "error" on a seventh of the calibrator's questions
        (the paper's 60:10), then fit on all of them.
    examples : the number of rows of each group that the model stores as examples; 0 stores none, but
        the words that tell a group from others are stored.
    seed : of the split.

    Examples
    --------
    An LLM states 0.8 or 0.9 for every answer. Most of its capitals are correct, and few of its sums:

    >>> rng = np.random.default_rng(0)
    >>> sums = [{"question": f"What is {i} plus {i}?", "answer": str(i), "correct": rng.random() < 0.2}
    ...         for i in range(500)]
    >>> capitals = [{"question": f"Which city is the capital of country {i}?", "answer": f"City {i}",
    ...              "correct": rng.random() < 0.8} for i in range(500)]
    >>> records = [{**row, "confidence": 0.9 if rng.random() < (0.6 if row["correct"] else 0.4) else 0.8}
    ...            for row in sums + capitals]
    >>> model = QACalibrator(partition="bisecting:1").fit(records)
    >>> evidence = model.explain("What is 42 plus 42?", "42", 0.9)
    >>> abs(evidence["calibrated"] - 0.27) < 0.05, evidence["low"] < 0.27 < evidence["high"]
    (True, True)

    The true probability is 0.12 / 0.44 = 0.27: a fifth of the sums are correct, and correct ones are stated with 0.9
    more often. The group interval is about all sums:

    >>> evidence["group_low"] < 0.2 < evidence["group_high"]
    True
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
    not_tried_: dict[str, str]
    widths_: tuple[Widths, ...]
    decision_rule_: DecisionRule | None
    fitted_for_: FittedFor | None
    read_as_: ReadAs

    def __init__(
        self,
        embedder: str | Embedder = "static",
        partition: Partition | str | None = None,
        calibrator: Calibrator | None = None,
        *,
        learned_score: LearnedScore | Literal["auto"] | None = "auto",
        features: Sequence[str] | Literal["auto"] = "auto",
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
        self.features = features
        self.output = output
        self.train_share = train_share
        self.tune = tune
        self.examples = examples
        self.seed = seed

    # Fitting

    def fit(
        self,
        records: Any,
        y: None = None,
        *,
        group_records: Any = None,
        certify_records: Any = None,
        judge_column: str | None = None,
        columns: Mapping[str, str] | None = None,
        percent: bool = False,
        expressions: Mapping[str, float] | None = None,
        allow_mixed: bool = False,
        on_fault: OnFault | None = None,
        max_bad: float = MAX_BAD,
        progress: Progress | None = None,
    ) -> Self:
        """Train groups and score, and compute intervals on questions that fixed neither bands nor groups.

        Parameters
        ----------
        records : a path (Parquet, JSONL, CSV), a pandas, polars or Arrow table, or a list of objects. They need
            `correct`. `id` keeps the rows of one question together; without `id`, the question's text does.
        y : always None; scikit-learn passes it. Labels are the column `correct` of the records.
        group_records : make the groups from these rows, which need no `correct`. Without a score, the calibrator is
            then fitted on all of `records`.
        certify_records : compute the intervals on these rows, and train groups and score on all of `records`: for
            labels by a judge in `records` and by people here. The intervals are then about people's labels alone.
        judge_column : the column of `certify_records` with the labels of the judge that labelled `records`, 0 or 1. The
            judge's labels of 30% of `records`, which then train nothing, make the intervals narrower if the judge is
            good; they stay valid, and about people's labels, if it is bad. Both files must be draws from the same
            answers.
        columns : the names of columns that are called something else: ``{"confidence": "score"}``.
        percent : confidences are percents.
        expressions : the numbers for confidences in words: ``{"high": 0.85, "low": 0.3}``.
        allow_mixed : accept records of several LLMs or prompts; one model for each is usually better.
        on_fault : called with each row that cannot be used; by default the first raises. A :class:`qacal.BadRows`
            counts them by reason.
        max_bad : raise if the share of such rows is larger.
        progress : called with the name of the current step and the number of rows.
        """
        require_no_target(y)
        reading = Reading(columns or {}, percent, on_fault or refuse, max_bad, expressions or {})
        inputs = FitInputs(records, reading, group_records, certify_records, allow_mixed, judge_column=judge_column)
        return self._fit_inputs(inputs, progress)

    def _fit_inputs(self, inputs: FitInputs, progress: Progress | None = None) -> Self:
        """Fit as :meth:`fit` does, with all inputs in one object."""
        return self._set_fitted(fit_model(self, inputs, progress or no_progress))

    def _set_fitted(self, fitted: Fitted) -> Self:
        """Set the attributes of a fitted or a loaded model."""
        self.__dict__.pop("_examples", None)
        self.pipeline_ = fitted.pipeline
        self.tuned_ = fitted.tuned
        self.rows_ = fitted.rows
        self.origins_ = fitted.origins
        self.groups_ = fitted.groups
        self.fit_record_ = fitted.fit_record
        self.read_as_ = fitted.read_as
        self.overviews_ = fitted.overviews
        self.not_tried_ = fitted.not_tried
        self.widths_ = fitted.widths
        self.decision_rule_ = fitted.decision_rule
        self.fitted_for_ = fitted.fitted_for
        return self

    @property
    def partition_(self) -> Partition:
        return self.pipeline_.partition

    @property
    def learned_score_(self) -> LearnedScore | None:
        """None if the calibrator reads the confidence itself."""
        return self.pipeline_.score

    @property
    def calibrator_(self) -> Calibrator:
        return self.pipeline_.calibrator

    @property
    def _models(self) -> dict[Any, QACalibrator]:
        self._require_fitted()
        return {None: self}

    def _parts(self, batch: Batch) -> Iterator[tuple[Any, QACalibrator, Batch]]:
        yield None, self, batch

    # Calibrating

    def _evidence_frame(
        self,
        batch: Batch,
        allow_other_source: AllowOtherSource,
        *,
        uses_labels: bool,
        tell: tuple[Progress | None, int],
    ) -> pl.DataFrame:
        """Return the evidence of validated rows; `tell` is what to report progress to, and the rows before these."""
        if not len(batch):
            return Evidence.of(batch.confidence, batch.confidence).to_polars()
        require_known_origin(batch, self.origins_, allow_other_source, uses_labels=uses_labels)
        with self.pipeline_.vectors.telling(*tell):
            read, groups = self.pipeline_.inputs(batch)
        rows = self.pipeline_.rows_of(read, groups, batch.ids)
        return self._evidence(batch, rows, read.unlike).to_polars()

    def _explained(self, batch: Batch, *, why: bool, cells: bool) -> list[dict[str, Any]]:
        """Return the evidence of validated rows as objects; with `why`, also what it rests on.

        cells : also return which intervals each row is about, for a watch that no longer has the row.
        """
        require_known_origin(batch, self.origins_, uses_labels=False)
        vectors = self.pipeline_.vectors.of(batch) if self.pipeline_.needs_vectors else None
        read, groups = self.pipeline_.inputs(batch, vectors=vectors, explains=why)
        rows = self.pipeline_.rows_of(read, groups, batch.ids)
        found = self._evidence(batch, rows, read.unlike).to_dicts()
        if cells and isinstance(maps := self.calibrator_.maps_, BinMaps | MarginMaps):
            for one, places in zip(found, maps.bins_by_level(rows).tolist(), strict=True):
                one["cells"] = places
        if not why:
            lacking = lacking_columns(self, batch)
            return [{**one, "lacking": names} if names else one for one, names in zip(found, lacking, strict=True)]
        return [{**one, **more} for one, more in zip(found, reasons(self, batch, found, read, vectors), strict=True)]

    def _evidence(self, batch: Batch, rows: Rows, unlike: Floats) -> Evidence:
        """Return the evidence of rows by what score and partition say of them."""
        evidence = self._undecided(rows, batch.confidence, unlike)
        if (rule := self.decision_rule_) is None:
            return evidence
        if rule.column is not None:
            remedy = "The threshold of this model depends on it (qacal threshold --groups)."
            batch.table.require(batch.reading.name(rule.column), remedy)
        return rule.decide(evidence, None if rule.column is None else batch.listed(rule.column))

    @cached_property
    def _examples(self) -> tuple[list[dict[str, Any]], Any]:
        """The examples of all groups, and their vectors, scaled to length 1."""
        examples = [example for group in self.groups_ for example in group.examples]
        if not examples:
            return [], None
        questions, answers = ([example[name] for example in examples] for name in ("question", "answer"))
        vectors = self.pipeline_.vectors.load().embed(questions, answers)
        return examples, vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None]

    def _evidence_of_arrays(
        self, confidence: ArrayLike, *, groups: Any = None, vectors: Any = None, ids: ArrayLike | None = None
    ) -> Evidence:
        self._require_fitted()
        stated = unit_values(confidence, "confidence")
        rows = self.pipeline_.rows_from_arrays(stated, groups, vectors, ids)
        evidence = self._undecided(rows, stated, np.full(len(stated), np.nan))
        return evidence if self.decision_rule_ is None else self.decision_rule_.decide(evidence, None)

    def _undecided(self, rows: Rows, stated: Floats, unlike: Floats) -> Evidence:
        """Return the evidence before any threshold; far rows have no interval."""
        evidence = replace(self.pipeline_.calibrator.maps_.explain(rows), confidence=stated, unlike=unlike.round(4))
        is_far = unlike >= FAR
        if not is_far.any():
            return evidence
        return replace(
            evidence,
            low=np.where(is_far, np.nan, evidence.low),
            high=np.where(is_far, np.nan, evidence.high),
            group_low=np.where(is_far, np.nan, evidence.group_low),
            group_high=np.where(is_far, np.nan, evidence.group_high),
            alpha=np.where(is_far, np.nan, evidence.alpha),
            source=np.where(is_far, SOURCES[FROM_FAR], evidence.source),
        )

    def predict(self, records: Any, *, groups: Any = None, vectors: Any = None, ids: ArrayLike | None = None) -> Floats:
        """Return the calibrated confidence of each row as an array.

        records : as in :meth:`calibrate`. Or an array of confidences, without text; then pass `groups`, by the names in
            :meth:`describe_groups` and in calibrated rows, or `vectors`. A learned score needs vectors.
        ids : the ids of the questions, for arrays and calibrators that order equal confidences by id.
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
        from qacal.metrics.evaluation import require_labels  # needs scipy, which `calibrate` does not

        require_no_target(y)
        pairs = list(self._explained_batches(records, needs_labels=True))
        correct = np.concatenate([require_labels(batch.correct, "records") for batch, _ in pairs])
        calibrated = np.concatenate([evidence["calibrated"].to_numpy() for _, evidence in pairs])
        return -log_loss(Tally.of(calibrated, correct))

    def describe_groups(self) -> list[GroupSummary]:
        """Return what is in each group, the largest first."""
        self._require_fitted()
        return list(self.groups_)

    # Thresholds

    def choose_threshold(
        self,
        records: Any,
        *,
        accuracy: float | None = None,
        alpha: float = 0.1,
        per_group: bool = False,
        groups: str | None = None,
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
        """Return the threshold above which to accept answers, from labelled records that were not in the fit.

        accuracy, alpha : the lowest threshold at which accepted answers have this accuracy, with probability
            1 - alpha; see :func:`qacal.certified_threshold`.
        per_group : one threshold for each group of the model.
        groups : one threshold for each value of this column of the records, such as "field". To decide by it, new
            records need the column, too.
        wrong, abstain : the two costs, for the cheapest threshold instead; see :func:`qacal.cheapest_threshold`.
        columns, percent, expressions, allow_other_source, on_fault, max_bad, progress : as in
            :meth:`calibrate`.

        Records of the fit are detected by a sample of their questions, and refused. Records that settings of the model
        were chosen on must not be used either; the model cannot detect those.

        Examples
        --------
        >>> from qacal.calibrators import PlattScaling
        >>> rng = np.random.default_rng(0)
        >>> def answers(first, n):
        ...     return [{"id": first + i, "confidence": h, "correct": rng.random() < h ** 2}
        ...             for i, h in enumerate(rng.choice([0.5, 0.7, 0.9, 0.99], n).tolist())]
        >>> model = QACalibrator(calibrator=PlattScaling()).fit(answers(0, 2000))
        >>> chosen = model.choose_threshold(answers(2000, 1000), accuracy=0.9)
        >>> chosen.threshold, round(chosen.parts[0].coverage, 2)
        (0.86, 0.24)
        >>> model.set_threshold(chosen).explain("2 + 2?", "4", 0.99)["decision"]
        'answer'
        """
        from qacal.model.choosing import Goal, choices

        self._require_fitted()
        goal = Goal(accuracy, alpha, per_group, wrong, abstain, groups)
        reading = self._reading(records, columns, percent, expressions, on_fault=on_fault or refuse, max_bad=max_bad)
        return choices(self, records, reading, goal, allow_other_source=allow_other_source, progress=progress)[None]

    def set_threshold(
        self, threshold: float | Mapping[Any, float | None] | CertifiedThreshold | CheapestThreshold | None
    ) -> Self:
        """Set the threshold for the column `decision`: "answer" at or above it, "abstain" below.

        threshold : the result of :meth:`choose_threshold`; a number; or a number for each group. A group that is None
            or left out abstains. None removes the threshold. It is saved with the model.
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

    # Saving

    def save(self, path: str | Path) -> None:
        """Write the model as a folder of JSON and arrays, without code. The folder is complete or absent."""
        from qacal.model.saved import save

        self._require_fitted()
        save(self, path)

    @classmethod
    def load(cls, path: str | Path, *, embedder: str | Embedder | None = None, warm: bool = False) -> QACalibrator:
        """Return a saved model; see :func:`qacal.load`."""
        from qacal.model.saved import load_model
        from qacal.storage import MODEL_SET

        if (Path(path) / MODEL_SET).is_file():
            raise InputError(f"{path} holds a set of models; load it with qacal.load.")
        model = load_model(path, embedder)
        if warm:
            model._warm()
        return model

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
