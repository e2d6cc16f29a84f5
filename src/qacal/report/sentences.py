"""The report in words: what was fitted, whether the guarantee held, and the summary in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qacal.calibrators.maps import BinMaps
from qacal.calibrators.margins import MarginMaps
from qacal.calibrators.score import LearnedScore
from qacal.errors import counted, some_of
from qacal.metrics.evaluation import FITTED_ON
from qacal.metrics.reliability import reliability_table
from qacal.metrics.words import interval, off_by, percent, points
from qacal.report.data import Gathered
from qacal.report.figures.selective import answered
from qacal.report.groups import FEW_ROWS, group_name
from qacal.report.promise import Realised
from qacal.tally.tally import Tally
from qacal.thresholds.certified import ThresholdMenu

if TYPE_CHECKING:
    from qacal.report.content import Content

_ORIGINS = {"model": "LLM", "prompt": "Prompt", "confidence_source": "Confidence from", "judge": "Judged by"}
_SOURCES = {
    "group": "the correction for their group",
    "ancestor": "the correction for a larger group",
    "root": "the correction for all questions",
    "band": "their score or curve, with the interval of their band",
    "far": "a correction without an interval: they are unlike the fit",
}
_METHODS = {
    "Identity": "nothing: the stated confidence",
    "PlattScaling": "one logistic curve",
    "UniformMassBinning": "one table of bins with equal counts",
    "ScalingBinning": "a curve, then bins",
    "QABinning": "bins within each group",
    "ScalingQABinning": "curves, then bins within each group",
    "HierarchicalScaling": "a partially pooled curve for each group",
    "TreeScaling": "curves that follow a tree of groups",
    "TreeBinning": "curves that follow a tree of groups, in steps",
    "MarginBinning": "a score, or curves, certified by probability and by group",
    "StepBinning": "steps of the learned score, each certified on other rows",
    "IsotonicCalibration": "the best increasing curve",
}
_KINDS = {
    "BisectingTree": "similar texts",
    "KMeans": "similar texts",
    "KDTree": "similar texts",
    "Column": "the value of a column",
    "Product": "several of these together",
}
_ENOUGH = 200
# Smaller differences are 0 in whole percents.
_SMALL = 0.005


@dataclass(frozen=True)
class Fact:
    """One line: its name, plain words, and technical details."""

    name: str
    text: str
    detail: str = ""


def facts_of(gathered: Gathered) -> tuple[Fact, ...]:
    """Return what a reader should know before believing any number."""
    return tuple(fact for fact in _facts(gathered) if fact.text)


def _facts(gathered: Gathered) -> Iterator[Fact]:
    model = gathered.model
    for name, label in _ORIGINS.items():
        yield Fact(label, _listed([str(value) for value in model.origins_.get(name, [])]))
    rows = counted(model.rows_, "labelled row")
    if model.learned_score_ is not None:
        yield Fact("Predicts from", _inputs(model.learned_score_), _tried(model.learned_score_))
        yield Fact("Worth of each input", _worth(gathered.worth()))
        if model.calibrator_.properties.is_certified:
            rows = f"{counted(model.learned_score_.rows_, 'row')} for training, {rows} for certification"
            if model.pipeline_.first is not None:
                rows += " (many for both; bands and groups were fixed on other rows)"
    calibrator = repr(model.calibrator_)
    yield Fact("Corrected by", _METHODS.get(type(model.calibrator_).__name__, calibrator), calibrator)
    yield Fact("Fitted on", rows)
    yield _groups(gathered)
    yield _maps(gathered)
    yield Fact("Measured on", _measured_on(gathered))
    if not gathered.has_one_map and set(gathered.sources) != {"band"}:
        total = sum(gathered.sources.values())
        shares = {name: gathered.sources[name] / total for name in _SOURCES if name in gathered.sources}
        yield Fact("Answered by", ", ".join(f"{_SOURCES[name]} ({percent(share)})" for name, share in shares.items()))
    if gathered.is_familiar:
        yield Fact("Warning", FITTED_ON.rstrip("."))
    elif not gathered.has_ids:
        yield Fact(
            "Warning", "the model may have been fitted on some of these rows; they have no id or question to check"
        )


def _inputs(score: LearnedScore) -> str:
    return ", ".join(["the text"] * score.reads_text + ["the stated confidence", *score.columns_used])


def _worth(losses: dict[str, float]) -> str:
    """Return by how much the log loss on the measured rows rises without each input, the most useful first."""
    names = {"text": "the meaning of the text", "form": "its form", "words": "its words"}
    ordered = sorted(losses, key=lambda name: -losses[name])
    listed = ", ".join(f"{names.get(name, name)} {losses[name]:+.3f}" for name in ordered)
    return f"{listed} (how much higher the log loss is without it)" if listed else ""


def _tried(score: LearnedScore) -> str:
    """Return the losses of all candidates for the score."""
    if not score.tried_:
        return score.chosen
    losses = {trial.name: f"{trial.log_loss:.3f}" for trial in score.tried_}
    others = ", ".join(f"{name} {loss}" for name, loss in losses.items() if name != score.chosen)
    rows = counted(score.tried_[0].rows, "training row")
    return (
        f"the best of {len(losses)} candidates by log loss (lower is better), cross-validated on {rows}: "
        f"{score.chosen} {losses[score.chosen]}; {others}"
    )


def _groups(gathered: Gathered) -> Fact:
    model = gathered.model
    groups = model.describe_groups()
    if not groups:
        return Fact("Groups", "none: one correction for all questions" if model.learned_score_ is None else "none")
    sizes = [group.rows for group in groups]
    detail = repr(model.partition_)
    if model.pipeline_.needs_text:
        detail += f" on the embedding {getattr(model.embedder, 'name', model.embedder)}"
    size = f"{min(sizes):,} to {max(sizes):,}" if min(sizes) < max(sizes) else f"{sizes[0]:,}"
    kind = _KINDS.get(type(model.partition_).__name__)
    rows = "certifying rows" if model.calibrator_.properties.is_certified else "rows"
    return Fact("Groups", f"{counted(len(groups), 'group')} of {size} {rows}{f', by {kind}' if kind else ''}", detail)


def _maps(gathered: Gathered) -> Fact:
    maps = gathered.model.calibrator_._fitted_maps()
    if isinstance(maps, MarginMaps):
        bands, groups = len(maps.below), len(maps.cells.rows) - len(maps.below)
        detail = f"all intervals hold at once with probability {percent(1 - maps.certificate.alpha)}"
        similar = "similar scores" if maps.curves is None else "similar stated confidences"
        return Fact("Intervals", f"{counted(bands, 'band')} of {similar}, {counted(groups, 'group')}", detail)
    if not isinstance(maps, BinMaps):
        return Fact("Corrections", "curves, without intervals")
    count = len(maps.offset) - 1
    many = "one, for all questions" if count == 1 else f"{count:,}: for all questions, and for groups with enough rows"
    detail = (
        f"{counted(count, 'map')} with {counted(len(maps.value), 'bin')} in all, certified: all their intervals hold "
        f"at once with probability {percent(1 - maps.certificate.alpha)}"
    )
    return Fact("Corrections", many, detail)


def _measured_on(gathered: Gathered) -> str:
    rows, ids = len(gathered.column("correct")), gathered.column("ids")
    questions = rows if ids is None else len(np.unique(ids))
    of = f" of {counted(questions, 'question')}, treated as dependent within a question" if questions < rows else ""
    return f"{counted(rows, 'row')}{of} of {_listed(list(gathered.origins))}"


def _listed(values: list[str]) -> str:
    text = some_of(values)
    return text if len(text) <= 120 else f"{text[:119]}…"


@dataclass(frozen=True)
class PromiseVerdict:
    """Whether the guarantee held, and the reasons."""

    answer: str
    reasons: str


def verdict_of(content: Content) -> PromiseVerdict | None:
    """Return whether the guarantee held, as far as the test rows tell; None without a guarantee."""
    if content.promise is None:
        return None
    realised = content.realised
    if realised is None:
        return PromiseVerdict("These rows cannot tell.", content.why_not)
    testable, broken = int(realised.can_be_judged.sum()), int(realised.is_broken.sum())
    if broken:
        answer = f"No: {broken:,} of {counted(testable, 'testable interval')} missed the true accuracy."
    elif testable == 0:
        answer = "Too few rows to tell."
    elif 2 * testable < realised.intervals:
        answer = "No failure found, but most intervals have too few rows to tell."
    else:
        answer = "Yes, as far as these rows can tell."
    return PromiseVerdict(answer, " ".join(_reasons(realised, testable)))


def _reasons(realised: Realised, testable: int) -> Iterator[str]:
    if testable == 0:
        what = "band or group" if realised.has_bands else "bin"
        yield (
            f"Even if all answers were correct, or all wrong, they would contradict no interval: no {what} has more "
            f"than {counted(int(realised.rows.max()), 'row')}."
        )
    else:
        inside = int((realised.is_inside & realised.can_be_judged).sum())
        chance = "" if inside == testable or realised.is_broken.any() else "; chance explains the others"
        groups = int((realised.is_group & realised.can_be_judged).sum())
        kinds = f" ({counted(testable - groups, 'band')}, {counted(groups, 'group')})" if realised.has_bands else ""
        yield (
            f"{testable:,} of {counted(realised.intervals, 'interval')}{kinds} {'has' if testable == 1 else 'have'} "
            f"enough rows here to be tested. The accuracy lies inside {inside:,} of {testable:,}{chance}."
        )
        if realised.is_broken.any():
            yield _worst(realised)
            yield (
                f"One fit in {1 / realised.alpha:.0f} may fail by chance. Otherwise these questions differ from those "
                "of the fit, or were labelled differently."
            )
        yield "(This test rejects a valid guarantee in at most one report in 20.)"
    if not realised.is_about_all:
        yield "This assumes that new confidences are distributed like those of the fit."
    if realised.left_out:
        where = "in each band and group" if realised.has_bands else "and bin"
        which = f"of each document {where}" if realised.is_by_document else "per question"
        yield f"One row {which} was counted; {counted(realised.left_out, 'row')} were left out."


def _worst(realised: Realised) -> str:
    at = int(np.argmax(realised.excess))
    group = realised.group[at]
    if realised.has_bands:
        named = f"the band of answers near {realised.answer[at]:.2f}" if group is None else group_name(group)
        certified = f"its accuracy was certified to be {realised.low[at]:.2f} to {realised.high[at]:.2f}"
        seen = f"{percent(realised.accuracy[at])} of {counted(int(realised.rows[at]), 'answer')} are correct"
        return f"The worst is {named}: {certified}, but {seen}."
    where = f"in {group_name(group)}, where" if group is not None else "where"
    interval = f"{realised.low[at]:.2f} to {realised.high[at]:.2f}"
    accuracy = f"{percent(realised.accuracy[at])} of {counted(int(realised.rows[at]), 'answer')} are correct"
    return f"The worst is {where} it answers {realised.answer[at]:.2f}: the interval is {interval}, but {accuracy}."


def in_short(content: Content) -> list[str]:
    """Return what a reader in a hurry should know."""
    return list(_sentences(content))


def _sentences(content: Content) -> Iterator[str]:
    measured = content.evaluation
    assert measured.verdict is not None
    for doubt in content.doubts:
        yield f"Warning: {doubt}"
    if measured.rows < _ENOUGH:
        few = "too few to judge this model" if measured.verdict.kind == "unclear" else "few"
        yield f"Only {counted(measured.rows, 'row')} were measured, {few}: every number here is rough."
    if content.menu is not None and content.menu.certified:
        yield _menu_in_short(content.menu)
    before, after = measured.before, measured.last
    yield (
        f"Over {counted(measured.rows, 'answer')} the LLM stated {percent(before.confidence)} on average and was "
        f"correct {percent(measured.accuracy)} of the time: {_gap(content)}. "
        f"The calibrated mean is {percent(after.confidence)}."
    )
    yield _frequent_claim(measured.tallies["stated"], "When the LLM said {}, it")
    yield _frequent_claim(measured.tallies["calibrated"], "Where the calibrated confidence was {}, the LLM")
    if after.error_by_group is not None:
        yield _within(content)
        yield _worst_group(content)
    yield measured.verdict.text
    verdict = verdict_of(content)
    if verdict is not None and content.promise is not None:
        sure = percent(1 - content.promise.alpha)
        yield f"Did the intervals, guaranteed with probability {sure}, hold? {verdict.answer}"
    if content.threshold is not None:
        yield _answering(content, content.threshold)


def _menu_in_short(menu: ThresholdMenu) -> str:
    """Return what can be certified; of targets that accept as many answers, only the highest."""
    best = {percent(line.coverage): percent(line.accuracy) for line in menu.certified}
    first, *others = best.items()
    more = "".join(f", {accuracy} if {share} are given" for share, accuracy in others)
    return (
        "If only the answers with the highest calibrated confidence are given, at least "
        f"{first[1]} of them are correct if {first[0]} are given{more} (certified with probability "
        f"{percent(1 - menu.alpha)}; see “When to answer”)."
    )


def _gap(content: Content) -> str:
    """Return whether the stated confidence is too high or too low beyond chance."""
    measured = content.evaluation
    gap = measured.before.confidence - measured.accuracy
    row = reliability_table(measured.tallies["stated"].pooled(), bins=1).row(0, named=True)
    if not row["low"] <= row["confidence"] <= row["high"] and abs(gap) >= _SMALL:
        return f"{points(gap)} too {'high' if gap > 0 else 'low'}"
    bounds = f"95% interval {interval(100 * row['low'], 100 * row['high'], 0)}%"
    if measured.rows < _ENOUGH:
        return f"too few answers to tell whether that is too high or too low ({bounds})"
    return "right on average" if abs(gap) < _SMALL else f"a difference within chance ({bounds})"


def _frequent_claim(tally: Tally, start: str) -> str:
    """Return the accuracy at the most frequent confidence, or in the highest tenth if no value is frequent."""
    cells = tally.pooled().without_blocks().without_ties()
    tied = cells.rows.max() >= max(FEW_ROWS // 2, cells.n // 50)
    table = reliability_table(cells, bins="outputs" if tied else 10)
    row = table.row(int(np.argmax(table["rows"].to_numpy())) if tied else -1, named=True)
    claim = percent(row["confidence"]) if tied else f"about {percent(row['confidence'])}"
    bounds = interval(100 * row["low"], 100 * row["high"], 0)
    return (
        f"{start.format(claim)} was correct {percent(row['accuracy'])} of the time "
        f"({counted(row['rows'], 'answer')}; 95% interval {bounds}%)."
    )


def _within(content: Content) -> str:
    labels = {
        "stated": "the stated confidence",
        "pooled": "one correction for all",
        "calibrated": "the calibrated confidence",
    }
    by = content.evaluation.grouped_by or ""
    each = "each of the model’s groups" if by.startswith("the model") else f"each {by}"
    errors = {name: scores.error_by_group for name, scores in content.evaluation.by_score.items()}
    measured = {name: error for name, error in errors.items() if error is not None}
    if np.isnan([error.debiased for error in measured.values()]).all():
        return f"Within {each}, there are too few rows to measure an error."
    parts = ", ".join(f"{labels[name]} {off_by(error, has_interval=True)}" for name, error in measured.items())
    return f"Typical error within {each}, without noise: {parts}."


def _worst_group(content: Content) -> str:
    """Return the group with the largest gap that chance does not explain."""
    if content.is_uneven:
        return "Groups cannot be tested for gaps beyond chance, because some questions have more rows than others."
    off = [group for group in content.groups if group.is_off]
    if not off:
        few = sum(group.rows < FEW_ROWS for group in content.groups) * 2 > len(content.groups)
        hint = f"; most have fewer than {FEW_ROWS} rows, so only large gaps would show" if few else ""
        groups = counted(len(content.groups), "group")
        return f"No group is off by more than 5 points beyond chance ({groups}{hint})."
    worst = max(off, key=lambda group: abs((group.after or 0.0) - group.accuracy))
    more = ""
    if len(off) > 1:
        more = f"; {counted(len(off) - 1, 'other group')} {'is' if len(off) == 2 else 'are'} also off"
    name = "the rows without a group" if worst.group is None else group_name(worst.group)
    return (
        f"Largest gap beyond chance: {name}, where {percent(worst.accuracy)} of {counted(worst.rows, 'answer')} are "
        f"correct and the mean calibrated confidence is {percent(worst.after or 0.0)}{more}."
    )


def _answering(content: Content, threshold: float) -> str:
    share, right = answered(content.evaluation.tallies["calibrated"], threshold)
    start = f"A threshold of {threshold:g} on the calibrated confidence"
    if share == 0:
        return f"{start} answers none of these questions."
    old_share, old_right = answered(content.evaluation.tallies["stated"], threshold)
    return (
        f"{start} answers {percent(share)} of the questions with an accuracy of {percent(right)}; on the stated "
        f"confidence it answers {percent(old_share)} with {percent(old_right)}."
    )
