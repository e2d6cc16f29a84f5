"""The static embedder: a vector per token, averaged. Small, fast, no network; the default."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qacal.embedders.base import (
    Progress,
    Vectors,
    file_digest,
    optional_package,
    package_file,
    paired_texts,
    settings_digest,
    unit_rows,
)

# Enough rows that the tokenizer has work for every core, few enough that progress moves.
_ROWS_A_STEP = 4096


class StaticEmbedder:
    r"""Embed ``question + "\n" + answer`` as the mean of its tokens' vectors (WordLlama's, 256 numbers each).

    Tens of thousands of rows a second on two cores. It knows topics, not word order; choose `minilm` if a hundred
    times the time does not matter. A row's vector is the same to the last bit in any batch. Every byte has a token, so
    emoji, other scripts and even two empty texts have a vector.

    The mean is scaled to length 1, which WordLlama leaves to the user: short texts have longer means, and groups should
    tell topics apart rather than lengths.

    Examples
    --------
    >>> static = StaticEmbedder()
    >>> Z = static.embed(["Who wrote Emma?", "Who wrote Persuasion?", "2 + 2?"], ["Austen", "Jane Austen", "4"])
    >>> Z.shape
    (3, 256)
    >>> bool(np.linalg.norm(Z[0] - Z[1]) < np.linalg.norm(Z[0] - Z[2]))
    True
    """

    name = "static"

    def __init__(self) -> None:
        # Only the files of the package are used. Importing it takes a second, sets up logging for the whole program
        # and brings a downloader along.
        weights = package_file("wordllama", "weights/l2_supercat_256.safetensors", "text")
        tokenizer = package_file("wordllama", "tokenizers/l2_supercat_tokenizer_config.json", "text")
        tensors = optional_package("safetensors.numpy", "text").load_file(weights)
        self._table: Vectors = np.ascontiguousarray(tensors["embedding.weight"], dtype=np.float32)
        self._tokenizer = optional_package("tokenizers", "text").Tokenizer.from_file(str(tokenizer))
        self.dim = int(self._table.shape[1])
        self.digest = settings_digest(
            kind="static",
            weights=file_digest(weights),
            tokenizer=file_digest(tokenizer),
            pair="newline",
            pooling="mean",
            normalised=True,
        )

    def __reduce__(self) -> tuple[type[StaticEmbedder], tuple[()]]:
        """Pickle and copy by loading the files again."""
        return StaticEmbedder, ()

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        pairs = zip(*paired_texts(questions, answers), strict=True)
        texts = ["\n".join(pair) for pair in pairs]
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _ROWS_A_STEP):
            step = slice(start, min(start + _ROWS_A_STEP, len(texts)))
            out[step] = self._unit_means(texts[step])
            if progress is not None:
                progress(step.stop, len(texts))
        return out

    def _unit_means(self, texts: list[str]) -> Vectors:
        tokens = [row.ids for row in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        means = self._sums(tokens)
        means /= np.array([[len(row)] for row in tokens])
        return unit_rows(means)

    def _sums(self, tokens: list[list[int]]) -> Vectors:
        """Return the sum of the tokens' vectors of each text."""
        if len(tokens) == 1:  # the same additions, without a matrix to make
            return np.asarray(self._table[tokens[0]].sum(axis=0, keepdims=True))
        from scipy.sparse import csr_array

        # One row of ones per text times the table: the vectors are added up in the order of the tokens, without a
        # padded copy of them, and so to the same bits whatever else is in the batch.
        ends = np.cumsum([0, *map(len, tokens)])
        ones = np.ones(ends[-1], dtype=np.float32)
        chosen = csr_array((ones, np.concatenate(tokens).astype(np.int64), ends), shape=(len(tokens), len(self._table)))
        return np.asarray(chosen @ self._table, dtype=np.float32)
