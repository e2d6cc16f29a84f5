"""The share of correct rows in a new document is in its interval as often as guaranteed, whatever the confidences."""

import numpy as np
import pytest

from qacal.metrics import document_shares
from qacal.metrics.documents import _documents
from tests.theory.lab import assert_breaks, assert_holds, at_least, failure_rate


def documents(rng, count, together, distortion=0.0):
    """Return ids, confidences and labels; rows of a document are correlated, and confidences may be wrong."""
    ids = np.repeat(np.arange(count), rng.choice([1, 3, 8, 20], count))
    true = np.clip(0.5 * rng.beta(4, 2, count)[ids] + 0.5 * rng.random(len(ids)), 0, 1)
    luck = np.where(rng.random(len(ids)) < together, rng.random(count)[ids], rng.random(len(ids)))
    return ids, np.clip(true + distortion, 0, 1), luck < true


def misses(rng, together, labelled=39, alpha=0.1, distortion=0.0):
    ids, p, y = documents(rng, labelled + 1, together, distortion)
    new = ids == labelled
    found = document_shares(y[~new], p[~new], ids[~new], p[new], ids[new], alpha)
    return not found.low[0] - 1e-9 <= y[new].mean() <= found.high[0] + 1e-9


@pytest.mark.parametrize("together", [0, 0.5, 1])
@pytest.mark.parametrize("distortion", [0, 0.3])
def test_the_share_is_in_the_interval(together, distortion):
    assert_holds(lambda rng: misses(rng, together, distortion=distortion), 0.1, 2000)


def test_with_few_documents_too():
    assert_holds(lambda rng: misses(rng, 0.5, labelled=9), 0.1, 2000)


def test_the_interval_is_nearly_tight():
    """With 39 documents the rank is exact; only ties and the grid of possible shares widen it."""
    assert failure_rate(lambda rng: misses(rng, 0.5), 2000) >= at_least(0.07, 2000)


def test_a_rank_without_the_new_document_breaks_it():
    """With nine documents: the 0.9 n-th smallest error instead of the 0.9 (n + 1)-th."""

    def broken(rng):
        ids, p, y = documents(rng, 10, 0.5)
        document, _, rows, mean, scale = _documents(p, ids.astype(np.uint64))
        error = np.abs(np.bincount(document, y) / rows - mean) / scale
        return error[9] > np.quantile(error[:9], 0.9) + 1e-9

    assert_breaks(broken, 0.1, 2000)


def test_assuming_independent_rows_breaks_it():
    """The normal interval of a sum of independent labels, on documents with correlated rows."""

    def broken(rng):
        _, p, y = documents(rng, 1, 0.7)
        return abs(y.mean() - p.mean()) > 1.645 * np.sqrt((p * (1 - p)).sum()) / len(p)

    assert_breaks(broken, 0.1, 2000)
