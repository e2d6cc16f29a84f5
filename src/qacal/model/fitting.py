"""One fit: from records to the fitted parts of a model, in three passes over the records.

1. Look at all rows: their sources, copies, labels.
2. Train groups and score on one part of the questions.
3. Calibrate on the other part: the guarantee holds for groups and scores that were fixed without its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.model.base import Progress
from qacal.model.defaults import Defaults
from qacal.model.groups import GroupSummary
from qacal.model.pipeline import Pipeline
from qacal.model.samples import CalibratorSample, Overview, PartitionSample, ScoreSample, ids_of
from qacal.records.provenance import require_comparable_ids, require_same_source
from qacal.records.reading import Batch, Reading, read, rereadable
from qacal.tally.arrays import Hashes
from qacal.tally.ids import split
from qacal.tally.tally import Tally
from qacal.thresholds.fit_record import FitRecord, remembered

if TYPE_CHECKING:
    from qacal.search import Tuned

# One fold of the questions chooses depth and points per bin.
_FOLDS = 7
# Of each fold; enough for errors that take the rows of a question as dependent, and a multiple of the halves.
_BLOCKS = 32

_NO_IDS: Hashes = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class FitInputs:
    """The records of a fit.

    records : labelled rows.
    reading : how to read them.
    group_records : rows to make groups from in place of a part of `records`; None for none.
    certify_records : rows to certify on in place of a part of `records`; None for none.
    allow_mixed : whether several LLMs or prompts may go together.
    prefix : stands before warnings, such as "model gpt-4: ".
    """

    records: Any
    reading: Reading
    group_records: Any = None
    certify_records: Any = None
    allow_mixed: bool = False
    prefix: str = ""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit.

    pipeline : the fitted parts.
    tuned : what was tried for the calibrator; None if nothing was.
    rows : how many calibrate.
    origins : of each column that says where rows come from, the values.
    groups : what is in each group, the largest first; made when it is first read, which is when the model is saved.
    fit_record : what the model stores about the rows.
    overviews : of the rows that it was fitted on, and of those that certify if they are others; empty if it was loaded.
    """

    pipeline: Pipeline
    tuned: Tuned | None
    rows: int
    origins: dict[str, list[Any]]
    groups: Iterable[GroupSummary]
    fit_record: FitRecord
    overviews: tuple[Overview, ...] = ()


@dataclass(frozen=True)
class Split:
    """Which rows train, and which calibrate.

    share : the share of the questions that train; None if all rows do both.
    """

    share: float | None
    seed: int

    def train(self, batch: Batch) -> Batch:
        """Return the rows that train groups and score."""
        return self._part(batch, 0)

    def calibrate(self, batch: Batch) -> Batch:
        """Return the rows that calibrate."""
        return self._part(batch, 1)

    def _part(self, batch: Batch, number: int) -> Batch:
        if self.share is None:
            return batch
        if batch.ids is None:
            raise InputError("the records need a column id or question, so that the two parts share no question.")
        return batch.only(split(batch.ids, (self.share, 1 - self.share), self.seed) == number)


