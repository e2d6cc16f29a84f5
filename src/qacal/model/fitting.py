"""One fit: from records to the fitted parts of a model, in three passes over the records.

1. Look at all rows: their sources, copies, labels.
2. Train. By default, 30% of the questions train groups and a first score, which makes bands, and 90% (these among them)
   train the score that answers. Without margins, one part of the questions trains groups and score.
3. Fit the calibrator on the others: by default the 70% that made neither bands nor groups, which certify these. The
   guarantee needs bands and groups that were fixed without these rows; the answers may use them.

If only some of the rows are a random sample (an :class:`Audit`), the calibrator is fitted on these alone, and all
others train. The shares are the same, as far as there are rows for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.calibrators.cells import Cells, plan_cells, share_of_documents
from qacal.calibrators.margins import MarginBinning
from qacal.errors import InputError
from qacal.model.defaults import (
    SHARE_OF_FIRST,
    cut_tree,
    default_pipeline,
    features_of,
    require_parameters,
    share_to_train,
)
from qacal.model.groups import GroupSummary
from qacal.model.pipeline import Pipeline, Progress
from qacal.model.samples import CalibrationRows, Overview, PartitionSample, ScoreSample
from qacal.model.widths import Widths, widths_by_labels
from qacal.partitions import EMBEDDING
from qacal.records.provenance import require_comparable_ids, require_same_source
from qacal.records.reading import Batch, ReadAs, Reading, read, rereadable
from qacal.tally.arrays import Bools, Hashes, Ints, seven_decimals
from qacal.tally.groups import as_grouping
from qacal.tally.ids import distinct
from qacal.tally.ids import split as split_ids
from qacal.tally.tally import Tally
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.fit_record import CANDIDATES, FitRecord, Forecasts, at_candidates, remembered

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.search import Tuned

# One fold of the questions chooses depth and points per bin.
_FOLDS = 7
# Blocks of each fold: enough for standard errors by question, and an even number, for calibrators that use halves.
_BLOCKS = 32

# The share of the judged rows that train, if a judge helps to certify; the others tell what it says of each band.
_TRAINED_WITH_JUDGE = 0.7
_NO_IDS: Hashes = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Audit:
    """The random sample among labelled rows, which alone certifies. No other row has one of its questions.

    ids : the hashes of its questions.
    rows, others : how many rows are in it, and how many labelled rows are not.
    """

    ids: Hashes
    rows: int
    others: int

    def shares(self, share: float | None, first: float) -> tuple[float, float, float]:
        """Return the shares of the sample for the parts of :class:`Split`: so much of it as the others do not replace.

        >>> none = np.empty(0, dtype=np.uint64)
        >>> [round(part, 3) for part in Audit(none, rows=100, others=0).shares(0.9, 1 / 3)]
        [0.3, 0.6, 0.1]
        >>> [round(part, 3) for part in Audit(none, rows=100, others=100).shares(0.9, 1 / 3)]
        [0.0, 0.8, 0.2]
        """
        if share is None:
            return 0.0, 0.0, 1.0
        both = self.rows + self.others
        makes = max(0.0, share * first * both - self.others) / self.rows
        held = 1 - makes if first == 1 else min((1 - share) * both / self.rows, 1 - makes)
        return makes, max(0.0, 1 - makes - held), held


@dataclass(frozen=True, eq=False)
class FitInputs:
    """The records of a fit.

    records : labelled rows.
    reading : how to read them.
    group_records : rows to make groups from; by default a part of `records`.
    certify_records : rows to fit the calibrator on; by default a part of `records`.
    allow_mixed : whether the records may come from several LLMs or prompts.
    apart : columns that no score may read by itself.
    judge_column : the column of `certify_records` with the labels of the judge that labelled `records`.
    audit : the random sample among `records`; by default all of them are one.
    rows_to_certify : plan bands and groups for this many rows, which tallies bring later; by default for the rows of
        this fit that certify.
    """

    records: Any
    reading: Reading
    group_records: Any = None
    certify_records: Any = None
    allow_mixed: bool = False
    apart: tuple[str, ...] = ()
    judge_column: str | None = None
    audit: Audit | None = None
    rows_to_certify: int | None = None


@dataclass(frozen=True)
class FittedFor:
    """The value of the column `by` that a model of a set was fitted for."""

    column: str
    value: Any


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit.

    pipeline : the fitted parts.
    tuned : the settings that were tried for the calibrator; None without tuning.
    rows : the number of rows that the calibrator was fitted on.
    origins : the values of each column that says where rows come from.
    groups : what is in each group, the largest first; computed when it is first read.
    fit_record : what the model stores about the rows.
    read_as : how the records were read.
    overviews : of `records`, and of `certify_records` if there are any; empty for a loaded model.
    not_tried : columns that were not tried as features, and why.
    widths : how wide intervals are with fewer and more labelled rows; empty for a loaded model.
    decision_rule, fitted_for : set after the fit.
    """

    pipeline: Pipeline
    tuned: Tuned | None
    rows: int
    origins: dict[str, list[Any]]
    groups: Iterable[GroupSummary]
    fit_record: FitRecord
    read_as: ReadAs
    overviews: tuple[Overview, ...] = ()
    not_tried: dict[str, str] = field(default_factory=dict)
    widths: tuple[Widths, ...] = ()
    decision_rule: DecisionRule | None = None
    fitted_for: FittedFor | None = None


