"""Rows for experiments: four kinds of question with distinct vectors, each miscalibrated in its own way."""

import numpy as np
import polars as pl

RIGHT = {"law": 0.35, "art": 0.5, "maths": 0.8, "chess": 0.95}


def vectors_and_labels(n=1200, seed=0, llm="parrot-1"):
    rng = np.random.default_rng(seed)
    kinds = np.array(list(RIGHT))[rng.integers(0, 4, n)]
    corner = np.array([[i, j] for i in (-1, 1) for j in (-1, 1)])[[list(RIGHT).index(kind) for kind in kinds]]
    Z = np.concatenate([3 * corner + rng.normal(size=(n, 2)), rng.normal(size=(n, 2))], axis=1)
    h = rng.choice([0.6, 0.7, 0.8, 0.9, 1.0], n)
    right = rng.random(n) < np.clip([RIGHT[kind] for kind in kinds] + 0.3 * (h - 0.8), 0, 1)
    return pl.DataFrame(
        {
            "id": [f"{seed}-{row}" for row in range(n)],
            "confidence": h,
            "correct": right.astype(int),
            "embedding": Z.tolist(),
            "other": Z[:, ::-1].tolist(),
            "kind": kinds,
            "model": [llm] * n,
        }
    )