def fit_model(defaults: Defaults, inputs: FitInputs, progress: Progress) -> Fitted:
    """Fit new parts to records; `progress` is called with what is being done, and for how many rows."""
    defaults.validate()
    has_certify_records = inputs.certify_records is not None
    pipeline = defaults.pipeline(has_certify_records=has_certify_records)
    if has_certify_records:
        _require_something_to_learn(defaults, inputs, pipeline)
    records = rereadable(inputs.records, inputs.reading, needs_labels=True, **pipeline.needs)
    certify = records
    if has_certify_records:
        certify = rereadable(inputs.certify_records, inputs.reading, needs_labels=True, **pipeline.needs)
    with pipeline.vectors.telling(progress):
        overviews = _look(records, certify, inputs)
        if pipeline.needs_vectors:
            pipeline.vectors.load()
        parts = _split(defaults, inputs, pipeline, overviews[0].rows)
        seen, group_ids = _train(pipeline, records, parts, inputs, overviews[0], progress)
        tunes = defaults.tune is not None and pipeline.score is None
        rows = CalibratorSample(pipeline, _FOLDS * _BLOCKS if tunes else None)
        for batch in certify:
            _require_apart(batch, seen if has_certify_records else group_ids)
            mine = parts.calibrate(batch)
            if len(mine):
                rows.add(mine)
                progress("calibrating", rows.count)
        tally = rows.tally()
        # With a score there is nothing left to choose: the score was chosen on its own rows.
        tuned = _tune(pipeline, tally, str(defaults.tune), progress) if tunes else None
        if tuned is None:
            defaults.cut_tree(pipeline, tally.n)
        elif tuned.is_pooled:
            tally = tally.pooled()
        pipeline.calibrator.fit_tally(tally)
    return Fitted(
        pipeline=pipeline,
        tuned=tuned,
        rows=tally.n,
        origins=overviews[-1].sources.known(),
        groups=rows.summaries(tally, defaults.examples),
        fit_record=_record(
            pipeline, tally, np.concatenate([seen, rows.ids()]), np.concatenate([one.texts for one in overviews])
        ),
        overviews=overviews,
    )


def _require_something_to_learn(defaults: Defaults, inputs: FitInputs, pipeline: Pipeline) -> None:
    if defaults.output == "continuous":
        raise InputError("a continuous output certifies nothing; leave out --certify (in Python: certify_records).")
    if inputs.group_records is not None:
        raise InputError(
            "--group-rows and --certify (in Python: group_records and certify_records) both name rows to train on; "
            "pass one of them."
        )
    if pipeline.score is None and not pipeline.needs_vectors:
        raise InputError(
            "with --certify (in Python: certify_records) the other rows train groups and score, and here there is "
            "nothing to train: groups are columns, and there is no score. Fit on the rows that certify alone."
        )


# 1. Look


def _look(records: Iterable[Batch], certify: Iterable[Batch], inputs: FitInputs) -> tuple[Overview, ...]:
    """Refuse rows that do not go together before anything is embedded; warn of what looks wrong."""
    overviews = (_overview(records), _overview(certify)) if certify is not records else (_overview(records),)
    if not inputs.allow_mixed:
        for one in reversed(overviews):
            one.sources.require_one()
    if len(overviews) == 2:
        require_comparable_ids(overviews[0].has_ids, overviews[1].has_ids)
        if not inputs.allow_mixed:
            require_same_source(overviews[0].sources, overviews[1].sources)
        overviews[0].warn(f"{inputs.prefix}the rows to learn from: ")
        overviews[1].warn(f"{inputs.prefix}the rows that certify: ")
    else:
        overviews[0].warn(inputs.prefix)
    return overviews


def _overview(records: Iterable[Batch]) -> Overview:
    found = Overview()
    for batch in records:
        found.add(batch)
    return found


def _split(defaults: Defaults, inputs: FitInputs, pipeline: Pipeline, rows: int) -> Split:
    """Split the questions if these rows are to calibrate what is learned from them."""
    has_score = pipeline.score is not None
    is_learned = has_score or (pipeline.needs_vectors and inputs.group_records is None)
    # Of a continuous score nothing is certified, and so nothing is held out.
    trains_on_all = inputs.certify_records is not None or (defaults.output == "continuous" and has_score)
    if not is_learned or trains_on_all:
        return Split(None, defaults.seed)
    return Split(defaults.share_to_train(rows, has_score=has_score), defaults.seed)


# 2. Train


