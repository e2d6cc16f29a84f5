"""What was fitted and on what: plain words first, and how the library calls it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qacal.calibrators.bin_maps import BinMaps
from qacal.calibrators.score import LearnedScore
from qacal.metrics.evaluation import FITTED_ON
from qacal.model.model import QACalibrator
from qacal.report.gathering import Gathered
from qacal.report.words import counted, percent

_ORIGINS = {"model": "LLM", "prompt": "Prompt", "confidence_source": "Confidence from", "judge": "Judged by"}
_SOURCES = {
    "group": "the correction of their group",
    "ancestor": "the correction of a larger group",
    "root": "the correction of all questions",
}
_METHODS = {
    "Identity": "nothing: the confidence as it is",
    "PlattScaling": "one logistic curve",
    "UniformMassBinning": "one table of bins with equal counts",
    "ScalingBinning": "a curve, then bins",
    "QABinning": "bins within each group",
    "ScalingQABinning": "curves, then bins within each group",
    "HierarchicalScaling": "a curve for each group, drawn together",
    "TreeScaling": "curves that follow a tree of groups",
    "TreeBinning": "curves that follow a tree of groups, in steps",
    "StepBinning": "steps of what was predicted, each checked on other rows",
    "IsotonicCalibration": "the best rising curve",
}
_KINDS = {
    "BisectingTree": "texts that are alike",
    "KMeans": "texts that are alike",
    "KDTree": "texts that are alike",
    "LearnedTree": "texts that are alike and that the LLM misjudges alike",
    "Column": "the value of a column",
    "Product": "several of these together",
    "Function": "a function of yours",
}
_LONG = 120


@dataclass(frozen=True)
class Fact:
    """One line: what it is about, plain words, and the technical name or numbers behind them."""

    name: str
    text: str
    detail: str = ""


def facts_of(gathered: Gathered) -> tuple[Fact, ...]:
    """Return what a reader should know before believing any number."""
    return tuple(fact for fact in _facts(gathered) if fact.text)


def _facts(gathered: Gathered) -> Iterator[Fact]:
    model = gathered.model
    for name, said in _ORIGINS.items():
        yield Fact(said, _listed([str(value) for value in model.origins_.get(name, [])]))
    if model.score_ is not None:
        yield Fact("Predicts from", _read(model.score_), _tried(model.score_))
    calibrator = repr(model.calibrator_)
    yield Fact("Corrected by", _METHODS.get(type(model.calibrator_).__name__, calibrator), calibrator)
    yield Fact("Fitted on", _fitted_on(model))
    yield _groups(gathered)
    yield _maps(gathered)
    yield Fact("Measured on", _measured_on(gathered))
    yield Fact("Answered by", _sources(gathered))
    yield Fact("Beware", _familiar(gathered))


def _read(score: LearnedScore) -> str:
    """Return what a score reads of a row."""
    further = score.confidences if score.maps_.pooled.n_confidences > 1 else ()
    parts = ["the text"] * score.reads_text + ["the stated confidence", *further]
    parts += list(score.columns) if score.maps_.levels is not None else []
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _tried(score: LearnedScore) -> str:
    """Return how the score did beside what else was tried."""
    if not score.tried_:
        return score.chosen
    losses = {trial.name: f"{trial.log_loss:.3f}" for trial in score.tried_}
    others = ", ".join(f"{name} {loss}" for name, loss in losses.items() if name != score.chosen)
    held_out = counted(score.tried_[0].rows, "row")
    return (
        f"the best of {len(losses)} scores that were tried, by log loss (lower is better) on {held_out} held out: "
        f"{score.chosen} {losses[score.chosen]}; {others}"
    )


def _fitted_on(model: QACalibrator) -> str:
    rows = counted(model.rows_, "labelled row")
    if model.score_ is None or not model.calibrator_.properties.is_certified:
        return rows
    return f"{counted(model.score_.rows_, 'row')} to learn how to predict, {rows} to check and certify it"


def _groups(gathered: Gathered) -> Fact:
    groups = gathered.model.describe_groups()
    if not groups:
        return Fact("Groups", "none: one correction for all questions" if gathered.model.score_ is None else "none")
    sizes = [group.rows for group in groups]
    made = f"{gathered.model.partition_!r}"
    if gathered.model.pipeline_.needs_text:
        made += f" on the embedding {getattr(gathered.model.embedder, 'name', gathered.model.embedder)}"
    size = f"{min(sizes):,} to {max(sizes):,}" if len(groups) > 1 else f"{sizes[0]:,}"
    kind = _KINDS.get(type(gathered.model.partition_).__name__)
    rows = "certifying rows" if gathered.model.calibrator_.properties.is_certified else "rows"
    return Fact("Groups", f"{counted(len(groups), 'group')} of {size} {rows}{f', by {kind}' if kind else ''}", made)


def _maps(gathered: Gathered) -> Fact:
    maps = gathered.model.calibrator_.fitted_maps()
    if not isinstance(maps, BinMaps):
        return Fact("Corrections", "curves, without intervals")
    count = len(maps.offset) - 1
    many = "one, for all questions" if count == 1 else f"{count:,}: for all questions, and for groups with rows enough"
    sure = percent(1 - maps.certificate.alpha)
    promise = f"certified: all their intervals hold at once with probability {sure}"
    return Fact(
        "Corrections", many, f"{counted(count, 'map')} with {counted(len(maps.value), 'bin')} in all, {promise}"
    )


def _measured_on(gathered: Gathered) -> str:
    rows, ids = len(gathered.column("correct")), gathered.column("ids")
    questions = rows if ids is None else len(np.unique(ids))
    of = f" of {counted(questions, 'question')}, taken as dependent within a question" if questions < rows else ""
    return f"{counted(rows, 'row')}{of} of {_listed(list(gathered.origins))}"


def _familiar(gathered: Gathered) -> str:
    if gathered.is_familiar:
        return FITTED_ON.rstrip(".")
    return "" if gathered.has_ids else "whether the model was fitted on some of these rows cannot be told"


def _sources(gathered: Gathered) -> str:
    total = sum(gathered.sources.values())
    if gathered.has_one_map:
        return ""
    said = [(name, gathered.sources[name] / total) for name in _SOURCES if name in gathered.sources]
    return ", ".join(f"{_SOURCES[name]} ({percent(share)})" for name, share in said)


def _listed(values: list[str]) -> str:
    text = ", ".join(values[:5]) + (f" and {len(values) - 5} more" if len(values) > 5 else "")
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
