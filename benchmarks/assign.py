"""How long trees take to assign texts to groups, beside the time to embed these texts.

    python -m benchmarks.assign

`qacal apply` embeds a row, then walks a tree to its group. The goal: walking takes at most a tenth of the time of
`apply` with the static embedder, here at most a tenth of embedding alone. Both are measured in turns on one machine.
Nothing here fails when the goal is missed: machines are noisy.
"""

from __future__ import annotations

import os
import platform
from functools import partial

import numpy as np

import qacal
from benchmarks.clock import race
from benchmarks.table import Line, header
from qacal.embedders import embedder
from qacal.partitions import BisectingTree, KDTree
from qacal.sources.questions.quiz import answers

ROWS = 100_000

REPEATS = 3

GOAL = 10
"""Embedding takes at least ten times as long."""


def main() -> None:
    print(
        f"qacal {qacal.__version__}, numpy {np.__version__}, {os.cpu_count()} cores, {platform.machine()}", end="\n\n"
    )
    print(header(), flush=True)
    static = embedder("static")
    quiz = answers()
    questions, given = (np.resize(quiz[name].to_numpy(), ROWS).tolist() for name in ("question", "answer"))
    embed = partial(static.embed, questions, given)
    Z = embed()
    for name, tree in {
        "bisecting tree, depth 4 (the default)": BisectingTree(max_depth=4),
        "bisecting tree, depth 6": BisectingTree(max_depth=6),
        "bisecting tree, depth 10": BisectingTree(max_depth=10),
        "kd-tree, principal axes, depth 10": KDTree(max_depth=10),
        "kd-tree, coordinates, depth 10": KDTree(max_depth=10, axes="coordinate"),
    }.items():
        tree.fit(Z[::10])
        walk, embedding = race(REPEATS, partial(tree.paths, Z), embed)
        line = Line(f"{name}, {ROWS:,} rows", walk, "embedding, static", embedding, goal=GOAL)
        print(line.text(), flush=True)


if __name__ == "__main__":
    main()
