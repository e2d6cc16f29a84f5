"""One fit: from records to the fitted parts of a model, and what is to be remembered of the rows.

Groups and score are learned from one part of the questions, and the calibrator from the other, since what is promised
of its answers holds for groups and scores that were fixed without its rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError, QacalWarning
from qacal.model.answering import Progress
from qacal.model.calibration_rows import CalibrationSample
from qacal.model.defaults import Defaults
from qacal.model.groups import GroupSummary
from qacal.model.learning import Learning, ids_of
from qacal.model.pipeline import Pipeline
from qacal.records.provenance import (
    gather_origins,
    is_provenance,
    require_comparable_ids,
    require_one_origin,
    require_same_origin,
)
from qacal.records.reading import PROVENANCE, Batch, Reading, read, read_again, warn_of_copies
from qacal.tally.arrays import Hashes
from qacal.tally.ids import split
from qacal.tally.tally import Tally
from qacal.thresholds.memory import FitRecord, remembered

if TYPE_CHECKING:
    from qacal.metrics.ranking import Doubt
    from qacal.search import Tuned

# One fold of the questions chooses depth and points per bin.
_FOLDS = 7
# Of each fold; enough for errors that take the rows of a question as dependent, and a multiple of the halves.
_BLOCKS = 32

_NOBODY: Hashes = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class FitInputs:
    """The records of a fit.

    records : labelled rows.
    how : how to read them.
    beta : rows to make groups from in place of a part of `records`; None for none.
    certify : rows to certify on in place of a part of `records`; None for none.
    allow_mixed : whether several LLMs or prompts may go together.
    whose : stands before what is said of them, such as "model gpt-4: ".
    """

    records: Any
    how: Reading
    beta: Any = None
    certify: Any = None
    allow_mixed: bool = False
    whose: str = ""

    @property
    def has_certify_records(self) -> bool:
        """Whether other rows certify than those that all else is learned from."""
        return self.certify is not None

    def require_one_origin(self) -> None:
        """Refuse rows that do not go together, before anything is embedded."""
        if self.has_certify_records:
            require_one_origin(self.certify, self.how, self.allow_mixed)
            require_same_origin(self.records, self.certify, self.how, self.allow_mixed)
        if self.beta is not None:
            require_comparable_ids(self.records, self.beta, self.how)
        require_one_origin(self.records, self.how, self.allow_mixed)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What came of a fit.

    road : the fitted parts.
    tuned : what was tried for the calibrator; None if nothing was.
    rows : how many calibrate.
    origins : where rows come from: of each column that tells it, the values.
    groups : what is in each group, the largest first.
    memory : what is remembered of the rows.
    """

    pipeline: Pipeline
    tuned: Tuned | None
    rows: int
    origins: dict[str, list[Any]]
    groups: Iterable[GroupSummary]
    memory: FitRecord


@dataclass(frozen=True)
class Split:
    """Which rows are learned from, and which calibrate.

    share : the share of the questions to learn from; None if they are not dealt: all rows are there for both.
    """

    share: float | None
    seed: int

    def learning(self, batch: Batch) -> Batch:
        """Return the rows to learn from."""
        return self._part(batch, 0)

    def calibrating(self, batch: Batch) -> Batch:
        """Return the rows that calibrate."""
        return self._part(batch, 1)

    def _part(self, batch: Batch, number: int) -> Batch:
        if self.share is None:
            return batch
        if batch.ids is None:
            raise InputError("the records need a column id or question, so that the two parts share no question.")
        return batch.only(split(batch.ids, (self.share, 1 - self.share), self.seed) == number)


