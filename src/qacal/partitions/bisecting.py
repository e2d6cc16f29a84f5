"""The bisecting tree: cut the vectors in two where they fall apart, then each part again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError
from qacal.partitions.base import Plain, check_seed, one_thread, start_of
from qacal.partitions.tree import ROUNDING, Tree, require_leaves
from qacal.storage import require, require_between, require_columns, require_moderate
from qacal.tally.arrays import ArrayLike, Floats, Ints
from qacal.tally.groups import Paths
from qacal.tally.vectors import fitting_vectors, portions, require_finite

MOST_NUMBERS = 2**27
"""The directions of a tree are this many numbers at most: a gigabyte."""

ENOUGH_ROWS = 500
"""A plane between two clusters is found from about this many rows of a node at most, ..."""

MOST_ROUNDS = 10
"""... in so many rounds at most, since later ones move few rows, ..."""

CORRECTIONS = 2
"""... and then this often corrected with all of them."""

POWERS = 5
"""How often rows are multiplied into a direction to find the one of most variance; it is a start, and may be rough."""

_DEEP = 6
"""Up to this depth one product with all directions is faster than a walk from node to node."""


@dataclass(frozen=True, eq=False)
class Bisections:
    r"""A fitted tree of hyperplanes: at a node, a vector :math:`z` goes right if :math:`z \cdot w > c`.

    directions, offsets : of each node, level after level: those of depth d from 2^d - 1 on. Directions have length 1; a
        direction of zeros is a node that does not split: everything goes left.
    sizes : how many fitting rows are in each leaf.
    """

    directions: Floats
    offsets: Floats
    sizes: Ints

    @property
    def depth(self) -> int:
        """The number of levels of splits."""
        return len(self.sizes).bit_length() - 1

    @property
    def width(self) -> int:
        """The number of coordinates of a vector."""
        return int(self.directions.shape[1])

    def paths(self, Z: NDArray[np.floating]) -> Paths:
        """Return where each vector stands. None is ever outside: a hyperplane has two sides, and no bounds."""
        path = np.zeros(len(Z), dtype=np.int64)
        offsets = np.where(self.directions.any(axis=1), self.offsets, np.inf)
        for rows, block in portions(Z) if self.depth > 0 else ():
            require_finite(block, range(rows.start, rows.start + len(block)))
            node = np.zeros(len(block), dtype=np.int64)  # the root; the children of k are 2k + 1 and 2k + 2
            if self.depth <= _DEEP:
                product = block @ self.directions.T
                is_right = product > offsets
                for _ in range(self.depth):
                    node += node + 1 + is_right[np.arange(len(block)), node]
                # A product rounds by the size of its batch: rows that rounding may have decided walk node by node.
                hair = ROUNDING / 16 * (np.sqrt(np.vecdot(block, block)) + np.abs(self.offsets).max())
                near = np.flatnonzero((np.abs(product - offsets) < hair[:, None]).any(axis=1))
                node[near] = self._walk(block[near], offsets)
            else:
                node = self._walk(block, offsets)
            path[rows] = node - (2**self.depth - 1)
        return Paths(path, np.full(len(Z), self.depth + 1), self.depth)

    def validate(self) -> None:
        """Refuse what :func:`bisect` cannot have made."""
        require_leaves(self.sizes, self.depth)
        is_so = self.directions.ndim == 2 and self.directions.shape[1] >= 1
        require(is_so, f"directions has shape {self.directions.shape}; expected one of some coordinates for each node.")
        require_columns(2**self.depth - 1, directions=self.directions[:, 0], offsets=self.offsets)
        require_between(-1.01, 1.01, directions=self.directions)
        require_moderate(offsets=self.offsets)

    def _walk(self, Z: Floats, offsets: Floats) -> Ints:
        node = np.zeros(len(Z), dtype=np.int64)
        for _ in range(self.depth):
            node += node + 1 + (np.vecdot(Z, self.directions[node]) > offsets[node])
        return node


class BisectingTree(Tree):
    r"""Group vectors by repeated 2-means: :math:`2^d` groups of vectors that are near each other, at depth :math:`d`.

    At a node the rows are clustered in two, with centres :math:`a` and :math:`b`. A vector goes to the nearer one:
    right if :math:`z \cdot w > c`, with :math:`w` the direction from :math:`a` to :math:`b` and :math:`c` half way.
    Groups are of different sizes, as topics are; in return they follow the topics more closely than the halves of a
    kd-tree do. As in a kd-tree, groups have ancestors, so calibrators can borrow from them and search over depths.
    No vector is ever outside: new ones go to the nearer side, however far off.

    Parameters
    ----------
    max_depth : :math:`d`. Choose it so that a group has some hundred calibration rows on average.
    seed : where the clusterings start. The same rows give the same tree, in any order.

    Notes
    -----
    Nodes whose rows are all equal do not split; everything goes left there. Which side is right is settled by the entry
    of :math:`w` that is largest in size: it is positive. Clusters are looked for among 500 rows of a node at most, and
    all its rows then correct the two centres.

    Examples
    --------
    Four clouds, and a tree that knows them at depth 2 and pairs of them at depth 1:

    >>> corners = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> Z = np.repeat(corners, 25, axis=0) + np.random.default_rng(0).normal(0, 0.1, (100, 2))
    >>> tree = BisectingTree(max_depth=2).fit(Z)
    >>> tree.assign(corners)
    array([0, 1, 2, 3])
    >>> tree.groups(corners).groups(depth=1)
    array([0, 0, 1, 1])
    """

    kind = "bisecting"
    fitted_: Bisections

    def __init__(self, *, max_depth: int = 6, seed: int = 0) -> None:
        self.max_depth = max_depth
        self.seed = seed

    def fit(self, Z: ArrayLike) -> Self:
        """Learn the hyperplanes from vectors, one row each."""
        self.require_parameters()
        Z = fitting_vectors(Z)
        require_room(int(self.max_depth), Z.shape[1], self.kind)
        with one_thread():
            self.fitted_ = bisect(Z, int(self.max_depth), int(self.seed))
        return self

    def _levels(self) -> list[Plain]:
        return split_counts(self.fitted_)

    def require_parameters(self) -> None:
        """Refuse parameters that can mean nothing."""
        super().require_parameters()
        check_seed(self.seed)


def bisect(Z: Floats, max_depth: int, seed: int) -> Bisections:
    """Return the tree of a set of vectors, in the order of :func:`fitting_vectors`."""
    directions = np.zeros((2**max_depth - 1, Z.shape[1]))
    offsets = np.zeros(2**max_depth - 1)
    node = np.zeros(len(Z), dtype=np.int64)  # the root is node 0; the children of k are 2k + 1 and 2k + 2
    hair = ROUNDING * float(np.sqrt(np.vecdot(Z, Z).max()))
    for _ in range(max_depth):
        order = np.argsort(node, kind="stable")
        for k, here in _runs(node[order]):
            rows = order[here]
            block = Z[rows]
            directions[k], offsets[k] = _cut(block, seed, k, hair)
            node[rows] = 2 * k + 1 + (block @ directions[k] > offsets[k])
    sizes = np.bincount(node - (2**max_depth - 1), minlength=2**max_depth)
    return Bisections(directions, offsets, sizes)


def _cut(Z: Floats, seed: int, node: int, hair: float) -> tuple[Floats, float]:
    """Return the direction and the offset of the plane between two clusters; zeros if there are no two.

    The rows stand in the order of their hashes, so every third, say, is a random sample; equal rows are neighbours, and
    are thinned like the others. What the sample found, all rows correct: the plane is the one between the means of its
    two sides. Only if a sample is all alike are clusters looked for among all rows.
    """
    every = -(-len(Z) // ENOUGH_ROWS)
    direction, offset = _found(Z[::every], seed, node, hair)
    if every == 1:
        return direction, offset
    if not direction.any():
        return _found(Z, seed, node, hair)
    return _corrected(direction, offset, Z, CORRECTIONS, hair)


def _found(Z: Floats, seed: int, node: int, hair: float) -> tuple[Floats, float]:
    """Return the plane between two clusters, started across the direction in which the rows vary most.

    One such start is a fraction of the work of several random ones, and trees of such cuts were as good on real
    vectors. A cut among a few clear clouds can be worse: of five in 6 dimensions, by 1.6% of the squares on average,
    19% at worst.
    """
    if not (Z[0] != Z).any():
        return np.zeros(Z.shape[1]), 0.0
    mean, step = Z.mean(axis=0), widest_step(Z, seed, node)
    return _corrected(*_plane(np.array([mean - step, mean + step]), hair), Z, MOST_ROUNDS, hair)


def _corrected(direction: Floats, offset: float, Z: Floats, rounds: int, hair: float) -> tuple[Floats, float]:
    """Return the plane between the means of its own two sides: 2-means, from a plane on, until no row changes sides."""
    before = None
    for _ in range(rounds):
        is_right = Z @ direction > offset
        if is_right.all() or not is_right.any() or (before is not None and (is_right == before).all()):
            break
        sides = np.array([~is_right, is_right], dtype=np.float64)
        direction, offset = _plane(sides @ Z / sides.sum(axis=1, keepdims=True), hair)
        before = is_right
    return direction, offset


def _plane(centres: Floats, hair: float) -> tuple[Floats, float]:
    """Return the direction and the offset of the plane half way between two centres; zeros if they are one."""
    direction = centres[1] - centres[0]
    length = float(np.sqrt(direction @ direction))
    if length <= 4 * hair:  # they differ by rounding alone
        return np.zeros(len(direction)), 0.0
    direction /= length if direction[np.abs(direction).argmax()] > 0 else -length
    return direction, float(direction @ (centres[0] + centres[1])) / 2 + hair


def widest_step(Z: Floats, seed: int, number: int = 0) -> Floats:
    """Return the first principal direction of rows, nearly, as long as a standard deviation along it.

    number : tells apart several directions of one seed, such as those of the nodes of a tree.

    The rows must not all be equal; to be called in :func:`one_thread`.
    """
    X = Z - Z.mean(axis=0)
    largest = float(np.abs(X).max())
    X /= largest  # so that squares of squares are numbers
    direction = np.random.default_rng(start_of(seed, number)).normal(size=(X.shape[1],))
    for _ in range(POWERS):
        direction = X.T @ (X @ direction)
        direction = direction / np.sqrt(direction @ direction)
    return direction * (float((X @ direction).std()) * largest)


def _runs(node: Ints) -> Iterator[tuple[int, slice]]:
    """Yield each value of a sorted column and where it stands."""
    starts = np.flatnonzero(np.diff(node, prepend=-1))
    stops = np.append(starts[1:], len(node))
    for value, start, stop in zip(node[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield value, slice(start, stop)


def split_counts(tree: Bisections) -> list[Plain]:
    """Return how many nodes of each level split."""
    splits = (tree.directions != 0).any(axis=1)
    return [{"depth": d + 1, "splits": int(splits[2**d - 1 : 2 ** (d + 1) - 1].sum())} for d in range(tree.depth)]


def require_room(max_depth: int, width: int, kind: str) -> None:
    """Refuse a tree whose directions would not fit into memory."""
    if 2**max_depth * width > MOST_NUMBERS:
        deepest = (MOST_NUMBERS // width).bit_length() - 1
        raise InputError(
            f"max_depth is {max_depth}: a {kind} tree of {width} coordinates has room for at most {deepest} levels."
        )
