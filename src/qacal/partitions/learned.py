"""The learned tree: groups of similar texts for which the LLM's confidence is wrong in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from qacal.errors import InputError
from qacal.parameters import Between, is_number, shown
from qacal.partitions.base import EMBEDDING, ROUNDING, Plain, Tree, column_of, one_thread
from qacal.partitions.bisecting import Bisections, bisect, require_room
from qacal.tally.arrays import ArrayLike, Floats, require_length, seven_decimals, unit_values
from qacal.tally.ids import check_seed
from qacal.tally.isotonic import isotonic_shape
from qacal.tally.tally import Tally
from qacal.tally.vectors import as_vectors, labelled_rows

# Beyond this pull, distances between texts would be lost in rounding.
_MOST_PULL = 1e6

# With fewer labels than this, an apparent direction is mostly chance.
FEWEST_ROWS = 200

# The values of tau to try: the prior spread of scores, in logits.
SPREADS = np.geomspace(0.05, 20.0, 40)


@dataclass(frozen=True, eq=False)
class LearnedCuts(Bisections):
    """A fitted learned tree; `spread` is the standard deviation of the score over its rows, 0 without a score."""

    spread: Annotated[float, Between(0, np.inf)]


class LearnedTree(Tree):
    r"""Group vectors by repeated 2-means among texts that are similar *and* miscalibrated in a similar way.

    A score :math:`f(z) = b \cdot z` is learned from labelled rows, which must not be used for calibration: how much
    more accurate, in logits, answers near :math:`z` are than their confidence says (see :func:`miscalibration`). Then
    vectors are bisected as in a :class:`~qacal.BisectingTree`, with a distance in which the score counts too:

    .. math:: d(z, z')^2 = |z - z'|^2 / v + \kappa^2 (f(z) - f(z'))^2,

    :math:`v` being the total variance of the vectors. So the first cuts follow the score where it varies much, and
    topics where it does not. Cuts are hyperplanes, and groups have ancestors.

    Parameters
    ----------
    max_depth : :math:`d`. Choose it so that a group has some hundred calibration rows on average.
    pull : :math:`\kappa`, the weight of a logit of the score in the distance; 0 is a bisecting tree.
    seed : where the clusterings start. The same rows give the same tree, in any order.

    Notes
    -----
    Groups that were learned from labels fit their noise, and intervals from the same labels are too narrow
    (``docs/guarantees.md`` shows by how much). :class:`~qacal.QACalibrator` keeps the rows apart. If no direction helps
    held-out rows, or with fewer than 200 rows, the tree is a bisecting one, and `spread` in :meth:`describe` is 0.

    Examples
    --------
    An LLM that states 0.8 for everything. Texts differ most in their first coordinate, which does not matter; along the
    second the accuracy rises:

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(2000, 2)) * [2.0, 1.0]
    >>> correct = rng.random(2000) < 1 / (1 + np.exp(-2 * Z[:, 1]))
    >>> tree = LearnedTree(max_depth=1).fit(Z, confidence=np.full(2000, 0.8), correct=correct)
    >>> corners = [[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]]
    >>> tree.assign(corners)
    array([0, 0, 1, 1])
    """

    kind = "learned"
    fitted_: LearnedCuts

    def __init__(self, *, max_depth: int = 6, pull: float = 2.0, seed: int = 0) -> None:
        self.max_depth = max_depth
        self.pull = pull
        self.seed = seed

    @property
    def uses_labels(self) -> bool:
        return True

    def fit(self, Z: ArrayLike, *, confidence: ArrayLike = None, correct: ArrayLike = None) -> Self:
        """Learn the hyperplanes from vectors, one row each, with their confidences and labels."""
        self._require_parameters()
        if confidence is None or correct is None:
            raise InputError(
                f"{self!r} learns from labels, and got none: fit(Z, confidence=..., correct=...). Without labels, use "
                "a BisectingTree (bisecting:6)."
            )
        vectors = as_vectors(Z)
        h, y = seven_decimals(unit_values(confidence, "confidence")), unit_values(correct, "correct")
        if len(h) != len(vectors):
            raise InputError(f"there are {len(vectors)} vectors and {len(h)} confidences; give one per row.")
        require_length(y, len(h), "correct")
        require_room(int(self.max_depth), vectors.shape[1], self.kind)
        with one_thread():
            self.fitted_ = learn(*labelled_rows(vectors, h, y), int(self.max_depth), float(self.pull), int(self.seed))
        return self

    def _fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        Z, h, y = (column_of(inputs, name, self) for name in (EMBEDDING, "confidence", "correct"))
        return self.fit(Z, confidence=h, correct=y)

    def describe(self) -> Plain:
        """Return the description of a tree, and the spread of the score over the training rows, in logits."""
        return {**super().describe(), "spread": self.fitted_.spread}

    def _require_parameters(self) -> None:
        super()._require_parameters()
        check_seed(self.seed)
        if not is_number(self.pull, 0, _MOST_PULL):
            raise InputError(f"pull is {shown(self.pull)}; expected a number from 0 to {_MOST_PULL:g}.")


def learn(Z: Floats, confidence: Floats, correct: Floats, max_depth: int, pull: float, seed: int) -> LearnedCuts:
    """Return the tree of labelled vectors, in the order of :func:`labelled_rows`."""
    mean = Z.mean(axis=0)
    X = Z - mean
    scale = float(np.sqrt((X * X).sum(axis=1).mean()))
    margin = ROUNDING * float(np.sqrt((Z * Z).sum(axis=1).max()))
    slope = np.zeros(Z.shape[1])
    if scale > 4 * margin and pull > 0:  # else the vectors differ by rounding alone
        X /= scale
        slope = miscalibration(X, confidence, correct)
    if not slope.any():
        plain = bisect(Z, max_depth, seed)
        return LearnedCuts(plain.directions, plain.offsets, plain.sizes, 0.0)
    lifted = bisect(np.column_stack([X, pull * (X @ slope)]), max_depth, seed)
    directions, offsets = _lowered(lifted, pull * slope)
    offsets = np.where(directions.any(axis=1), offsets * scale + directions @ mean + margin, 0.0)
    tree = LearnedCuts(directions, offsets, np.zeros(2**max_depth, dtype=np.int64), float((X @ slope).std()))
    return replace(tree, sizes=np.bincount(tree.paths(Z).path, minlength=2**max_depth))


def _lowered(lifted: Bisections, slope: Floats) -> tuple[Floats, Floats]:
    r"""Return the planes of a tree of :math:`(x, s \cdot x)` as planes among :math:`x`.

    The last coordinate is a sum of the others, so a direction :math:`(u, t)` is :math:`u + t s`. Being a difference of
    two centres :math:`u = v, t = s \cdot v`, it does not vanish: :math:`v \cdot (u + t s) = |v|^2 + (s \cdot v)^2`.
    """
    directions = lifted.directions[:, :-1] + lifted.directions[:, -1:] * slope
    length = np.sqrt((directions * directions).sum(axis=1))
    length[length == 0] = 1.0
    return directions / length[:, None], lifted.offsets / length


def miscalibration(X: Floats, confidence: Floats, correct: Floats) -> Floats:
    r"""Return the direction among vectors along which answers are more often correct than the LLM says.

    With :math:`\ell(h)` the pooled curve in logits (the accuracy at a stated confidence over all rows), answers near
    :math:`z` are correct with probability

    .. math:: \mathrm{logit}^{-1}\big(\ell(h) + a + b \cdot z\big), \qquad b \sim N(0, \tau^2).

    The result is :math:`b`, one number a coordinate; all zeros if the rows show no direction.

    X : vectors less their mean, of total variance 1.

    It takes one Newton step of the penalised likelihood from :math:`b = 0`, which is ridge regression of the residuals
    :math:`(y - p)/w` with weights :math:`w = p(1 - p)`. :math:`\tau` minimises the leave-one-out squared error, in
    closed form; if none is better than :math:`b = 0`, the result is 0.
    """
    if len(X) < FEWEST_ROWS:
        return np.zeros(X.shape[1])
    shape = isotonic_shape(Tally.of(confidence, correct))
    p = 1 / (1 + np.exp(-shape.apply(confidence)))
    w = p * (1 - p)
    return ridge(X, (correct - p) / w, w)


def ridge(X: Floats, y: Floats, w: Floats) -> Floats:
    r"""Return the slope of weighted ridge regression with an intercept, its penalty chosen by leave-one-out error.

    .. math:: \min_{a, b} \sum_i w_i (y_i - a - b \cdot x_i)^2 + |b|^2 / \tau^2
    """
    root = np.sqrt(w)
    left, singular, right = np.linalg.svd(_centred(X, w) * root[:, None], full_matrices=False)
    target = _centred(y, w) * root
    along = left.T @ target
    kept = singular**2 / (singular**2 + SPREADS[:, None] ** -2.0)  # one line a penalty: the share of each component
    residual = target[:, None] - left @ (kept * along).T
    leverage = (left**2) @ kept.T + (w / w.sum())[:, None]
    errors = ((residual / (1 - leverage)) ** 2).sum(axis=0)
    without = ((target / (1 - w / w.sum())) ** 2).sum()
    best = int(errors.argmin())
    if not errors[best] < without:
        return np.zeros(X.shape[1])
    slope: Floats = right.T @ (along * singular / (singular**2 + SPREADS[best] ** -2.0))
    return slope


def _centred(values: Floats, w: Floats) -> Floats:
    return values - np.average(values, axis=0, weights=w)
