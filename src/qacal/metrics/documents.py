r"""The share of correct rows in a document: fields of an extraction, claims of an answer, turns of a chat.

A document :math:`d` has :math:`n_d` rows with calibrated confidences of mean :math:`m_d`, the expected share of correct
rows. Its true share :math:`s_d` differs from it by

.. math:: e_d = \frac{|s_d - m_d|}{\sigma_d}, \qquad \sigma_d^2 = (v_d + 0.01)\,\frac{1 + 0.3\,(n_d - 1)}{n_d},

with :math:`v_d` the mean of :math:`p (1 - p)` over its rows. Labelled documents show how large :math:`e` gets. Let
:math:`q` be the :math:`\lceil (1 - \alpha)(N + 1) \rceil`-th smallest of :math:`N` labelled documents. If the new
document is exchangeable with these, then :math:`e \le q` with probability :math:`1 - \alpha` or more (split conformal
prediction: the rank of :math:`e` among the :math:`N + 1` is uniform, up to ties), which is an interval for its share.

This holds for any confidences, calibrated or not, and any :math:`\sigma`, as long as both are fixed without the
labelled documents; :math:`\sigma` makes intervals narrower for documents with more rows. The 0.3 stands for the
correlation of rows of a document. The probability is an average over documents like the labelled ones, with similar
numbers of rows: it need not hold for short documents alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from qacal.errors import InputError
from qacal.guarantee import check_alpha
from qacal.tally.arrays import ArrayLike, Floats, Hashes, Ints, require_length, unit_values
from qacal.tally.ids import id_hashes

_CORRELATION, _LEAST_VARIANCE = 0.3, 0.01


@dataclass(frozen=True, eq=False)
class DocumentShares:
    """The expected share of correct rows of each document, with an interval for the true share.

    first : the place of the first row of each document; documents are in the order of these.
    rows : the number of rows.
    expected : the mean of the calibrated confidences.
    low, high : for each document by itself, the interval contains the share of correct rows with probability 1 - alpha.
    labelled : the number of labelled documents behind the intervals.
    """

    first: Ints
    rows: Ints
    expected: Floats
    low: Floats
    high: Floats
    alpha: float
    labelled: int


def document_shares(
    y_true: ArrayLike, y_prob: ArrayLike, ids: ArrayLike, new_prob: ArrayLike, new_ids: ArrayLike, alpha: float = 0.1
) -> DocumentShares:
    """Return the expected share of correct rows in each new document, and an interval for the true share.

    y_true, y_prob, ids : labels, calibrated confidences and documents of labelled rows, which were not used to fit.
    new_prob, new_ids : of the new documents.

    >>> rng = np.random.default_rng(0)
    >>> ids, p = np.repeat(np.arange(200), 8), rng.choice([0.6, 0.9], 1600)
    >>> shares = document_shares(rng.random(1600) < p, p, ids, [0.9] * 8 + [0.6] * 8, ["a"] * 8 + ["b"] * 8)
    >>> shares.expected, shares.low, shares.high
    (array([0.9, 0.6]), array([0.75 , 0.375]), array([1.   , 0.875]))
    """
    check_alpha(alpha)
    t, p = unit_values(y_true, "y_true"), unit_values(y_prob, "y_prob")
    require_length(t, len(p), "y_true")
    document, _, rows, mean, scale = _documents(p, id_hashes(ids, len(p)))
    error = np.sort(np.abs(np.bincount(document, t) / rows - mean) / scale)
    rank = ceil((1 - alpha) * (len(error) + 1) - 1e-9)
    if rank > len(error):
        raise InputError(
            f"there are {len(error)} labelled documents; intervals with probability {1 - alpha:g} need "
            f"{ceil(1 / alpha - 1 - 1e-9)} or more. Label more documents, or pass a larger alpha."
        )
    new = unit_values(new_prob, "new_prob")
    _, first, rows, mean, scale = _documents(new, id_hashes(new_ids, len(new)))
    low, high = _possible_shares(mean, error[rank - 1] * scale, rows)
    at = np.argsort(first)
    return DocumentShares(first[at], rows[at], mean[at], low[at], high[at], alpha, len(error))


def _documents(p: Floats, hashes: Hashes) -> tuple[Ints, Ints, Ints, Floats, Floats]:
    """Return the document of each row, and the first row, number of rows, mean and scale of each document."""
    _, first, document, rows = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    mean, variance = (np.bincount(document, column) / rows for column in (p, p * (1 - p)))
    scale = np.sqrt((variance + _LEAST_VARIANCE) * (1 + _CORRELATION * (rows - 1)) / rows)
    return document, first, rows, mean, scale


def _possible_shares(mean: Floats, half: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Return the lowest and the highest share k / rows within `half` of the mean; the nearest one if there is none."""
    nearest = np.rint(mean * rows)
    # A share right at an end is inside, whatever rounding says.
    low = np.minimum(np.ceil(np.maximum(mean - half, 0) * rows - 1e-9), nearest)
    high = np.maximum(np.floor(np.minimum(mean + half, 1) * rows + 1e-9), nearest)
    return low / rows, high / rows
