r"""The kd-tree: halve the vectors at the median of one coordinate, level after level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from qacal.errors import InputError, NotFittedError
from qacal.grouping import MAX_DEPTH, Grouping, Paths, as_grouping
from qacal.parameters import HasParameters
from qacal.records import ArrayLike, Floats, Ints


@dataclass(frozen=True, eq=False)
class TreeMap:
    """A fitted tree.

    pivots : for each depth d the medians of its 2^d nodes.
    low, high : the bounding values of each depth's coordinate.
    centre, axes : the rotation onto principal axes, if any.
    quantum : projections are rounded to whole multiples of this. Libraries of linear algebra round a sum one way in a
        batch and another way alone; a row that is itself a pivot or a bound must not change its group for that.
    """

    pivots: list[Floats]
    low: Floats
    high: Floats
    n_coordinates: int
    centre: Floats | None
    axes: Floats | None
    quantum: float

    @property
    def depth(self) -> int:
        """The number of levels of splits."""
        return len(self.pivots)

    def paths(self, Z: Floats) -> Paths:
        """Return where each vector stands: its turns, and the first depth at which it is out of bounds."""
        columns = self.coordinates(Z)
        path = np.zeros(len(Z), dtype=np.int64)
        exits = np.full(len(Z), self.depth + 1)
        for d, pivots in enumerate(self.pivots):
            value = columns[d % columns.shape[0]]
            outside = (value < self.low[d]) | (value > self.high[d])
            # The group at depth d + 1 asks for this coordinate; the ones above do not.
            np.minimum(exits, np.where(outside, d + 1, self.depth + 1), out=exits)
            path = 2 * path + (value > pivots[path])
        return Paths(path, exits, self.depth)

    def coordinates(self, Z: Floats) -> Floats:
        """Return the coordinates that the levels split on, one row each."""
        used = min(self.depth, self.n_coordinates)
        if self.axes is None or self.centre is None:
            return np.ascontiguousarray(Z[:, :used].T)
        return _project(Z, self.centre, self.axes[:used], self.quantum)


def grow(Z: Floats, max_depth: int, centre: Floats | None, axes: Floats | None) -> TreeMap:
    """Return the tree of a set of vectors; at every level each node is split at the median of its own rows."""
    n_coordinates = Z.shape[1] if axes is None else len(axes)
    used = min(max_depth, n_coordinates)
    quantum = 2.0**-30 * (np.abs(Z - centre).sum(axis=1).max() or 1.0) if centre is not None else 0.0
    columns = Z[:, :used].T if axes is None or centre is None else _project(Z, centre, axes[:used], quantum)
    path = np.zeros(len(Z), dtype=np.int64)
    pivots = []
    for d in range(max_depth):
        value = columns[d % used]
        medians = _medians(value, path, 2**d)
        pivots.append(medians)
        path = 2 * path + (value > medians[path])
    at = np.arange(max_depth) % max(used, 1)
    return TreeMap(pivots, columns.min(axis=1)[at], columns.max(axis=1)[at], n_coordinates, centre, axes, quantum)


def _project(Z: Floats, centre: Floats, axes: Floats, quantum: float) -> Floats:
    return np.rint(axes @ (Z - centre).T / quantum)


def _medians(value: Floats, node: Ints, n_nodes: int) -> Floats:
    """Return the median of each node's values; an empty node gets infinity, and everything turns left."""
    order = np.lexsort((value, node))
    ordered = value[order]
    stop = np.searchsorted(node[order], np.arange(n_nodes), side="right")
    start = np.append(0, stop[:-1])
    count = stop - start
    middle = (
        ordered[np.minimum(start + (count - 1) // 2, len(value) - 1)]
        + ordered[np.minimum(start + count // 2, len(value) - 1)]
    ) / 2
    return np.where(count > 0, middle, np.inf)


class KDTree(HasParameters):
    r"""Group vectors by a kd-tree of depth :math:`d`: :math:`2^d` groups of about equal size (the paper's beta_bin).

    At every level a node is split at the median of one coordinate; values up to the median go left. The coordinate
    changes from level to level, in order, and wraps round. Vectors outside of the fitted range of a coordinate that
    is used have no group.

    Parameters
    ----------
    max_depth : :math:`d`. Choose it so that a group has some hundred calibration rows; 0 puts all rows in one group.
    axes : "principal" splits along principal components, where most of the variation of an embedding is;
        "coordinate" along the coordinates as they come, as the paper has it.

    Examples
    --------
    >>> Z = np.array([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
    >>> tree = KDTree(max_depth=2, axes="coordinate").fit(Z)
    >>> tree.assign(Z)
    array([0, 1, 2, 3])
    >>> tree.assign([[0.5, 0.5], [0.5, 9.0]])  # 9 is out of bounds
    array([ 0, -1])
    """

    tree_: TreeMap

    def __init__(self, *, max_depth: int = 6, axes: Literal["principal", "coordinate"] = "principal") -> None:
        self.max_depth = max_depth
        self.axes = axes

    def fit(self, Z: ArrayLike) -> Self:
        """Learn the medians and bounds from vectors, one row each."""
        Z = _matrix(Z)
        if not isinstance(self.max_depth, int | np.integer) or not 0 <= self.max_depth <= MAX_DEPTH:
            raise InputError(f"max_depth is {self.max_depth!r}; expected a whole number from 0 to {MAX_DEPTH}.")
        if self.axes not in ("principal", "coordinate"):
            raise InputError(f'axes is {self.axes!r}; expected "principal" or "coordinate".')
        centre = axes = None
        # Vectors that are all equal have no axes; their coordinates will do.
        if self.axes == "principal" and self.max_depth > 0 and (Z[0] != Z).any():
            centre, axes = _principal_axes(Z, self.max_depth)
        self.tree_ = grow(Z, self.max_depth, centre, axes)
        self.n_features_in_ = Z.shape[1]
        return self

    def paths(self, Z: ArrayLike) -> Paths:
        """Return each vector's place in the tree, from which the groups of every depth follow."""
        if not hasattr(self, "tree_"):
            raise NotFittedError("this KDTree is not fitted yet; call fit first.")
        Z = _matrix(Z)
        if Z.shape[1] != self.n_features_in_:
            raise InputError(
                f"the vectors have {Z.shape[1]} coordinates; the tree was fitted on {self.n_features_in_}."
            )
        return self.tree_.paths(Z)

    def assign(self, Z: ArrayLike) -> Ints:
        """Return each vector's group, `NO_GROUP` (-1) for vectors out of bounds."""
        paths = self.paths(Z)
        column: Grouping = as_grouping(paths, len(paths))
        return column.leaves()


def _matrix(Z: ArrayLike) -> Floats:
    matrix = np.asarray(Z, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"the vectors have shape {matrix.shape}; expected (rows, coordinates), at least one of each.")
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(f"the vector of row {row} has {matrix[row, column]} at {column}; expected finite numbers.")
    return matrix


def _principal_axes(Z: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the centre and the first principal axes of the rows, each turned so that its largest entry is positive."""
    from sklearn.decomposition import PCA

    keep = min(count, *Z.shape)
    solver = "covariance_eigh" if Z.shape[0] >= Z.shape[1] else "full"
    fitted = PCA(n_components=keep, svd_solver=solver).fit(Z)
    axes = np.asarray(fitted.components_)
    signs = np.sign(axes[np.arange(keep), np.abs(axes).argmax(axis=1)])
    return np.asarray(fitted.mean_), axes * np.where(signs == 0, 1.0, signs)[:, None]
