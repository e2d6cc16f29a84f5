r"""Gaussian effects along a tree, exactly: one pass up and one pass down, in matrices of two by two.

A node's coefficients are its parent's plus a part of its own, :math:`c_v = c_{pa(v)} + \delta_v` with :math:`\delta_v
\sim N(0, \Sigma)`; the root's are given. Rows speak of the :math:`c_v` of their own node, with the curvature
:math:`A_v` and the score :math:`g_v`. Going up, let :math:`\Lambda_v = A_v + \sum_{children} K` be what the rows below
:math:`v` know of :math:`c_v`. Then they know of its parent's

.. math::
    K_v = \Lambda_v - \Lambda_v C_v \Lambda_v, \qquad C_v = \Sigma (I + \Lambda_v \Sigma)^{-1},

where :math:`C_v` is the variance left of :math:`\delta_v` if :math:`c_{pa(v)}` is known; and :math:`\prod_v \det(I +
\Lambda_v \Sigma)` is the determinant of the whole tree. For two by two, with :math:`A^*` the adjugate, these need no
solver and hold at every rank of :math:`\Sigma`, zero included:

.. math::
    \det(I + \Lambda\Sigma) = 1 + \mathrm{tr}\,\Lambda\Sigma + \det\Lambda\det\Sigma =: m, \qquad
    C = (\Sigma + \det\Sigma \, \Lambda^*) / m, \quad K = (\Lambda + \det\Lambda \, \Sigma^*) / m, \quad
    E := (I + \Lambda\Sigma)^{-1} = (I + \Lambda\Sigma)^* / m.

For the same reason effects are kept as :math:`\delta_v = \Sigma y_v`. What belongs to nodes is stored a row per number
and a column per node; a symmetric matrix is its three numbers (11, 12, 22), a general one its four.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qacal.calibrators.mixed.nodes import Nodes
from qacal.tally.arrays import Floats

_ADJUGATE = np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]])
_TWICE = np.array([1.0, 2.0, 1.0])
_UNIT = np.array([[1.0], [0.0], [0.0], [1.0]])


class Knowledge(NamedTuple):
    """What the pass up finds for every node. Of the root, which has no part of its own, C, K and E are zero.

    transposed : the four numbers of E'.
    """

    sigma: Floats
    Lambda: Floats
    C: Floats
    K: Floats
    E: Floats
    transposed: Floats
    log_determinant: float


def gather_knowledge(nodes: Nodes, A: Floats, sigma: Floats) -> Knowledge:
    """Return what the rows know, for curvatures A of all nodes and the three numbers of a covariance."""
    Lambda, K, m = A.copy(), np.zeros_like(A), np.ones(A.shape[1])
    column, adjugate, det_sigma = sigma[:, None], _ADJUGATE @ sigma[:, None], float(determinant(sigma))
    for family in reversed(nodes.families):
        level = family.children
        here = Lambda[:, level]
        det_here = determinant(here)
        m[level] = size = (sigma * _TWICE) @ here + det_sigma * det_here + 1
        K[:, level] = told = (here + det_here * adjugate) / size
        family.give_up(told, Lambda)
    share = 1 / m
    share[0] = 0.0
    C = (column + det_sigma * (_ADJUGATE @ Lambda)) * share
    E = (_adjugate_of_product(sigma) @ Lambda + _UNIT) * share
    return Knowledge(sigma, Lambda, C, K, E, E[[0, 2, 1, 3]], float(np.log(m).sum()))


def solve(nodes: Nodes, known: Knowledge, g: Floats, y: Floats) -> tuple[Floats, Floats]:
    r"""Return (y, d): the effects to which one Newton step leads, and how far it moves every :math:`c_v`.

    They maximise :math:`\sum_v g_v^\top d_v - \frac12 d_v^\top A_v d_v - \frac12 y_v^\top \Sigma y_v` for scores g at
    effects that stand at y so far. Several problems may be solved at once: g and y may have further axes in the middle.
    """
    sigma, Lambda, K, E, transposed = (_spread(part, g.ndim) for part in (*known[:2], *known[3:6]))
    delta = times(sigma, y)
    eta, stay = g.copy(), y - times4(E, y)
    for family in reversed(nodes.families):
        level = family.children
        family.give_up(times4(E[..., level], eta[..., level]) + stay[..., level], eta)
    alone = times4(E, eta + times(Lambda, delta))
    # Alone is where a node goes if its parent stays; else y = alone - K d_parent, and I - Sigma K = E'.
    d = times(sigma, alone) - delta
    for level, parents in nodes.levels:
        d[..., level] += times4(transposed[..., level], np.take(d, parents, axis=-1))
    return alone - times(K, np.take(d, nodes.parent, axis=-1)), d


def posterior_covariances(nodes: Nodes, known: Knowledge) -> Floats:
    r"""Return what the rows leave unknown of every :math:`c_v`: :math:`S_v = C_v + E_v^\top S_{pa(v)} E_v`."""
    S, turn = known.C.copy(), _congruence(known.E)
    for level, parents in nodes.levels:
        S[:, level] += (turn[:, :, level] * np.take(S, parents, axis=1)).sum(axis=1)
    return S


def _spread(part: Floats, dimensions: int) -> Floats:
    """Return a column per node with room for several problems between."""
    shape = part.shape[0], *[1] * (dimensions - 2), -1
    return part.reshape(shape)


def matrix(three: Floats) -> Floats:
    """Return a symmetric matrix from its three numbers."""
    return three[[0, 1, 1, 2]].reshape(2, 2)


def determinant(three: Floats) -> Floats:
    """Return the determinants of symmetric matrices."""
    return np.asarray(three[0] * three[2] - three[1] * three[1])


def times(A: Floats, x: Floats) -> Floats:
    """Return A x for symmetric matrices."""
    return np.asarray(A[:2] * x[0] + A[1:] * x[1])


def times4(E: Floats, x: Floats) -> Floats:
    """Return E x for general matrices."""
    return np.asarray(E[::2] * x[0] + E[1::2] * x[1])


def sandwich(K: Floats, S: Floats) -> Floats:
    """Return K S K for symmetric matrices."""
    return np.asarray((_congruence(K[[0, 1, 1, 2]]) * S).sum(axis=1))


def _adjugate_of_product(sigma: Floats) -> Floats:
    """Return the matrix that makes the adjugate of Lambda Sigma, its four numbers, of the three of Lambda."""
    a, b, c = sigma.tolist()
    return np.array([[0.0, b, c], [-b, -c, 0.0], [0.0, -a, -b], [a, b, 0.0]])


def _congruence(E: Floats) -> Floats:
    """Return the matrices that make E' S E, its three numbers, of the three of S."""
    a, b, c, d = E
    return np.array([[a * a, 2 * a * c, c * c], [a * b, a * d + b * c, c * d], [b * b, 2 * b * d, d * d]])
