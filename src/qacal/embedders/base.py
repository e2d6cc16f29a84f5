"""What an embedder is: questions and answers in, one vector per row out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError

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
        """The name that :func:`~qacal.embedders.embedder` takes: "static", "minilm", "onnx:DIR", ..."""

    @property
    def dim(self) -> int | None:
        """The length of the vectors; None for a column of vectors before the first ones were read."""

    @property
    def digest(self) -> str:
        """The sha256 of weights, tokenizer and settings: equal digests, equal vectors."""

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row, shape (rows, dim)."""


def paired_texts(questions: Sequence[str], answers: Sequence[str]) -> tuple[list[str], list[str]]:
    r"""Return both columns as lists of readable text, or name the value that is not text.

    An empty answer is an answer. Tokenizers refuse half a surrogate pair; it becomes U+FFFD.

    >>> paired_texts(["2 + 2?"], ["4 \ud800"])
    (['2 + 2?'], ['4 \ufffd'])
    >>> paired_texts(["2 + 2?", "2 + 3?"], ["4", None])
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: answers[1] is None; expected text. An answer that is not there is the empty text "".
    """
    left, right = _texts(questions, "questions"), _texts(answers, "answers")
    if len(left) != len(right):
        raise InputError(f"there are {len(left)} questions and {len(right)} answers; give one of each per row.")
    return left, right


def _texts(values: Sequence[str], name: str) -> list[str]:
    if isinstance(values, str):
        raise InputError(f"{name} is one text; expected a list or column of texts, one per row.")
    listed = list(values)
    for at, value in enumerate(listed):
        if not isinstance(value, str):
            advice = ' An answer that is not there is the empty text "".' if name == "answers" else ""
            raise InputError(f"{name}[{at}] is {value!r}; expected text.{advice}")
    # UTF-16 joins the two halves of a surrogate pair again; only a half without its other one is replaced.
    return [
        text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        for text in listed
    ]
