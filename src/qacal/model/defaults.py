"""The parameters of a model, validated, and the defaults for those that were left out.

Parts, shares and depths depend on parameters and numbers of rows only, never on labels, so that the guarantee holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from qacal.calibrators.base import Calibrator
from qacal.calibrators.identity import Identity
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.step_binning import StepBinning
from qacal.calibrators.tree_binning import TreeBinning
from qacal.calibrators.tree_scaling import TreeScaling
from qacal.embedders import Embedder
from qacal.errors import InputError
from qacal.model.pipeline import Pipeline, RowVectors
from qacal.parameters import is_number, shown
from qacal.partitions import EMBEDDING, BisectingTree, Partition, as_partition
from qacal.tally.bins import check_points_per_bin

Output: TypeAlias = Literal["certified", "continuous"]

# The default tree has up to 2^6 groups. For calibrators that count points per bin it is cut at the depth at which an
# average group has rows for four bins. A score reads the text itself; groups then serve the intervals and the reader,
# and 16 are enough.
_DEPTH = 6
DEPTH_WITH_SCORE = 4
_BINS_A_GROUP = 4

# The share of the questions that train groups, and the share that train groups and score. Below 200 rows,
# a fifth certifies hardly more than a tenth, and the score needs the rows more.
SHARE = 0.25
SHARE_WITH_SCORE, _SHARE_OF_FEW = 0.8, 0.9
_FEW_ROWS = 200


@dataclass(frozen=True, eq=False)
class Defaults:
    """The parameters of :class:`~qacal.QACalibrator`, which documents them, and the parts that follow from them.

    Examples
    --------
    >>> auto = {"learned_score": "auto", "output": "certified", "train_share": None, "tune": None}
    >>> auto |= {"examples": 3, "seed": 0}
    >>> pipeline = Defaults("static", None, None, **auto).pipeline()
    >>> pipeline.partition, pipeline.score, pipeline.calibrator
    (BisectingTree(max_depth=4), LearnedScore(), StepBinning())
    >>> pipeline = Defaults("static", "column:subject", None, **auto).pipeline()
    >>> pipeline.partition, pipeline.score, pipeline.calibrator
    (Column('subject'), None, TreeBinning())
    >>> Defaults("static", None, None, **auto | {"train_share": 80}).validate()
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: train_share is 80; expected a share between 0 and 1, such as 0.25.
    """

    embedder: str | Embedder
    partition: Partition | str | None
    calibrator: Calibrator | None
    learned_score: LearnedScore | Literal["auto"] | None
    output: Output
    train_share: float | None
    tune: str | None
    examples: int
    seed: int

    def validate(self) -> None:
        """Refuse invalid parameters, and parameters that contradict each other."""
        if self.train_share is not None and not (is_number(self.train_share, 0, 1) and 0 < self.train_share < 1):
            raise InputError(
                f"train_share is {shown(self.train_share)}; expected a share between 0 and 1, such as 0.25."
            )
        if self.output not in ("certified", "continuous"):
            raise InputError(f'output is {self.output!r}; expected "certified" or "continuous".')
        if self.output == "continuous" and self.calibrator is not None:
            raise InputError('output="continuous" goes with no calibrator; for curves per group take TreeScaling().')
        if isinstance(self.learned_score, LearnedScore):
            self.learned_score._require_parameters()
        elif not (self.learned_score is None or (isinstance(self.learned_score, str) and self.learned_score == "auto")):
            raise InputError(f'learned_score is {self.learned_score!r}; expected LearnedScore(...), "auto" or None.')
        if not isinstance(self.examples, int) or self.examples < 0:
            raise InputError(f"examples is {self.examples}; expected 0 or more rows of each group to keep.")
        if self.tune is not None:
            self._require_objective(self.tune)
        points = getattr(self.calibrator, "points_per_bin", None)
        if points is not None:
            check_points_per_bin(points)

    def _require_objective(self, tune: str) -> None:
        from qacal.search import require_objective

        require_objective(tune, "tune")
        certificate = getattr(self.calibrator, "certificate", None), getattr(self.calibrator, "ties", None)
        if "conditional" in certificate or "jitter" in certificate:
            raise InputError(
                'tune chooses points per bin on the rows; certificate="conditional" and ties="jitter" need them fixed '
                "before."
            )

    # The parts

    def pipeline(self, *, has_certify_records: bool = False) -> Pipeline:
        """Return new, unfitted parts, with defaults for those that were left out.

        has_certify_records : the calibrator is fitted on a file of its own.
        """
        chosen = None if self.partition is None else as_partition(self.partition).clone()
        reads_text = chosen is None or EMBEDDING in chosen._needs
        score = self._score(chosen) if reads_text or self.learned_score != "auto" else None
        depth = _DEPTH if score is None else DEPTH_WITH_SCORE
        partition = BisectingTree(max_depth=depth) if chosen is None else chosen
        calibrator = self._calibrator(has_score=score is not None, has_certify_records=has_certify_records)
        self._require_tunable(score, calibrator)
        return Pipeline(partition, score, calibrator, RowVectors(self.embedder))

    def _score(self, partition: Partition | None) -> LearnedScore | None:
        if isinstance(self.learned_score, LearnedScore):
            objective = {} if self.tune is None else {"objective": self.tune}
            return LearnedScore(**self.learned_score.get_params(deep=False) | objective)
        # StepBinning is the default calibrator: naming it, as `qacal fit` does to set alpha, keeps the score.
        is_default = self.calibrator is None or isinstance(self.calibrator, StepBinning)
        if self.learned_score is None or not is_default:
            return None
        columns = () if partition is None else tuple(name for name in partition._needs if name != EMBEDDING)
        return LearnedScore(columns=columns, objective="brier" if self.tune == "brier" else "log_loss")

    def _calibrator(self, *, has_score: bool, has_certify_records: bool) -> Calibrator:
        if self.calibrator is not None:
            if not isinstance(self.calibrator, Calibrator):
                raise InputError(
                    f"calibrator is {self.calibrator!r}; expected one such as QABinning(points_per_bin=50)."
                )
            return type(self.calibrator)(**self.calibrator.get_params())
        if self.output == "continuous":
            return Identity() if has_score else TreeScaling()
        return StepBinning(recalibrate=has_certify_records) if has_score else TreeBinning()

    def _require_tunable(self, score: LearnedScore | None, calibrator: Calibrator) -> None:
        if self.tune is None:
            return
        if score is not None and self.tune not in ("log_loss", "brier"):
            raise InputError(
                f'tune is {self.tune!r}; scores are chosen by "log_loss" or "brier". For bins that are chosen by it, '
                "name a calibrator and leave the score out."
            )
        if score is None and isinstance(calibrator, StepBinning):
            raise InputError(
                "StepBinning needs a depth that is fixed before the fit; leave out --tune (in Python: tune), which "
                "chooses one on the rows."
            )

    # What follows from the number of rows

    def share_to_train(self, rows: int, *, has_score: bool) -> float:
        """Return the share of the questions that train groups and score; `rows` is the number of all rows."""
        if self.train_share is not None:
            return self.train_share
        if not has_score:
            return SHARE
        return SHARE_WITH_SCORE if rows >= _FEW_ROWS else _SHARE_OF_FEW

    def cut_tree(self, pipeline: Pipeline, rows: int) -> None:
        """Cut the default tree where groups have rows for several bins: one bin per group ignores the confidence."""
        params = pipeline.calibrator.get_params()
        if self.partition is not None or not pipeline.uses_groups or "points_per_bin" not in params:
            return
        if params.get("max_depth", 0) is None:
            groups = max(1, rows // (_BINS_A_GROUP * int(params["points_per_bin"])))
            pipeline.calibrator.set_params(max_depth=min(_DEPTH, groups.bit_length() - 1))
