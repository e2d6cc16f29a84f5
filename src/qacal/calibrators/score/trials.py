"""Which score to learn: candidates from the simplest on, compared by their loss on held-out questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from qacal.calibrators.platt import LOGIT_CUT
from qacal.calibrators.score.effects import EffectsFit
from qacal.calibrators.score.maps import ScoreInputs, ScoreMaps, Signals, design, fit_design, fit_maps, pooled_maps
from qacal.calibrators.score.pooled import Kind, fit_pooled
from qacal.metrics.proper_scores import brier_score, log_loss
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import mix

Objective: TypeAlias = Literal["log_loss", "brier"]

_FOLDS = 5
# Folds must be independent of other splits of the questions.
_SEED, _COLUMN_SEED = 5, 6
# Folds are used until they have this many rows: then the differences between candidates that matter, .01 of log loss,
# are twice their own noise.
_ENOUGH_ROWS = 1_000

# A column that leaves less than the first share of the log loss is suspected to be made from the label; with less than
# the second it surely is. Of honest signals, the probability of the answer's tokens leaves three quarters.
_SUSPECT, _LEAK = 0.5, 0.1


@dataclass(frozen=True)
class Candidate:
    """A kind of score: of the pooled map, the number of confidences, and whether text and which columns modify it."""

    kind: Kind
    confidences: int = 1
    has_text: bool = False
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A description in a few words."""
        words = {"stated": "stated confidence", "line": "pooled line", "curve": "pooled curve"}
        parts = [words[self.kind] + (f" of {self.confidences} confidences" if self.confidences > 1 else "")]
        parts += ["text"] if self.has_text else []
        return " + ".join([*parts, *self.columns])


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
class Choice:
    """The chosen score, and everything that was tried."""

    maps: ScoreMaps
    trials: tuple[ScoreTrial, ...] = ()
    columns: tuple[ColumnTrial, ...] = ()


@dataclass(frozen=True, eq=False)
class Material:
    """The rows to learn a score from, with everything that candidates may read."""

    rows: ScoreInputs
    correct: Floats
    ids: Hashes
    signals: Signals

    def fit(
        self, candidate: Candidate, keep: Bools | slice = slice(None), start: EffectsFit | None = None
    ) -> tuple[ScoreMaps, EffectsFit | None]:
        """Return the score of a candidate, learned from some of the rows, and its effects: a start for another fit."""
        signals = self.signals.only(text=candidate.has_text, columns=candidate.columns)
        rows = self.seen(candidate).only(keep)
        pooled = fit_pooled(rows.confidences, self.correct[keep], candidate.kind)
        if not candidate.has_text and not candidate.columns:
            return pooled_maps(pooled), None
        return fit_maps(pooled, rows, self.correct[keep], signals, start)

    def seen(self, candidate: Candidate) -> ScoreInputs:
        """Return the rows as a candidate reads them."""
        rows = self.signals.seen(self.rows, text=candidate.has_text, columns=candidate.columns)
        return replace(rows, confidences=self.rows.confidences[:, : candidate.confidences])

    def folds(self) -> Iterator[Bools]:
        """Yield the held-out rows of each fold of questions, until there are enough rows."""
        fold = mix(self.ids, _SEED) % np.uint64(_FOLDS)
        judged = 0
        for number in range(_FOLDS):
            held = fold == number
            if judged < _ENOUGH_ROWS and held.any() and not held.all():
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
    count = material.rows.confidences.shape[1]
    plain = [Candidate(kind) for kind in kinds] + [Candidate(kind, count) for kind in kinds[1:] if count > 1]
    tried = [_tried(material, candidate) for candidate in plain]
    # Texts and columns are added to the best candidate without them.
    simple = min(tried[1:], key=loss)
    if material.signals.text is not None:
        tried.append(_tried(material, replace(simple.candidate, has_text=True)))
    base = min([simple, *tried[len(plain) :]], key=loss)
    columns = [_column_trial(material, name, base) for name in material.signals.columns]
    helpful = tuple(one.name for one in columns if one.gain > one.error and not one.is_leak)
    if helpful:
        tried.append(_tried(material, replace(base.candidate, columns=helpful)))
    best = min(tried, key=loss)
    return Choice(
        material.fit(best.candidate, start=best.effects)[0],
        tuple(replace(one.trial, is_chosen=one is best) for one in tried),
        tuple(replace(one, is_used=one.name in best.candidate.columns) for one in columns),
    )


@dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate, its loss, its held-out scores and where they are, and the effects of its last fit."""

    candidate: Candidate
    trial: ScoreTrial
    held: Bools
    scores: Floats
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
    trial = ScoreTrial(candidate.name, len(score), log_loss(correct, score), brier_score(correct, score))
    return _Tried(candidate, trial, judged, score, effects)


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
    difference = losses[0] - losses[1]
    share = losses[1].mean() / max(losses[0].mean(), 1e-12)
    error = float(difference.std() / np.sqrt(len(difference)))
    return ColumnTrial(name, float(difference.mean()), error, bool(share < _LEAK), bool(share < _SUSPECT))
