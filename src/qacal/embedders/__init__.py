"""From a question and its answer to a vector, the paper's beta_emb.

In: texts, or records that carry vectors. Out: a matrix, one row per answer. Open `base.py` first, then `static.py`.
Packages and weights are loaded when an embedder is made, not when this package is imported.
"""

from qacal.embedders.base import Embedder, Progress, Vectors
from qacal.embedders.column import ColumnEmbedder
from qacal.embedders.huggingface import HuggingFaceEmbedder
from qacal.embedders.onnx import MiniLMEmbedder, OnnxEmbedder
from qacal.embedders.static import StaticEmbedder
from qacal.errors import InputError

__all__ = [
    "ColumnEmbedder",
    "Embedder",
    "HuggingFaceEmbedder",
    "MiniLMEmbedder",
    "OnnxEmbedder",
    "Progress",
    "StaticEmbedder",
    "Vectors",
    "embedder",
]

_KNOWN = """there are:
  static        vectors per token, averaged: fast (the default)
  minilm        all-MiniLM-L6-v2, a small sentence encoder: better groups, slower
  onnx:DIR      an encoder exported to ONNX: a folder with model.onnx and tokenizer.json
  hf:ID         an encoder of the Hugging Face hub, or a folder with one; needs torch
  column:NAME   vectors that the records carry in a column
onnx: and hf: may end in ?pooling=cls, ?pooling=mean or ?pooling=last."""


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
    kind, colon, rest = str(name).partition(":")
    before, mark, after = rest.rpartition("?pooling=")
    where, pooling = (before, after) if mark else (rest, None)
    match kind, colon, rest:
        case "static", "", "":
            return StaticEmbedder()
        case "minilm", "", "":
            return MiniLMEmbedder()
        case "onnx", _, rest if rest:
            return OnnxEmbedder(where, pooling)
        case "hf", _, rest if rest:
            return HuggingFaceEmbedder(where, pooling or "cls")
        case "column", _, rest if rest:
            return ColumnEmbedder(rest)
    raise InputError(f"there is no embedder {name!r}; {_KNOWN}")
