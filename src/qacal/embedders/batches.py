"""Batches of tokens: rows of about equal length together, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qacal.tally.arrays import Ints


@dataclass(frozen=True)
class TokenRow:
    """What the tokenizer made of one row."""

    ids: list[int]
    type_ids: list[int]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows padded to one width, by the names that encoders know them by."""

    input_ids: Ints
    attention_mask: Ints
    token_type_ids: Ints


@dataclass(frozen=True)
class Padding:
    """How the tokenizer fills up short rows: with which token, of which type, on which side."""

    token: int = 0
    token_type: int = 0
    side: Literal["left", "right"] = "right"

    def batch(self, rows: list[TokenRow]) -> Batch:
        """Return rows as one batch.

        >>> Padding(token=9).batch([TokenRow([5, 6], [0, 0]), TokenRow([7], [0])]).input_ids
        array([[5, 6],
               [7, 9]])
        """
        shape = len(rows), max(len(row.ids) for row in rows)
        ids, types = np.full(shape, self.token), np.full(shape, self.token_type)
        mask = np.zeros(shape, dtype=np.int64)
        for at, row in enumerate(rows):
            count = len(row.ids)
            own = slice(count) if self.side == "right" else slice(shape[1] - count, None)
            ids[at, own], types[at, own], mask[at, own] = row.ids, row.type_ids, 1
        return Batch(ids, mask, types)


def token_batches(lengths: Ints, tokens_a_batch: int) -> Iterator[Ints]:
    """Deal rows into batches, short ones first; a batch has at most so many tokens, padding included, or one row.

    >>> [batch.tolist() for batch in token_batches(np.array([9, 2, 3, 2]), tokens_a_batch=6)]
    [[1, 3], [2], [0]]
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        # A batch is as wide as its last row. The size grows with every row taken in, so the limit can be looked up.
        sizes = lengths[order[start:]] * np.arange(1, len(order) - start + 1)
        stop = start + max(1, int(np.searchsorted(sizes, tokens_a_batch, side="right")))
        yield order[start:stop]
        start = stop
