"""The static embedder: a vector per token, averaged. Small, fast, no network; the default."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

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
from qacal.tally.arrays import Ints

# Enough rows that the tokenizer has work for every core, few enough that progress moves.
_ROWS_A_STEP = 4096

# Texts are encoded together up to about so many characters. Longer ones take longer, a character, than each by itself.
_CHARACTERS_AT_ONCE = 2000
_END = "\x01"


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
        self._end = self._tokenizer.token_to_id("<0x01>")
        self._special = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
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
        tokens, bounds = self._tokens(texts)
        means = self._sums(tokens, bounds)
        means /= np.diff(bounds)[:, None]
        return unit_rows(means)

    def _tokens(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Return the tokens of texts, one text after the other: 0, and where each text ends.

        Several short texts are encoded as one, which takes half the time. The character that ends each is a token by
        itself, whatever is around it, and the mark after it is what the tokenizer writes before a text. Texts with that
        character are encoded by themselves, and so are those with a special token such as <s>, since the mark before it
        would be a token, too.
        """
        count = max(1, _CHARACTERS_AT_ONCE * len(texts) // sum(map(len, texts)))
        pieces, is_joined = list[str](), list[bool]()
        for first in range(0, len(texts), count):
            some = texts[first : first + count]
            joined = f"{_END}▁".join(some) + _END
            is_plain = len(some) > 1 and joined.count(_END) == len(some)
            is_plain = is_plain and not any(special in joined for special in self._special)
            pieces += [joined] if is_plain else some
            is_joined += [True] if is_plain else [False] * len(some)
        encoded = [row.ids for row in self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)]
        lengths = np.array([*map(len, encoded)])
        tokens = np.fromiter(chain.from_iterable(encoded), np.int64, lengths.sum())
        if not any(is_joined):
            return tokens, np.append(0, np.cumsum(lengths))
        is_end = (tokens == self._end) & np.repeat(is_joined, lengths)
        kept = np.cumsum(~is_end)
        is_last = is_end.copy()
        is_last[np.cumsum(lengths) - 1] = True
        return tokens[~is_end], np.append(0, kept[is_last])

    def _sums(self, tokens: Ints, bounds: Ints) -> Vectors:
        """Return the sum of the tokens' vectors of each text."""
        if len(bounds) == 2:  # the same additions, without a matrix to make
            return np.asarray(self._table[tokens].sum(axis=0, keepdims=True))
        from scipy.sparse import csr_array

        # One row of ones per text times the table: the vectors are added up in the order of the tokens, without a
        # padded copy of them, and so to the same bits whatever else is in the batch.
        ones = np.ones(len(tokens), dtype=np.float32)
        chosen = csr_array((ones, tokens, bounds), shape=(len(bounds) - 1, len(self._table)))
        return np.asarray(chosen @ self._table, dtype=np.float32)
