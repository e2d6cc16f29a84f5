"""The protocol of embedders (questions and answers in, one vector per row out), their names, and what they share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from qacal.errors import InputError, MissingPackageError, missing_package, pip_install

Vectors: TypeAlias = NDArray[np.float32]
"""One row per (question, answer)."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished rows and the number of all rows."""


_KNOWN = """there are:
  static        vectors per token, averaged: fast (the default)
  minilm        all-MiniLM-L6-v2, a small sentence encoder: better groups, slower
  onnx:DIR      an encoder exported to ONNX: a folder with model.onnx and tokenizer.json
  hf:ID         an encoder of the Hugging Face hub, or a folder with one; needs torch
  column:NAME   vectors that the records carry in a column
onnx: and hf: may end in ?pooling=cls, ?pooling=mean or ?pooling=last."""


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
        """The length of the vectors; None for a column of vectors that has not been read yet."""

    @property
    def digest(self) -> str:
        """The sha256 of weights, tokenizer and settings: equal digests, equal vectors."""

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row, shape (rows, dim)."""


def embedder(name: str | Embedder) -> Embedder:
    """Return the embedder of a name; an embedder is returned unchanged.

    >>> embedder("column:embedding").name
    'column:embedding'
    >>> embedder("bert")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: there is no embedder 'bert'; there are:
      static        vectors per token, averaged: fast (the default)
      ...
    """
    if isinstance(name, Embedder):
        return name
    from qacal import embedders  # the package imports this module

    kind, colon, rest = str(name).partition(":")
    before, mark, after = rest.rpartition("?pooling=")
    where, pooling = (before, after) if mark else (rest, None)
    match kind, colon, rest:
        case "static", "", "":
            return embedders.StaticEmbedder()
        case "minilm", "", "":
            return embedders.MiniLMEmbedder()
        case "onnx", _, rest if rest:
            return embedders.OnnxEmbedder(where, pooling)
        case "hf", _, rest if rest:
            return embedders.HuggingFaceEmbedder(where, pooling or "cls")
        case "column", _, rest if rest:
            return embedders.ColumnEmbedder(rest)
    raise InputError(f"there is no embedder {name!r}; {_KNOWN}")


def paired_texts(questions: Sequence[str], answers: Sequence[str]) -> tuple[list[str], list[str]]:
    r"""Return both columns as lists of valid text; the error names the first value that is not text.

    An empty answer is an answer. Tokenizers refuse half a surrogate pair; it becomes U+FFFD.

    >>> paired_texts(["2 + 2?"], ["4 \ud800"])
    (['2 + 2?'], ['4 \ufffd'])
    >>> paired_texts(["2 + 2?", "2 + 3?"], ["4", None])
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: answers[1] is None; expected text. Write a missing answer as the empty text "".
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
            advice = ' Write a missing answer as the empty text "".' if name == "answers" else ""
            raise InputError(f"{name}[{at}] is {value!r}; expected text.{advice}")
    # UTF-16 joins the two halves of a surrogate pair again; only a half without its other one is replaced.
    return [
        text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        for text in listed
    ]


def unit_rows(vectors: Vectors) -> Vectors:
    """Scale every row to length 1, except rows of zeros.

    >>> unit_rows(np.array([[3, 4], [0, 0]], dtype=np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def optional_package(name: str, extra: str) -> Any:
    """Import a package of an extra.

    >>> optional_package("no_such_package", "text")
    Traceback (most recent call last):
    ...
    qacal.errors.MissingPackageError: the package no_such_package is not installed; run in the clone of ...
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise missing_package(error.name or name, extra) from error


def package_file(name: str, inside: str, extra: str) -> Path:
    """Return a file of an installed package, without running any of its code."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise missing_package(name, extra)
    path = Path(spec.origin).parent / inside
    if not path.is_file():
        raise MissingPackageError(
            f"{path} is missing from its package; run in the clone of qacal: {pip_install(extra, '--force-reinstall ')}"
        )
    return path


def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settings_digest(**settings: str | int | None) -> str:
    """Return the sha256 of named settings, digests of files among them.

    Leave out paths and names: the same weights in another folder are the same embedder.

    >>> settings_digest(weights="ab12", pooling="mean") == settings_digest(pooling="mean", weights="ab12")
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
