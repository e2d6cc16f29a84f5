"""The steps of every encoder: tokenize, batch by length, run the network, pool, and restore the order of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np

from qacal.embedders.base import Progress, Vectors, paired_texts, settings_digest, unit_rows
from qacal.errors import InputError
from qacal.tally.arrays import Ints

TOKENS_A_BATCH = 1024
"""Tokens per batch, padding included; with more, MiniLM outgrows the processor's caches and slows down."""

# Rows that are tokenized at a time: enough to sort by length, few enough to hold in memory.
_ROWS_A_STEP = 8192
# Encoders that name no limit get the usual one. A limit above a million is a placeholder: transformers writes 10^30.
_USUAL_MAX_LENGTH, _NO_LIMIT = 512, 10**6

Pooling: TypeAlias = Literal["cls", "mean", "last"]


@dataclass(frozen=True)
class TokenRow:
    """The tokens of one row."""

    ids: list[int]
    type_ids: list[int]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows padded to one width, by the names of the inputs of transformers."""

    input_ids: Ints
    attention_mask: Ints
    token_type_ids: Ints


@dataclass(frozen=True)
class Padding:
    """How the tokenizer pads short rows."""

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
            tokens = slice(count) if self.side == "right" else slice(shape[1] - count, None)
            ids[at, tokens], types[at, tokens], mask[at, tokens] = row.ids, row.type_ids, 1
        return Batch(ids, mask, types)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A tokenizer and a network, with the settings that they need.

    tokenize : questions and answers to tokens, one row per pair.
    hidden : a batch to the vectors of its tokens, (rows, tokens, dim).
    max_length : where `tokenize` cuts a pair.
    cls : the ids that the token for the whole text may have.
    normalised : whether vectors are scaled to length 1.
    tokens_a_batch : tokens per batch; 0 means one row at a time.
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

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row. Equal rows are run once."""
        pairs = list(zip(*paired_texts(questions, answers), strict=True))
        place = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
        index = np.array([place[pair] for pair in pairs], dtype=np.int64)
        copies = np.bincount(index)
        distinct, done = list(place), 0
        out = np.zeros((len(distinct), self.dim), dtype=np.float32)
        for start in range(0, len(distinct), _ROWS_A_STEP):
            step = distinct[start : start + _ROWS_A_STEP]
            rows = self.tokenize([question for question, _ in step], [answer for _, answer in step])
            for batch in token_batches(np.array([len(row.ids) for row in rows]), self.tokens_a_batch):
                out[start + batch] = self._vectors([rows[at] for at in batch])
                done += int(copies[start + batch].sum())
                if progress is not None:
                    progress(done, len(pairs))
        return out[index]

    def _vectors(self, rows: list[TokenRow]) -> Vectors:
        # A text without tokens has no vector; it gets zeros.
        out = np.zeros((len(rows), self.dim), dtype=np.float32)
        filled = [at for at, row in enumerate(rows) if row.ids]
        if filled:
            batch = self.padding.batch([rows[at] for at in filled])
            vectors = pooled(self.hidden(batch), batch, self.pooling, self.cls)
            out[filled] = unit_rows(vectors) if self.normalised else vectors
        return out


class EncoderEmbedder:
    """Base of embedders that run an encoder.

    arguments : the arguments of the constructor. Pickle and copy call it again, which loads the files again.
    digests : of the weights and the tokenizer. Together with the settings that change vectors, they make the digest.
    """

    def __init__(self, encoder: Encoder, *arguments: Any, **digests: str) -> None:
        self._encoder = encoder
        self._arguments = arguments
        self.dim = encoder.dim
        padding = encoder.padding
        self.digest = settings_digest(
            **digests,
            pair="pair",
            max_length=encoder.max_length,
            pooling=encoder.pooling,
            normalised=encoder.normalised,
            padding=f"{padding.side} {padding.token} {padding.token_type}",
        )

    def __reduce__(self) -> tuple[type[EncoderEmbedder], tuple[Any, ...]]:
        return type(self), self._arguments

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        return self._encoder.embed(questions, answers, progress)


def token_batches(lengths: Ints, tokens_a_batch: int) -> Iterator[Ints]:
    """Yield the rows of each batch, short rows first, so that little is padded.

    A batch has at most `tokens_a_batch` tokens, padding included, or one row.

    >>> [batch.tolist() for batch in token_batches(np.array([9, 2, 3, 2]), tokens_a_batch=6)]
    [[1, 3], [2], [0]]
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        # A batch is as wide as its last row. Its size grows with each row, so the limit can be looked up.
        sizes = lengths[order[start:]] * np.arange(1, len(order) - start + 1)
        stop = start + max(1, int(np.searchsorted(sizes, tokens_a_batch, side="right")))
        yield order[start:stop]
        start = stop


def as_pooling(value: str) -> Pooling:
    """Return a pooling by its name.

    >>> as_pooling("max")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: pooling is 'max'; expected 'cls', 'mean' or 'last'.
    """
    if value not in get_args(Pooling):
        raise InputError(f"pooling is {value!r}; expected 'cls', 'mean' or 'last'.")
    return cast(Pooling, value)


def max_length_of(*limits: Any) -> int:
    """Return the number of tokens that an encoder reads: the lowest of the limits that it names.

    >>> max_length_of(10**30, None, 128), max_length_of(None)
    (128, 512)
    """
    return min((int(limit) for limit in limits if limit and 0 < limit < _NO_LIMIT), default=_USUAL_MAX_LENGTH)


def pooled(hidden: Vectors, batch: Batch, pooling: Pooling, cls: frozenset[int]) -> Vectors:
    """Return one vector per row of a batch.

    hidden : the tokens' vectors, (rows, tokens, dim).
    pooling : "mean" averages the tokens of the row, without padding; "last" takes the last token; "cls" takes the
        token that the encoder reserves for the whole text.
    cls : the ids that such a token may have.
    """
    mask, rows = batch.attention_mask, np.arange(len(hidden))
    if pooling == "mean":
        is_token = mask[:, :, None] > 0
        # Along the middle axis numpy adds token by token, so the zeros of the padding change no bit.
        means: Vectors = np.where(is_token, hidden, np.float32(0)).sum(axis=1) / is_token.sum(axis=1, dtype=np.float32)
        return means
    at = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    if pooling == "cls":
        # BERT puts the token first, XLNet last. Only the ends are looked at, since a text may contain "[CLS]" too.
        first = mask.argmax(axis=1)
        is_first, is_last = (np.isin(batch.input_ids[rows, end], list(cls)) for end in (first, at))
        if not (is_first | is_last).all():
            raise InputError(
                'pooling is "cls", but the tokenizer puts no cls token at either end of a text; use ?pooling=mean or '
                "last."
            )
        at = np.where(is_first, first, at)
    chosen: Vectors = hidden[rows, at]
    return chosen