def _train(
    pipeline: Pipeline,
    records: Iterable[Batch],
    parts: Split,
    inputs: FitInputs,
    overview: Overview,
    progress: Progress,
) -> tuple[Hashes, Hashes]:
    """Train groups and score; groups on `group_records` if these are given.

    Returns the ids of all rows that were seen, and of those `group_records` whose questions must not calibrate; of one
    set of records, `parts` keeps the questions apart.
    """
    partition = pipeline.partition if pipeline.uses_groups else None
    seen = group_ids = _NO_IDS
    if partition is not None and inputs.group_records is not None:
        needs: dict[str, Any] = {"needs_confidence": partition.uses_labels, "reads_labels": partition.uses_labels}
        rows = read(inputs.group_records, inputs.reading, needs_labels=False, needs_text=pipeline.needs_text, **needs)
        seen = _train_on(
            _with_ids(rows, overview), Split(None, 0), pipeline, PartitionSample(partition), None, progress
        )
        group_ids = seen if pipeline.groups_need_vectors else _NO_IDS
        partition = None
    if partition is not None or pipeline.score is not None:
        groups = None if partition is None else PartitionSample(partition)
        score = None if pipeline.score is None else ScoreSample(pipeline.score)
        seen = np.concatenate([seen, _train_on(records, parts, pipeline, groups, score, progress)])
    return seen, group_ids


def _with_ids(rows: Iterable[Batch], overview: Overview) -> Iterable[Batch]:
    """Yield rows whose ids can be compared with those of the other rows."""
    for batch in rows:
        require_comparable_ids(batch.reading.name("id") in batch.table.names, overview.has_ids)
        yield batch


def _train_on(
    records: Iterable[Batch],
    parts: Split,
    pipeline: Pipeline,
    groups: PartitionSample | None,
    score: ScoreSample | None,
    progress: Progress,
) -> Hashes:
    """Train on one part of the rows; return the ids of all of them."""
    reads_vectors = groups is not None and pipeline.groups_need_vectors
    reads_text = reads_vectors or (score is not None and pipeline.score is not None and pipeline.score.text)
    seen = [_NO_IDS]
    for batch in records:
        seen.append(ids_of(batch))
        if groups is not None:
            groups.add_columns(batch)
        mine = parts.train(batch)
        if not len(mine):
            continue
        vectors = pipeline.vectors.of(mine) if reads_text else None
        if groups is not None and reads_vectors:
            groups.add_vectors(mine, vectors)
            progress("making groups", groups.count)
        if score is not None:
            score.add(mine, vectors)
    if groups is not None:
        groups.fit()
    if score is not None:
        progress("learning a score", score.count)
        score.fit()
    return np.unique(np.concatenate(seen))


# 3. Calibrate


def _require_apart(batch: Batch, trained_on: Hashes) -> None:
    """Refuse calibration rows whose questions other records were trained on."""
    shared = 0 if batch.ids is None else int(np.isin(batch.ids, trained_on).sum())
    if shared:
        raise InputError(
            f"{batch.table.origin}: {shared} rows have questions that the model was trained on. Calibration rows must "
            "be others: remove those questions from one of the two files of --group-rows or --certify (in Python: "
            "group_records, certify_records)."
        )


def _tune(pipeline: Pipeline, tally: Tally, objective: str, progress: Progress) -> Tuned:
    """Choose depth and points per bin on a seventh of the questions.

    All rows are fitted on afterwards: the uniform certificate holds for every depth and points per bin at once.
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
    found = search.tune(pipeline.calibrator)
    pipeline.calibrator.set_params(**found.calibrator.get_params())
    return found


def _record(pipeline: Pipeline, tally: Tally, ids: Hashes, texts: Hashes) -> FitRecord:
    """Return what to remember of the rows: a sample of their ids, and which confidences they got."""
    from qacal.thresholds.curve import CANDIDATES, at_candidates
    from qacal.thresholds.outlook import Forecasts

    scored = tally.with_confidence(at_candidates(pipeline.calibrator.predict_tally(tally), CANDIDATES))
    column = scored.grouping
    if column is not None and column.is_tree:
        scored = scored.roll_up(pipeline.depth).flat()
    return remembered(ids, texts, Forecasts.of(scored))
