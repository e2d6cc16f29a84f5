"""How long trees take to assign a million vectors, beside one pass over what they must read.

    python -m benchmarks.assign

Two passes are shown: reading the columns that are used (their sums), and for trees that project, one product with ten
directions in the type of the vectors. qacal's groups are those of float64 whatever comes in, since a row must have the
same group alone and in a batch. Nothing here fails when a goal is missed: machines are noisy, and the table is to be
read. The trees use all cores, a read uses one: with other work on the machine, the ratios are higher.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from functools import partial

import numpy as np

import qacal
from benchmarks.clock import race
from benchmarks.table import Line, header
from qacal.partitions import BisectingTree, KDTree

ROWS, WIDTH, DEPTH = 10**6, 64, 10

REPEATS = 7

GOAL = 1 / 3
"""At most three times as long as one pass."""


def main() -> None:
    print(
        f"qacal {qacal.__version__}, numpy {np.__version__}, {os.cpu_count()} cores, {platform.machine()}", end="\n\n"
    )
    print(header(), flush=True)
    for dtype in (np.float64, np.float32):
        Z = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(dtype)
        above = ""
        for line in (*coordinate_tree(Z), *projecting_trees(Z)):
            print(line.text(is_first=line.what != above), flush=True)
            above = line.what


def coordinate_tree(Z: np.ndarray) -> Iterator[Line]:
    """Assign by the first ten columns."""
    tree = KDTree(max_depth=DEPTH, axes="coordinate").fit(Z[::100])
    ours, read = race(REPEATS, partial(tree.paths, Z), partial(_read, Z[:, :DEPTH]))
    yield Line(_what("kd-tree, coordinates", Z), ours, f"one read of {DEPTH} columns", read, goal=GOAL)


def projecting_trees(Z: np.ndarray) -> Iterator[Line]:
    """Assign by directions that all columns have a part in."""
    directions = np.linalg.qr(np.random.default_rng(1).standard_normal((WIDTH, DEPTH)))[0].astype(Z.dtype)
    for name, tree in {
        "kd-tree, principal axes": KDTree(max_depth=DEPTH),
        "bisecting tree": BisectingTree(max_depth=DEPTH),
    }.items():
        tree.fit(Z[::100])
        ours, read, product = race(
            REPEATS, partial(tree.paths, Z), partial(_read, Z), partial(np.matmul, Z, directions)
        )
        yield Line(_what(name, Z), ours, f"one product with {DEPTH} directions", product, goal=GOAL)
        yield Line(_what(name, Z), ours, f"one read of {WIDTH} columns", read, goal=GOAL)


def _read(Z: np.ndarray) -> np.ndarray:
    return Z.sum(axis=0)


def _what(name: str, Z: np.ndarray) -> str:
    return f"{name}, depth {DEPTH}, {len(Z):,} x {WIDTH} {Z.dtype}"


if __name__ == "__main__":
    main()
