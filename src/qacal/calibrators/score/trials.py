"""Which score to learn: candidates from the simplest on, compared by their loss on held-out questions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

import numpy as np

from qacal.calibrators.base import LOGIT_CUT
from qacal.calibrators.score.effects import EffectsFit
from qacal.calibrators.score.maps import (
    MISSING,
    ScoreInputs,
    ScoreMaps,
    Signals,
    design,
    fit_design,
    fit_maps,
    pooled_maps,
)
from qacal.calibrators.score.pooled import Kind, PooledMap, fit_pooled
from qacal.metrics.scores import SHOWN_CUT, brier_score, log_loss
from qacal.parameters import FACTORS, Axes
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import mix

Objective: TypeAlias = Literal["log_loss", "brier"]

_FOLDS = 5
# Folds must be independent of other splits of the questions.
_SEED, _COLUMN_SEED = 5, 6
# Folds are used until they have this many rows: then the differences between candidates that matter, .01 of log loss,
# are twice their own noise.
ENOUGH_ROWS = 1_000
# With fewer rows, a held-out loss cannot tell whether the text helps.
_ROWS_FOR_TEXT = 30

# Rows of the fit that lack the same columns have a score of their own if they are this many.
_ROWS_OF_A_PATTERN, _MOST_FALLBACKS = 50, 12

CLEARLY = 2.0
"""Columns that nobody named must gain this many standard errors: of dozens, one gains a single one by chance."""

# A column that leaves less than the first share of the log loss is suspected to be made from the label; with less than
# the second it surely is. Of honest signals, the probability of the answer's tokens leaves three quarters.
_SUSPECT, _LEAK = 0.5, 0.1


@dataclass(frozen=True)
class Candidate:
    """A kind of score: of the pooled map and its further confidences, and whether text and which columns modify it."""

    kind: Kind
    confidences: tuple[str, ...] = ()
    has_text: bool = False
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A description in a few words."""
        words = {"stated": "stated confidence", "line": "pooled line", "curve": "pooled curve"}
        return " + ".join([words[self.kind], *self.confidences, *(["text"] if self.has_text else []), *self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that it reads, further confidences among them."""
        return (*self.confidences, *self.columns)

    def without(self, names: Collection[str]) -> Candidate:
        """Return the same kind of score without some columns."""
        kept = [tuple(name for name in part if name not in names) for part in (self.confidences, self.columns)]
        return replace(self, confidences=kept[0], columns=kept[1])


@dataclass(frozen=True)
class ScoreTrial:
    """The loss of a candidate on held-out questions."""

    name: str
    rows: int
    log_loss: float
    brier: float
    is_chosen: bool = False


@dataclass(frozen=True)
class ColumnTrial:
    """What a column adds to the best score without columns, on held-out questions.

    gain, error : by how much it lowers the log loss, and the standard error of that.
    is_leak : whether it predicts the label so well that it must have been made from it; such a column is not used.
    is_suspect : whether it may have been.
    is_used : whether the score reads it.
    """

    name: str
    gain: float
    error: float
    is_leak: bool
    is_suspect: bool
    is_used: bool = False


@dataclass(frozen=True, eq=False)
class Fallback:
    """The score for rows that lack some columns: fitted without these. The signals are those of the chosen score.

    without : the names of the columns.
    pooled, centre, coefficients, words : as in :class:`~qacal.calibrators.score.maps.ScoreMaps`.
    """

    without: tuple[str, ...]
    pooled: PooledMap
    centre: Annotated[float, FACTORS]
    coefficients: Annotated[Floats, Axes("terms"), FACTORS]
    words: Annotated[Floats, Axes("words"), FACTORS]

    def maps(self, chosen: ScoreMaps) -> ScoreMaps:
        """Return the score; `chosen` is the one for rows that lack nothing."""
        signals = chosen.signals
        kept = [name for name in signals.columns if name not in self.without]
        signals = signals.only(text=signals.text is not None, columns=kept)
        return ScoreMaps(self.pooled, signals, self.centre, self.coefficients, self.words)


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen score, those for rows that lack columns of it, and everything that was tried."""

    maps: ScoreMaps
    fallbacks: tuple[Fallback, ...] = ()
    trials: tuple[ScoreTrial, ...] = ()
    columns: tuple[ColumnTrial, ...] = ()


@dataclass(frozen=True, eq=False)
class Material:
    """The rows to learn a score from, with everything that candidates may read.

    unnamed : columns that no user named: a chance gain, or one that looks like a leak, is not enough for these.
    enough : folds are used until they have this many rows.
    """

    rows: ScoreInputs
    correct: Floats
    ids: Hashes
    signals: Signals
    unnamed: frozenset[str] = frozenset()
    enough: int = ENOUGH_ROWS

    def fit(
        self, candidate: Candidate, keep: Bools | slice = slice(None), start: EffectsFit | None = None
    ) -> tuple[ScoreMaps, EffectsFit | None]:
        """Return the score of a candidate, learned from some of the rows, and its effects: a start for another fit."""
        signals = self.signals.only(text=candidate.has_text, columns=candidate.names)
        rows = self.seen(candidate).only(keep)
        pooled = fit_pooled(rows.confidences, self.correct[keep], candidate.kind)
        if not candidate.has_text and not candidate.columns:
            return pooled_maps(pooled, signals.confidences), None
        return fit_maps(pooled, rows, self.correct[keep], signals, start)

    def seen(self, candidate: Candidate) -> ScoreInputs:
        """Return the rows as a candidate reads them."""
        return self.signals.seen(self.rows, text=candidate.has_text, columns=candidate.names)

    def helps(self, column: ColumnTrial) -> bool:
        """Return whether a column gains more than noise, and may be used."""
        if column.name in self.unnamed:
            return column.gain > CLEARLY * column.error and not column.is_suspect
        return column.gain > column.error and not column.is_leak

    def lacks(self, name: str) -> Bools:
        """Return which rows lack a column."""
        signals, rows = self.signals, self.rows
        if name in signals.confidences:
            return np.isnan(rows.confidences[:, 1 + signals.confidences.index(name)])
        if name in signals.number_names and rows.numbers is not None:
            return np.isnan(rows.numbers[:, signals.number_names.index(name)])
        if rows.codes is None or signals.levels is None:
            raise KeyError(name)
        return np.asarray(rows.codes[:, signals.levels.names.index(name)] == MISSING)

    def folds(self) -> Iterator[Bools]:
        """Yield the held-out rows of each fold of questions, until there are enough rows."""
        fold = mix(self.ids, _SEED) % np.uint64(_FOLDS)
        judged = 0
        for number in range(_FOLDS):
            held = fold == number
            if judged < self.enough and held.any() and not held.all():
                judged += int(held.sum())
                yield held


def choose(material: Material, objective: Objective = "log_loss") -> Choice:
    """Return the candidate with the lowest held-out loss, fitted on all rows, and all trials.

    Of equals the simpler one is taken. If texts and columns do not help, that is one curve or line for all; if that
    does not help either, or if there is only one question to learn from, the confidence as stated. A column is tried
    by itself first; those that help are tried together.
    """
    if not any(True for _ in material.folds()):
        return Choice(material.fit(Candidate("stated"))[0])

    def loss(tried: _Tried) -> float:
        return float(getattr(tried.trial, objective))

    kinds: tuple[Kind, ...] = ("stated", "line", "curve")
    tried = [_tried(material, Candidate(kind)) for kind in kinds]
    simple = min(tried[1:], key=loss)
    further = [
        _compared(name, simple, [_tried(material, Candidate(kind, (name,))) for kind in kinds[1:]])
        for name in material.signals.confidences
    ]
    helpful = tuple(one.name for one in further if material.helps(one))
    if helpful:
        tried += [_tried(material, Candidate(kind, helpful)) for kind in kinds[1:]]
    # Texts and columns are added to the best candidate without them.
    simple = min(tried[1:], key=loss)
    base = simple
    if material.signals.text is not None and len(material.correct) >= _ROWS_FOR_TEXT:
        tried.append(_tried(material, replace(simple.candidate, has_text=True)))
        base = min(simple, tried[-1], key=loss)
    others = [name for name in material.signals.columns if name not in material.signals.confidences]
    columns = [_column_trial(material, name, base) for name in others]
    helpful = tuple(one.name for one in columns if material.helps(one))
    if helpful:
        tried.append(_tried(material, replace(base.candidate, columns=helpful)))
    best = min(tried, key=loss)
    return Choice(
        material.fit(best.candidate, start=best.effects)[0],
        _fallbacks(material, best.candidate),
        tuple(replace(one.trial, is_chosen=one is best) for one in tried),
        tuple(replace(one, is_used=one.name in best.candidate.names) for one in [*further, *columns]),
    )


def _fallbacks(material: Material, best: Candidate) -> tuple[Fallback, ...]:
    """Return scores for rows that lack some of the columns: one, all, or as many rows of the fit lack together."""
    if not best.names:
        return ()
    lacking = np.column_stack([material.lacks(name) for name in best.names])
    seen, counts = np.unique(lacking, axis=0, return_counts=True)
    seen = seen[np.argsort(-counts, kind="stable")][: np.count_nonzero(counts >= _ROWS_OF_A_PATTERN)]
    patterns = [np.ones(len(best.names), dtype=bool), *np.eye(len(best.names), dtype=bool), *seen]
    chosen = dict.fromkeys(tuple(np.asarray(best.names)[pattern].tolist()) for pattern in patterns if pattern.any())
    # The first is needed always: it covers every pattern.
    return tuple(
        Fallback(names, maps.pooled, maps.centre, maps.coefficients, maps.words)
        for names in list(chosen)[:_MOST_FALLBACKS]
        for maps in [material.fit(best.without(names))[0]]
    )


@dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate, its loss, its held-out scores, where they are and their losses, and the effects of its last fit."""

    candidate: Candidate
    trial: ScoreTrial
    held: Bools
    scores: Floats
    losses: Floats
    effects: EffectsFit | None


def _tried(material: Material, candidate: Candidate) -> _Tried:
    scores, judged = np.zeros(len(material.correct)), np.zeros(len(material.correct), dtype=bool)
    effects: EffectsFit | None = None
    rows = material.seen(candidate)
    for held in material.folds():
        # Each from the beginning: the effects of another fold have seen the labels of this one.
        maps, effects = material.fit(candidate, ~held)
        scores[held] = maps.apply(rows.only(held))
        judged |= held
    score, correct = scores[judged], material.correct[judged]
    loss = log_loss(correct, score, cut=SHOWN_CUT)
    trial = ScoreTrial(candidate.name, len(score), loss, brier_score(correct, score))
    inside = np.clip(score, LOGIT_CUT, 1 - LOGIT_CUT)
    losses = -(correct * np.log(inside) + (1 - correct) * np.log(1 - inside))
    return _Tried(candidate, trial, judged, score, losses, effects)


def _column_trial(material: Material, name: str, base: _Tried) -> ColumnTrial:
    """Return what a column adds to held-out scores, by cross-validation on the rows that have them."""
    signals = material.signals.only(text=False, columns=(name,))
    rows = material.signals.seen(material.rows, text=False, columns=(name,)).only(base.held)
    correct = material.correct[base.held]
    clipped = np.clip(base.scores, LOGIT_CUT, 1 - LOGIT_CUT)
    logits = np.log(clipped / (1 - clipped))
    fold = mix(material.ids[base.held], _COLUMN_SEED) % np.uint64(_FOLDS)
    losses = np.zeros((2, len(correct)))
    for number in np.unique(fold):
        held = fold == number
        for place, read in enumerate((Signals(), signals)):
            seen = rows if place else ScoreInputs(rows.confidences)
            fit = fit_design(*design(logits[~held], seen.only(~held), read), correct[~held])
            eta = design(logits[held], seen.only(held), read)[0] @ fit.coefficients
            losses[place, held] = np.logaddexp(0, eta) - correct[held] * eta
    return _column_gain(name, *losses)


def _compared(name: str, base: _Tried, others: list[_Tried]) -> ColumnTrial:
    """Return what a further confidence adds to the best score without it."""
    best = min(others, key=lambda one: one.trial.log_loss)
    return _column_gain(name, base.losses, best.losses)


def _column_gain(name: str, without: Floats, with_it: Floats) -> ColumnTrial:
    """Return a trial from the log loss of each held-out row."""
    difference = without - with_it
    share = with_it.mean() / max(without.mean(), 1e-12)
    error = float(difference.std() / np.sqrt(len(difference)))
    return ColumnTrial(name, float(difference.mean()), error, bool(share < _LEAK), bool(share < _SUSPECT))
