"""qacal inside scikit-learn: one estimator for pipelines, cross-validation and grid search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from qacal.calibrators.base import Calibrator
from qacal.calibrators.binning import QABinning
from qacal.calibrators.step_binning import StepBinning
from qacal.errors import InputError
from qacal.parameters import require_kind
from qacal.partitions.base import Partition
from qacal.tally.arrays import ArrayLike, Floats, Ints, column_of_any
from qacal.tally.groups import Paths

if TYPE_CHECKING:
    from qacal.calibrators.base import Evidence


class QACalibrationClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate the first column of X, in groups that a partition makes of the others.

    X is ``[confidence | features]``. y says which answers are correct: the larger of its two labels (1, True, "yes"),
    as everywhere in scikit-learn. Unlike the rest of qacal it clips confidences outside [0, 1] instead of raising,
    since scikit-learn's estimators must take any number.

    Parameters
    ----------
    calibrator : any calibrator of qacal; :class:`~qacal.QABinning` by default. Name it to search its parameters.
    partition : groups the features, such as :class:`~qacal.partitions.KDTree`. None makes one group. A partition that
        learns from labels raises, since the same rows calibrate; fit it on other rows, and pass its groups to a
        calibrator.

    Notes
    -----
    The partition is fitted on the features of the same rows that calibrate. It does not see labels, so certificates
    remain valid given the rows' features and confidences. A certificate survives a search over the calibrator's
    `max_depth` on one deep tree, but not a search over trees of different depths. Weights are importances, not counts
    of rows.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from qacal.partitions import KDTree
    >>> rng = np.random.default_rng(0)
    >>> topic = rng.normal(size=(4000, 2))
    >>> right = rng.random(4000) < np.where(topic[:, 0] > 0, 0.95, 0.65)
    >>> X = np.column_stack([np.full(4000, 0.8), topic])
    >>> grid = {"calibrator__max_depth": [0, 1, 2], "calibrator__points_per_bin": [50, 200]}
    >>> model = QACalibrationClassifier(partition=KDTree(max_depth=2, axes="coordinate"), calibrator=QABinning())
    >>> search = GridSearchCV(model, grid, scoring="neg_log_loss").fit(X, right)
    >>> search.best_params_["calibrator__max_depth"]
    1
    """

    classes_: np.ndarray[Any, Any]
    calibrator_: Calibrator
    partition_: Any

    def __init__(self, calibrator: Calibrator | None = None, partition: Any = None) -> None:
        self.calibrator = calibrator
        self.partition = partition

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, ids: ArrayLike | None = None
    ) -> Self:
        """Fit the partition on the features and the calibrator on confidences and labels.

        ids : the question's id of each row, for calibrators that split rows or order ties.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, positions = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: an answer is right or "
                f"wrong, and y has {len(self.classes_)} classes."
            )
        # A single class in y counts as correct.
        correct = positions if len(self.classes_) == 2 else np.ones_like(positions)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            kept = weights > 0
            X, correct, weights = X[kept], correct[kept], weights[kept]
            ids = None if ids is None else column_of_any(ids, "ids")[kept]
        require_kind(self.partition, Partition, "partition", "one, such as KDTree(max_depth=3)")
        require_kind(self.calibrator, Calibrator, "calibrator", "one, such as QABinning()")
        self.partition_ = None
        if self.partition is not None and X.shape[1] > 1:
            if isinstance(self.calibrator, StepBinning):
                raise InputError(
                    "StepBinning certifies groups that were fixed without the calibration rows, and here the same rows "
                    "make them. Leave partition out, fit it on other rows, or use TreeBinning."
                )
            self.partition_ = clone(self.partition).fit(X[:, 1:])
        calibrator: Calibrator = QABinning() if self.calibrator is None else clone(self.calibrator)
        self.calibrator_ = calibrator.fit(
            _confidence(X), correct, groups=self._groups(X), sample_weight=weights, ids=ids
        )
        return self

    def predict_proba(self, X: ArrayLike, ids: ArrayLike | None = None) -> Floats:
        """Return the calibrated probabilities of (wrong, right), in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        right = self.calibrator_.predict(_confidence(X), groups=self._groups(X), ids=ids)
        if len(self.classes_) == 1:
            return np.ones((len(X), 1))
        return np.column_stack([1 - right, right])

    def predict(self, X: ArrayLike) -> np.ndarray[Any, Any]:
        """Return the more probable class."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def explain(self, X: ArrayLike, ids: ArrayLike | None = None) -> Evidence:
        """Return the calibrated confidences with their evidence."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.calibrator_.explain(_confidence(X), groups=self._groups(X), ids=ids)

    def _groups(self, X: Floats) -> Paths | Ints | None:
        if self.partition_ is None:
            return None
        groups: Paths | Ints = self.partition_._groups(X[:, 1:])
        return groups

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # It corrects a confidence that is given; it does not learn to classify from features.
        tags.classifier_tags.poor_score = True
        return tags


def _confidence(X: Floats) -> Floats:
    return np.clip(X[:, 0], 0.0, 1.0)
