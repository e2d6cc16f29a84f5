import numpy as np
import pytest

from qacal import InputError
from qacal.metrics import document_shares

RNG = np.random.default_rng(0)
IDS = np.repeat(np.arange(60), 5)
P = RNG.choice([0.3, 0.6, 0.9], 300)
Y = RNG.random(300) < P


def test_documents_keep_their_order_and_their_rows_may_be_anywhere():
    found = document_shares(Y, P, IDS, [0.9, 0.2, 0.9, 0.6], ["z", "a", "z", "m"])
    assert found.first.tolist() == [0, 1, 3]
    assert found.rows.tolist() == [2, 1, 1]
    np.testing.assert_allclose(found.expected, [0.9, 0.2, 0.6])
    assert found.labelled == 60


def test_the_order_of_rows_does_not_matter():
    order = RNG.permutation(300)
    one, two = (
        document_shares(y, p, ids, P[:50], IDS[:50]) for y, p, ids in ((Y, P, IDS), (Y[order], P[order], IDS[order]))
    )
    np.testing.assert_array_equal(one.low, two.low)
    np.testing.assert_array_equal(one.high, two.high)


def test_ends_are_shares_that_the_document_can_have():
    found = document_shares(Y, P, IDS, P, IDS)
    for ends in (found.low, found.high):
        np.testing.assert_allclose(ends * 5, np.rint(ends * 5), atol=1e-9)
    assert (found.low <= found.high).all()
    # On the labelled documents the rank is the number of covered ones.
    share = Y.reshape(60, 5).mean(axis=1)
    assert ((found.low - 1e-9 <= share) & (share <= found.high + 1e-9)).sum() >= 55


def test_too_few_documents_are_counted():
    with pytest.raises(
        InputError, match=r"there are 8 labelled documents; intervals with probability 0.9 need 9 or more"
    ):
        document_shares(Y[:40], P[:40], IDS[:40], [0.5], ["new"])
    assert document_shares(Y[:45], P[:45], IDS[:45], [0.5], ["new"]).labelled == 9
    with pytest.raises(InputError, match="alpha is 2"):
        document_shares(Y, P, IDS, [0.5], ["new"], alpha=2)
