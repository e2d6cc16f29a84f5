r"""Multicalibration as it was first described: patch one set of rows after the other until none is off by much.

Hébert-Johnson, Kim, Reingold and Rothblum (ICML 2018), on the fitting rows themselves. Given groups
:math:`C` that may overlap, and levels of width :math:`\lambda`, look at all sets :math:`S_v`, the rows of a group
:math:`S` whose score is at level :math:`v`. While some set that holds a share :math:`\alpha\lambda` of its group or
more has

.. math:: |E[y - p \mid S_v]| > \alpha,

move the scores of the set by that much (and back into [0, 1]). The patches, played again in their order, score new
rows.

Where it departs from the paper: of all sets that are off, the one whose patch lowers the squared error most is patched
first; labels are seen as they are, without noise; and sets of few rows are left alone, since their mean is noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Patch:
    """Move the rows of one group (of one column of groups) at one level by a constant."""

    column: int
    group: int
    level: int
    shift: float


@dataclass(frozen=True)
class Multicalibration:
    """Find patches, and play them.

    alpha : how far off a set may be.
    n_levels : one over lambda.
    fewest : sets with fewer rows are left alone.
    most_patches : stop there at the latest.
    """

    alpha: float = 0.05
    n_levels: int = 20
    fewest: int = 100
    most_patches: int = 2000

    def patches(self, scores: np.ndarray, correct: np.ndarray, groups: np.ndarray) -> Iterator[Patch]:
        """Yield patches until no set is off.

        groups : a column for each way of grouping, all rows in one being another; whole numbers from 0 up.
        """
        p = scores.astype(np.float64)
        sizes = _sums(groups, None, int(groups.max()) + 1)
        enough = np.maximum(self.fewest, self.alpha / self.n_levels * sizes)[:, :, None]
        shape = (*sizes.shape, self.n_levels)
        for _ in range(self.most_patches):
            sets = groups * self.n_levels + self._levels(p)[:, None]
            rows, off = (_sums(sets, of, shape[1] * shape[2]).reshape(shape) for of in (None, correct - p))
            shift = off / np.maximum(rows, 1)
            gain = np.where((rows >= enough) & (np.abs(shift) > self.alpha), rows * shift**2, 0.0)
            best = np.unravel_index(gain.argmax(), shape)
            if gain[best] == 0:
                return
            patch = Patch(*map(int, best), float(shift[best]))
            p = self._patched(p, groups, patch)
            yield patch

    def play(self, patches: list[Patch], scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Return the scores of new rows after all patches."""
        p = scores.astype(np.float64)
        for patch in patches:
            p = self._patched(p, groups, patch)
        return p

    def _patched(self, p: np.ndarray, groups: np.ndarray, patch: Patch) -> np.ndarray:
        is_in = (groups[:, patch.column] == patch.group) & (self._levels(p) == patch.level)
        return np.where(is_in, np.clip(p + patch.shift, 0.0, 1.0), p)

    def _levels(self, p: np.ndarray) -> np.ndarray:
        return np.minimum((p * self.n_levels).astype(np.int64), self.n_levels - 1)


def _sums(sets: np.ndarray, of: np.ndarray | None, count: int) -> np.ndarray:
    """Return, for every column of sets, the number of rows in each set, or the sum of something over them."""
    return np.stack([np.bincount(column, of, count) for column in sets.T])
