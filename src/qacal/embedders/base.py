"""What an embedder is: questions and answers in, one vector per row out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.float32]
"""One row per (question, answer)."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of rows done and the number of all rows."""


@runtime_checkable
class Embedder(Protocol):
    """Turns rows of text into vectors, the paper's beta_emb.

    A row's vector depends on that row alone: not on its place, nor on its neighbours.
    """

    @property
    def name(self) -> str:
        """What a user types to get this embedder: "static", "minilm", "onnx:DIR", ..."""

    @property
    def dim(self) -> int | None:
        """The length of the vectors; None for a column of vectors that nobody has looked at yet."""

    @property
    def digest(self) -> str:
        """The sha256 of weights, tokenizer and settings: equal digests, equal vectors."""

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row, shape (rows, dim)."""
