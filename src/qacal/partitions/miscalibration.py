r"""Where an LLM is miscalibrated: the direction among vectors along which its answers are righter than it says.

With :math:`\ell(h)` the pooled curve on the scale of logits (what a stated confidence is worth over all rows), answers
near :math:`z` are right with probability

.. math:: \mathrm{logit}^{-1}\big(\ell(h) + a + b \cdot z\big), \qquad b \sim N(0, \tau^2),

of which this module learns :math:`b`. The score :math:`b \cdot z` is in logits: how much righter than stated.
"""

from __future__ import annotations

import numpy as np

from qacal.tally.arrays import Floats
from qacal.tally.isotonic import isotonic_shape
from qacal.tally.tally import Tally

FEWEST_ROWS = 200
"""With fewer labels than this, what looks like a direction is mostly chance."""

SPREADS = np.geomspace(0.05, 20.0, 40)
r"""The values of :math:`\tau` that are tried: the spread of scores, in logits, that is thought likely beforehand."""


def miscalibration(X: Floats, confidence: Floats, correct: Floats) -> Floats:
    r"""Return :math:`b`, one number a coordinate; all zeros if the rows show no direction.

    X : vectors less their mean, of total variance 1.

    One Newton step of the penalised likelihood from :math:`b = 0`, which is ridge regression: of the residuals
    :math:`(y - p)/w` with weights :math:`w = p(1 - p)`. :math:`\tau` is the one with the least squared error when every
    row is left out in turn, in closed form; if none is better than :math:`b = 0`, that is the answer.
    """
    if len(X) < FEWEST_ROWS:
        return np.zeros(X.shape[1])
    shape = isotonic_shape(Tally.of(confidence, correct))
    p = 1 / (1 + np.exp(-shape.apply(confidence)))
    w = p * (1 - p)
    return ridge(X, (correct - p) / w, w)


def ridge(X: Floats, y: Floats, w: Floats) -> Floats:
    r"""Return the slope of weighted ridge regression with an intercept, its penalty chosen by leaving out each row.

    .. math:: \min_{a, b} \sum_i w_i (y_i - a - b \cdot x_i)^2 + |b|^2 / \tau^2
    """
    root = np.sqrt(w)
    left, singular, right = np.linalg.svd(_centred(X, w) * root[:, None], full_matrices=False)
    target = _centred(y, w) * root
    along = left.T @ target
    kept = singular**2 / (singular**2 + SPREADS[:, None] ** -2.0)  # one line a penalty: the share of each component
    residual = target[:, None] - left @ (kept * along).T
    leverage = (left**2) @ kept.T + (w / w.sum())[:, None]
    errors = ((residual / (1 - leverage)) ** 2).sum(axis=0)
    without = ((target / (1 - w / w.sum())) ** 2).sum()
    best = int(errors.argmin())
    if not errors[best] < without:
        return np.zeros(X.shape[1])
    slope: Floats = right.T @ (along * singular / (singular**2 + SPREADS[best] ** -2.0))
    return slope


def _centred(values: Floats, w: Floats) -> Floats:
    return values - np.average(values, axis=0, weights=w)