@dataclass(frozen=True)
class Split:
    """Which rows train groups and score, and which fit the calibrator.

    share : the share of the questions that train; None to use all rows for both.
    share_of_first : of these, the share that makes groups, and bands with a first score. Then all other rows fit the
        calibrator, also those that train the score. None to keep all rows that train away from the calibrator.
    audit : only these rows fit the calibrator; None for rows that are all alike.
    """

    share: float | None
    seed: int
    share_of_first: float | None = None
    audit: Audit | None = None

    def for_groups(self, batch: Batch) -> Batch:
        return batch if self._is_whole else batch.only(self._part(batch.ids) == 0)

    def for_training(self, batch: Batch) -> Batch:
        return batch if self._is_whole else batch.only(self._part(batch.ids) < 2)

    def for_calibrator(self, batch: Batch) -> Batch:
        return batch if self._is_whole else batch.only(self._part(batch.ids) > 0)

    def makes_bands(self, ids: Hashes) -> Bools:
        """Return which questions train the first score."""
        return np.asarray(self._part(ids) == 0)

    def is_held(self, ids: Hashes) -> Bools:
        """Return which questions train no score."""
        return np.asarray(self._part(ids) == 2)

    @property
    def certifying(self) -> float:
        """The share of the labelled rows, or of those of the audit, that fit the calibrator."""
        if self.audit is not None:
            makes, *_ = self.audit.shares(self.share, self._first)
            return 1 - makes
        return 1.0 if self.share is None else 1 - self.share * self._first

    @property
    def _is_whole(self) -> bool:
        return self.share is None and self.audit is None

    @property
    def _first(self) -> float:
        return 1.0 if self.share_of_first is None else self.share_of_first

    def _part(self, ids: Hashes | None) -> Ints:
        """Return 0 for questions that train everything, 1 for those that train the score and certify, 2 for others."""
        if ids is None or self._is_whole:
            raise InputError("the records need a column id or question, so that the two parts share no question.")
        if self.audit is not None:
            parts = split_ids(ids, self.audit.shares(self.share, self._first), self.seed)
            return np.where(np.isin(ids, self.audit.ids), parts, 0)
        assert self.share is not None
        shares = (self.share * self._first, self.share * (1 - self._first), 1 - self.share)
        return split_ids(ids, shares, self.seed)


