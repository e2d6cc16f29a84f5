"""The parameters of a :class:`~qacal.QACalibrator`, validated, and the defaults for those that were left out.

Parts, shares and depths depend on parameters and numbers of rows only, never on labels, so that the guarantee holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from qacal.calibrators.base import Calibrator
from qacal.calibrators.identity import Identity
from qacal.calibrators.margins import MarginBinning
from qacal.calibrators.score import LearnedScore
from qacal.calibrators.step_binning import StepBinning
from qacal.calibrators.tree_binning import TreeBinning
from qacal.calibrators.tree_scaling import TreeScaling
from qacal.errors import InputError
from qacal.model.features import Features
from qacal.model.pipeline import Pipeline, RowVectors
from qacal.parameters import is_number, shown
from qacal.partitions import EMBEDDING, BisectingTree, as_partition
from qacal.tally.bins import check_points_per_bin

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator

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
# MarginBinning: the share of the questions that train the score, and of these the share that trains the first score,
# which makes the bands. All others certify.
SHARE_WITH_MARGINS, SHARE_OF_FIRST = 0.9, 1 / 3
CERTIFYING = 1 - SHARE_WITH_MARGINS * SHARE_OF_FIRST
_FEW_ROWS = 200


def require_parameters(model: QACalibrator) -> None:
    """Refuse invalid parameters, and parameters that contradict each other.

    >>> from qacal import QACalibrator
    >>> require_parameters(QACalibrator(train_share=80))
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: train_share is 80; expected a share between 0 and 1, such as 0.25.
    """
    if model.train_share is not None and not (is_number(model.train_share, 0, 1) and 0 < model.train_share < 1):
        raise InputError(f"train_share is {shown(model.train_share)}; expected a share between 0 and 1, such as 0.25.")
    if model.output not in ("certified", "continuous"):
        raise InputError(f'output is {model.output!r}; expected "certified" or "continuous".')
    if model.output == "continuous" and model.calibrator is not None:
        raise InputError('output="continuous" goes with no calibrator; for curves per group take TreeScaling().')
    if isinstance(model.learned_score, LearnedScore):
        model.learned_score._require_parameters()
    elif not (model.learned_score is None or (isinstance(model.learned_score, str) and model.learned_score == "auto")):
        raise InputError(f'learned_score is {model.learned_score!r}; expected LearnedScore(...), "auto" or None.')
    if not isinstance(model.examples, int) or model.examples < 0:
        raise InputError(f"examples is {model.examples}; expected 0 or more rows of each group to keep.")
    points = getattr(model.calibrator, "points_per_bin", None)
    if points is not None:
        check_points_per_bin(points)


# The parts


def default_pipeline(model: QACalibrator, *, has_certify_records: bool = False) -> Pipeline:
    """Return new, unfitted parts, with defaults for those that were left out.

    has_certify_records : the calibrator is fitted on a file of its own.

    >>> from qacal import QACalibrator
    >>> pipeline = default_pipeline(QACalibrator())
    >>> pipeline.partition, pipeline.score, pipeline.calibrator
    (BisectingTree(max_depth=4), LearnedScore(), MarginBinning())
    >>> pipeline = default_pipeline(QACalibrator(partition="column:subject"))
    >>> pipeline.partition, pipeline.score, pipeline.calibrator
    (Column('subject'), None, MarginBinning())
    """
    chosen = None if model.partition is None else as_partition(model.partition).clone()
    reads_text = chosen is None or EMBEDDING in chosen._needs
    has_features = isinstance(model.features, list | tuple) and len(model.features) > 0
    score = (
        _score(model, reads_text=reads_text) if reads_text or has_features or model.learned_score != "auto" else None
    )
    if score is None and has_features:
        raise InputError(
            f"features is {shown(model.features)}, and only a learned score reads features. Leave out the features "
            "(--feature), or the calibrator (--calibrator)."
        )
    depth = _DEPTH if score is None else DEPTH_WITH_SCORE
    partition = BisectingTree(max_depth=depth) if chosen is None else chosen
    calibrator = _calibrator(model, reads_text, has_score=score is not None, has_certify_records=has_certify_records)
    if model.tune is not None:
        _require_tunable(model.tune, score, calibrator)
    return Pipeline(partition, score, calibrator, RowVectors(model.embedder))


def features_of(model: QACalibrator, pipeline: Pipeline) -> Features:
    """Return the columns that the score of a model may read."""
    if pipeline.score is None:
        return Features()
    score = model.learned_score if isinstance(model.learned_score, LearnedScore) else None
    columns = [name for name in pipeline.partition._needs if name != EMBEDDING] if score is None else []
    return Features.of(model.features, score, columns)


def _score(model: QACalibrator, *, reads_text: bool) -> LearnedScore | None:
    if isinstance(model.learned_score, LearnedScore):
        objective = {} if model.tune is None else {"objective": model.tune}
        return LearnedScore(**model.learned_score.get_params(deep=False) | objective)
    # These two certify a score: naming one, as `qacal fit` does to set alpha, keeps the score.
    is_default = model.calibrator is None or isinstance(model.calibrator, MarginBinning | StepBinning)
    if model.learned_score is None or not is_default:
        return None
    return LearnedScore(text=reads_text, objective="brier" if model.tune == "brier" else "log_loss")


def _calibrator(model: QACalibrator, reads_text: bool, *, has_score: bool, has_certify_records: bool) -> Calibrator:
    if model.calibrator is not None:
        if not isinstance(model.calibrator, Calibrator):
            raise InputError(f"calibrator is {model.calibrator!r}; expected one such as QABinning(points_per_bin=50).")
        return type(model.calibrator)(**model.calibrator.get_params())
    if model.output == "continuous":
        return Identity() if has_score else TreeScaling()
    if not has_score:
        # A tree of texts has its best probabilities at depths that are too fine for intervals by group.
        return TreeBinning() if reads_text else MarginBinning()
    # Labels of another kind, such as a judge's, are often wrong in some groups only; bands correct all groups alike.
    return StepBinning(recalibrate=True) if has_certify_records else MarginBinning()


def _require_tunable(tune: str, score: LearnedScore | None, calibrator: Calibrator) -> None:
    from qacal.search import require_objective

    require_objective(tune, "tune")
    if score is not None:
        if tune not in ("log_loss", "brier"):
            raise InputError(
                f'tune is {tune!r}; scores are chosen by "log_loss" or "brier". For bins that are chosen by it, name a '
                "calibrator and leave the score out."
            )
    elif isinstance(calibrator, MarginBinning | StepBinning):
        raise InputError(
            f"{type(calibrator).__name__} needs bins and depth that are fixed before the fit. Leave out --tune (in "
            "Python: tune), which chooses them on the rows, or name a calibrator that can be tuned, such as qa-binning."
        )
    if getattr(calibrator, "certificate", None) == "conditional" or getattr(calibrator, "ties", None) == "jitter":
        raise InputError(
            'tune chooses points per bin on the rows; certificate="conditional" and ties="jitter" need them fixed '
            "before."
        )


# What follows from the number of rows


def share_to_train(model: QACalibrator, rows: int, *, has_score: bool, has_margins: bool = False) -> float:
    """Return the share of the questions that train groups and score; `rows` is the number of all rows."""
    if model.train_share is not None:
        return model.train_share
    if not has_score:
        return SHARE
    if has_margins:
        return SHARE_WITH_MARGINS
    return SHARE_WITH_SCORE if rows >= _FEW_ROWS else _SHARE_OF_FEW


def cut_tree(model: QACalibrator, pipeline: Pipeline, rows: int) -> None:
    """Cut the default tree where groups have rows for several bins: one bin per group ignores the confidence."""
    params = pipeline.calibrator.get_params()
    if model.partition is not None or not pipeline.uses_groups or "points_per_bin" not in params:
        return
    if params.get("max_depth", 0) is None:
        groups = max(1, rows // (_BINS_A_GROUP * int(params["points_per_bin"])))
        pipeline.calibrator.set_params(max_depth=min(_DEPTH, groups.bit_length() - 1))
