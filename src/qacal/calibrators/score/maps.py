r"""A fitted score: the pooled map, and what texts and columns change about it.

.. math:: \mathrm{logit}\,s = b_0 + b_1 c + \sum_k \big(u_k + v_k c\big), \qquad c = x(h) - \bar x,

:math:`x(h)` being the pooled logit. Each signal :math:`k` shifts it by :math:`u_k`, and some change by :math:`v_k` how
much the confidence counts: smooth functions of the embedding, of the form of the texts, weights of their words,
effects of the values of columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from qacal.calibrators.base import LOGIT_CUT, expit, feature_values
from qacal.calibrators.score.effects import FIXED, EffectsFit, fit_effects
from qacal.calibrators.score.kernel import Kernel
from qacal.calibrators.score.numbers import Numbers, first_cosines
from qacal.calibrators.score.pooled import PooledMap
from qacal.calibrators.score.texts import FORM, PairTexts
from qacal.calibrators.score.words import Vocabulary, WordRows
from qacal.parameters import FACTORS, MOST, Axes, Between, require
from qacal.partitions import EMBEDDING
from qacal.tally.arrays import Floats, Ints, require_length
from qacal.tally.groups import as_labels, kinds_of, require_common_kind

# How a confidence counts changes more slowly over texts than how often answers are right.
_SLOPES = 48

# Values beyond the most frequent ones have no effects of their own: they would be a row or two each.
_MOST_LEVELS = 256

# The form of the question raises the logit by at most this much, which about doubles the odds. Form tells where
# questions come from, and a fit knows few sources, however many rows it has: a new one may look like one that is
# answered well, and not be. docs/benchmarks.md has what this gains on new sources, and costs elsewhere.
MOST_OF_QUESTION = 0.65
UNSEEN, MISSING = -1, -2
"""Codes of values without effects."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Values of columns that have effects: tenant, language, topic. Crossed: a row has one value of each column.

    names : of the columns.
    labels, column : the values, and which column each belongs to.
    """

    names: tuple[str, ...]
    labels: tuple[Any, ...]
    column: Annotated[Ints, Axes("values", may_be_empty=False), Between(0, MOST)]

    def __len__(self) -> int:
        return len(self.labels)

    def codes(self, columns: Mapping[str, Any]) -> Ints:
        """Return the place of each row's values, a column for each column."""
        codes = []
        for at, name in enumerate(self.names):
            known = {self.labels[place]: place for place in np.flatnonzero(self.column == at).tolist()}
            values = as_labels(columns[name], name).tolist()
            # Files disagree on numbers and text: without its effects, a row would get another score unnoticed.
            require_common_kind(kinds_of(values), kinds_of(known), name)
            known[None] = MISSING
            codes.append(np.fromiter((known.get(value, UNSEEN) for value in values), np.int64, len(values)))
        return np.column_stack(codes)

    def only(self, columns: Collection[str]) -> Levels | None:
        """Return the values of some columns."""
        kept = [at for at, name in enumerate(self.names) if name in columns]
        if not kept:
            return None
        places = np.flatnonzero(np.isin(self.column, kept))
        labels = tuple(self.labels[place] for place in places.tolist())
        return Levels(tuple(self.names[at] for at in kept), labels, np.searchsorted(kept, self.column[places]))

    def codes_of(self, codes: Ints, columns: Collection[str]) -> Ints | None:
        """Return codes as :meth:`only` gives them."""
        kept = [at for at, name in enumerate(self.names) if name in columns]
        if not kept:
            return None
        new = np.append(np.full(len(self), UNSEEN), [MISSING, UNSEEN])  # the last two stay as they are
        places = np.flatnonzero(np.isin(self.column, kept))
        new[places] = np.arange(len(places))
        return np.asarray(new[codes[:, kept]])

    def indicators(self, codes: Ints) -> Floats:
        """Return a column for each value, 1 in the rows that have it."""
        columns = np.zeros((len(codes), len(self) + 2))
        for column in codes.T:
            columns[np.arange(len(codes)), column] = 1.0  # the last two are for MISSING and UNSEEN
        return columns[:, :-2]

    def _validate(self) -> None:
        require(len(self.labels) == len(self.column), "each value of a score must belong to a column.")
        require(
            bool((self.column < len(self.names)).all()), "a value of a score belongs to a column that does not exist."
        )
        known = set(zip(self.column.tolist(), self.labels, strict=True))
        require(len(known) == len(self.labels), "a column of a score has a value twice.")


