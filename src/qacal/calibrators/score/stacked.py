r"""What texts add to the logits of several fitted scores, computed for all of them at once.

A model has two scores for every row. For a single row, calling an operation takes longer than the operation itself, so
the arrays of all scores are stacked: the first axis is the score. Smaller arrays are padded with zeros, which add
nothing.

Coordinates in a kernel are only ever summed with fixed weights, so these sums take their place:

.. math:: u(z) = \sum_l a_l\, k(z, z_l) - a_0, \qquad a = W b,

:math:`W` being the weights from landmarks to coordinates, and :math:`b` the effects of the coordinates.

``ScoreMaps.contributions`` (`maps.py`) defines the numbers, on the coordinates of the regression; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.score.kernel import FARTHEST, Kernel, half_squares
from qacal.calibrators.score.maps import MOST_OF_QUESTION, ScoreMaps, Signals
from qacal.calibrators.score.numbers import COSINES, Numbers
from qacal.calibrators.score.texts import FORM, PairTexts
from qacal.calibrators.score.words import Vocabulary
from qacal.parameters import require
from qacal.tally.arrays import Floats, Ints, require_finite
from qacal.tally.ids import row_hashes

# The kernels of so many rows, for two scores, stay in the processor's cache.
_ROWS = 256


@dataclass(frozen=True, eq=False)
class TextRows:
    """What several scores read of texts; None for what none of them reads.

    places : principal components of the embedding (score, row, component).
    form : cosines of the form (score, row, cosine).
    words : the words that some score knows.
    """

    places: Floats | None
    form: Floats | None
    words: WordCells | None

    def only(self, keep: Any) -> TextRows:
        places, form = (None if part is None else part[:, keep] for part in (self.places, self.form))
        return TextRows(places, form, None if self.words is None else self.words.only(keep))


@dataclass(frozen=True, eq=False)
class WordCells:
    """Words of texts: questions are the texts 0, 1, ..., and answers those from `count` on, the number of rows.

    text, word : the cells of texts and words, each once.
    weight : 1 + log of how often the text has the word.
    """

    text: Ints
    word: Ints
    weight: Floats
    count: int

    def only(self, keep: Any) -> WordCells:
        kept = np.arange(self.count)[keep]
        new = np.full(2 * self.count, -1)
        new[kept], new[kept + self.count] = np.arange(len(kept)), np.arange(len(kept), 2 * len(kept))
        text = new[self.text]
        mine = text >= 0
        return WordCells(text[mine], self.word[mine], self.weight[mine], len(kept))


class TextSignals:
    """The parts of several scores that read texts. A score may lack any of them."""

    def __init__(self, signals: Sequence[Signals]) -> None:
        self.with_text, self.with_form, self.with_words = (
            [at for at, one in enumerate(signals) if getattr(one, name) is not None]
            for name in ("text", "form", "words")
        )
        self.count = len(signals)
        self.kernels = [one.text for one in signals if one.text is not None]
        self.forms = [one.form for one in signals if one.form is not None]
        sizes = {len(kernel.mean) for kernel in self.kernels}, {form.count for form in self.forms}
        require(max(map(len, sizes)) < 2, "the scores of a model read vectors or forms of different sizes; fit again.")
        self.vocabulary = _Vocabularies([one.words for one in signals if one.words is not None])
        self._axes = _Axes(self.kernels) if self.kernels else None
        self._form = Numbers(np.vstack([form.quantiles for form in self.forms]), None) if self.forms else None

    def read(self, vectors: Any, texts: PairTexts | None, first: int = 0) -> TextRows:
        """Return what the scores read of vectors and texts; `first` is the number of the first row, for messages."""
        places = form = words = None
        if self._axes is not None:
            vectors = vectors.astype(np.float64, copy=False)
            require_finite(vectors, range(first, first + len(vectors)))
            places = self._axes.places(vectors)
        if self._form is not None and texts is not None:
            cosines = self._form.cosines(np.tile(texts.form, len(self.with_form)))
            form = cosines.reshape(len(cosines), len(self.with_form), -1).transpose(1, 0, 2)
        if self.with_words and texts is not None:
            words = self.vocabulary.cells(texts)
        return TextRows(places, form, words)

    def of_score(self, rows: TextRows, at: int) -> tuple[Floats | None, Floats | None]:
        """Return principal components and cosines as one of the scores reads them; None for what it does not read."""
        places = form = None
        if at in self.with_text and rows.places is not None:
            place = self.with_text.index(at)
            places = rows.places[place, :, : self.kernels[place].axes.shape[1]]
        if at in self.with_form and rows.form is not None:
            form = rows.form[self.with_form.index(at)]
        return places, form


class TextEffects:
    """The effects of texts on the logits of several scores.

    signals : those of the scores; the scores for rows that lack columns have the same.
    """

    def __init__(self, signals: TextSignals, scores: Sequence[ScoreMaps]) -> None:
        self._signals = signals
        parts = [maps.text_coefficients() for maps in scores]
        if signals.kernels:
            self._text = _KernelSums(signals.kernels, [_text_effects(*parts[at][:2]) for at in signals.with_text])
        if signals.forms:
            *of_cosines, of_kernels = zip(*(parts[at][-3:] for at in signals.with_form), strict=True)
            self._form = _stacked([*map(_form_effects, *of_cosines)])
            pairs = zip(signals.forms, of_kernels, strict=True)
            together = [(form.kernel, effects[:, None]) for form, effects in pairs if form.kernel is not None]
            self._has_kernel = [at for at, form in enumerate(signals.forms) if form.kernel is not None]
            if together:
                kernels, of_kernels = zip(*together, strict=True)
                self._axes, self._together = _Axes(kernels), _KernelSums(kernels, of_kernels)
        if signals.with_words:
            self._words = signals.vocabulary.weighted([scores[at].words for at in signals.with_words])

    def shifts(self, rows: TextRows, c: Floats, weight: Floats, *, is_cut: bool) -> list[dict[str, Floats]]:
        """Return what each signal adds to the logits of each score.

        c : centred pooled logits, and `weight` how much signals count: a row for each score.
        is_cut : whether the form of the question adds no more than it may.
        """
        out: list[dict[str, Floats]] = [{} for _ in range(self._signals.count)]

        def some(values: Floats, scores: list[int]) -> Floats:
            return values if len(scores) == len(values) else values[scores]

        if rows.places is not None:
            mine = self._signals.with_text
            sums = self._text.at(rows.places)
            shifts = some(weight, mine) * (sums[..., 0] + sums[..., 1] * some(c, mine))
            for at, shift in zip(mine, shifts, strict=True):
                out[at]["text"] = shift
        if rows.form is not None:
            mine = self._signals.with_form
            of_question, of_answer = self._of_form(rows.form, some(c, mine))
            of_question *= some(weight, mine)
            if is_cut:
                np.minimum(of_question, MOST_OF_QUESTION, out=of_question)
            of_question += some(weight, mine) * of_answer
            for at, shift in zip(mine, of_question, strict=True):
                out[at]["form"] = shift
        if rows.words is not None:
            mine = self._signals.with_words
            for at, shift in zip(mine, some(weight, mine) * self._words.shifts(rows.words), strict=True):
                out[at]["words"] = shift
        return out

    def _of_form(self, form: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return what the question adds to the logit by its form, and what the answer adds to an average question's."""
        sums, count = np.matmul(form, self._form), form.shape[1]
        both = sums[..., :2] + sums[..., 2:] * c[..., None]
        question, answer = both[..., 0], both[..., 1]
        if self._has_kernel:
            first = np.empty((len(self._has_kernel), 2 * count, form.shape[2] // COSINES))
            first[:, :count] = first[:, count:] = form[self._has_kernel, :, ::COSINES]
            first[:, count:, : len(FORM)] = 0.0  # of a question of average form
            if count < _ROWS:
                together = self._together.at(self._axes.places(first))[..., 0]
            else:  # many texts have the same form, answers above all
                keys = row_hashes(np.hstack([*first]))
                _, distinct, place = np.unique(keys, return_index=True, return_inverse=True)
                together = self._together.at(self._axes.places(first[:, distinct]))[:, place, 0]
            question[self._has_kernel] += together[:, :count] - together[:, count:]
            answer[self._has_kernel] += together[:, count:]
        return question, answer


class _Axes:
    """The principal components of several kernels."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._axes = _stacked([kernel.axes for kernel in kernels])
        self._centre = _stacked([(kernel.mean @ kernel.axes)[None] for kernel in kernels])

    def places(self, vectors: Floats) -> Floats:
        """Return vectors in the components of each kernel; they are the same for all kernels, or one matrix each."""
        places = np.matmul(vectors, self._axes)
        places -= self._centre
        return np.asarray(np.minimum(np.maximum(places, -FARTHEST, out=places), FARTHEST, out=places))


class _KernelSums:
    """Weighted sums of the kernels of landmarks; `effects` are the weights of coordinates, a column for each sum."""

    def __init__(self, kernels: Sequence[Kernel], effects: Sequence[Floats]) -> None:
        components = max(kernel.landmarks.shape[1] for kernel in kernels)
        # Minus half of a squared distance is the product of [z, 1, -|z|^2 / 2] and [z_l, -|z_l|^2 / 2, 1].
        self._landmarks = np.zeros((len(kernels), components + 2, max(len(kernel.landmarks) for kernel in kernels)))
        for landmarks, kernel in zip(self._landmarks, kernels, strict=True):
            own = kernel.landmarks
            landmarks[: own.shape[1], : len(own)] = own.T
            landmarks[-2, : len(own)], landmarks[-1] = -half_squares(own), 1.0
        self._weights = _stacked([kernel.weights @ one for kernel, one in zip(kernels, effects, strict=True)])
        self._offset = _stacked([kernel.offset[None] @ one for kernel, one in zip(kernels, effects, strict=True)])

    def at(self, places: Floats) -> Floats:
        """Return the sums at places, as (score, row, sum)."""
        out = np.empty((*places.shape[:2], self._weights.shape[2]))
        for first in range(0, places.shape[1], _ROWS):
            rows = slice(first, first + _ROWS)
            own = places[:, rows]
            z = np.empty((*own.shape[:2], own.shape[2] + 2))
            z[..., :-2], z[..., -2], z[..., -1] = own, 1.0, -half_squares(own)
            kernels = np.matmul(z, self._landmarks)  # at most 1e-8 above 0, by rounding
            np.exp(kernels, out=kernels)
            np.matmul(kernels, self._weights, out=out[:, rows])
        out -= self._offset
        return out


class _Vocabularies:
    """The words that any of several vocabularies has: those of questions, then those of answers."""

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        self._of = vocabularies
        halves = [(one.words[: one.questions], one.words[one.questions :]) for one in vocabularies]
        self._halves = [np.unique(np.concatenate(half)) for half in zip(*halves, strict=True)]
        self.width = sum(map(len, self._halves))
        self._places, self._squares = list[Ints](), np.zeros((len(vocabularies), self.width))
        for squares, one in zip(self._squares, vocabularies, strict=True):
            questions, answers = self._halves
            in_questions = np.searchsorted(questions, one.words[: one.questions])
            in_answers = np.searchsorted(answers, one.words[one.questions :]) + len(questions)
            self._places.append(np.concatenate([in_questions, in_answers]))
            squares[self._places[-1]] = one.rarity**2

    def weighted(self, effects: Sequence[Floats]) -> WordEffects:
        """Return the effects of the words of each vocabulary."""
        products = np.zeros((len(self._of), self.width))
        for row, (one, places, effect) in enumerate(zip(self._of, self._places, effects, strict=True)):
            products[row, places] = one.rarity * effect
        return WordEffects(self._squares, products)

    def cells(self, texts: PairTexts) -> WordCells:
        """Return the words of texts, without those that no vocabulary has."""
        count, found = len(texts.form), [np.empty(0, dtype=np.int64)]
        firsts = (0, 0), (count, len(self._halves[0]))
        for words, one, (text, word) in zip(self._halves, (texts.question, texts.answer), firsts, strict=True):
            if len(words):
                place = np.minimum(np.searchsorted(words, one.words), len(words) - 1)
                is_known = words[place] == one.words
                found.append((one.rows[is_known] + text) * self.width + place[is_known] + word)
        cell, times = np.unique(np.concatenate(found), return_counts=True)
        texts_of, words_of = np.divmod(cell, max(self.width, 1))
        return WordCells(texts_of, words_of, 1 + np.log(times), count)


@dataclass(frozen=True, eq=False)
class WordEffects:
    """The effects of words: those of a text add up, each times its weight in a vector of length 1.

    squares, products : of the rarity of each word, squared, and times its effect; a row for each score.
    """

    squares: Floats
    products: Floats

    def shifts(self, cells: WordCells) -> Floats:
        """Return what the words of each row add to its logit, a row for each score."""
        out = np.zeros((len(self.squares), cells.count))
        weight_squared = cells.weight**2
        for shift, squares, products in zip(out, self.squares, self.products, strict=True):
            total: Floats = np.bincount(cells.text, cells.weight * products[cells.word], 2 * cells.count).astype(float)
            length = np.sqrt(np.bincount(cells.text, weight_squared * squares[cells.word], 2 * cells.count))
            total /= np.where(length > 0, length, 1.0)  # a text without known words
            np.add(total[: cells.count], total[cells.count :], out=shift)
        return out


def _text_effects(effects: Floats, slopes: Floats) -> Floats:
    """Return the effects of coordinates of the embedding: on the logit, and on its slope."""
    out = np.zeros((len(effects), 2))
    out[:, 0], out[: len(slopes), 1] = effects, slopes
    return out


def _form_effects(effects: Floats, slopes: Floats) -> Floats:
    """Return the effects of cosines: those of the question, those of the answer, and both on the slope."""
    cut = len(FORM) * COSINES
    out = np.zeros((len(effects), 4))
    out[:cut, 0], out[cut:, 1] = effects[:cut], effects[cut:]
    first = np.zeros(len(effects))
    first[::COSINES] = slopes
    out[:cut, 2], out[cut:, 3] = first[:cut], first[cut:]
    return out


def _stacked(matrices: Sequence[Floats]) -> Floats:
    """Return matrices as one array, padded with zeros."""
    shape = np.max([matrix.shape for matrix in matrices], axis=0)
    out = np.zeros((len(matrices), *shape))
    for at, matrix in enumerate(matrices):
        out[at, : matrix.shape[0], : matrix.shape[1]] = matrix
    return out
