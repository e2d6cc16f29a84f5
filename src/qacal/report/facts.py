"""What was fitted and on what, in a few words each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qacal.calibrators.binmaps import BinMaps
from qacal.model import QACalibrator
from qacal.report.gathering import Gathered
from qacal.report.words import counted, percent
from qacal.scores import LearnedScore

_ORIGINS = {"model": "LLM", "prompt": "Prompt", "confidence_source": "Confidence from", "judge": "Judged by"}
_SOURCES = {"group": "their own group's map", "ancestor": "an ancestor's", "root": "the map of all rows"}
_LONG = 120


def facts_of(gathered: Gathered) -> tuple[tuple[str, str], ...]:
    """Return (name, text) for what a reader should know before believing any number."""
    return tuple(fact for fact in _facts(gathered) if fact[1])


def _facts(gathered: Gathered) -> Iterator[tuple[str, str]]:
    model = gathered.model
    for name, said in _ORIGINS.items():
        yield said, _listed([str(value) for value in model.origins_.get(name, [])])
    yield "Score", _score(model.score_)
    yield "Calibrator", repr(model.calibrator_)
    yield "Fitted on", _fitted_on(model)
    yield "Groups", _groups(gathered)
    yield "Maps", _maps(gathered)
    yield "Measured on", _measured_on(gathered)
    yield "Answered by", _sources(gathered)
    yield "Beware", _familiar(gathered)


def _score(score: LearnedScore | None) -> str:
    """Return what the score is, and how it did beside what else was tried."""
    if score is None:
        return ""
    if not score.tried_:
        return score.chosen
    losses = {trial.name: f"{trial.log_loss:.4f}" for trial in score.tried_}
    others = ", ".join(f"{name} {loss}" for name, loss in losses.items() if name != score.chosen)
    held_out = counted(score.tried_[0].rows, "row")
    return f"{score.chosen}: log loss {losses[score.chosen]} on {held_out} held out ({others})"


def _fitted_on(model: QACalibrator) -> str:
    rows = counted(model.rows_, "labelled row")
    if model.score_ is None or not model.calibrator_.properties.is_certified:
        return rows
    return f"{model.score_.rows_:,} to learn the score, {rows} to certify it"


def _groups(gathered: Gathered) -> str:
    groups = gathered.model.describe_groups()
    if not groups:
        return "none: one map for all questions" if gathered.model.score_ is None else "none"
    sizes = [group.rows for group in groups]
    made = f"{gathered.model.partition_!r}"
    if gathered.model.road_.needs_text:
        made += f" on the embedding {getattr(gathered.model.embedder, 'name', gathered.model.embedder)}"
    size = f"{min(sizes):,} to {max(sizes):,}" if len(groups) > 1 else f"{sizes[0]:,}"
    return f"{counted(len(groups), 'group')} of {size} rows, by {made}"


def _maps(gathered: Gathered) -> str:
    maps = gathered.model.calibrator_.fitted_maps()
    if not isinstance(maps, BinMaps):
        return "curves"
    promise = f"certified with probability {1 - maps.certificate.alpha:g}"
    return f"{counted(len(maps.offset) - 1, 'map')} with {counted(len(maps.value), 'bin')} in all, {promise}"


def _measured_on(gathered: Gathered) -> str:
    rows, ids = len(gathered.column("correct")), gathered.column("ids")
    questions = rows if ids is None else len(np.unique(ids))
    of = f" of {counted(questions, 'question')}, taken as dependent within a question" if questions < rows else ""
    return f"{counted(rows, 'row')}{of} of {_listed(list(gathered.origins))}"


def _familiar(gathered: Gathered) -> str:
    ids = gathered.column("ids")
    if ids is None or not gathered.model.memory_.known(ids):
        return ""
    return "the model was fitted on some of these questions; on those it looks better than it is"


def _sources(gathered: Gathered) -> str:
    total = sum(gathered.sources.values())
    if gathered.has_one_map:
        return ""
    said = [(name, gathered.sources[name] / total) for name in _SOURCES if name in gathered.sources]
    return ", ".join(f"{_SOURCES[name]} ({percent(share)})" for name, share in said)


def _listed(values: list[str]) -> str:
    text = ", ".join(values[:5]) + (f" and {len(values) - 5} more" if len(values) > 5 else "")
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
