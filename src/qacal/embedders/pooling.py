"""From the vectors of a row's tokens to the vector of the row."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from qacal.embedders.base import Vectors
from qacal.embedders.batches import Batch
from qacal.errors import InputError
from qacal.tally.arrays import Ints

Pooling: TypeAlias = Literal["cls", "mean", "last"]


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


def pooled(hidden: Vectors, batch: Batch, pooling: Pooling, cls: frozenset[int]) -> Vectors:
    """Return one vector per row of a batch.

    hidden : the tokens' vectors, (rows, tokens, dim).
    pooling : "mean" averages the row's own tokens; "last" takes its last one; "cls" takes the token that the encoder
        reserves for the whole text, wherever that stands.
    cls : the ids that such a token may have.
    """
    if pooling == "mean":
        return _means(hidden, batch)
    at = _last(batch) if pooling == "last" else _cls_positions(batch, cls)
    chosen: Vectors = hidden[np.arange(len(hidden)), at]
    return chosen


def unit_rows(vectors: Vectors) -> Vectors:
    """Scale every row to length 1; a row of zeros stays as it is.

    >>> unit_rows(np.array([[3, 4], [0, 0]], dtype=np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def _means(hidden: Vectors, batch: Batch) -> Vectors:
    own = batch.attention_mask[:, :, None] > 0
    # Summed along the middle axis numpy adds token by token, so the zeros of the padding change no bit.
    sums = np.where(own, hidden, np.float32(0)).sum(axis=1)
    means: Vectors = sums / own.sum(axis=1, dtype=np.float32)
    return means


def _first(batch: Batch) -> Ints:
    return np.asarray(batch.attention_mask.argmax(axis=1), dtype=np.int64)


def _last(batch: Batch) -> Ints:
    from_the_end = np.asarray(batch.attention_mask[:, ::-1].argmax(axis=1), dtype=np.int64)
    return int(batch.attention_mask.shape[1]) - 1 - from_the_end


def _cls_positions(batch: Batch, cls: frozenset[int]) -> Ints:
    """Return where each row's cls token is: BERT puts it first, XLNet last.

    Only the ends are looked at, since a text may contain the letters "[CLS]" too.
    """
    rows = np.arange(len(batch.input_ids))
    first, last = _first(batch), _last(batch)
    is_first = np.isin(batch.input_ids[rows, first], list(cls))
    is_last = np.isin(batch.input_ids[rows, last], list(cls))
    if not (is_first | is_last).all():
        raise InputError(
            'pooling is "cls", but the tokenizer puts no cls token at either end of a text; use ?pooling=mean or last.'
        )
    return np.where(is_first, first, last)
