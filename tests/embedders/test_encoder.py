"""Batches of an encoder: every row once, little padding, no more tokens than allowed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qacal.embedders.encoder import Padding, TokenRow, token_batches


@given(st.lists(st.integers(0, 300), max_size=200), st.integers(0, 3000))
def test_every_row_is_in_one_batch_and_no_batch_is_too_large(lengths, limit):
    lengths = np.array(lengths, dtype=np.int64)
    batches = list(token_batches(lengths, limit))
    assert sorted(at for batch in batches for at in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= limit


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.sampled_from(["left", "right"]))
def test_padding_keeps_the_rows(lengths, side):
    rows = [TokenRow(list(range(1, length + 1)), [1] * length) for length in lengths]
    batch = Padding(token=99, token_type=3, side=side).batch(rows)
    for at, row in enumerate(rows):
        own = batch.attention_mask[at] == 1
        assert batch.input_ids[at, own].tolist() == row.ids
        assert batch.token_type_ids[at, own].tolist() == row.type_ids
        assert (batch.input_ids[at, ~own] == 99).all()
        assert (batch.token_type_ids[at, ~own] == 3).all()
        assert own[0 if side == "right" else -1]
