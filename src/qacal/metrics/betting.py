r"""Bets against statements about means: evidence that may be looked at after every label.

*The null.* Process :math:`i` tests one one-sided statement: given the rows before, the next value of
:math:`X_{i,t} \ge -m_i` has a mean of at most 0. For a statement :math:`\mathrm{E}[Y] \le u` about labels this is
:math:`X = Y - u` and :math:`m = u`. A row that the statement is not about has the value 0.

*The process.* A bettor starts with 1 and stakes the share :math:`c` of the capital on each row; the wealth is the mean
over a fixed grid of shares,

.. math:: W_{i,t} = \frac{1}{|C|} \sum_{c \in C} \prod_{s \le t} \Bigl(1 + \frac{c}{m_i} X_{i,s}\Bigr).

*Proof.* Under the null no factor has a mean above 1, so :math:`W_i` is a supermartingale that starts at 1 and is never
negative. It ever reaches :math:`1/\alpha` with probability :math:`\alpha` at most (Ville 1939), however often one looks
and whenever one stops. The mean of several wealths is such a process, too, however they depend on each other.

*Many statements.* Means have fixed weights :math:`v_i`. Statement :math:`i` is called broken if every set of statements
with :math:`i` in it has a mean wealth of at least :math:`1/\alpha` (closed testing). The worst set adds all wealths
below :math:`1/\alpha`, so this is

.. math:: v_i W_i \ge \frac{v_i}{\alpha} + \sum_{j:\, W_j < 1/\alpha} v_j \Bigl(\frac{1}{\alpha} - W_j\Bigr).

A true statement is called broken only if the mean wealth of all true ones reaches :math:`1/\alpha`. So all alarms that
are ever raised are right, with probability :math:`1 - \alpha`. "Something is broken" needs only the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qacal.guarantee import check_alpha
from qacal.tally.arrays import Bools, Floats, Ints

STAKES = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 9 / 10])
"""The shares of the capital that are staked. Small ones find small differences, large ones find large ones early."""

# Rows that are bet on at a time.
_ROWS = 4096
# Wealths are compared up to this logarithm, so that sums stay finite.
_MOST = 600.0


@dataclass(frozen=True, eq=False)
class Alarms:
    """What bets say after all rows.

    log_wealth : of each process.
    broken_at : the row at which each statement is first called broken, from 0; -1 for never.
    any_at : the row at which something is first called broken; -1 for never.
    """

    log_wealth: Floats
    broken_at: Ints
    any_at: int


def bet(x: Floats, lowest: Floats, alpha: float = 0.1, weights: Floats | None = None) -> Alarms:
    """Bet on rows in their order, look after each of them, and return all alarms.

    x : a row for each label and a column for each process; 0 where a statement is not about the row.
    lowest : the smallest value that each column can have, below 0.
    alpha : the probability that any alarm is ever wrong.
    weights : of the processes, fixed before any label is seen; larger ones raise alarms earlier. Default: all equal.

    Examples
    --------
    Two groups are said to be right in at least 80% of the cases. One still is, the other fell to 50%:

    >>> rng = np.random.default_rng(1)
    >>> correct, group = rng.random(400) < np.tile([0.8, 0.5], 200), np.tile([0, 1], 200)
    >>> x = np.where(group[:, None] == [0, 1], 0.8 - correct[:, None], 0.0)
    >>> alarms = bet(x, lowest=np.array([-0.2, -0.2]))
    >>> alarms.broken_at, alarms.any_at
    (array([-1, 37]), 37)
    """
    check_alpha(alpha)
    processes = x.shape[1]
    share = np.full(processes, 1.0) if weights is None else weights
    stake = STAKES / -np.asarray(lowest, dtype=np.float64)[:, None]
    capital = np.zeros((processes, len(STAKES)))
    broken_at, any_at = np.full(processes, -1), -1
    for start in range(0, len(x), _ROWS):
        part = x[start : start + _ROWS]
        wealth = np.empty(part.shape)
        for at in range(processes):
            # Only rows that a statement is about change its wealth.
            rows = np.flatnonzero(part[:, at])
            gains = np.log1p(part[rows, at, None] * stake[at])
            history = capital[at] + np.concatenate([np.zeros((1, len(STAKES))), np.cumsum(gains, axis=0)])
            capital[at] = history[-1]
            wealth[:, at] = np.repeat(_averaged(history), np.diff(rows, prepend=0, append=len(part)))
        is_broken = closed(wealth, alpha, share)
        new = (broken_at < 0) & is_broken.any(axis=0)
        broken_at[new] = start + is_broken[:, new].argmax(axis=0)
        is_any = np.exp(np.minimum(wealth, _MOST)) @ share >= share.sum() / alpha
        if processes and any_at < 0 and is_any.any():
            any_at = start + int(is_any.argmax())
    return Alarms(_averaged(capital), broken_at, any_at)


def closed(log_wealth: Floats, alpha: float, weights: Floats) -> Bools:
    """Return which statements are broken by closed testing; the last axis has the statements.

    >>> closed(np.log([[30.0, 1.0], [12.0, 1.0], [12.0, 9.0]]), alpha=0.1, weights=np.ones(2))
    array([[ True, False],
           [False, False],
           [ True, False]])
    """
    wealth = np.exp(np.minimum(log_wealth, _MOST))
    missing = np.maximum(1 / alpha - wealth, 0.0) @ weights
    return np.asarray((wealth >= 1 / alpha) & (weights * (wealth - 1 / alpha) >= missing[..., None]))


def _averaged(log_capital: Floats) -> Floats:
    """Return the logarithm of the mean over the last axis."""
    top = log_capital.max(axis=-1)
    return np.asarray(top + np.log(np.exp(log_capital - top[..., None]).mean(axis=-1)))
