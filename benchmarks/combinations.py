"""The thirteen LLMs whose answers are measured on: their rows with vectors, and how questions are dealt into parts.

Which LLMs methods are developed on, and which they are judged by, is fixed here once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import qacal

LABELS = {"mmlu_pro_stated": "subject", "openqa_verb1s": "dataset"}
"""The files, and the column of each that no method sees."""

DEVELOPMENT = (
    "Meta-Llama-3.1-8B-Instruct-Turbo",
    "Qwen2.5-7B-Instruct",
    "gemma-2-9b-it",
    "google/gemma-2-2b-it",
    "meta-llama/Llama-2-7b-chat-hf",
)
"""LLMs to look at while developing; all others are for judging, at the end."""

SHARES = (0.2, 0.5, 0.1, 0.2)
BETA, CALIBRATION, TUNING, TEST = range(4)

# What a method may look at. The label column is not among it.
_SEEN = ("id", "model", "question", "answer", "confidence", "embedding", "part")


@dataclass(frozen=True, eq=False)
class Combination:
    """The rows of one LLM in one file.

    rows : with the vectors in the column `embedding`, and the unseen label in `label`.
    """

    name: str
    rows: pl.DataFrame

    @property
    def is_for_judging(self) -> bool:
        """Whether it must not be looked at while developing."""
        return self.name not in DEVELOPMENT

    def deal(self, seed: int) -> Split:
        """Deal the questions into parts."""
        part = qacal.split(self.rows["id"], SHARES, seed)
        rows = self.rows.with_columns(part=pl.Series(part))
        return Split(self.name, seed, rows.filter(part != TEST), rows.filter(part == TEST))


@dataclass(frozen=True, eq=False)
class Split:
    """One split of one combination: 80% of the questions to learn from, 20% to be measured on."""

    combination: str
    seed: int
    learned: pl.DataFrame
    tested: pl.DataFrame

    @property
    def fitting(self) -> pl.DataFrame:
        """What methods learn from; `part` says which rows make groups, calibrate and tune, for those who ask."""
        return self.learned.select(*_SEEN, "correct")

    @property
    def testing(self) -> pl.DataFrame:
        """What methods answer: without what is right."""
        return self.tested.select(_SEEN)


def combinations(data: Path, embedder: str, cache: Path) -> Iterator[Combination]:
    """Yield the rows of every LLM in every file that is there."""
    for file, label in LABELS.items():
        path = data / f"{file}.parquet"
        if not path.is_file():
            continue
        rows = pl.read_parquet(path).with_columns(label=pl.col(label))
        rows = rows.with_columns(embedding=pl.Series(_vectors(rows, embedder, cache / f"{file}.{embedder}.npy")))
        for (name,), mine in rows.group_by("model", maintain_order=True):
            yield Combination(str(name), mine)


def _vectors(rows: pl.DataFrame, embedder: str, kept: Path) -> np.ndarray:
    """Return the vectors of the rows in float32; they are made once and kept."""
    if kept.is_file():
        vectors: np.ndarray = np.load(kept)
        if len(vectors) == len(rows):
            return vectors
    vectors = qacal.embedder(embedder).embed(rows["question"].to_list(), rows["answer"].to_list())
    np.save(kept, vectors.astype(np.float32))
    return vectors.astype(np.float32)
