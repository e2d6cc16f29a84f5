"""What peers without groups of their own are given of a row: its confidence, its vector in short, its group."""

from __future__ import annotations

import numpy as np
import polars as pl
from sklearn.decomposition import PCA

from qacal import BisectingTree

COMPONENTS = 24

GROUP_DEPTH = 5
"""32 groups, of 280 rows (MMLU-Pro) or 120 (open questions)."""

# MCGrad and logits need confidences short of 0 and 1. Of 0, 0.001, 0.01 and 0.05, with this one MCGrad does best.
_CUT = 0.01


def inside(confidence: pl.Series) -> np.ndarray:
    """Return confidences, those of 0 and 1 moved inside."""
    return np.clip(confidence.to_numpy(), _CUT, 1 - _CUT)


def logits(confidence: pl.Series) -> np.ndarray:
    """Return the logits of confidences."""
    h = inside(confidence)
    return np.log(h / (1 - h))


def components(fitting: pl.DataFrame, testing: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the first principal components of the vectors, found on the fitting rows."""
    axes = PCA(COMPONENTS, random_state=0).fit(vectors(fitting))
    return axes.transform(vectors(fitting)), axes.transform(vectors(testing))


def bisecting_groups(fitting: pl.DataFrame, testing: pl.DataFrame, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of every row at the depths 1, 2, ... of a bisecting tree, found on the fitting rows."""
    tree = BisectingTree(max_depth=depth).fit(vectors(fitting))
    paths = (tree.paths(vectors(rows)) for rows in (fitting, testing))
    first, second = (np.column_stack([path.groups(level + 1) for level in range(depth)]) for path in paths)
    return first, second


def vectors(rows: pl.DataFrame) -> np.ndarray:
    """Return the vectors as a matrix."""
    return rows["embedding"].to_numpy()
