"""The learned score: the probability that an answer is correct, from its confidence, its text and other columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from qacal.calibrators.score.kernel import KERNEL_ROWS, fit_kernel
from qacal.calibrators.score.likeness import Likeness, fit_likeness
from qacal.calibrators.score.maps import ScoreInputs, ScoreMaps, Signals, find_levels, pooled_maps
from qacal.calibrators.score.numbers import fit_numbers, numbers_of
from qacal.calibrators.score.reading import ScoreReader, ScoreReading, partial_confidences
from qacal.calibrators.score.texts import PairTexts
from qacal.calibrators.score.trials import ENOUGH_ROWS, ColumnTrial, Fallback, Material, Objective, ScoreTrial, choose
from qacal.calibrators.score.words import fit_vocabulary
from qacal.errors import InputError, NotFittedError
from qacal.parameters import MOST, Between, HasParameters, require
from qacal.partitions import EMBEDDING
from qacal.partitions.base import column_of, one_thread
from qacal.tally.arrays import (
    ArrayLike,
    Floats,
    Hashes,
    Ints,
    as_vectors,
    portions,
    require_finite,
    require_length,
    seven_decimals,
    unit_values,
)
from qacal.tally.ids import id_hashes, mix, row_hashes, value_hashes

TEXTS = ("question", "answer")
"""The texts that a score reads besides their embedding, where rows have them."""

_NO_INPUTS = ("confidence", "correct", EMBEDDING, *TEXTS)


class LearnedScore(HasParameters):
    r"""Learn the probability that an answer is correct from text, columns and confidences together.

    .. math:: \mathrm{logit}\,s = b_0 + b_1 c + u(z) + v(z)\,c + f(q, a, c) + w \cdot t + \sum_g (U_g + V_g c),
        \quad c = x(h) - \bar x,

    :math:`x(h)` being the accuracy at a confidence over all rows (a line or an isotonic curve, in logits). The other
    terms shift the curve, or change how much the confidence counts:

    - smooth functions :math:`u` and :math:`v` of the embedding :math:`z`, drawn from Gaussian processes: groups without
      borders, since similar texts borrow from each other;
    - smooth functions :math:`f` of the form of question and answer: lengths, digits, punctuation, shared words;
    - weights :math:`w` of the words :math:`t` of question and answer (tf-idf);
    - effects :math:`U_g, V_g` of the values of columns, crossed: every row has a tenant and a language, and the groups
      of the two overlap; for columns of numbers, smooth functions of their ranks.

    All coefficients are drawn from normal distributions. The variances of all blocks but the words' are estimated
    together by approximate maximum likelihood, so effects that the rows do not support vanish.

    Simpler scores are tried as well, on held-out questions: without text, without columns, one line or curve for all,
    the confidence as stated. The best of them is taken; :attr:`tried_` lists them all. Each column is tried by itself,
    and used only if it helps; :attr:`columns_tried_` says by how much.

    How to choose: the best probabilities that qacal has, if there are some hundred labelled rows or more. The score is
    *trained* on its rows, so it guarantees nothing there. :class:`~qacal.QACalibrator` certifies it, with bands that
    another score made (:class:`~qacal.MarginBinning`).

    Parameters
    ----------
    text : whether to read the text.
    words : whether to read question and answer themselves, where rows have them, besides their embedding: their words
        (as hashes; a model keeps no text for that) and their form, such as lengths and digits.
    columns : names of columns of categories, such as a tenant or a topic: each value has an effect.
    numbers : names of columns of numbers on any scale, such as a retrieval score or a count of tokens: each has a
        smooth effect. A row may lack them.
    confidences : names of columns that hold further confidences in [0, 1], such as the probability of the answer's
        tokens. A row may lack them.
    objective : the loss by which to choose among scores, "log_loss" or "brier".

    Examples
    --------
    An LLM that states 0.8 for everything; its accuracy rises with the first coordinate of the text:

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(2000, 2))
    >>> rows = {"confidence": np.full(2000, 0.8), "embedding": Z}
    >>> correct = rng.random(2000) < 1 / (1 + np.exp(-Z[:, 0]))
    >>> score = LearnedScore().fit(rows, correct)
    >>> score.predict({"confidence": [0.8, 0.8], "embedding": [[-1.0, 0.0], [1.0, 0.0]]}).round(1)
    array([0.3, 0.7])
    """

    maps_: ScoreMaps
    likeness_: Likeness | None
    fallbacks_: tuple[Fallback, ...]
    tried_: tuple[ScoreTrial, ...]
    columns_tried_: tuple[ColumnTrial, ...]
    rows_: Annotated[int, Between(1, MOST)]

    def __init__(
        self,
        *,
        text: bool = True,
        words: bool = True,
        columns: Sequence[str] = (),
        numbers: Sequence[str] = (),
        confidences: Sequence[str] = (),
        objective: Objective = "log_loss",
    ) -> None:
        self.text = text
        self.words = words
        self.columns = columns
        self.numbers = numbers
        self.confidences = confidences
        self.objective = objective

    @property
    def _needs(self) -> tuple[str, ...]:
        """The columns that it reads besides `confidence`."""
        return (*((EMBEDDING,) if self.text else ()), *self.columns, *self.numbers, *self.confidences)

    def fit(self, inputs: Mapping[str, ArrayLike], correct: ArrayLike, *, ids: ArrayLike | None = None) -> Self:
        """Learn the score from columns by name: `confidence`, `embedding` if it reads text, and its own.

        ids : of the questions: rows of one question are held out together. Without them every row is a question.
        """
        y = unit_values(correct, "correct")
        return self._fit_hashed(inputs, y, None if ids is None else id_hashes(ids, len(y)))

    def _fit_hashed(
        self,
        inputs: Mapping[str, ArrayLike],
        correct: Floats,
        ids: Hashes | None,
        unnamed: Collection[str] = (),
        enough: int = ENOUGH_ROWS,
    ) -> Self:
        """Do what :meth:`fit` does, with hashes of ids; columns that nobody named must help clearly to be used.

        enough : candidates are compared on folds until these have so many rows.
        """
        self._require_parameters()
        confidences = self._confidences(inputs)
        require_length(correct, len(confidences), "correct")
        vectors = _vectors(column_of(inputs, EMBEDDING, self), len(correct)) if self.text else None
        columns = {name: column_of(inputs, name, self) for name in self.columns}
        for name, values in columns.items():
            require_length(values, len(correct), name)
        numbers = self._numbers(inputs, len(correct))
        levels = find_levels(columns)
        codes = None if levels is None else levels.codes(columns)
        pairs = self._texts(inputs, len(correct)) if vectors is not None else None
        texts = None if pairs is None else PairTexts.of(*pairs)
        stated = np.column_stack([confidences, *numbers.values()])
        order, ids = _own_order(correct, stated, codes, vectors, texts, ids)
        # Matrices here are small: threads wait for each other longer than they work.
        with one_thread():
            kernel = None if vectors is None else fit_kernel(vectors[order[:KERNEL_ROWS]].astype(np.float64))
            signals = Signals(confidences=tuple(self.confidences), text=kernel, levels=levels)
            if texts is not None and kernel is not None:
                signals = replace(
                    signals, form=fit_numbers(texts.form[order], together=True), words=fit_vocabulary(texts)
                )
            if numbers:
                found = fit_numbers(np.column_stack(list(numbers.values())), together=False)
                signals = replace(signals, number_names=tuple(numbers), numbers=found)
            rows = signals.inputs(confidences, vectors, texts, columns | numbers).only(order)
            material = Material(rows, correct[order], ids, signals, frozenset(unnamed), enough)
            choice = choose(material, self.objective)
            chosen = choice.maps.signals
            seen = signals.seen(rows, text=chosen.text is not None, columns=chosen.columns)
            self.maps_, self.likeness_ = choice.maps, fit_likeness(chosen.points(seen, seen.places, seen.form))
            self.fallbacks_, self.tried_, self.columns_tried_ = choice.fallbacks, choice.trials, choice.columns
        self.rows_ = len(correct)
        self.__dict__.pop("_reader", None)
        return self

    def _require_parameters(self) -> None:
        """Refuse names that cannot be those of columns to read."""
        lists = {"columns": self.columns, "numbers": self.numbers, "confidences": self.confidences}
        for name, names in lists.items():
            if isinstance(names, list | tuple) and "correct" in names:
                raise InputError(f"{name} is {names!r:.80}; a score must not read `correct`, which it predicts.")
            are_names = isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)
            if not are_names or len({*names, *_NO_INPUTS}) < len(names) + len(_NO_INPUTS):
                raise InputError(f"{name} is {names!r:.80}; expected names of other columns, such as ['tenant'].")
        for (one, names), (other, others) in combinations(lists.items(), 2):
            both = [name for name in names if name in others]
            if both:
                raise InputError(f"{both[0]!r} is among {one} and {other}; a score reads it as one of the two.")
        for name, value in (("text", self.text), ("words", self.words)):
            if not isinstance(value, bool):
                raise InputError(f"{name} is {value!r:.80}; expected True or False.")
        if self.objective not in get_args(Objective):
            raise InputError(f'objective is {self.objective!r:.80}; expected "log_loss" or "brier".')

    def predict(self, inputs: Mapping[str, ArrayLike]) -> Floats:
        """Return the score of each row, a probability.

        A row may lack columns: it then gets the score that was fitted without them. A column that no row has may be
        left out.
        """
        self._require_fitted()
        stated = unit_values(column_of(inputs, "confidence", self), "confidence")
        return self._read({**inputs, "confidence": stated}).score

    def _read(
        self,
        inputs: Mapping[str, ArrayLike],
        texts: Sequence[list[str]] | None = None,
        *,
        explains: bool = False,
        is_cut: bool = True,
    ) -> ScoreReading:
        """Return what :meth:`ScoreReader.read` does, for this score alone."""
        self._require_fitted()
        if texts is None and self._reader.needs_texts:
            texts = self._texts(inputs, len(column_of(inputs, "confidence", self)))
        return self._reader.read(inputs, texts, explains=explains, is_cut=is_cut)[0]

    @cached_property
    def _reader(self) -> ScoreReader:
        return ScoreReader([self])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle and copy without the reader, which is made again when it is needed."""
        return {name: value for name, value in vars(self).items() if name != "_reader"}

    def _numbers(self, inputs: Mapping[str, ArrayLike], length: int) -> dict[str, Floats]:
        """Return the columns of numbers, NaN where one is missing."""
        columns = {name: numbers_of(column_of(inputs, name, self), name) for name in self.numbers}
        for name, column in columns.items():
            require_length(column, length, name)
        return columns

    def _texts(self, inputs: Mapping[str, Any], length: int) -> list[list[str]] | None:
        """Return questions and answers, if the rows have both."""
        if not self.words or not {*TEXTS} <= {*inputs}:
            return None
        columns = {name: list(inputs[name]) for name in TEXTS}
        for name, texts in columns.items():
            require_length(texts, length, name)
            for row, text in enumerate(texts):
                if not isinstance(text, str):
                    raise InputError(f"{name}[{row}] is {text!r:.60}; expected text.")
        return list(columns.values())

    def pooled(self, confidence: Floats) -> Floats:
        """Return the pooled map at each confidence; further confidences count as missing."""
        pooled = self.maps_.pooled
        lacking = np.full((len(confidence), pooled.n_confidences - 1), np.nan)
        rows = ScoreInputs(np.column_stack([seven_decimals(confidence), lacking]))
        return pooled_maps(pooled, self.maps_.signals.confidences).apply(rows)

    @property
    def chosen(self) -> str:
        """The chosen candidate, in a few words."""
        return next((trial.name for trial in self.tried_ if trial.is_chosen), "stated confidence")

    @property
    def columns_used(self) -> tuple[str, ...]:
        """The columns of numbers and categories that the score reads: before it is fitted, all that it will try."""
        return self.maps_.signals.columns if hasattr(self, "maps_") else (*self.numbers, *self.columns)

    @property
    def reads_text(self) -> bool:
        """Whether the fitted score depends on the embedding."""
        return self.maps_.signals.text is not None

    @property
    def reads_words(self) -> bool:
        """Whether the score is fitted and reads questions and answers themselves."""
        return hasattr(self, "maps_") and self.maps_.signals.reads_texts

    def _confidences(self, inputs: Mapping[str, ArrayLike]) -> Floats:
        first = unit_values(column_of(inputs, "confidence", self), "confidence")
        others = [partial_confidences(column_of(inputs, name, self), len(first), name) for name in self.confidences]
        return seven_decimals(np.column_stack([first, *others]))

    def _validate(self) -> None:
        self._require_parameters()
        signals = self.maps_.signals
        is_placed = self.likeness_ is None or len(self.likeness_.mean) == signals.point_width
        require(is_placed, "the distance to the fit reads other signals than the score; fit again.")
        for fallback in self.fallbacks_:
            fallback.maps(self.maps_)._validate()
        covers = [{*signals.columns} <= {*fallback.without} for fallback in self.fallbacks_]
        require(not signals.columns or any(covers), "no score is for rows that lack all columns; fit again.")
        is_one = sum(trial.is_chosen for trial in self.tried_) == min(len(self.tried_), 1)
        require(is_one, "one of the trials of a score must be the chosen one.")
        is_named = (signals.text is None or self.text) and (not signals.reads_texts or (self.text and self.words))
        is_named &= signals.levels is None or {*signals.levels.names} <= {*self.columns}
        is_named &= {*signals.number_names} <= {*self.numbers}
        is_named &= {*signals.confidences} <= {*self.confidences}
        require(is_named, "the maps of a score read inputs that its parameters do not name; fit again.")

    def _require_fitted(self) -> None:
        if not hasattr(self, "maps_"):
            raise NotFittedError("this LearnedScore is not fitted yet; call fit first.")


