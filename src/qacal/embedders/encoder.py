"""What every encoder of pairs has in common: tokenize, batch by length, run, pool, and put back in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qacal.embedders.base import Progress, Vectors
from qacal.embedders.batches import Batch, Padding, TokenRow, token_batches
from qacal.embedders.pooling import Pooling, pooled, unit_rows
from qacal.embedders.texts import paired_texts

TOKENS_A_BATCH = 1024
"""How many tokens, padding included, an encoder is given at a time; with more, MiniLM outgrows the caches and slows."""

# So many rows are tokenized at a time: enough to sort by length, few enough to hold in memory.
_ROWS_A_STEP = 8192


@dataclass(frozen=True, eq=False)
class Encoder:
    """A tokenizer, a network and how to read them.

    tokenize : questions and answers to tokens, one row per pair.
    hidden : a batch to the vectors of its tokens, (rows, tokens, dim).
    max_length : where `tokenize` cuts a pair.
    tokens_a_batch : how many tokens the network is given at a time; 0 gives it one row at a time.
    """

    tokenize: Callable[[list[str], list[str]], list[TokenRow]]
    hidden: Callable[[Batch], Vectors]
    dim: int
    padding: Padding
    pooling: Pooling
    max_length: int
    cls: frozenset[int] = frozenset()
    normalised: bool = False
    tokens_a_batch: int = TOKENS_A_BATCH

    def settings(self) -> dict[str, str | int]:
        """Return what shapes the vectors besides weights and tokenizer, for the digest."""
        return {
            "pair": "pair",
            "max_length": self.max_length,
            "pooling": self.pooling,
            "normalised": self.normalised,
            "padding": f"{self.padding.side} {self.padding.token} {self.padding.token_type}",
        }

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row. Equal rows are run once."""
        pairs = list(zip(*paired_texts(questions, answers), strict=True))
        place = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
        index = np.array([place[pair] for pair in pairs], dtype=np.int64)
        copies = np.bincount(index)
        distinct, done = list(place), 0
        out = np.zeros((len(distinct), self.dim), dtype=np.float32)
        for start in range(0, len(distinct), _ROWS_A_STEP):
            rows = self._tokens(distinct[start : start + _ROWS_A_STEP])
            for batch in token_batches(np.array([len(row.ids) for row in rows]), self.tokens_a_batch):
                out[start + batch] = self._vectors([rows[at] for at in batch])
                done += int(copies[start + batch].sum())
                if progress is not None:
                    progress(done, len(pairs))
        return out[index]

    def _tokens(self, pairs: list[tuple[str, str]]) -> list[TokenRow]:
        return self.tokenize([question for question, _ in pairs], [answer for _, answer in pairs])

    def _vectors(self, rows: list[TokenRow]) -> Vectors:
        # A text without any token has no vector; zeros stand for it.
        out = np.zeros((len(rows), self.dim), dtype=np.float32)
        known = [at for at, row in enumerate(rows) if row.ids]
        if known:
            batch = self.padding.batch([rows[at] for at in known])
            vectors = pooled(self.hidden(batch), batch, self.pooling, self.cls)
            out[known] = unit_rows(vectors) if self.normalised else vectors
        return out