def fit_model(model: QACalibrator, inputs: FitInputs, progress: Progress) -> Fitted:
    """Fit new parts, as the parameters of a model say, to records."""
    require_parameters(model)
    has_certify_records = inputs.certify_records is not None
    has_judge = inputs.judge_column is not None
    pipeline = default_pipeline(model, has_certify_records=has_certify_records and not has_judge)
    features = features_of(model, pipeline)
    pipeline = replace(pipeline, features=features.named)
    if has_certify_records:
        _require_something_to_learn(model, inputs, pipeline)
    if has_judge:
        _require_judge(model, inputs, pipeline)
    records = rereadable(inputs.records, inputs.reading, needs_labels=True, **pipeline.needs)
    certify = records
    if has_certify_records:
        certify = rereadable(inputs.certify_records, inputs.reading, needs_labels=True, **pipeline.needs)
    with pipeline.vectors.telling(progress):
        overviews = _look(records, certify, inputs, progress)
        if pipeline.score is not None and not all(one.has_texts for one in overviews):
            pipeline.score.set_params(words=False)  # the records carry vectors, and no texts
        if pipeline.needs_vectors:
            pipeline.vectors.load()
        split = _split(model, inputs, pipeline, overviews[0].rows)
        taken = {*inputs.reading.columns.values(), *pipeline.partition._needs, *inputs.apart} | (
            {inputs.judge_column} if inputs.judge_column else set()
        )
        features = features.over(overviews[0].columns, taken)
        score = None if pipeline.score is None else ScoreSample(pipeline.score, features, pipeline.embed)
        all_ids, group_ids = _train(pipeline, records, split, inputs, score, overviews[0], progress)
        if score is not None:
            pipeline = replace(pipeline, features=score.used, first=score.first)
        tunes = model.tune is not None and pipeline.score is None
        blocks = _FOLDS * _BLOCKS if tunes else None
        rows = CalibrationRows(pipeline, blocks, is_one_row_each=overviews[-1].is_one_row_each)
        step = "certifying" if pipeline.calibrator.properties.is_certified else "calibrating"
        seen = 0
        for batch in certify:
            pipeline.vectors.before = seen
            seen += len(batch.whole)
            _require_apart(batch, all_ids if has_certify_records else group_ids)
            part = batch if has_certify_records else split.for_calibrator(batch)
            if len(part):
                is_held = None if pipeline.first is None or part.ids is None else split.is_held(part.ids)
                rows.add(part, is_held, inputs.judge_column)
                progress(step, seen)
        if has_judge:
            for batch in records:
                if len(part := split.for_calibrator(batch)):
                    rows.add_judged(part)
        tally = rows.tally()
        if has_judge and tally.block is not None:
            raise InputError("with a judge's labels, rows that certify need ids of their own; some have the same id.")
        # With a score nothing is left to choose: the score was chosen on the training rows.
        tuned = _tune(pipeline, tally, str(model.tune), progress) if tunes else None
        if tuned is None:
            cut_tree(model, pipeline, tally.n)
        elif tuned.is_pooled:
            tally = tally.pooled()
        answered, held = rows.answers(tally)
        widths: tuple[Widths, ...] = ()
        # More labels of audits narrow intervals, and other rows only train.
        labels = overviews[-1].rows if inputs.audit is None else inputs.audit.rows
        calibrator = pipeline.calibrator
        if isinstance(calibrator, MarginBinning) and score is not None:
            share = (1.0 if has_judge else split.certifying) * share_of_documents(tally)
            plan = partial(_planned, pipeline, score, share)
            planned_for = labels if inputs.rows_to_certify is None else inputs.rows_to_certify / share
            calibrator._fit_cells(tally, plan(planned_for), held, 1.0 if has_judge else split.certifying, rows.judged)
        else:
            calibrator.fit_tally(tally)
        if isinstance(calibrator, MarginBinning) and not has_judge and inputs.rows_to_certify is None:
            if score is None:
                plan = partial(calibrator._cells_of, tally, tally.n / labels)
            widths = widths_by_labels(calibrator, rows, tally, labels, plan)
    return Fitted(
        pipeline=pipeline,
        tuned=tuned,
        rows=tally.n,
        origins=overviews[-1].sources.known(),
        groups=rows.summaries(tally, model.examples),
        fit_record=recorded(
            tally.with_confidence(pipeline.calibrator.predict_tally(tally)) if answered is None else answered,
            pipeline.depth,
            np.concatenate([all_ids, rows.ids()]),
            np.concatenate([one.texts for one in overviews]),
        ),
        read_as=ReadAs(dict(inputs.reading.columns), inputs.reading.percent, dict(inputs.reading.expressions)),
        overviews=overviews,
        not_tried={} if score is None else score.not_tried,
        widths=widths,
    )


def _require_judge(model: QACalibrator, inputs: FitInputs, pipeline: Pipeline) -> None:
    is_default = isinstance(pipeline.calibrator, MarginBinning) and pipeline.score is not None
    if inputs.certify_records is None or not is_default or model.train_share is not None:
        raise InputError(
            "--judge-column (in Python: judge_column) is for the default calibrator with --certify (certify_records), "
            "and without --train-share (train_share): 70% of the judge's rows train. Leave one of them out."
        )
    if inputs.judge_column == inputs.reading.columns.get("correct", "correct"):
        raise InputError(f"the column {inputs.judge_column} has people's labels; the judge's need another column.")


