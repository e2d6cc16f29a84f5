"""What fitted scores say of rows: those of one model together, since they read the same texts and columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qacal.calibrators.score.likeness import weight_of_signals
from qacal.calibrators.score.maps import ScoreInputs, ScoreMaps
from qacal.calibrators.score.numbers import numbers_of
from qacal.calibrators.score.stacked import TextEffects, TextRows, TextSignals
from qacal.calibrators.score.texts import PairTexts
from qacal.errors import InputError
from qacal.partitions import EMBEDDING
from qacal.partitions.base import column_of, one_thread
from qacal.tally.arrays import (
    ArrayLike,
    Floats,
    as_vectors,
    column_of_any,
    is_missing,
    require_length,
    seven_decimals,
    unit_values,
)
from qacal.tally.groups import as_labels

if TYPE_CHECKING:
    from qacal.calibrators.score.learned import LearnedScore

# Up to so many rows are read at once, more in portions: threads take one each, and what a call costs hardly counts.
_ROWS_AT_ONCE, _MOST_ROWS = 512, 2048
_MOST_THREADS = 4


@dataclass(frozen=True, eq=False)
class ScoreReading:
    """What a score says of rows.

    score : the probability that the answer is correct.
    unlike : the share of the rows of the fit that are more like the others; NaN if that is not known.
    parts : what the pooled map ("confidence") and each signal add to the logit; empty unless asked for.
    first : the score that finds the bands of a certificate, if that is another one.
    """

    score: Floats
    unlike: Floats
    parts: dict[str, Floats]
    first: Floats | None = None


class _Fitted(NamedTuple):
    """The maps of each score for rows that lack some columns, and the effects of texts in them."""

    maps: list[ScoreMaps]
    texts: TextEffects


class ScoreReader:
    """Fitted scores of one model, read together. The scores must not be fitted again.

    needs_texts : whether rows must have a question and an answer.

    Examples
    --------
    >>> from qacal import LearnedScore
    >>> score = LearnedScore(text=False).fit({"confidence": [0.7, 0.9] * 200}, [0, 0, 1, 1, 0, 1, 0, 1] * 50)
    >>> (read,) = ScoreReader([score]).read({"confidence": np.array([0.7, 0.9])})
    >>> read.score.round(2)
    array([0.25, 0.75])
    """

    def __init__(self, scores: Sequence[LearnedScore]) -> None:
        for score in scores:
            score._require_fitted()
        self._scores = scores
        self._signals = [score.maps_.signals for score in scores]
        self._texts = TextSignals(self._signals)
        self._columns = list(dict.fromkeys(name for signals in self._signals for name in signals.columns))
        self._fitted: dict[tuple[tuple[str, ...], ...], _Fitted] = {}
        self.needs_texts = any(signals.reads_texts for signals in self._signals)

    def read(
        self,
        inputs: Mapping[str, ArrayLike],
        texts: Sequence[list[str]] | None = None,
        *,
        explains: bool = False,
        is_cut: bool = True,
    ) -> list[ScoreReading]:
        """Return what each score says of rows.

        inputs : columns by name, as in :meth:`LearnedScore.predict`; confidences are floats from 0 to 1.
        texts : questions and answers, if a score reads them.
        explains : also return the contributions of the signals.
        is_cut : whether the form of the question adds no more than it may.
        """
        if self.needs_texts and texts is None:
            raise InputError("the score reads question and answer, and the rows do not have both.")
        stated: Floats = column_of(inputs, "confidence", self._scores[0])
        vectors = None
        if self._texts.kernels:
            width = len(self._texts.kernels[0].mean)
            vectors = as_vectors(column_of(inputs, EMBEDDING, self._scores[0]), width, "score")
            require_length(vectors, len(stated), EMBEDDING)
        columns = self._read_columns(inputs, len(stated))
        rows = self._inputs_of(stated, columns)
        portions = _portions(len(stated))

        def found(portion: slice) -> list[ScoreReading]:
            some = rows if len(portions) == 1 else [one.only(portion) for one in rows]
            lacking = _lacking({name: column[portion] for name, column in columns.items()})
            pair = [column[portion] for column in texts] if self.needs_texts and texts is not None else None
            of_texts = self._texts.read(
                None if vectors is None else vectors[portion],
                None if pair is None else PairTexts.of(*pair),
                portion.start,
            )
            return self._portion(some, of_texts, lacking, explains=explains, is_cut=is_cut)

        if len(portions) == 1:
            return found(portions[0])
        # Threads work on portions of their own: those of linear algebra would share one small matrix, and take longer.
        with one_thread(waits=False), ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS)) as threads:
            return [_joined(of_score) for of_score in zip(*threads.map(found, portions), strict=True)]

    def _portion(
        self,
        rows: list[ScoreInputs],
        of_texts: TextRows,
        lacking: list[tuple[frozenset[str], Any]],
        *,
        explains: bool,
        is_cut: bool,
    ) -> list[ScoreReading]:
        """Return what :meth:`read` does for some of the rows; `lacking` as :func:`_lacking` returns it."""
        count = len(rows[0].confidences)
        unlike, weight = np.full((len(rows), count), np.nan), np.ones((len(rows), count))
        for at, score in enumerate(self._scores):
            if score.likeness_ is not None:
                points = self._signals[at].points(rows[at], *self._texts.of_score(of_texts, at))
                unlike[at] = score.likeness_.rank(np.hstack(points))
                weight[at] = weight_of_signals(unlike[at])
        out = [ScoreReading(np.empty(count), far, {}) for far in unlike]
        for names, mine in lacking:
            fitted = self._without(names)
            seen, some = rows, of_texts
            if names:
                some = of_texts.only(mine)
                seen = [
                    signals.seen(one.only(mine), text=True, columns=maps.signals.columns)
                    for signals, one, maps in zip(self._signals, rows, fitted.maps, strict=True)
                ]
            elif len(lacking) > 1:
                seen, some = [one.only(mine) for one in rows], of_texts.only(mine)
            logits, of_confidences = zip(
                *(maps.of_confidences(one) for maps, one in zip(fitted.maps, seen, strict=True)), strict=True
            )
            c = np.stack(logits)
            shifts = fitted.texts.shifts(some, c, weight[:, mine], is_cut=is_cut)
            for at, (maps, one) in enumerate(zip(fitted.maps, seen, strict=True)):
                added = of_confidences[at] | shifts[at]
                if self._signals[at].columns:
                    added |= {name: weight[at, mine] * shift for name, shift in maps.of_columns(one, c[at]).items()}
                out[at].score[mine] = maps.scores_of(one, added)
                for name, shift in added.items() if explains else ():
                    out[at].parts.setdefault(name, np.zeros(count))[mine] = shift
        return out

    def _read_columns(self, inputs: Mapping[str, ArrayLike], count: int) -> dict[str, Any]:
        """Return the columns that scores read: numbers, NaN where one is missing, or labels."""
        columns: dict[str, Any] = {}
        for name in self._columns:
            column = inputs[name] if name in inputs else [None] * count
            if any(name in signals.confidences for signals in self._signals):
                columns[name] = partial_confidences(column, count, name)
            elif any(name in signals.number_names for signals in self._signals):
                columns[name] = numbers_of(column, name)
            else:
                columns[name] = as_labels(column, name)
            require_length(columns[name], count, name)
        return columns

    def _inputs_of(self, stated: Floats, columns: Mapping[str, Any]) -> list[ScoreInputs]:
        """Return what each score reads of rows besides their texts."""
        known = {"confidence": seven_decimals(stated)} | {
            name: seven_decimals(columns[name]) for signals in self._signals for name in signals.confidences
        }
        confidences = {signals.confidences: known["confidence"][:, None] for signals in self._signals}
        for names in confidences:
            if names:
                confidences[names] = np.column_stack([known[name] for name in ("confidence", *names)])
        out = []
        for signals in self._signals:
            others = {name: columns[name] for name in signals.columns if name not in known}
            out.append(signals.column_inputs(confidences[signals.confidences], others))
        return out

    def _without(self, names: frozenset[str]) -> _Fitted:
        """Return the maps for rows that lack some columns."""
        fallbacks = []
        for score in self._scores:
            gone = names & {*score.maps_.signals.columns}
            able = [one for one in score.fallbacks_ if gone <= {*one.without}]
            fallbacks.append(min(able, key=lambda one: len(one.without)) if gone else None)
        key = tuple(() if one is None else one.without for one in fallbacks)
        if key not in self._fitted:
            pairs = zip(self._scores, fallbacks, strict=True)
            maps = [score.maps_ if one is None else one.maps(score.maps_) for score, one in pairs]
            self._fitted[key] = _Fitted(maps, TextEffects(self._texts, maps))
        return self._fitted[key]


def _lacking(columns: Mapping[str, Any]) -> list[tuple[frozenset[str], Any]]:
    """Return the sets of columns that rows lack, each with these rows."""
    if columns:
        lacks = np.column_stack(
            [one == None if one.dtype == object else np.isnan(one) for one in columns.values()]  # noqa: E711
        )
        if lacks.any():
            names = np.array([*columns], dtype=object)
            return [(frozenset(names[one]), (lacks == one).all(axis=1)) for one in np.unique(lacks, axis=0)]
    return [(frozenset(), slice(None))]


def _portions(rows: int) -> list[slice]:
    """Return portions of nearly one size. It does not depend on the machine, or values would, in the last digit.

    >>> _portions(600), len(_portions(5000))
    ([slice(0, 300, None), slice(300, 600, None)], 4)
    """
    count = max(min(-(-rows // _ROWS_AT_ONCE), _MOST_THREADS), -(-rows // _MOST_ROWS), 1)
    size = max(-(-rows // count), 1)
    return [slice(first, first + size) for first in range(0, max(rows, 1), size)]


def _joined(parts: Sequence[ScoreReading]) -> ScoreReading:
    """Return the readings of portions as one."""
    score, unlike = (np.concatenate([getattr(part, name) for part in parts]) for name in ("score", "unlike"))
    names = dict.fromkeys(name for part in parts for name in part.parts)
    added = {
        name: np.concatenate([part.parts.get(name, np.zeros(len(part.score))) for part in parts]) for name in names
    }
    return ScoreReading(score, unlike, added)


def partial_confidences(values: ArrayLike, length: int, name: str) -> Floats:
    """Return a column of confidences, NaN where one is missing."""
    column = column_of_any(values, name)
    require_length(column, length, name)
    out = np.full(length, np.nan)
    is_float = column.dtype.kind == "f"
    is_known = ~np.isnan(column) if is_float else np.array([not is_missing(one) for one in column.tolist()], dtype=bool)
    if is_known.any():
        out[is_known] = unit_values(column[is_known], name)
    return out
