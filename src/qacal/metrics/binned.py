"""Residuals in bins, from which every calibration error is computed.

Bins are made of the confidences within each group: one bin per distinct confidence if these are few (discretised
outputs, stated confidences), else 15 bins of equal mass. In each bin the residuals t - p are summed by block of
questions, so that pairs of independent rows can be told from pairs of dependent ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from qacal.errors import InputError
from qacal.parameters import is_whole, shown
from qacal.tally.arrays import Floats, Ints
from qacal.tally.bins import Bins, equal_bins, search_within
from qacal.tally.tally import Tally

BinChoice: TypeAlias = int | Literal["outputs"] | None


@dataclass(frozen=True)
class Binned:
    """A tally in bins.

    tally : the cells, without blocks; `bins` are runs of them.
    blocked : the same rows with their blocks, if they have any.
    """

    tally: Tally
    blocked: Tally
    bins: Bins

    @staticmethod
    def of(tally: Tally, bins: BinChoice = None) -> Binned:
        """Bin a tally; `bins` None lets the number of distinct confidences decide."""
        if len(tally) == 0:
            raise InputError("the tally is empty; at least one row is needed.")
        tally = tally.without_ties()
        cells = tally.without_blocks()
        if bins is None:
            has_few_values = 2 * len(np.unique(cells.confidence)) <= cells.n
            bins = "outputs" if has_few_values else 15
        return Binned(cells, tally, _bins(cells, bins))

    @property
    def is_clustered(self) -> bool:
        """True if questions have, or may have, several rows."""
        return self.blocked.is_clustered or (self.blocked.is_sum and self.blocked.block is not None)

    @cached_property
    def weight(self) -> Floats:
        """The sum of weights of each bin."""
        return self.bins.sum(self.tally.w)

    @cached_property
    def residual(self) -> Floats:
        """The sum of w (t - p) of each bin: above 0 where the LLM is too modest."""
        return self.bins.sum(self.tally.wt - self.tally.confidence * self.tally.w)

    @cached_property
    def pieces(self) -> Pieces:
        """The same sums, per bin and block."""
        blocked = self.blocked
        block = np.zeros(len(blocked), dtype=np.int64) if blocked.block is None else blocked.block
        cell_bin = self.bins.of_cell[_cells_of(self.tally, blocked)]
        key, of_cell = np.unique(cell_bin * blocked.n_blocks + block, return_inverse=True)

        def total(column: Floats) -> Floats:
            return np.asarray(np.bincount(of_cell, weights=column, minlength=len(key)), dtype=np.float64)

        return Pieces(
            of_cell=of_cell,
            bin=key // blocked.n_blocks,
            block=key % blocked.n_blocks,
            weight=total(blocked.w),
            weight_squares=total(blocked.ww),
            residual=total(blocked.wt - blocked.confidence * blocked.w),
            squares=total(_squares(blocked)),
        )


@dataclass(frozen=True)
class Pieces:
    """Sums over the rows that share a bin and a block; `of_cell` is the piece of each cell with a block.

    residual, squares : the sum of w (t - p), and of w^2 (t - p)^2: what rows paired with themselves add to its square.
    """

    of_cell: Ints
    bin: Ints
    block: Ints
    weight: Floats
    weight_squares: Floats
    residual: Floats
    squares: Floats


def _squares(tally: Tally) -> Floats:
    p = tally.confidence
    return tally.wwtt - 2 * p * tally.wwt + p * p * tally.ww


def _bins(cells: Tally, choice: BinChoice) -> Bins:
    if isinstance(choice, str) and choice == "outputs":
        codes, first, last = cells.group_runs()
        start = np.arange(len(cells))
        return Bins(cells, start, start + 1, np.repeat(codes, last - first))
    if not is_whole(choice, 1):
        raise InputError(
            f'bins is {shown(choice)}; expected a number of bins or "outputs", one bin per distinct confidence.'
        )
    return equal_bins(cells, int(choice))


def _cells_of(cells: Tally, blocked: Tally) -> Ints:
    """Return, for each cell with a block, the cell that has its rows without blocks."""
    if blocked.block is None:
        return np.arange(len(blocked))
    codes, first, last = cells.group_runs()
    run = np.searchsorted(codes, blocked.grouping.code) if blocked.grouping is not None else np.zeros(len(blocked), int)
    return search_within(cells.confidence, blocked.confidence, first[run], last[run])