def _vectors(column: ArrayLike, length: int) -> NDArray[np.floating]:
    vectors = as_vectors(column)
    require_length(vectors, length, EMBEDDING)
    for rows, block in portions(vectors):
        require_finite(block, range(rows.start, rows.stop))
    return vectors


def _own_order(
    correct: Floats,
    numbers: Floats,
    codes: Ints | None,
    vectors: NDArray[np.floating] | None,
    texts: PairTexts | None,
    ids: Hashes | None,
) -> tuple[Ints, Hashes]:
    """Return a random order that depends on the rows alone, not on how they are sorted, and the hashes of their ids.

    So sums round the same way and landmarks are the same for every order of the file; and landmarks come from many
    questions, however many rows each has.
    """
    lacks = np.isnan(numbers)
    keys = [correct, *np.where(lacks, 0.0, numbers).T, *lacks[:, lacks.any(axis=0)].astype(np.float64).T]
    keys += [] if codes is None else [*codes.T]
    # Vectors are long, and used only if ids do not tell rows apart.
    if vectors is not None and (ids is None or len(np.unique(ids)) < len(ids)):
        keys.append(np.concatenate([row_hashes(block + 0.0) for _, block in portions(vectors)]).view(np.int64))
        keys += [] if texts is None else [one.hashes().view(np.int64) for one in (texts.question, texts.answer)]
    ids = value_hashes(*keys) if ids is None else ids
    order = np.lexsort([*keys, ids])
    order = order[np.argsort(mix(np.arange(len(order), dtype=np.uint64)))]
    return order, ids[order]
