r"""The words of questions and answers as a sparse matrix, each text a vector of length 1 (tf-idf).

The weight of a word that occurs :math:`t` times in a text and in :math:`d` of :math:`n` texts is
:math:`(1 + \log t)\,(1 + \log\frac{1 + n}{1 + d})`. Words are kept as hashes: whoever has a
model can test whether it knows a word, but cannot read its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from qacal.calibrators.score.texts import PairTexts, Texts
from qacal.parameters import Axes, Between, require, rises
from qacal.tally.arrays import Floats, Hashes, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# A word of one row says nothing about another.
_FEWEST_ROWS = 2
_MOST_WORDS = 30_000


@dataclass(frozen=True, eq=False)
class WordRows:
    """A sparse matrix: a row for each pair of texts, a column for each word. Scipy is needed for training only.

    rows, columns, weights : the cells that are not 0.
    """

    rows: Ints
    columns: Ints
    weights: Floats
    shape: tuple[int, int]

    def __getitem__(self, keep: Any) -> WordRows:
        """Return some of the rows, each at most once."""
        kept = np.arange(self.shape[0])[keep]
        new = np.full(self.shape[0], -1)
        new[kept] = np.arange(len(kept))
        rows = new[self.rows]
        cells = rows >= 0
        return WordRows(rows[cells], self.columns[cells], self.weights[cells], (len(kept), self.shape[1]))

    def __matmul__(self, weights: Floats) -> Floats:
        sums = np.bincount(self.rows, self.weights * weights[self.columns], minlength=self.shape[0])
        return sums.astype(np.float64)  # of no words, whole numbers

    def to_scipy(self) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array((self.weights, (self.rows, self.columns)), shape=self.shape)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words that have weights: first those of questions, then those of answers.

    words : their hashes, rising within questions and within answers.
    rarity : the second factor of a word's weight.
    questions : how many are words of questions.
    """

    words: Annotated[Hashes, Axes("words")]
    rarity: Annotated[Floats, Axes("words"), Between(1, 100)]
    questions: int

    def __len__(self) -> int:
        return len(self.words)

    def weigh(self, texts: PairTexts) -> WordRows:
        """Return the words of texts with their weights."""
        pieces = slice(0, self.questions), slice(self.questions, None)
        parts = [
            _weighed(one, self.words[piece], self.rarity[piece], piece.start)
            for one, piece in zip((texts.question, texts.answer), pieces, strict=True)
        ]
        rows, columns, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        return WordRows(rows, columns, weights, (len(texts.form), len(self)))

    def _validate(self) -> None:
        require(0 <= self.questions <= len(self.words), "a vocabulary has more words of questions than words.")
        is_sorted = rises(self.words[: self.questions]) and rises(self.words[self.questions :])
        require(is_sorted, "the words of a vocabulary must rise.")


def _weighed(texts: Texts, known: Hashes, rarity: Floats, first: int) -> tuple[Ints, Ints, Floats]:
    """Return the row, column and weight of the known words of texts; `first` is the column of the first word."""
    place = np.minimum(np.searchsorted(known, texts.words), max(len(known) - 1, 0))
    is_known = known[place] == texts.words if len(known) else np.zeros(len(place), dtype=bool)
    cell, counts = np.unique(texts.rows[is_known] * max(len(known), 1) + place[is_known], return_counts=True)
    rows, columns = np.divmod(cell, max(len(known), 1))
    weights = (1 + np.log(counts)) * rarity[columns]
    return rows, columns + first, weights / np.sqrt(np.bincount(rows, weights**2))[rows]


def fit_vocabulary(texts: PairTexts) -> Vocabulary | None:
    """Return the words of texts that several rows have; None if there are none."""
    rows = len(texts.form)
    (questions, in_questions), (answers, in_answers) = _frequent(texts.question), _frequent(texts.answer)
    if not len(questions) + len(answers):
        return None
    counts = np.concatenate([in_questions, in_answers])
    rarity = 1 + np.log((1 + rows) / (1 + counts))
    return Vocabulary(np.concatenate([questions, answers]), rarity, len(questions))


def _frequent(texts: Texts) -> tuple[Hashes, Ints]:
    """Return the words that enough rows have, rising, and how many rows have each."""
    order = np.argsort(texts.words, kind="stable")  # the rows of one word stay in order
    row, word = texts.rows[order], texts.words[order]
    is_new_word = np.append(True, word[1:] != word[:-1])[: len(word)]
    is_new = is_new_word | np.append(True, row[1:] != row[:-1])[: len(word)]
    words = word[is_new_word]
    counts = np.bincount(np.cumsum(is_new_word)[is_new] - 1, minlength=len(words))
    kept = counts >= _FEWEST_ROWS
    if kept.sum() > _MOST_WORDS:
        # Of words that are equally frequent, the hash decides.
        best = np.lexsort([words, -counts])[:_MOST_WORDS]
        kept = np.zeros(len(words), dtype=bool)
        kept[best] = True
    return words[kept], counts[kept]
