"""The learned tree: groups of texts that are alike, and about which the LLM is wrong in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.parameters import shown
from qacal.partitions.base import EMBEDDING, Plain, check_seed, column_of, one_thread
from qacal.partitions.bisecting import Bisections, bisect, require_room, split_counts
from qacal.partitions.tree import ROUNDING, Tree
from qacal.storage import require
from qacal.tally.arrays import ArrayLike, Floats, Ints, require_length, seven_decimals, unit_values
from qacal.tally.groups import Paths
from qacal.tally.isotonic import isotonic_shape
from qacal.tally.tally import Tally
from qacal.tally.vectors import as_vectors, labelled_rows

MOST_PULL = 1e6
"""Beyond this, likeness would be lost in rounding."""

FEWEST_ROWS = 200
"""With fewer labels than this, what looks like a direction is mostly chance."""

SPREADS = np.geomspace(0.05, 20.0, 40)
r"""The values of :math:`\tau` that are tried: the spread of scores, in logits, that is thought likely beforehand."""


@dataclass(frozen=True, eq=False)
class LearnedCuts:
    """A fitted learned tree.

    cuts : its hyperplanes.
    spread : the standard deviation of the score over the fitting rows, in logits; 0 if no score was found.
    """

    cuts: Bisections
    spread: float

    @property
    def sizes(self) -> Ints:
        """How many fitting rows are in each leaf."""
        return self.cuts.sizes

    @property
    def depth(self) -> int:
        """The number of levels of splits."""
        return self.cuts.depth

    @property
    def width(self) -> int:
        """The number of coordinates of a vector."""
        return self.cuts.width

    def paths(self, Z: NDArray[np.floating]) -> Paths:
        """Return where each vector stands; none is ever outside."""
        return self.cuts.paths(Z)

    def validate(self) -> None:
        """Refuse what :func:`learn` cannot have made."""
        self.cuts.validate()
        require(self.spread >= 0, f"spread is {self.spread}; expected 0 or more.")


class LearnedTree(Tree):
    r"""Group vectors by repeated 2-means among texts that are alike *and* that the LLM misjudges alike.

    From labelled rows, which calibrate nothing afterwards, a score :math:`f(z) = b \cdot z` is learned: by how many
    logits answers near :math:`z` are righter than their confidence tells
    (see :func:`miscalibration`). Then vectors are bisected as in a
    :class:`~qacal.BisectingTree`, with a distance in which the score counts too:

    .. math:: d(z, z')^2 = |z - z'|^2 / v + \kappa^2 (f(z) - f(z'))^2,

    :math:`v` being the total variance of the vectors. So the first cuts follow the score where it says much, and topics
    where it does not. Cuts are hyperplanes, and groups have ancestors.

    Parameters
    ----------
    max_depth : :math:`d`. Choose it so that a group has some hundred calibration rows on average.
    pull : :math:`\kappa`, how much a logit of the score counts beside likeness; 0 is a bisecting tree.
    seed : where the clusterings start. The same rows give the same tree, in any order.

    Notes
    -----
    The rows that it is fitted on must not calibrate: groups that have seen the labels fit their noise, and intervals
    made from the same labels are too narrow (``docs/guarantees.md`` shows by how much). :class:`~qacal.QACalibrator`
    keeps the two apart. Without a direction that helps rows left out, or with fewer than 200 rows, the tree is a
    bisecting one, and `spread` in :meth:`describe` is 0.

    Examples
    --------
    An LLM that says 0.8 to everything. Texts differ most in their first coordinate, which does not matter; along the
    second its answers get better:

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(2000, 2)) * [2.0, 1.0]
    >>> correct = rng.random(2000) < 1 / (1 + np.exp(-2 * Z[:, 1]))
    >>> tree = LearnedTree(max_depth=1).fit(Z, confidence=np.full(2000, 0.8), correct=correct)
    >>> corners = [[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]]
    >>> tree.assign(corners)
    array([0, 0, 1, 1])

    It does not do without labels:

    >>> LearnedTree().fit(Z)
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: LearnedTree() learns from labels, and got none: fit(Z, confidence=..., correct=...). ...
    """

    kind = "learned"
    fitted_: LearnedCuts

    def __init__(self, *, max_depth: int = 6, pull: float = 2.0, seed: int = 0) -> None:
        self.max_depth = max_depth
        self.pull = pull
        self.seed = seed

    @property
    def uses_labels(self) -> bool:
        """True: the groups depend on which answers were right."""
        return True

    def fit(self, Z: ArrayLike, *, confidence: ArrayLike = None, correct: ArrayLike = None) -> Self:
        """Learn the hyperplanes from vectors, one row each, their confidences, and which answers were right."""
        self.require_parameters()
        if confidence is None or correct is None:
            raise InputError(
                f"{self!r} learns from labels, and got none: fit(Z, confidence=..., correct=...). Without labels, use "
                "a BisectingTree (bisecting:6)."
            )
        Z, h, y = _checked_rows(Z, confidence, correct)
        require_room(int(self.max_depth), Z.shape[1], self.kind)
        with one_thread():
            self.fitted_ = learn(Z, h, y, int(self.max_depth), float(self.pull), int(self.seed))
        return self

    def fit_rows(self, inputs: Mapping[str, ArrayLike]) -> Self:
        """Learn the hyperplanes from columns by name: the vectors, `confidence` and `correct`."""
        Z, h, y = (column_of(inputs, name, self) for name in (EMBEDDING, "confidence", "correct"))
        return self.fit(Z, confidence=h, correct=y)

    def describe(self) -> Plain:
        """Return what every tree tells, and the spread of the score over the fitting rows, in logits."""
        return {**super().describe(), "spread": self.fitted_.spread}

    def _levels(self) -> list[Plain]:
        return split_counts(self.fitted_.cuts)

    def require_parameters(self) -> None:
        """Refuse parameters that can mean nothing."""
        super().require_parameters()
        check_seed(self.seed)
        pull = self.pull
        if isinstance(pull, bool) or not isinstance(pull, int | float | np.number) or not 0 <= pull <= MOST_PULL:
            raise InputError(f"pull is {shown(pull)}; expected a number from 0 to {MOST_PULL:g}.")


def learn(Z: Floats, confidence: Floats, correct: Floats, max_depth: int, pull: float, seed: int) -> LearnedCuts:
    """Return the tree of labelled vectors, in the order of :func:`labelled_rows`."""
    mean = Z.mean(axis=0)
    X = Z - mean
    scale = float(np.sqrt((X * X).sum(axis=1).mean()))
    hair = ROUNDING * float(np.sqrt((Z * Z).sum(axis=1).max()))
    if not scale > 4 * hair or pull == 0:  # the vectors differ by rounding alone
        return LearnedCuts(bisect(Z, max_depth, seed), 0.0)
    X /= scale
    slope = miscalibration(X, confidence, correct)
    if not slope.any():
        return LearnedCuts(bisect(Z, max_depth, seed), 0.0)
    lifted = bisect(np.column_stack([X, pull * (X @ slope)]), max_depth, seed)
    directions, offsets = _lowered(lifted, pull * slope)
    offsets = np.where(directions.any(axis=1), offsets * scale + directions @ mean + hair, 0.0)
    return LearnedCuts(_counted(directions, offsets, Z), float((X @ slope).std()))


def _lowered(lifted: Bisections, slope: Floats) -> tuple[Floats, Floats]:
    r"""Return the planes of a tree of :math:`(x, s \cdot x)` as planes among :math:`x`.

    The last coordinate is a sum of the others, so a direction :math:`(u, t)` is :math:`u + t s`. Being a difference of
    two centres :math:`u = v, t = s \cdot v`, it does not vanish: :math:`v \cdot (u + t s) = |v|^2 + (s \cdot v)^2`.
    """
    directions = lifted.directions[:, :-1] + lifted.directions[:, -1:] * slope
    length = np.sqrt((directions * directions).sum(axis=1))
    length[length == 0] = 1.0
    return directions / length[:, None], lifted.offsets / length


def _counted(directions: Floats, offsets: Floats, Z: Floats) -> Bisections:
    """Return the tree with the sizes of its leaves."""
    n_leaves = len(offsets) + 1
    tree = Bisections(directions, offsets, np.zeros(n_leaves, dtype=np.int64))
    return Bisections(directions, offsets, np.bincount(tree.paths(Z).path, minlength=n_leaves))


def _checked_rows(Z: ArrayLike, confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return checked rows in an order of their own."""
    vectors = as_vectors(Z)
    h, y = seven_decimals(unit_values(confidence, "confidence")), unit_values(correct, "correct")
    if len(h) != len(vectors):
        raise InputError(f"there are {len(vectors)} vectors and {len(h)} confidences; give one per row.")
    require_length(y, len(h), "correct")
    return labelled_rows(vectors, h, y)


def miscalibration(X: Floats, confidence: Floats, correct: Floats) -> Floats:
    r"""Return the direction among vectors along which answers are more often correct than the LLM says.

    With :math:`\ell(h)` the pooled curve in logits (the accuracy at a stated confidence over all rows), answers near
    :math:`z` are correct with probability

    .. math:: \mathrm{logit}^{-1}\big(\ell(h) + a + b \cdot z\big), \qquad b \sim N(0, \tau^2).

    Returned is :math:`b`, one number a coordinate; all zeros if the rows show no direction.

    X : vectors less their mean, of total variance 1.

    One Newton step of the penalised likelihood from :math:`b = 0`, which is ridge regression: of the residuals
    :math:`(y - p)/w` with weights :math:`w = p(1 - p)`. :math:`\tau` is the one with the least squared error when every
    row is left out in turn, in closed form; if none is better than :math:`b = 0`, that is the answer.
    """
    if len(X) < FEWEST_ROWS:
        return np.zeros(X.shape[1])
    shape = isotonic_shape(Tally.of(confidence, correct))
    p = 1 / (1 + np.exp(-shape.apply(confidence)))
    w = p * (1 - p)
    return ridge(X, (correct - p) / w, w)


def ridge(X: Floats, y: Floats, w: Floats) -> Floats:
    r"""Return the slope of weighted ridge regression with an intercept, its penalty chosen by leaving out each row.

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
