"""Which score to learn: candidates from the simplest on, each judged on questions that it was not fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from qacal.calibrators.score.effects import EffectsFit
from qacal.calibrators.score.kernel import Kernel
from qacal.calibrators.score.levels import Levels
from qacal.calibrators.score.maps import Rows, ScoreMaps, fit_maps, pooled_maps
from qacal.calibrators.score.pooled import Kind, fit_pooled
from qacal.metrics.proper_scores import brier_score, log_loss
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import mix

Objective: TypeAlias = Literal["log_loss", "brier"]

_FOLDS = 5
# Folds must have nothing to do with other parts that questions were dealt into.
_SEED = 5
# As many folds are judged on as it takes to have this many rows: with them the differences between candidates that
# matter, .01 of log loss, are twice their own noise.
_ENOUGH_ROWS = 1_000


@dataclass(frozen=True)
class Candidate:
    """A kind of score.

    kind : of the pooled map.
    confidences : how many confidences it reads.
    has_columns, has_text : what changes the pooled map.
    """

    kind: Kind
    confidences: int = 1
    has_columns: bool = False
    has_text: bool = False

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        words = {"stated": "stated confidence", "line": "pooled line", "curve": "pooled curve"}
        parts = [words[self.kind]]
        if self.confidences > 1:
            parts.append(f"of {self.confidences} confidences")
        others = [word for word, has in (("columns", self.has_columns), ("text", self.has_text)) if has]
        return " ".join(parts) + "".join(f" + {word}" for word in others)


@dataclass(frozen=True)
class ScoreTrial:
    """How a candidate did on the tuning rows: questions that it was not fitted on."""

    name: str
    rows: int
    log_loss: float
    brier: float
    is_chosen: bool = False


@dataclass(frozen=True, eq=False)
class Material:
    """What there is to learn a score from: rows with all that may be read of them."""

    rows: Rows
    correct: Floats
    ids: Hashes
    kernel: Kernel | None
    levels: Levels | None

    def fit(self, candidate: Candidate, keep: Bools | slice = slice(None), start: EffectsFit | None = None) -> Fitted:
        """Return the score of a candidate, learned from some of the rows."""
        mine = self.seen(candidate).only(keep)
        pooled = fit_pooled(mine.confidences, self.correct[keep], candidate.kind)
        if mine.coordinates is None and mine.codes is None:
            return Fitted(pooled_maps(pooled), None)
        kernel, levels = self.kernel if candidate.has_text else None, self.levels if candidate.has_columns else None
        return Fitted(*fit_maps(pooled, mine, self.correct[keep], kernel=kernel, levels=levels, start=start))

    def seen(self, candidate: Candidate) -> Rows:
        """Return what a candidate reads of the rows."""
        return Rows(
            self.rows.confidences[:, : candidate.confidences],
            self.rows.coordinates if candidate.has_text else None,
            self.rows.codes if candidate.has_columns else None,
        )

    def folds(self) -> Iterator[Bools]:
        """Yield which rows to judge on, in turn: folds of questions, until there are enough rows."""
        fold = mix(self.ids, _SEED) % np.uint64(_FOLDS)
        judged = 0
        for number in range(_FOLDS):
            held = fold == number
            if judged < _ENOUGH_ROWS and held.any() and not held.all():
                judged += int(held.sum())
                yield held


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted score; its effects are a start for another fit of the same candidate."""

    maps: ScoreMaps
    effects: EffectsFit | None


def choose(material: Material, objective: Objective = "log_loss") -> tuple[Fitted, tuple[ScoreTrial, ...]]:
    """Try all candidates; return the one with the lowest loss, fitted on all rows, and what was tried.

    Of equals the simpler one is taken. If texts and columns do not help, that is one curve or line for all; if that
    does not help either, or if there is but one question to learn from, the confidence as stated.
    """
    if not any(True for _ in material.folds()):
        return material.fit(Candidate("stated")), ()

    def loss(tried: _Tried) -> float:
        return float(getattr(tried.trial, objective))

    plain = [_tried(material, candidate) for candidate in _plain_candidates(material)]
    learned = min(plain[1:], key=loss).candidate
    tried = [*plain, *(_tried(material, candidate) for candidate in _rich_candidates(material, learned))]
    best = min(tried, key=loss)
    trials = tuple(replace(one.trial, is_chosen=one is best) for one in tried)
    return material.fit(best.candidate, start=best.effects), trials


def _plain_candidates(material: Material) -> Iterator[Candidate]:
    kinds: tuple[Kind, ...] = ("stated", "line", "curve")
    yield from map(Candidate, kinds)
    count = material.rows.confidences.shape[1]
    if count > 1:
        yield from (Candidate(kind, count) for kind in kinds[1:])


def _rich_candidates(material: Material, plain: Candidate) -> Iterator[Candidate]:
    """Yield what texts and columns can add to the best candidate without them."""
    if material.levels is not None:
        yield replace(plain, has_columns=True)
    if material.kernel is not None:
        yield replace(plain, has_text=True)
    if material.levels is not None and material.kernel is not None:
        yield replace(plain, has_columns=True, has_text=True)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate, how it did, and the effects that were found last."""

    candidate: Candidate
    trial: ScoreTrial
    effects: EffectsFit | None


def _tried(material: Material, candidate: Candidate) -> _Tried:
    scores, labels = [], []
    effects: EffectsFit | None = None
    for held in material.folds():
        # A fit does not depend on where it began, up to what is left of the last step: labels of this fold do not reach
        # it through the effects of another.
        fitted = material.fit(candidate, ~held, effects)
        effects = fitted.effects
        scores.append(fitted.maps.apply(material.seen(candidate).only(held)))
        labels.append(material.correct[held])
    score, correct = np.concatenate(scores), np.concatenate(labels)
    trial = ScoreTrial(candidate.name, len(score), log_loss(correct, score), brier_score(correct, score))
    return _Tried(candidate, trial, effects)
