"""Vectors for the tests of partitions: clouds, grids with many ties, and the awkward ones."""

import numpy as np
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def clouds(seed, n=300, width=6, count=5):
    """Vectors around a few centres, of which some are twice there."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, width)) * 3
    Z = centres[rng.integers(0, count, n)] + rng.normal(size=(n, width))
    Z[rng.integers(0, n, n // 10)] = Z[rng.integers(0, n, n // 10)]
    return Z


def grid(seed, n=40, width=3):
    """Vectors on few values, so that medians, bounds and duplicates meet."""
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=(n, width)), rng.integers(0, 2))


def learned_from(partition, Z):
    """Return a fitted copy of a partition; with labels that have to do with the vectors, if it takes labels."""
    return partition.clone().fit(Z, **(labels(Z) if partition.uses_labels else {}))


def labels(Z):
    """Stated confidences, and which answers were right: more of them where the first coordinate is above zero."""
    try:
        first = np.array(Z, dtype=np.float64)[:, 0]
    except (TypeError, ValueError, IndexError):  # no vectors; what is known of them does not matter
        first = np.zeros(1)
    rng = np.random.default_rng(len(first))
    confidence = rng.choice([0.7, 0.8, 1.0], max(len(first), 1))
    return {"confidence": confidence, "correct": np.resize(rng.random(len(first)) + (first > 0) > 0.8, len(confidence))}


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
    "wider than long": np.random.default_rng(0).normal(size=(4, 30)),
}