def find_levels(columns: Mapping[str, Any]) -> Levels | None:
    """Return the values with effects; None if there are no columns, or none of them has two values."""
    labels: list[Any] = []
    owners: list[int] = []
    for at, (name, values) in enumerate(columns.items()):
        counts = Counter(as_labels(values, name).tolist())
        del counts[None]
        # In an order that does not depend on that of the rows.
        frequent = sorted(counts, key=lambda label: (-counts[label], str(type(label)), str(label)))[:_MOST_LEVELS]
        if len(frequent) > 1:
            labels += frequent
            owners += [at] * len(frequent)
    return Levels(tuple(columns), tuple(labels), np.array(owners, dtype=np.int64)) if labels else None


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """The inputs of a score.

    confidences : a column for each, NaN where one is missing.
    places, text : principal components of the embedding, and its coordinates in a kernel; None without vectors.
    form, together : cosines of the form of the texts, and coordinates of it in a kernel; None without texts.
    words : weights of the words; None without texts.
    numbers : columns of numbers, NaN where one is missing; None without such columns.
    codes : of the values of the columns; None without columns.
    """

    confidences: Floats
    places: Floats | None = None
    text: Floats | None = None
    form: Floats | None = None
    together: Floats | None = None
    words: WordRows | None = None
    numbers: Floats | None = None
    codes: Ints | None = None

    def only(self, keep: Any) -> ScoreInputs:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values = {name: value if value is None else value[keep] for name, value in values.items()}
        return ScoreInputs(**values)


class Term(NamedTuple):
    """A part of the regression: columns that share a variance.

    signal : what they belong to.
    columns : a row for each row; of slopes, before they are multiplied by the pooled logit.
    is_slope : whether they change how much the confidence counts.
    variance : where the search for their variance starts: near the values found on the LLMs of development.
    """

    signal: str
    columns: Floats
    is_slope: bool
    variance: float


