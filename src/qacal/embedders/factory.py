"""From the name that a user types to the embedder."""

from __future__ import annotations

from qacal.embedders.base import Embedder
from qacal.embedders.column import ColumnEmbedder
from qacal.embedders.huggingface import HuggingFaceEmbedder
from qacal.embedders.minilm import MiniLMEmbedder
from qacal.embedders.onnx import OnnxEmbedder
from qacal.embedders.static import StaticEmbedder
from qacal.errors import InputError

_KNOWN = """there are:
  static        vectors per token, averaged: fast (the default)
  minilm        all-MiniLM-L6-v2, a small sentence encoder: better groups, slower
  onnx:DIR      an encoder exported to ONNX: a folder with model.onnx and tokenizer.json
  hf:ID         an encoder of the Hugging Face hub, or a folder with one; needs torch
  column:NAME   vectors that the records carry in a column
onnx: and hf: may end in ?pooling=cls, ?pooling=mean or ?pooling=last."""


def embedder(name: str | Embedder) -> Embedder:
    """Return the embedder of a name; an embedder is returned as it is.

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
    match str(name).partition(":"):
        case "static", "", "":
            return StaticEmbedder()
        case "minilm", "", "":
            return MiniLMEmbedder()
        case "onnx", _, rest if rest:
            directory, pooling = _with_pooling(rest)
            return OnnxEmbedder(directory, pooling)
        case "hf", _, rest if rest:
            model, pooling = _with_pooling(rest)
            return HuggingFaceEmbedder(model, pooling or "cls")
        case "column", _, rest if rest:
            return ColumnEmbedder(rest)
    raise InputError(f"there is no embedder {name!r}; {_KNOWN}")


def _with_pooling(rest: str) -> tuple[str, str | None]:
    """Split "DIR?pooling=cls" into the folder and the pooling."""
    where, mark, pooling = rest.rpartition("?pooling=")
    return (where, pooling) if mark else (rest, None)
