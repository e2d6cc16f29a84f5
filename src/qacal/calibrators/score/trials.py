"""Which score to learn: candidates from the simplest on, compared by their loss on held-out questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from qacal.calibrators.score.effects import EffectsFit
from qacal.calibrators.score.kernel import Kernel
from qacal.calibrators.score.maps import Levels, ScoreInputs, ScoreMaps, fit_maps, pooled_maps
from qacal.calibrators.score.pooled import Kind, fit_pooled
from qacal.metrics.proper_scores import brier_score, log_loss
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import mix

Objective: TypeAlias = Literal["log_loss", "brier"]

_FOLDS = 5
# Folds must be independent of other splits of the questions.
_SEED = 5
# Folds are used until they have this many rows: then the differences between candidates that matter, .01 of log loss,
# are twice their own noise.
_ENOUGH_ROWS = 1_000


@dataclass(frozen=True)
class Candidate:
    """A kind of score: of the pooled map, the number of confidences, and whether columns and text modify it."""

    kind: Kind
    confidences: int = 1
    has_columns: bool = False
    has_text: bool = False

    @property
    def name(self) -> str:
        """A description in a few words."""
        words = {"stated": "stated confidence", "line": "pooled line", "curve": "pooled curve"}
        parts = [words[self.kind]]
        if self.confidences > 1:
            parts.append(f"of {self.confidences} confidences")
        others = [word for word, has in (("columns", self.has_columns), ("text", self.has_text)) if has]
        return " ".join(parts) + "".join(f" + {word}" for word in others)


@dataclass(frozen=True)
class ScoreTrial:
    """The loss of a candidate on held-out questions."""

    name: str
    rows: int
    log_loss: float
    brier: float
    is_chosen: bool = False


@dataclass(frozen=True, eq=False)
class Material:
    """The rows to learn a score from, with everything that candidates may read."""

    rows: ScoreInputs
    correct: Floats
    ids: Hashes
    kernel: Kernel | None
    levels: Levels | None

    def fit(
        self, candidate: Candidate, keep: Bools | slice = slice(None), start: EffectsFit | None = None
    ) -> tuple[ScoreMaps, EffectsFit | None]:
        """Return the score of a candidate, learned from some of the rows, and its effects: a start for another fit."""
        mine = self.seen(candidate).only(keep)
        pooled = fit_pooled(mine.confidences, self.correct[keep], candidate.kind)
        if mine.coordinates is None and mine.codes is None:
            return pooled_maps(pooled), None
        kernel, levels = self.kernel if candidate.has_text else None, self.levels if candidate.has_columns else None
        return fit_maps(pooled, mine, self.correct[keep], kernel=kernel, levels=levels, start=start)

    def seen(self, candidate: Candidate) -> ScoreInputs:
        """Return the rows as a candidate reads them."""
        return ScoreInputs(
            self.rows.confidences[:, : candidate.confidences],
            self.rows.coordinates if candidate.has_text else None,
            self.rows.codes if candidate.has_columns else None,
        )

    def folds(self) -> Iterator[Bools]:
        """Yield the held-out rows of each fold of questions, until there are enough rows."""
        fold = mix(self.ids, _SEED) % np.uint64(_FOLDS)
        judged = 0
        for number in range(_FOLDS):
            held = fold == number
            if judged < _ENOUGH_ROWS and held.any() and not held.all():
                judged += int(held.sum())
                yield held


def choose(material: Material, objective: Objective = "log_loss") -> tuple[ScoreMaps, tuple[ScoreTrial, ...]]:
    """Return the candidate with the lowest held-out loss, fitted on all rows, and all trials.

    Of equals the simpler one is taken. If texts and columns do not help, that is one curve or line for all; if that
    does not help either, or if there is only one question to learn from, the confidence as stated.
    """
    if not any(True for _ in material.folds()):
        return material.fit(Candidate("stated"))[0], ()

    def loss(tried: _Tried) -> float:
        return float(getattr(tried.trial, objective))

    kinds: tuple[Kind, ...] = ("stated", "line", "curve")
    count = material.rows.confidences.shape[1]
    plain = [Candidate(kind) for kind in kinds] + [Candidate(kind, count) for kind in kinds[1:] if count > 1]
    tried = [_tried(material, candidate) for candidate in plain]
    # Texts and columns are added to the best candidate without them.
    simple = min(tried[1:], key=loss).candidate
    has_columns, has_text = material.levels is not None, material.kernel is not None
    rich = [replace(simple, has_columns=True)] if has_columns else []
    rich += [replace(simple, has_text=True)] if has_text else []
    rich += [replace(simple, has_columns=True, has_text=True)] if has_columns and has_text else []
    tried += [_tried(material, candidate) for candidate in rich]
    best = min(tried, key=loss)
    trials = tuple(replace(one.trial, is_chosen=one is best) for one in tried)
    return material.fit(best.candidate, start=best.effects)[0], trials


@dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate, its loss, and the effects of its last fit."""

    candidate: Candidate
    trial: ScoreTrial
    effects: EffectsFit | None


def _tried(material: Material, candidate: Candidate) -> _Tried:
    scores, labels = [], []
    effects: EffectsFit | None = None
    for held in material.folds():
        # A fit does not depend on its start, up to what is left of the last step: the labels of this fold do not reach
        # it through the effects of another.
        maps, effects = material.fit(candidate, ~held, effects)
        scores.append(maps.apply(material.seen(candidate).only(held)))
        labels.append(material.correct[held])
    score, correct = np.concatenate(scores), np.concatenate(labels)
    trial = ScoreTrial(candidate.name, len(score), log_loss(correct, score), brier_score(correct, score))
    return _Tried(candidate, trial, effects)