@dataclass(frozen=True, eq=False)
class Signals:
    """What a score reads of a row besides its stated confidence; None for what it does not read.

    confidences : the names of further confidences.
    text : the embedding.
    form : numbers that describe the form of question and answer.
    words : the words of question and answer.
    number_names, numbers : columns of numbers.
    levels : values of columns.
    """

    confidences: tuple[str, ...] = ()
    text: Kernel | None = None
    form: Numbers | None = None
    words: Vocabulary | None = None
    number_names: tuple[str, ...] = ()
    numbers: Numbers | None = None
    levels: Levels | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether rows must have a question and an answer."""
        return self.form is not None or self.words is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, further confidences among them."""
        return (*self.confidences, *self.number_names, *(() if self.levels is None else self.levels.names))

    def only(self, *, text: bool, columns: Collection[str]) -> Signals:
        """Return the signals of the text, if wanted, and those of some columns."""
        confidences = tuple(name for name in self.confidences if name in columns)
        texts = (self.text, self.form, self.words) if text else (None, None, None)
        kept = [name in columns for name in self.number_names]
        numbers = self.numbers.only(kept) if self.numbers is not None and any(kept) else None
        names = tuple(name for name in self.number_names if name in columns)
        return Signals(confidences, *texts, names, numbers, None if self.levels is None else self.levels.only(columns))

    def seen(self, rows: ScoreInputs, *, text: bool, columns: Collection[str]) -> ScoreInputs:
        """Return rows as the signals of :meth:`only` read them."""
        confidences = [True, *(name in columns for name in self.confidences)]
        rows = replace(rows, confidences=rows.confidences[:, confidences])
        if not text:
            rows = replace(rows, places=None, text=None, form=None, together=None, words=None)
        if rows.numbers is not None:
            kept = [name in columns for name in self.number_names]
            rows = replace(rows, numbers=rows.numbers[:, kept] if any(kept) else None)
        if rows.codes is not None and self.levels is not None:
            rows = replace(rows, codes=self.levels.codes_of(rows.codes, columns))
        return rows

    def inputs(
        self, confidences: Floats, vectors: Any, texts: PairTexts | None, columns: Mapping[str, Any]
    ) -> ScoreInputs:
        """Return rows as the regression reads them; a fitted score reads texts as in `stacked.py`."""
        rows = self.column_inputs(confidences, columns)
        places = text = None
        if self.text is not None:
            places = self.text.places(vectors)
            require_length(places, len(confidences), EMBEDDING)
            text = self.text.at(places)
        form = None if self.form is None or texts is None else self.form.cosines(texts.form)
        together = None if self.form is None or form is None else self.form.together(form)
        words = None if self.words is None or texts is None else self.words.weigh(texts)
        return replace(rows, places=places, text=text, form=form, together=together, words=words)

    def column_inputs(self, confidences: Floats, columns: Mapping[str, Any]) -> ScoreInputs:
        """Return what is read of rows besides their texts."""
        for name, column in columns.items():
            require_length(column, len(confidences), name)
        codes = None if self.levels is None else self.levels.codes(columns)
        numbers = None
        if self.numbers is not None:
            numbers = np.column_stack([columns[name] for name in self.number_names])
        return ScoreInputs(confidences, numbers=numbers, codes=codes)

    def points(self, rows: ScoreInputs, places: Floats | None, form: Floats | None) -> list[Floats]:
        """Return where rows are, for `likeness.py`: a block for each signal.

        places, form : principal components of the embedding, and cosines of the form; None if they are not read.
        """
        out = [feature_values(rows.confidences, "logit")]
        if places is not None:
            out.append(places)
        if form is not None:
            out.append(first_cosines(form))
        if rows.numbers is not None and self.numbers is not None:
            out.append(self.numbers.standard(rows.numbers))
        if rows.codes is not None:
            out.append((rows.codes == UNSEEN).astype(np.float64))
        return out

    def terms(self, rows: ScoreInputs) -> Iterator[Term]:
        """Yield the parts of the regression, words aside."""
        if rows.text is not None:
            yield Term("text", rows.text, False, 0.2)
            yield Term("text", rows.text[:, :_SLOPES], True, 0.2)
        if rows.form is not None and rows.together is not None:
            yield from _form_terms(rows.form, rows.together)
        yield from self.column_terms(rows)

    def column_terms(self, rows: ScoreInputs) -> Iterator[Term]:
        """Yield those of :meth:`terms` that columns have."""
        if rows.numbers is not None and self.numbers is not None:
            cosines = self.numbers.cosines(rows.numbers)
            for name, mine in zip(self.number_names, np.split(cosines, self.numbers.count, axis=1), strict=True):
                # A number may say much more, or less, than another.
                yield Term(name, mine, False, 0.05)
                yield Term(name, mine[:, :1], True, 0.05)
            yield Term("missing numbers", np.isnan(rows.numbers).astype(np.float64), False, 0.1)
        if rows.codes is not None and self.levels is not None:
            indicators = self.levels.indicators(rows.codes)
            for at, name in enumerate(self.levels.names):
                # Each column has variances of its own: tenants may differ much and languages little.
                mine = indicators[:, self.levels.column == at]
                yield Term(name, mine, False, 0.1)
                yield Term(name, mine, True, 0.05)

    @property
    def point_width(self) -> int:
        """The number of coordinates of :meth:`points`."""
        text = 0 if self.text is None else self.text.axes.shape[1]
        form, numbers = (0 if part is None else part.count for part in (self.form, self.numbers))
        return (
            1 + len(self.confidences) + text + form + numbers + (0 if self.levels is None else len(self.levels.names))
        )

    @property
    def text_widths(self) -> list[int]:
        """The number of columns of each term that embedding and form have."""
        text = 0 if self.text is None else self.text.width
        out = [] if self.text is None else [text, min(text, _SLOPES)]
        if self.form is not None:
            kernel = self.form.kernel
            out += [self.form.width, self.form.count, 0 if kernel is None else kernel.width]
        return out

    @property
    def widths(self) -> list[int]:
        """The number of columns of each term."""
        out = self.text_widths
        if self.numbers is not None:
            out += [self.numbers.width // self.numbers.count, 1] * self.numbers.count + [self.numbers.count]
        if self.levels is not None:
            sizes = np.bincount(self.levels.column, minlength=len(self.levels.names))
            out += np.repeat(sizes, 2).tolist()
        return out

    def _validate(self) -> None:
        count = 0 if self.numbers is None else self.numbers.count
        require(len(self.number_names) == count, "the columns of numbers of a score and their names differ.")


@dataclass(frozen=True, eq=False)
class ScoreMaps:
    """A fitted score.

    centre : of the pooled logits.
    coefficients : :math:`b_0` and :math:`b_1`, then those of the terms of the signals, one after the other; empty if
        nothing changes the pooled map.
    words : the weights of the words.
    """

    pooled: PooledMap
    signals: Signals
    centre: Annotated[float, FACTORS]
    coefficients: Annotated[Floats, Axes("terms"), FACTORS]
    words: Annotated[Floats, Axes("words"), FACTORS]

    def apply(self, rows: ScoreInputs) -> Floats:
        """Return the score of each row."""
        return self.scores_of(rows, self.contributions(rows))

    def text_coefficients(self) -> list[Floats]:
        """Return the coefficients of embedding and form, term by term: the first ones after the fixed two."""
        widths = self.signals.text_widths
        return np.split(self.coefficients[2 : 2 + sum(widths)], np.cumsum(widths)[:-1])

    def scores_of(self, rows: ScoreInputs, contributions: Mapping[str, Floats]) -> Floats:
        """Return the score of each row by its :meth:`contributions`."""
        if not len(self.coefficients) and self.pooled.kind == "stated" and self.pooled.n_confidences == 1:
            # One wrong answer at 1.0 would cost more than a curve can gain. As it is: logits would round it.
            return np.clip(rows.confidences[:, 0], LOGIT_CUT, 1 - LOGIT_CUT)
        return expit(sum(contributions.values(), np.zeros(len(rows.confidences))))

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of what :meth:`contributions` adds up, the stated confidence first."""
        signals = self.signals
        texts = [name for name in ("text", "form", "words") if getattr(signals, name) is not None]
        lacks = ["missing numbers"] if signals.number_names else []
        names = signals.number_names, lacks, () if signals.levels is None else signals.levels.names
        return ("confidence", *signals.confidences, *texts, *(name for part in names for name in part))

    def contributions(self, rows: ScoreInputs, weight: Floats | float = 1.0) -> dict[str, Floats]:
        """Return what the pooled map and each signal add to the logit of each row.

        weight : how much signals count beside the pooled map.
        """
        c, out = self.of_confidences(rows)
        if not len(self.coefficients):
            return out
        for signal, shift in self._shifts(self.signals.terms(rows), 2, c):
            out[signal] = out.get(signal, 0.0) + weight * shift
        if "form" in out:
            of_answer = weight * self._form_of_answer(rows, c)
            out["form"] = of_answer + np.minimum(out["form"] - of_answer, MOST_OF_QUESTION)
        if rows.words is not None:
            out["words"] = weight * (rows.words @ self.words)
        return out

    def of_confidences(self, rows: ScoreInputs) -> tuple[Floats, dict[str, Floats]]:
        """Return the centred pooled logit of each row, and what each confidence adds to the logit of its score."""
        stated, *further = self.pooled.parts(rows.confidences).T
        names = self.signals.confidences
        c = sum(further, stated) - self.centre
        if not len(self.coefficients):
            return c, {"confidence": stated, **dict(zip(names, further, strict=True))}
        intercept, slope = self.coefficients[:2].tolist()
        out = {"confidence": intercept + slope * (stated - self.centre)}
        return c, out | {name: slope * part for name, part in zip(names, further, strict=True)}

    def of_columns(self, rows: ScoreInputs, c: Floats) -> dict[str, Floats]:
        """Return what columns add to the logit of each row."""
        out: dict[str, Floats] = {}
        for signal, shift in self._shifts(self.signals.column_terms(rows), 2 + sum(self.signals.text_widths), c):
            out[signal] = out.get(signal, 0.0) + shift
        return out

    def _form_of_answer(self, rows: ScoreInputs, c: Floats) -> Floats:
        """Return what form adds to the logit of each row if its question has the average form."""
        form, text = self.signals.form, self.signals.text
        if form is None or rows.form is None:
            return np.zeros(len(c))
        of_answer = rows.form.copy()
        of_answer[:, : form.width // form.count * len(FORM)] = 0.0
        first = 2 if text is None else 2 + sum(self.signals.text_widths[:2])
        terms = _form_terms(of_answer, form.together(of_answer))
        return sum((shift for _, shift in self._shifts(terms, first, c)), np.zeros(len(c)))

    def _shifts(self, terms: Iterable[Term], first: int, c: Floats) -> Iterator[tuple[str, Floats]]:
        """Yield the signal of each term and what it adds to the logits; `first` is the place of their coefficients."""
        for term in terms:
            last = first + term.columns.shape[1]
            shift = term.columns @ self.coefficients[first:last]
            yield term.signal, shift * c if term.is_slope else shift
            first = last

    def _validate(self) -> None:
        widths, words = self.signals.widths, self.signals.words
        count = 0 if words is None else len(words)
        is_complete = len(self.coefficients) == (2 + sum(widths) if widths or count else 0)
        require(is_complete and len(self.words) == count, "a score must have one effect for each term and word.")
        is_read = self.pooled.n_confidences == 1 + len(self.signals.confidences)
        require(is_read, "the pooled map of a score must read all its confidences.")


def _form_terms(form: Floats, together: Floats) -> Iterator[Term]:
    yield Term("form", form, False, 0.01)
    yield Term("form", first_cosines(form), True, 0.01)
    yield Term("form", together, False, 0.3)


def pooled_maps(pooled: PooledMap, confidences: tuple[str, ...] = ()) -> ScoreMaps:
    """Return the score that is the pooled map alone; `confidences` are the names of further ones."""
    return ScoreMaps(pooled, Signals(confidences), 0.0, np.empty(0), np.empty(0))


def design(logits: Floats, rows: ScoreInputs, signals: Signals) -> tuple[Floats, Ints, Floats]:
    """Return the columns of the regression, the block of each, and where the search for variances starts."""
    terms = list(signals.terms(rows))
    columns = [term.columns * logits[:, None] if term.is_slope else term.columns for term in terms]
    widths = [column.shape[1] for column in columns]
    block = np.concatenate([[FIXED, FIXED], np.repeat(np.arange(len(widths)), widths)]).astype(np.int64)
    X = np.hstack([np.ones((len(logits), 1)), logits[:, None], *columns])
    return X, block, np.array([term.variance for term in terms])


def fit_design(
    X: Floats, block: Ints, variances: Floats, correct: Floats, words: WordRows | None = None, centre: float = 0.0
) -> EffectsFit:
    """Return the effects of a design, from the pooled map on."""
    start = np.zeros(X.shape[1])
    start[:2] = centre, 1.0
    return fit_effects(X, correct, block, start=start, variances=variances, words=words)


def fit_maps(
    pooled: PooledMap, rows: ScoreInputs, correct: Floats, signals: Signals, start: EffectsFit | None = None
) -> tuple[ScoreMaps, EffectsFit]:
    """Return the effects of signals on a pooled map, and their fit; it begins at `start`, an earlier one."""
    logits = pooled.logits(rows.confidences)
    centre = float(logits.mean())
    X, block, variances = design(logits - centre, rows, signals)
    if start is None:
        fit = fit_design(X, block, variances, correct, rows.words, centre)
    else:
        begin = {"start": start.coefficients, "variances": start.variances, "word_start": start.words}
        fit = fit_effects(X, correct, block, words=rows.words, **begin)
    return ScoreMaps(pooled, signals, centre, fit.coefficients, fit.words), fit
