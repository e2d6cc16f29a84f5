r"""The whole road: from question, answer and stated confidence to the probability that the answer is right.

.. math:: (q, a, h) \;\to\; s = \beta(q, a), \; f = f(q, a, h) \;\to\; g_s(f)

:math:`\beta` embeds the pair and finds its group; the score :math:`f` weighs confidence and text; the calibrator
answers for that score in that group, and certifies what it answers. Fitting walks the same road in two parts that share
no question: groups and score are learned from one, answers are certified by the other, since what is promised holds for
groups and scores that were fixed without its rows. Without a score, :math:`f = h`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from qacal import artifacts
from qacal.answering import Answering, Progress
from qacal.bins import check_points_per_bin
from qacal.calibrators.base import Calibrator, Rows
from qacal.calibrators.evidence import Evidence
from qacal.calibrators.identity import Identity
from qacal.calibrators.step_binning import StepBinning
from qacal.calibrators.tree_binning import TreeBinning
from qacal.calibrators.tree_scaling import TreeScaling
from qacal.embedders import ColumnEmbedder, Embedder, embedder
from qacal.errors import InputError, NotFittedError
from qacal.group_summary import GroupSummary, Sampler, Summaries
from qacal.grouping import Paths, as_grouping
from qacal.identity import mix, split
from qacal.learning import Learning, ids_of
from qacal.origins import gather_origins, require_known_origin, require_one_origin, require_same_origin, tells
from qacal.parameters import HasParameters
from qacal.partitions import EMBEDDING, BisectingTree, Partition, as_partition
from qacal.scores import LearnedScore
from qacal.tally import Tally
from qacal.thresholds.decisions import DecisionRule
from qacal.thresholds.memory import Memory, remembered
from qacal.values import ArrayLike, Floats, Hashes, unit_values

if TYPE_CHECKING:
    import polars as pl

    from qacal.files import OnFault
    from qacal.records import Batch, Reading
    from qacal.thresholds.certified import CertifiedThreshold
    from qacal.thresholds.costs import CheapestThreshold
    from qacal.tuning import Tuned

Output: TypeAlias = Literal["certified", "continuous"]

# The default tree has up to 2^6 groups. For calibrators that count points per bin it is cut at the depth at which an
# average group has rows for four bins. A score knows the text already: then groups are there to be looked at and to be
# certified, and 16 are enough.
_DEPTH = 6
_DEPTH_WITH_SCORE = 4
_BINS_A_GROUP = 4

# The share of the questions that groups are made from, and the share that groups and score are learned from. Of fewer
# rows than two hundred, a fifth certifies no more than a tenth does, and is missed where the score is learned.
_SHARE = 0.25
_SHARE_WITH_SCORE, _SHARE_OF_FEW = 0.8, 0.9
_FEW_ROWS = 200

# One fold of the questions chooses depth and points per bin.
_FOLDS = 7
# Of each fold; enough for errors that take the rows of a question as dependent, and a multiple of the halves.
_BLOCKS = 32


class QACalibrator(HasParameters, Answering):
    r"""Calibrate the confidences of question-answer pairs, group by group.

    Parameters
    ----------
    embedder : from text to vectors: "static" (the default; fast), "minilm" (better groups, slower), "onnx:DIR",
        "hf:ID", or "column:NAME" for vectors that the records carry.
    partition : from vectors or columns to groups. By default a :class:`~qacal.BisectingTree`, of depth 4 with a score
        and 6 without; calibrators that count points per bin use the deepest level at which groups have rows for four
        bins. Choose :class:`~qacal.Column` if the records say which kind of question each is;
        :class:`~qacal.LearnedTree` to learn from labels where the LLM is miscalibrated.
    calibrator : the correction per group. By default :class:`~qacal.StepBinning` of a learned score;
        :class:`~qacal.TreeBinning` where groups are columns and no text is read. Another calibrator corrects the
        confidence itself, as the paper has it.
    score : what the calibrator is given in place of the confidence: :class:`~qacal.LearnedScore`, which also takes
        columns to read and further confidences. By default ("auto") one that reads the text and the columns of the
        partition, if the calibrator is left to choose and groups are made from the text; None for none.
    output : "certified" answers in steps, each with an interval from rows of its own. "continuous" learns from all
        rows (from 50,000 of them at most, as ever) and answers with the score itself: better by about .001 in log loss.
        Nothing is promised of it, and there are no groups.
    beta_share : the share of the questions that groups and score are learned from; the others calibrate. By default .8
        with a score (.9 of fewer than 200 rows), and .25 without, which is the paper's 20:60.
    tune : choose by "log_loss" or "brier" among scores (always done, by log loss unless told otherwise); with a
        calibrator, depth and points per bin by "log_loss", "brier", "auac" or "error" on a seventh of the calibration
        questions (the paper's 60:10), then fit on all of them.
    examples : how many rows of each group the model keeps to show what is in it; 0 keeps no text of the records.
    seed : another seed deals other parts.

    Examples
    --------
    An LLM that says 0.8 to everything, and is right about capitals and wrong about sums:

    >>> rng = np.random.default_rng(0)
    >>> sums = [{"question": f"What is {i} plus {i}?", "answer": str(i), "correct": rng.random() < 0.2}
    ...         for i in range(500)]
    >>> capitals = [{"question": f"Which city is the capital of country {i}?", "answer": f"City {i}",
    ...              "correct": rng.random() < 0.8} for i in range(500)]
    >>> records = [{**row, "confidence": 0.8} for row in sums + capitals]
    >>> model = QACalibrator(partition="bisecting:1").fit(records)
    >>> said = model.explain("What is 5 plus 7?", "13", 0.8)
    >>> round(said["calibrated"], 1), said["low"] < 0.2 < said["high"]
    (0.2, True)
    >>> [round(group.accuracy, 1) for group in model.describe_groups()]
    [0.2, 0.8]
    """

    partition_: Partition
    score_: LearnedScore | None
    calibrator_: Calibrator
    embedder_: dict[str, Any]
    tuned_: Tuned | None
    memory_: Memory
    decision_rule_: DecisionRule | None

    def __init__(
        self,
        embedder: str | Embedder = "static",
        partition: Partition | str | Callable[..., Any] | None = None,
        calibrator: Calibrator | None = None,
        *,
        score: LearnedScore | Literal["auto"] | None = "auto",
        output: Output = "certified",
        beta_share: float | None = None,
        tune: str | None = None,
        examples: int = 3,
        seed: int = 0,
    ) -> None:
        self.embedder = embedder
        self.partition = partition
        self.calibrator = calibrator
        self.score = score
        self.output = output
        self.beta_share = beta_share
        self.tune = tune
        self.examples = examples
        self.seed = seed

    # Learning

    def fit(
        self,
        records: Any,
        *,
        beta_records: Any = None,
        certify_records: Any = None,
        columns: Mapping[str, str] | None = None,
        percent: bool = False,
        pool: bool = False,
        on_fault: OnFault | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Make the groups from one part of the records and the corrections from the other.

        Parameters
        ----------
        records : a path (Parquet, JSONL, CSV), a frame of pandas, polars or Arrow, a list of objects. They need
            `correct`; `id` keeps the rows of one question together (the question's text does where there is none).
        beta_records : make the groups from these rows instead; all of `records` calibrate, or, with a score, those
            that it was not learned from. These need no `correct`, unless groups are learned from it
            (:class:`~qacal.LearnedTree`).
        certify_records : certify on these rows, and learn groups and score from all of `records`: for labels by a judge
            in `records`, and by people here. What is answered, and its interval, then speak of people's labels alone.
        columns : ``{"confidence": "score"}`` where the records use other names.
        percent : confidences are percents.
        pool : go on if the records come from several LLMs or prompts; one model for each is usually better.
        on_fault : called with each row that cannot be used; by default the first is an error.
        progress : called with what is being done and the number of rows.
        """
        how = _reading(columns, percent, on_fault)
        return self.fit_reading(
            records,
            how,
            beta_records=beta_records,
            certify_records=certify_records,
            pool=pool,
            progress=progress,
        )

    def fit_reading(
        self,
        records: Any,
        how: Reading,
        *,
        beta_records: Any = None,
        certify_records: Any = None,
        pool: bool = False,
        progress: Progress | None = None,
    ) -> Self:
        """Do what :meth:`fit` does, with one object that says how to read the records."""
        from qacal.records import read_again

        self._require_parameters()
        self._is_apart = certify_records is not None
        self._prepare()
        if self._is_apart:
            self._require_something_to_learn(beta_records)
            require_one_origin(certify_records, how, pool)
            require_same_origin(records, certify_records, how, pool)
        require_one_origin(records, how, pool)
        self._embedder: Embedder | None = embedder(self.embedder) if self._needs_vectors else None
        tell = progress or _say_nothing
        labelled = read_again(records, how, needs_labels=True, **self.needs)
        self._share = self._learning_share(labelled)
        seen, beta_ids = self._learn(labelled, beta_records, how, tell)
        if certify_records is not None:
            labelled, beta_ids = read_again(certify_records, how, needs_labels=True, **self.needs), seen
        total, ids = self._fit_calibrator(labelled, self._calibrating_part(beta_records), beta_ids, tell)
        self.memory_ = self._memory(total, np.concatenate([seen, ids]))
        self.decision_rule_ = None
        return self

    def _prepare(self) -> None:
        """Take fresh parts, and the default ones where none are given."""
        given = None if self.partition is None else _partition(self.partition)
        reads_text = given is None or EMBEDDING in given.needs
        self.score_ = self._fresh_score(given) if reads_text or self.score != "auto" else None
        depth = _DEPTH if self.score_ is None else _DEPTH_WITH_SCORE
        self.partition_ = BisectingTree(max_depth=depth) if given is None else given
        self.calibrator_ = self._fresh_calibrator()
        if self.tune is not None:
            self._require_tunable()

    def _fresh_score(self, partition: Partition | None) -> LearnedScore | None:
        if isinstance(self.score, LearnedScore):
            told = {} if self.tune is None else {"objective": self.tune}
            return LearnedScore(**self.score.get_params() | told)
        is_left_to_choose = self.calibrator is None or isinstance(self.calibrator, StepBinning)
        if self.score is None or not is_left_to_choose:
            return None
        columns = () if partition is None else tuple(name for name in partition.needs if name != EMBEDDING)
        return LearnedScore(columns=columns, objective="brier" if self.tune == "brier" else "log_loss")

    def _fresh_calibrator(self) -> Calibrator:
        if self.calibrator is not None:
            return _calibrator(self.calibrator)
        if self.output == "continuous":
            return TreeScaling() if self.score_ is None else Identity()
        return TreeBinning() if self.score_ is None else StepBinning(learns=self._is_apart)

    def _learning_share(self, records: Iterable[Batch]) -> float:
        """Return the share of the questions to learn from; only the number of rows is looked at."""
        if self.beta_share is not None:
            return self.beta_share
        if self.score_ is None:
            return _SHARE
        rows = 0
        for batch in records:
            rows += len(batch)
            if rows >= _FEW_ROWS:
                return _SHARE_WITH_SCORE
        return _SHARE_OF_FEW

    def _require_tunable(self) -> None:
        if self.score_ is not None and self.tune not in ("log_loss", "brier"):
            raise InputError(
                f'tune is {self.tune!r}; scores are chosen by "log_loss" or "brier". For bins that are chosen by it, '
                "name a calibrator and leave the score out."
            )
        if self.score_ is None and isinstance(self.calibrator_, StepBinning):
            raise InputError("tune chooses a depth on the rows, and StepBinning needs it fixed before; leave tune out.")

    @property
    def _learns_from_all(self) -> bool:
        """Whether all rows are to learn from, since nothing is certified, or other rows certify."""
        return self._is_apart or (self.output == "continuous" and self.score_ is not None)

    def _require_something_to_learn(self, beta_records: Any) -> None:
        if self.output == "continuous":
            raise InputError("a continuous output certifies nothing; leave certify_records (--certify) out.")
        if beta_records is not None:
            raise InputError("beta_records and certify_records both say what is learned from what; give one of them.")
        if self.score_ is None and not self._needs_vectors:
            raise InputError(
                "with certify_records (--certify) all else is learned from the other rows, and nothing is: groups are "
                "columns, and there is no score. Fit on the rows that certify alone."
            )

    def _calibrating_part(self, beta_records: Any) -> int | None:
        """Return which part of the questions calibrates; None for all of them."""
        is_split = self.score_ is not None or (self._needs_vectors and beta_records is None)
        return 1 if is_split and not self._learns_from_all else None

    def _require_parameters(self) -> None:
        if self.beta_share is not None and not 0 < self.beta_share < 1:
            raise InputError(f"beta_share is {self.beta_share}; expected a share between 0 and 1, such as 0.25.")
        if self.output not in ("certified", "continuous"):
            raise InputError(f'output is {self.output!r}; expected "certified" or "continuous".')
        if self.output == "continuous" and self.calibrator is not None:
            raise InputError('output="continuous" goes with no calibrator; for curves per group take TreeScaling().')
        if isinstance(self.score, LearnedScore):
            self.score.require_parameters()
        elif not (self.score is None or (isinstance(self.score, str) and self.score == "auto")):
            raise InputError(f'score is {self.score!r}; expected LearnedScore(...), "auto" or None.')
        if not isinstance(self.examples, int) or self.examples < 0:
            raise InputError(f"examples is {self.examples}; expected 0 or more rows of each group to keep.")
        if self.tune is not None:
            from qacal.tuning import require_objective

            require_objective(self.tune, "tune")
        certificate = getattr(self.calibrator, "certificate", None), getattr(self.calibrator, "ties", None)
        if self.tune is not None and ("conditional" in certificate or "jitter" in certificate):
            raise InputError(
                'tune chooses points per bin on the rows; certificate="conditional" and ties="jitter" need them fixed '
                "before."
            )
        points = getattr(self.calibrator, "points_per_bin", None)
        if points is not None:
            check_points_per_bin(points)

    def _learn(
        self, records: Iterable[Batch], beta_records: Any, how: Reading, progress: Progress
    ) -> tuple[Hashes, Hashes | None]:
        """Learn groups and score from the first part of the rows; groups from `beta_records` if these are given.

        Returns who was seen, and whose questions must not calibrate.
        """
        from qacal.records import read

        partition, seen, beta_ids = self.partition_ if self._uses_groups else None, [], None
        if partition is not None and beta_records is not None:
            needs: dict[str, Any] = {"needs_text": self.needs_text, "needs_confidence": partition.uses_labels}
            apart = Learning(partition, None, self._vectors, progress)
            apart.from_rows(read(beta_records, how, needs_labels=False, **needs), lambda batch: batch)
            seen.append(apart.seen)
            beta_ids = apart.seen if self._groups_need_vectors else None
            partition = None
        if partition is not None or self.score_ is not None:
            shared = Learning(partition, self.score_, self._vectors, progress)
            shared.from_rows(records, self._learning)
            seen.append(shared.seen)
        return np.concatenate([np.empty(0, dtype=np.uint64), *seen]), beta_ids

    def _learning(self, batch: Batch) -> Batch:
        """Return the rows to learn from."""
        needs_part = self._needs_vectors or self.score_ is not None
        return batch.only(self._parts(batch) == 0) if needs_part and not self._learns_from_all else batch

    def _fit_calibrator(
        self, records: Iterable[Batch], only_part: int | None, beta_ids: Hashes | None, progress: Progress
    ) -> tuple[Tally, Hashes]:
        """Fit the calibrator; return the tally of its rows, and who they were."""
        from qacal.records import PROVENANCE

        total: Tally | None = None
        stated: Tally | None = None
        origins: dict[str, list[Any]] = {name: [] for name in PROVENANCE}
        ids, sampler, done = [], Sampler(), 0
        for batch in records:
            gather_origins(batch, origins)
            _require_apart(batch, beta_ids)
            chosen = batch if only_part is None else batch.only(self._parts(batch) == only_part)
            if not len(chosen):
                continue
            confidence, groups = self.seen_of(chosen)
            tally = self._tally(chosen, confidence, groups)
            total = tally if total is None else total + tally
            if self.score_ is not None:
                tally = Tally.of(chosen.confidence, chosen.correct, groups=groups)
                stated = tally if stated is None else stated + tally
            ids.append(ids_of(chosen))
            self._sample(sampler, chosen, groups)
            done += len(chosen)
            progress("calibrating", done)
        if total is None:
            raise InputError("no row is left to calibrate on; give more rows, or a smaller beta_share.")
        total = replace(total, is_clustered=_repeats(np.concatenate(ids)), is_sum=False)
        self.tuned_ = self._tuned(total, progress)
        self._choose_depth(total)
        if self.tuned_ is not None and self.tuned_.is_pooled:
            total = total.pooled()
        self.calibrator_.fit_tally(total)
        self.rows_ = int(total.n)
        self.origins_ = {name: values for name, values in origins.items() if tells(name, values)}
        self.groups_: Iterable[GroupSummary] = Summaries(
            total if stated is None else stated, self._depth, sampler, self.examples
        )
        return total, np.concatenate(ids)

    def _memory(self, tally: Tally, ids: Hashes) -> Memory:
        """Return what to remember of the rows: a sample of who they were, and which confidences they got."""
        from qacal.thresholds.curve import CANDIDATES, at_candidates
        from qacal.thresholds.outlook import Outlooks

        scored = tally.with_confidence(at_candidates(self.calibrator_.predict_tally(tally), CANDIDATES))
        column = scored.grouping
        if column is not None and column.is_tree:
            scored = scored.roll_up(self._depth).flat()
        return remembered(ids, Outlooks.of(scored))

    def _tuned(self, tally: Tally, progress: Progress) -> Tuned | None:
        """Choose depth and points per bin on a seventh of the questions, if that is asked for.

        All rows are fitted on afterwards: the uniform certificate holds for every depth and points per bin at once.
        """
        if not self._tunes_calibrator:
            return None
        from qacal.ranges import wide_ranges
        from qacal.tuning import Search

        calibration, tuning = tally.outside_fold(0, _FOLDS), tally.within_fold(0, _FOLDS)
        if not (len(calibration) and len(tuning)):
            raise InputError(f"{tally.n} rows are too few to tune on; leave tune out, or label more.")
        search = Search(
            calibration,
            tuning,
            objective=str(self.tune),
            ranges=wide_ranges(calibration.n),
            # Whether there are groups must not be chosen on the rows that certify them, unless the promise covers both.
            keeps_groups=self.calibrator_.properties.is_certified,
            progress=lambda done, of: progress(f"tuning, {done} of {of}", calibration.n),
        )
        found = search.tune(self.calibrator_)
        self.calibrator_.set_params(**found.calibrator.get_params())
        return found

    @property
    def _tunes_calibrator(self) -> bool:
        # With a score there is nothing left to choose: the score was chosen on its own rows.
        return self.tune is not None and self.score_ is None

    def _choose_depth(self, tally: Tally) -> None:
        """Cut the default tree where groups have rows for some bins: with one bin a group, the confidence is lost.

        Only the number of rows is looked at, so what is promised of the bins holds.
        """
        chosen = self.calibrator_.get_params()
        if self.tuned_ is not None or self.partition is not None or not self._uses_groups:
            return
        if "points_per_bin" not in chosen:
            return
        if chosen.get("max_depth", 0) is None:
            groups = max(1, tally.n // (_BINS_A_GROUP * int(chosen["points_per_bin"])))
            self.calibrator_.set_params(max_depth=min(_DEPTH, groups.bit_length() - 1))

    def _tally(self, batch: Batch, confidence: Floats, groups: Any) -> Tally:
        options = self.calibrator_.tally_options()
        if self._tunes_calibrator:
            options["n_blocks"] = _FOLDS * _BLOCKS
        if batch.ids is None and (options.get("n_blocks", 1) > 1 or options.get("ties")):
            name = type(self.calibrator_).__name__
            raise InputError(f"{name} splits rows by question; the records need a column id or question.")
        return Tally.of(confidence, batch.correct, groups=groups, ids=batch.ids, **options)

    def _sample(self, sampler: Sampler, batch: Batch, groups: Any) -> None:
        if groups is None or batch.question is None or batch.answer is None or batch.correct is None:
            return
        names = self._names(groups, len(batch))
        sampler.add(names, mix(ids_of(batch), 1), batch.question, batch.answer, batch.confidence, batch.correct)

    def _parts(self, batch: Batch) -> Any:
        if batch.ids is None:
            raise InputError("the records need a column id or question, so that the two parts share no question.")
        return split(batch.ids, (self._share, 1 - self._share), self.seed)

    # Answering

    def calibrate(
        self,
        records: Any,
        *,
        columns: Mapping[str, str] | None = None,
        percent: bool = False,
        any_origin: bool = False,
        prefix: str = "",
        on_fault: OnFault | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Return the records with the evidence behind every answer: what came in, with more columns.

        any_origin : go on with rows from another LLM, prompt, confidence source or judge than those of the fit.
        prefix : put before the names of the new columns.
        columns, percent, on_fault, progress : as in :meth:`fit`.
        """
        how = _reading(columns, percent, on_fault)
        tables = list(self.calibrated(records, how, any_origin=any_origin, prefix=prefix, progress=progress))
        if len(tables) == 1 and not isinstance(records, str | Path):
            return tables[0].native
        import polars as pl

        return pl.concat([table.frame() for table in tables], how="diagonal_relaxed")

    def answers(
        self,
        records: Any,
        how: Reading | None = None,
        *,
        needs_labels: bool = False,
        any_origin: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[tuple[Batch, pl.DataFrame]]:
        """Yield the records batch after batch, and beside each batch its evidence."""
        from qacal.records import read

        self._require_fitted()
        done = 0
        for batch in read(records, how, needs_labels=needs_labels, **self.needs):
            yield batch, self.answer(batch, any_origin=any_origin)
            done += len(batch)
            (progress or _say_nothing)("calibrating", done)

    def answer(self, batch: Batch, *, any_origin: bool = False) -> pl.DataFrame:
        """Return the evidence for checked rows."""
        if not any_origin:
            require_known_origin(batch, self.origins_)
        found = self.calibrator_.fitted_maps().explain(self.asked(batch))
        return self._decided(replace(found, confidence=batch.confidence)).to_polars()

    def asked(self, batch: Batch) -> Rows:
        """Return checked rows as the calibrator reads them: with their scores, if there is one."""
        confidence, groups = self.seen_of(batch)
        return self.calibrator_.asked(confidence, groups, batch.ids)

    def explain(self, question: str, answer: str, confidence: float, **others: Any) -> dict[str, Any]:
        """Return the evidence for one answer; `others` are further columns that the groups need.

        >>> QACalibrator().explain("2 + 2?", "4", 0.9)
        Traceback (most recent call last):
        ...
        qacal.errors.NotFittedError: this QACalibrator is not fitted yet; call fit first, or load a saved model.
        """
        row = {"question": question, "answer": answer, "confidence": confidence, **others}
        prefix = "qacal_"
        found = self.calibrate([row], prefix=prefix)[0]
        evidence = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
        return {"confidence": float(confidence), **evidence}

    def evidence(
        self, confidence: ArrayLike, *, groups: Any = None, vectors: Any = None, ids: ArrayLike | None = None
    ) -> Evidence:
        """Return the evidence for arrays: of confidences with their groups, or with the vectors that tell them.

        groups : as :meth:`describe_groups` and calibrated rows name them.

        This needs numpy alone: no text is read and nothing is embedded. A score reads vectors, so they are needed then.
        """
        self._require_fitted()
        stated = unit_values(confidence, "confidence")
        if groups is not None:
            groups = self._as_fitted(groups)
        elif vectors is not None and self._uses_groups:
            groups = self.partition_.groups(vectors)
        found = self.calibrator_.explain(self._scored(stated, vectors), groups=groups, ids=ids)
        return self._decided(replace(found, confidence=stated))

    def _scored(self, confidence: Floats, vectors: Any) -> Floats:
        """Return the scores of arrays; the confidences themselves without a score."""
        if self.score_ is None:
            return confidence
        others = [*self.score_.columns, *self.score_.confidences]
        if (self.score_.reads_text and vectors is None) or others:
            what, how = (f"columns ({', '.join(others)})", "") if others else ("the text", "give vectors=..., or ")
            raise InputError(f"the score of this model reads {what}: {how}calibrate whole records.")
        return self.score_.predict({"confidence": confidence, EMBEDDING: vectors})

    def _as_fitted(self, groups: Any) -> Any:
        """Return groups as the calibrator takes them: a tree's by the number of one of their leaves."""
        deepest = getattr(self.partition_, "max_depth", None)
        if deepest is None or isinstance(groups, Paths):
            return groups
        codes = as_grouping(groups, len(groups)).code
        return np.where(codes >= 0, codes << (deepest - self._depth), codes)

    def predict(
        self, confidence: ArrayLike, *, groups: Any = None, vectors: Any = None, ids: ArrayLike | None = None
    ) -> Floats:
        """Return the calibrated confidences for arrays; see :meth:`evidence`."""
        return self.evidence(confidence, groups=groups, vectors=vectors, ids=ids).calibrated

    def describe_groups(self) -> list[GroupSummary]:
        """Return what is in each group, the largest first."""
        self._require_fitted()
        return list(self.groups_)

    # When to answer

    def set_threshold(
        self, threshold: float | Mapping[Any, float | None] | CertifiedThreshold | CheapestThreshold | None
    ) -> Self:
        """Answer where the calibrated confidence reaches a threshold, from now on; `decision` says so of every row.

        threshold : what :func:`qacal.choose_threshold` found; or a number, by hand; or one for each group, where None
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

    def _decided(self, evidence: Evidence) -> Evidence:
        return evidence if self.decision_rule_ is None else self.decision_rule_.decide(evidence)

    # Where a row belongs

    def seen_of(self, batch: Batch) -> tuple[Floats, Any]:
        """Return what the calibrator sees of checked rows: scores, or confidences, and groups, None if it has none."""
        inputs: dict[str, Any] = {EMBEDDING: self._vectors(batch)} if self._needs_vectors else {}
        groups = None
        if self._uses_groups:
            names = [name for name in self.partition_.needs if name != EMBEDDING]
            groups = self.partition_.groups_of(inputs | {name: batch.column(name) for name in names})
        if self.score_ is None:
            return batch.confidence, groups
        inputs |= {"confidence": batch.confidence}
        inputs |= {name: batch.listed(name) for name in self.score_.columns}
        inputs |= {name: batch.partial(name) for name in self.score_.confidences}
        return self.score_.predict(inputs), groups

    def pooled(self, batch: Batch) -> Floats:
        """Return what one map for all rows answers, whatever their text and group."""
        if self.score_ is not None:
            return self.score_.pooled(batch.confidence)
        return self.calibrator_.predict(batch.confidence, ids=batch.ids)

    def _vectors(self, batch: Batch) -> Any:
        maker = self._ready_embedder()
        if isinstance(maker, ColumnEmbedder):
            return maker.vectors(batch.column(maker.column))
        return maker.embed(batch.question or [], batch.answer or [])

    def _ready_embedder(self) -> Embedder:
        if self._embedder is None:
            self._embedder = embedder(self.embedder)
            known = self._known_embedder.get("digest")
            if not isinstance(self._embedder, ColumnEmbedder) and self._embedder.digest != known:
                raise InputError(
                    f"the embedder {self._embedder.name!r} is not the one that the model was fitted with (its weights, "
                    "tokenizer or settings differ), and would put rows into other groups. Install that one, or refit."
                )
        return self._embedder

    @property
    def _known_embedder(self) -> dict[str, Any]:
        return getattr(self, "embedder_", {})

    def _names(self, groups: Any, length: int) -> list[Any]:
        column = as_grouping(groups.groups(groups.depth) if isinstance(groups, Paths) else groups, length)
        return column.decode(column.leaves())

    @property
    def _depth(self) -> int:
        """How deep into a tree the calibrator looks."""
        asked = getattr(self.calibrator_, "max_depth", None)
        return int(getattr(self.partition_, "max_depth", 0) if asked is None else asked)

    @property
    def _uses_groups(self) -> bool:
        return self.calibrator_.properties.uses_groups

    @property
    def _groups_need_vectors(self) -> bool:
        return self._uses_groups and EMBEDDING in self.partition_.needs

    @property
    def _needs_vectors(self) -> bool:
        return self._groups_need_vectors or (self.score_ is not None and self.score_.text)

    @property
    def needs_text(self) -> bool:
        """True if rows must have a question and an answer."""
        return self._needs_vectors and not str(getattr(self.embedder, "name", self.embedder)).startswith("column:")

    @property
    def needs(self) -> dict[str, Any]:
        """What rows must have beside a confidence, as :func:`qacal.records.read` takes it."""
        return {"needs_text": self.needs_text, "confidences": () if self.score_ is None else self.score_.confidences}

    # Keeping it

    def save(self, path: str | Path) -> None:
        """Write the model as a directory: plain JSON and arrays, no code; whole or not at all."""
        self._require_fitted()
        header = {
            "embedder": self._described_embedder(),
            "parameters": {
                "output": self.output,
                "beta_share": self.beta_share,
                "examples": self.examples,
                "seed": self.seed,
            },
            "origins": self.origins_,
            "rows": self.rows_,
            "groups": [group.to_dict() for group in self.groups_],
            "memory": self.memory_.to_plain(),
            "thresholds": None if self.decision_rule_ is None else self.decision_rule_.to_plain(),
        }
        partition = self.partition_ if self._uses_groups else None
        artifacts.save(path, header=header, calibrator=self.calibrator_, partition=partition, score=self.score_)

    def _described_embedder(self) -> dict[str, Any]:
        if not self._needs_vectors:
            return {}
        if self._embedder is None:
            return self._known_embedder
        return {"name": self._embedder.name, "dim": self._embedder.dim, "digest": self._embedder.digest}

    def _require_fitted(self) -> None:
        if not hasattr(self, "groups_"):
            raise NotFittedError("this QACalibrator is not fitted yet; call fit first, or load a saved model.")


def _partition(given: Any) -> Partition:
    found = as_partition(given).fresh()
    if not found.needs:
        raise InputError(f"{found!r} does not say what it reads; name it: Function(f, columns=['subject']).")
    return found


def _calibrator(given: Any) -> Calibrator:
    if not isinstance(given, Calibrator):
        raise InputError(f"calibrator is {given!r}; expected one such as QABinning(points_per_bin=50).")
    return type(given)(**given.get_params())


def _reading(columns: Mapping[str, str] | None, percent: bool, on_fault: OnFault | None) -> Reading:
    from qacal.files import refuse
    from qacal.records import Reading

    return Reading(dict(columns or {}), percent, on_fault or refuse)


def _require_apart(batch: Batch, beta_ids: Hashes | None) -> None:
    """Refuse calibration rows whose questions the groups were made from."""
    shared = 0 if beta_ids is None or batch.ids is None else int(np.isin(batch.ids, beta_ids).sum())
    if shared:
        raise InputError(
            f"{batch.table.origin}: {shared} rows have questions that other rows were learned from (--beta, --certify; "
            "beta_records=, certify_records=). What is learned must be fixed without the calibration rows: leave those "
            "questions out of one of the two."
        )


def _repeats(hashes: Hashes) -> bool:
    return bool(hashes.any()) and len(np.unique(hashes)) < len(hashes)


def _say_nothing(what: str, rows: int) -> None:
    """Take the place of a progress that nobody asked for."""
