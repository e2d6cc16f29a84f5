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
        count, width, cut = len(texts.form), len(self), self.questions
        # Questions and answers at once, as 2 * count texts.
        text = np.concatenate([texts.question.rows, texts.answer.rows + count])
        words = np.concatenate([texts.question.words, texts.answer.words])
        in_questions = np.searchsorted(self.words[:cut], texts.question.words)
        place = np.concatenate([in_questions, np.searchsorted(self.words[cut:], texts.answer.words) + cut])
        is_known = place < np.where(text < count, cut, width)
        is_known[is_known] = self.words[place[is_known]] == words[is_known]
        cell, counts = np.unique(text[is_known] * width + place[is_known], return_counts=True)
        text, columns = np.divmod(cell, width)
        weights = (1 + np.log(counts)) * self.rarity[columns]
        weights /= np.sqrt(np.bincount(text, weights**2))[text]
        return WordRows(np.where(text < count, text, text - count), columns, weights, (count, width))

    def _validate(self) -> None:
        require(0 <= self.questions <= len(self.words), "a vocabulary has more words of questions than words.")
        is_sorted = rises(self.words[: self.questions]) and rises(self.words[self.questions :])
        require(is_sorted, "the words of a vocabulary must rise.")


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
