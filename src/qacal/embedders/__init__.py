"""From a question and its answer to a vector, the paper's beta_emb.

In: texts, or records that carry vectors. Out: a matrix, one row per answer. Open `base.py` first, then `static.py`.
Packages and weights are loaded when an embedder is made, not when this package is imported.
"""

from qacal.embedders.base import Embedder, Progress, Vectors, embedder
from qacal.embedders.column import ColumnEmbedder
from qacal.embedders.huggingface import HuggingFaceEmbedder
from qacal.embedders.onnx import MiniLMEmbedder, OnnxEmbedder
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