def _require_something_to_learn(model: QACalibrator, inputs: FitInputs, pipeline: Pipeline) -> None:
    if model.output == "continuous":
        raise InputError("a continuous output certifies nothing; leave out --certify (in Python: certify_records).")
    if inputs.group_records is not None:
        raise InputError(
            "--group-rows and --certify (in Python: group_records and certify_records) both name rows to train on; "
            "pass one of them."
        )
    if pipeline.score is None and not pipeline.needs_vectors:
        raise InputError(
            "with --certify (in Python: certify_records) the other rows train groups and score, and here there is "
            "nothing to train: groups are columns, and there is no score. Fit on the certifying rows alone."
        )


# 1. Look


def _look(
    records: Iterable[Batch], certify: Iterable[Batch], inputs: FitInputs, progress: Progress
) -> tuple[Overview, ...]:
    """Refuse rows from different sources before anything is embedded; warn of what looks wrong."""
    sets = (records,) if certify is records else (records, certify)
    overviews = tuple(_overview(one, progress) for one in sets)
    if not inputs.allow_mixed:
        for one in reversed(overviews):
            one.sources.require_one()
    if len(overviews) == 2:
        require_comparable_ids(overviews[0].has_ids, overviews[1].has_ids)
        if not inputs.allow_mixed:
            require_same_source(overviews[0].sources, overviews[1].sources)
        overviews[0].warn(f"{inputs.reading.prefix}the training rows: ")
        overviews[1].warn(f"{inputs.reading.prefix}the certifying rows: ")
    else:
        overviews[0].warn(inputs.reading.prefix)
    return overviews


def _overview(records: Iterable[Batch], progress: Progress) -> Overview:
    overview, seen = Overview(), 0
    for batch in records:
        overview.add(batch)
        seen += len(batch.whole)
        progress("reading", seen)
    return overview


def _split(model: QACalibrator, inputs: FitInputs, pipeline: Pipeline, rows: int) -> Split:
    """Split the questions if the same records train and fit the calibrator."""
    has_score = pipeline.score is not None
    is_learned = has_score or (pipeline.needs_vectors and inputs.group_records is None)
    # A continuous score has no certificate, so no rows are held out.
    trains_on_all = inputs.certify_records is not None or (model.output == "continuous" and has_score)
    if inputs.judge_column is not None:
        return Split(_TRAINED_WITH_JUDGE, model.seed)
    if trains_on_all:
        return Split(None, model.seed)
    if not is_learned:
        return Split(None, model.seed, audit=inputs.audit)
    if not (has_score and isinstance(pipeline.calibrator, MarginBinning)):
        return Split(share_to_train(model, rows, has_score=has_score), model.seed, audit=inputs.audit)
    share = share_to_train(model, rows, has_score=True, has_margins=True)
    return Split(share, model.seed, SHARE_OF_FIRST, inputs.audit)


# 2. Train


def _train(
    pipeline: Pipeline,
    records: Iterable[Batch],
    split: Split,
    inputs: FitInputs,
    score: ScoreSample | None,
    overview: Overview,
    progress: Progress,
) -> tuple[Hashes, Hashes]:
    """Train groups and score; groups on `group_records` if there are any.

    Returns the ids of all rows that were read, and the ids of `group_records` whose questions must not fit the
    calibrator. Within `records`, `split` keeps the questions apart.
    """
    partition = pipeline.partition if pipeline.uses_groups else None
    all_ids = group_ids = _NO_IDS
    if partition is not None and inputs.group_records is not None:
        rows = read(
            inputs.group_records,
            inputs.reading,
            needs_labels=False,
            needs_confidence=False,
            needs_text=pipeline.needs_text,
        )
        all_ids = _train_on(
            _with_ids(rows, overview), Split(None, 0), pipeline, PartitionSample(partition), None, progress
        )
        group_ids = all_ids if EMBEDDING in partition._needs else _NO_IDS
        partition = None
    if partition is not None or pipeline.score is not None:
        groups = None if partition is None else PartitionSample(partition)
        all_ids = np.concatenate([all_ids, _train_on(records, split, pipeline, groups, score, progress)])
    return all_ids, group_ids


def _with_ids(rows: Iterable[Batch], overview: Overview) -> Iterable[Batch]:
    """Yield rows; raise if their ids cannot be compared with those of the records."""
    for batch in rows:
        require_comparable_ids(batch.reading.name("id") in batch.table.names, overview.has_ids)
        yield batch


