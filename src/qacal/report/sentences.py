"""The report in a few sentences, computed from the rows and no stronger than they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qacal.metrics.reliability import reliability_table
from qacal.report.content import Content
from qacal.report.figures.selective import answered
from qacal.report.group_rows import group_name
from qacal.report.groups import FEW_ROWS
from qacal.report.verdict import verdict_of
from qacal.report.words import counted, interval, off_by, percent, points
from qacal.tally.tally import Tally

_ENOUGH = 200
# A difference that is 0 in whole percents.
_SMALL = 0.005


def in_short(content: Content) -> list[str]:
    """Return what a reader in a hurry should know."""
    return list(_sentences(content))


def _sentences(content: Content) -> Iterator[str]:
    for doubt in content.doubts:
        yield f"Beware: {doubt}"
    if content.rows < _ENOUGH:
        few = "too few to judge this model by" if content.verdict.kind == "unclear" else "few"
        yield f"Only {counted(content.rows, 'row')} were measured, {few}: every number here is rough."
    before, after = content.measured["stated"], content.measured["calibrated"]
    yield (
        f"Over {counted(content.rows, 'answer')} the LLM claimed {percent(before.confidence)} on average and was right "
        f"{percent(content.accuracy)} of the time: {_gap(content)}. Calibrated, it claims {percent(after.confidence)}."
    )
    yield _frequent_claim(content.tallies["stated"], "When it said {}, it")
    yield _frequent_claim(content.tallies["calibrated"], "Where the calibrated confidence says {}, it")
    if after.error_by_group is not None:
        yield _within(content)
        yield _worst_group(content)
    yield content.verdict.text
    verdict = verdict_of(content)
    if verdict is not None and content.promise is not None:
        yield f"An interval for every answer, promised with probability {percent(1 - content.promise.alpha)}: " + (
            f"{verdict.answer[0].lower()}{verdict.answer[1:]}"
        )
    if content.threshold is not None:
        yield _answering(content, content.threshold)


def _gap(content: Content) -> str:
    """Return whether the LLM claims too much, if chance does not explain that it seems so."""
    gap = content.measured["stated"].confidence - content.accuracy
    row = reliability_table(content.tallies["stated"].pooled().without_ties(), bins=1).row(0, named=True)
    if not row["low"] <= row["confidence"] <= row["high"] and abs(gap) >= _SMALL:
        return f"{points(gap)} too {'high' if gap > 0 else 'low'}"
    bounds = f"95% interval {interval(100 * row['low'], 100 * row['high'], 0)}%"
    if content.rows < _ENOUGH:
        return f"too few answers to tell whether that is too high or too low ({bounds})"
    return "right on average" if abs(gap) < _SMALL else f"a difference that chance explains ({bounds})"


def _frequent_claim(tally: Tally, said: str) -> str:
    """Return how often the most frequent claim was right, or the highest tenth where no claim is frequent."""
    cells = tally.pooled().without_blocks().without_ties()
    tied = cells.rows.max() >= max(FEW_ROWS // 2, cells.n // 50)
    table = reliability_table(cells, bins="outputs" if tied else 10)
    row = table.row(int(np.argmax(table["rows"].to_numpy())) if tied else -1, named=True)
    claim = percent(row["confidence"]) if tied else f"about {percent(row['confidence'])}"
    bounds = interval(100 * row["low"], 100 * row["high"], 0)
    return (
        f"{said.format(claim)} was right {percent(row['accuracy'])} of the time "
        f"({counted(row['rows'], 'answer')}; 95% interval {bounds}%)."
    )


def _within(content: Content) -> str:
    who = {"stated": "the stated confidence", "pooled": "one correction for all", "calibrated": "the calibrated one"}
    errors = {name: found.error_by_group for name, found in content.measured.items()}
    known = [(name, error) for name, error in errors.items() if error is not None]
    if np.isnan([error.debiased for _, error in known]).all():
        return f"Within {_each(content)}, no error can be measured on so few rows."
    said = ", ".join(f"{who[name]} {off_by(error, has_interval=True)}" for name, error in known)
    return f"Within {_each(content)}, {said}: typically, with the noise taken out."


def _each(content: Content) -> str:
    by = content.grouped_by or ""
    return "each of the model’s groups" if by.startswith("the model") else f"each {by}"


def _worst_group(content: Content) -> str:
    """Return the group that the calibrated confidence is worst about, of those that it is off in beyond chance."""
    if content.is_uneven:
        return "Whether a group has a gap that chance does not explain cannot be told: some questions have more rows."
    off = [group for group in content.groups if group.is_off]
    if not off:
        few = sum(group.rows < FEW_ROWS for group in content.groups) * 2 > len(content.groups)
        hint = f"; with fewer than {FEW_ROWS} rows in most, only large ones would show" if few else ""
        return f"Of {counted(len(content.groups), 'group')} none has a gap that chance does not explain{hint}."
    worst = max(off, key=lambda group: group.gap)
    more = "" if len(off) == 1 else f", as in {counted(len(off) - 1, 'other group')}"
    who = "are the rows without a group" if worst.label is None else f"is {group_name(worst.label)}"
    right, claimed = percent(worst.accuracy), percent(worst.confidence["calibrated"])
    return (
        f"Worst {who}: {right} of {counted(worst.rows, 'answer')} are right, and the calibrated "
        f"confidence says {claimed}, which chance does not explain{more}."
    )


def _answering(content: Content, threshold: float) -> str:
    share, right = answered(content.tallies["calibrated"], threshold)
    start = f"Answering only where the calibrated confidence is {threshold:g} or more"
    if share == 0:
        return f"{start} answers none of these questions."
    old_share, old_right = answered(content.tallies["stated"], threshold)
    return (
        f"{start} answers {percent(share)} of the questions, {percent(right)} of them right; the same rule on the "
        f"stated confidence answers {percent(old_share)}, {percent(old_right)} of them right."
    )