class Fitting:
    """Fits fresh parts to records; it is there for one fit.

    recipe : what is to be made.
    given : the records.
    progress : told what is being done, and for how many rows.
    """

    def __init__(self, defaults: Defaults, given: FitInputs, progress: Progress) -> None:
        defaults.validate()
        self.defaults = defaults
        self.given = given
        self.progress = progress
        self.pipeline = defaults.pipeline(has_certify_records=given.has_certify_records)

    def fitted(self) -> Fitted:
        """Learn from some rows, calibrate with others, and return what came of it."""
        with self.pipeline.vectors.telling(self.progress):
            return self._fitted()

    def _fitted(self) -> Fitted:
        if self.given.has_certify_records:
            self._require_something_to_learn()
        self.given.require_one_origin()
        if self.pipeline.needs_vectors:
            self.pipeline.vectors.load()
        labelled = self._read(self.given.records)
        deal = self._deal(labelled)
        seen, learned_from = self._learn(labelled, deal)
        if self.given.has_certify_records:
            labelled, learned_from = self._read(self.given.certify), seen
        return self._calibrate(labelled, deal, seen, learned_from)

    def _read(self, records: Any) -> Iterable[Batch]:
        return read_again(records, self.given.how, needs_labels=True, **self.pipeline.needs)

    # Who learns what

    def _require_something_to_learn(self) -> None:
        if self.defaults.output == "continuous":
            raise InputError("a continuous output certifies nothing; leave certify_records (--certify) out.")
        if self.given.beta is not None:
            raise InputError("group_records and certify_records both say what is learned from what; give one of them.")
        if self.pipeline.score is None and not self.pipeline.needs_vectors:
            raise InputError(
                "with certify_records (--certify) all else is learned from the other rows, and nothing is: groups are "
                "columns, and there is no score. Fit on the rows that certify alone."
            )

    def _deal(self, records: Iterable[Batch]) -> Split:
        """Deal the questions if these rows are to calibrate what is learned from them."""
        has_score = self.pipeline.score is not None
        is_learned = has_score or (self.pipeline.needs_vectors and self.given.beta is None)
        # Of a continuous score nothing is certified, and so nothing is kept aside.
        learns_from_all = self.given.has_certify_records or (self.defaults.output == "continuous" and has_score)
        if not is_learned or learns_from_all:
            return Split(None, self.defaults.seed)
        return Split(self.defaults.learning_share(records, has_score=has_score), self.defaults.seed)

    def _learn(self, records: Iterable[Batch], deal: Split) -> tuple[Hashes, Hashes]:
        """Learn groups and score from the first part of the rows; groups from rows of their own if these are given.

        Returns who was seen, and whose questions must not calibrate.
        """
        partition = self.pipeline.partition if self.pipeline.uses_groups else None
        seen = learned_from = _NOBODY
        if partition is not None and self.given.beta is not None:
            seen = self._learn_groups()
            learned_from = seen if self.pipeline.groups_need_vectors else _NOBODY
            partition = None
        if partition is not None or self.pipeline.score is not None:
            learning = Learning(partition, self.pipeline.score, self.pipeline.vectors.of, self.progress)
            hashes: list[Hashes | None] = []

            def chosen(batch: Batch) -> Batch:
                hashes.append(batch.row_hashes() if self.given.has_certify_records else None)
                return deal.learning(batch)

            learning.from_rows(records, chosen)
            warn_of_copies(hashes, "the rows to learn from: ")
            seen = np.concatenate([seen, learning.seen])
        return seen, learned_from

    def _learn_groups(self) -> Hashes:
        """Make the groups from rows of their own; return who these were."""
        partition = self.pipeline.partition
        reads = partition.uses_labels
        needs: dict[str, Any] = {
            "needs_confidence": reads,
            "reads_labels": reads,
            "needs_text": self.pipeline.needs_text,
        }
        learning = Learning(partition, None, self.pipeline.vectors.of, self.progress)
        learning.from_rows(read(self.given.beta, self.given.how, needs_labels=False, **needs), lambda batch: batch)
        return learning.seen

    # What calibrates

    def _calibrate(self, records: Iterable[Batch], deal: Split, seen: Hashes, learned_from: Hashes) -> Fitted:
        """Fit the calibrator, and say what is to be known of its rows."""
        rows, origins, doubt = self._gather(records, deal, learned_from)
        if doubt is not None:
            warnings.warn(f"{self.given.whose}{doubt.text}", QacalWarning, stacklevel=2)
        tally = rows.tally()
        tuned = self._tune(tally)
        if tuned is None:
            self.defaults.cut_tree(self.pipeline, tally.n)
        elif tuned.is_pooled:
            tally = tally.pooled()
        self.pipeline.calibrator.fit_tally(tally)
        return Fitted(
            pipeline=self.pipeline,
            tuned=tuned,
            rows=tally.n,
            origins=origins,
            groups=rows.summaries(tally, self.defaults.examples),
            memory=self._memory(tally, np.concatenate([seen, rows.ids()])),
        )

    def _gather(
        self, records: Iterable[Batch], deal: Split, learned_from: Hashes
    ) -> tuple[CalibrationSample, dict[str, list[Any]], Doubt | None]:
        """Return the rows that calibrate, and of all rows where they come from and what is suspicious about them."""
        from qacal.metrics.ranking import doubt_of

        rows = CalibrationSample(self.pipeline, _FOLDS * _BLOCKS if self._tunes_calibrator else None)
        origins: dict[str, list[Any]] = {name: [] for name in PROVENANCE}
        labelled: list[tuple[Any, ...]] = []
        hashes: list[Hashes | None] = []
        for batch in records:
            gather_origins(batch, origins)
            _require_apart(batch, learned_from)
            labelled.append((batch.confidence, batch.correct, ids_of(batch)))
            hashes.append(batch.row_hashes())
            chosen = deal.calibrating(batch)
            if len(chosen):
                rows.add(chosen)
                self.progress("calibrating", rows.count)
        warn_of_copies(hashes, "the rows that certify: " if self.given.has_certify_records else self.given.whose)
        stated, correct, ids = (np.concatenate(column) for column in zip(*labelled, strict=True))
        doubt = doubt_of(stated, correct, questions=len(np.unique(ids)) if ids.any() else None)
        return rows, {name: values for name, values in origins.items() if is_provenance(name, values)}, doubt

    @property
    def _tunes_calibrator(self) -> bool:
        # With a score there is nothing left to choose: the score was chosen on its own rows.
        return self.defaults.tune is not None and self.pipeline.score is None

    def _tune(self, tally: Tally) -> Tuned | None:
        """Choose depth and points per bin on a seventh of the questions, if that is asked for.

        All rows are fitted on afterwards: the uniform certificate holds for every depth and points per bin at once.
        """
        if not self._tunes_calibrator:
            return None
        from qacal.planning import wide_ranges
        from qacal.search import Search

        calibration, tuning = tally.outside_fold(0, _FOLDS), tally.within_fold(0, _FOLDS)
        if not (len(calibration) and len(tuning)):
            raise InputError(f"{tally.n} rows are too few to tune on; leave tune out, or label more.")
        search = Search(
            calibration,
            tuning,
            objective=str(self.defaults.tune),
            ranges=wide_ranges(calibration.n),
            # Whether there are groups must not be chosen on the rows that certify them, unless the promise covers both.
            keeps_groups=self.pipeline.calibrator.properties.is_certified,
            progress=lambda done, of: self.progress(f"tuning, {done} of {of}", calibration.n),
        )
        found = search.tune(self.pipeline.calibrator)
        self.pipeline.calibrator.set_params(**found.calibrator.get_params())
        return found

    def _memory(self, tally: Tally, ids: Hashes) -> FitRecord:
        """Return what to remember of the rows: a sample of who they were, and which confidences they got."""
        from qacal.thresholds.curve import CANDIDATES, at_candidates
        from qacal.thresholds.outlook import Forecasts

        scored = tally.with_confidence(at_candidates(self.pipeline.calibrator.predict_tally(tally), CANDIDATES))
        column = scored.grouping
        if column is not None and column.is_tree:
            scored = scored.roll_up(self.pipeline.depth).flat()
        return remembered(ids, Forecasts.of(scored))


def _require_apart(batch: Batch, learned_from: Hashes) -> None:
    """Refuse calibration rows whose questions the groups were made from."""
    shared = 0 if batch.ids is None else int(np.isin(batch.ids, learned_from).sum())
    if shared:
        raise InputError(
            f"{batch.table.origin}: {shared} rows have questions that other rows were learned from (--group-rows, --certify; "
            "group_records=, certify_records=). What is learned must be fixed without the calibration rows: leave "
            "those questions out of one of the two."
        )
