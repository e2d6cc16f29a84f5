"""Embedders, the paper's beta_emb: from a question and its answer to a vector.

`embedder(name)` makes one from the name that a user types. Packages and weights are loaded when an embedder is made,
not when this package is imported.
"""

from qacal.embedders.base import Embedder, Progress, Vectors
from qacal.embedders.column import ColumnEmbedder
from qacal.embedders.factory import embedder
from qacal.embedders.huggingface import HuggingFaceEmbedder
from qacal.embedders.minilm import MiniLMEmbedder
from qacal.embedders.onnx import OnnxEmbedder
from qacal.embedders.static import StaticEmbedder

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
