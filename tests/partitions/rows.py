"""Vectors for the tests of partitions: clouds, grids with many ties, and difficult ones."""

import numpy as np
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def clouds(seed, n=300, width=6, count=5):
    """Return vectors around a few centres, with some duplicates."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, width)) * 3
    Z = centres[rng.integers(0, count, n)] + rng.normal(size=(n, width))
    Z[rng.integers(0, n, n // 10)] = Z[rng.integers(0, n, n // 10)]
    return Z


def grid(seed, n=40, width=3):
    """Return vectors with few distinct values, so that medians, bounds and duplicates coincide."""
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=(n, width)), rng.integers(0, 2))


AWKWARD = {
    "one row": np.array([[1.0, -2.0, 0.5]]),
    "constant": np.full((20, 3), 0.1),
    "zeros": np.zeros((5, 2)),
    "two rows": np.array([[0.0], [1.0]]),
    "two values": np.repeat([[0.0, 1.0], [1.0, 0.0]], [9, 1], axis=0),
    "equal up to rounding": np.array([[0.1 + 0.2], [0.3], [0.3]]),
    "far from zero": np.random.default_rng(0).normal(size=(50, 3)) + 1e6,
    "tiny": np.random.default_rng(0).normal(size=(50, 3)) * 1e-150,
    "huge": np.random.default_rng(0).normal(size=(50, 3)) * 1e90,
    "at right angles": np.eye(6)[np.arange(60) % 6],
    "wider than long": np.random.default_rng(0).normal(size=(4, 30)),
}