def _train_on(
    records: Iterable[Batch],
    split: Split,
    pipeline: Pipeline,
    groups: PartitionSample | None,
    score: ScoreSample | None,
    progress: Progress,
) -> Hashes:
    """Train on one part of the rows; return the ids of all of them."""
    needs_vectors = (groups is not None and groups.reads_vectors) or (score is not None and score.reads_vectors)
    ids, seen = [_NO_IDS], 0
    for batch in records:
        pipeline.vectors.before = seen
        seen += len(batch.whole)
        if batch.ids is not None:
            ids.append(batch.ids)
        if groups is not None:
            groups.add_columns(batch)
        part = split.for_training(batch)
        if not len(part):
            continue
        vectors: Any = pipeline.vectors.of(part) if needs_vectors else None
        if groups is not None and groups.reads_vectors:
            makers = np.isin(part.kept, split.for_groups(part).kept)
            groups.add_vectors(part.only(makers), vectors[makers])
            progress("making groups", seen)
        if score is not None:
            score.add(part, vectors)
    if groups is not None:
        groups.fit()
    if score is not None:
        progress("training the score", score.count)
        score.fit(None if split.share_of_first is None else split.makes_bands)
    return distinct(np.concatenate(ids))


def _planned(pipeline: Pipeline, score: ScoreSample, share: float, labels: float) -> Cells:
    """Return the bands and groups to certify, from rows that do not certify; `share` of the labels will."""
    calibrator, partition = pipeline.calibrator, pipeline.partition
    assert isinstance(calibrator, MarginBinning)
    column = None
    if pipeline.uses_groups and [*partition._needs] == [EMBEDDING] and score.sample_vectors is not None:
        column = as_grouping(partition._groups(score.sample_vectors), len(score.sample_scores))
    elif pipeline.uses_groups:
        column = as_grouping(np.zeros(len(score.sample_scores), dtype=np.int64), len(score.sample_scores))
    cells = plan_cells(
        score.sample_scores,
        column,
        rows=share * labels,
        alpha=calibrator.alpha,
        within=calibrator.within,
        bands=calibrator.bands,
        max_depth=calibrator.max_depth,
    )
    band = np.searchsorted(cells.tops, seven_decimals(score.sample_scores))
    rows = np.bincount(band, minlength=len(cells.tops))
    return replace(cells, cut=np.bincount(band, score.sample_cut, len(cells.tops)) / np.maximum(rows, 1))


# 3. Fit the calibrator


def _require_apart(batch: Batch, trained_on: Hashes) -> None:
    """Refuse rows whose questions groups or score were trained on."""
    shared = 0 if batch.ids is None else int(np.isin(batch.ids, trained_on).sum())
    if shared:
        raise InputError(
            f"{batch.table.origin}: {shared} rows have questions that the model was trained on. Rows that "
            "calibrate or certify need other questions: remove the shared ones from one of the two files of "
            "--group-rows or --certify (in Python: group_records, certify_records)."
        )


def _tune(pipeline: Pipeline, tally: Tally, objective: str, progress: Progress) -> Tuned:
    """Choose depth and points per bin on a seventh of the questions.

    The calibrator is then fitted on all rows: the uniform certificate holds for every depth and points per bin at once.
    """
    from qacal.planning import wide_ranges
    from qacal.search import Search

    calibration, tuning = tally.outside_fold(0, _FOLDS), tally.within_fold(0, _FOLDS)
    if not (len(calibration) and len(tuning)):
        raise InputError(f"{tally.n} rows are too few to tune on; leave out --tune (in Python: tune), or label more.")
    search = Search(
        calibration,
        tuning,
        objective=objective,
        ranges=wide_ranges(calibration.n),
        # Whether there are groups must not be chosen on the rows that certify them, unless the guarantee covers both.
        keeps_groups=pipeline.calibrator.properties.is_certified,
        progress=lambda done, of: progress(f"tuning, {done} of {of}", calibration.n),
    )
    tuned = search.tune(pipeline.calibrator)
    pipeline.calibrator.set_params(**tuned.calibrator.get_params())
    return tuned


def recorded(answers: Tally, depth: int, ids: Hashes, texts: Hashes) -> FitRecord:
    """Return what the model stores about the rows: a sample of their ids, and their calibrated confidences."""
    scored = answers.with_confidence(at_candidates(answers.confidence, CANDIDATES))
    column = scored.grouping
    if column is not None and column.is_tree:
        scored = scored.roll_up(depth).flat()
    return remembered(ids, texts, Forecasts.of(scored))
