r"""Whether the intervals of a model still hold: bets on labelled rows, in their order.

`broken.py` has the bets, and `signals.py` what changes without labels.

All alarms that are ever raised are right with probability :math:`1 - \alpha`. An alarm says that an interval does not
hold for these rows: they have changed, or the interval was wrong from the start, which the certificate of the fit
allows with its own :math:`\alpha`.

*Chances.* If rows were chosen for labelling with different probabilities, they are thinned: a row with the chance
:math:`\pi` is kept with probability :math:`r / \pi`, by a hash of its id. The rows that stay all had the chance
:math:`r`, so their means are those of all answers, without weights. The reference :math:`r` is the smallest chance so
far, and after 30 rows no longer changes. So later rows never change what became of a row, and an alarm stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qacal.calibrators.score.likeness import FAR
from qacal.errors import InputError, counted
from qacal.guarantee import check_alpha
from qacal.metrics.evaluation import require_labels
from qacal.model.base import BaseModel
from qacal.model.broken import Labelled, Watched, broken_intervals, has_intervals
from qacal.model.choosing import require_unseen
from qacal.model.labelling import NEW_COLUMNS
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.model.saved import as_model
from qacal.model.signals import Signal, signals
from qacal.records.files import OnFault, refuse
from qacal.records.provenance import AllowOtherSource, require_known_origin
from qacal.records.reading import MAX_BAD, Batch, Gathered, Reading, read
from qacal.tally.arrays import Bools, Floats, Hashes
from qacal.tally.ids import mix

# After so many rows the smallest chance is fixed: a later row with a smaller one would leave few of the others.
_FIRST = 30


@dataclass(frozen=True)
class Watch:
    """What labelled rows say about the intervals of a model.

    alpha : the probability that any alarm is ever wrong.
    labels : the labelled rows that were used, in their order.
    documents : how many documents these are; None if no id repeats.
    far : rows among them that are unlike the fit, and have no interval.
    thinned : further rows that were left out, so that all rows had the same chance to be labelled.
    rare : further rows that were left out because they had a smaller chance than any of the first 30 rows.
    volunteered : further rows that were left out because the chance that they had is not known.
    broken_after : the number of labels after which something was called broken; None if nothing was.
    intervals : all intervals, the broken ones first, by time, and then by the evidence against them.
    signals : what has changed, without labels.
    """

    alpha: float
    labels: int
    documents: int | None
    far: int
    thinned: int
    rare: int
    volunteered: int
    broken_after: int | None
    intervals: tuple[Watched, ...]
    signals: tuple[Signal, ...]

    @property
    def is_alarm(self) -> bool:
        return self.broken_after is not None

    @property
    def broken(self) -> tuple[Watched, ...]:
        """The intervals that are broken, the first one first."""
        return tuple(interval for interval in self.intervals if interval.is_broken)

    def to_dict(self) -> dict[str, Any]:
        return {"is_alarm": self.is_alarm, **asdict(self)}

    def __str__(self) -> str:
        lines = [self.headline, *map(str, self.broken), *(signal.text for signal in self.signals)]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        labels = counted(self.labels, "label")
        if not self.labels:
            return "No label yet, so nothing is tested."
        if not self.is_alarm:
            return f"No alarm after {labels}: nothing says that the {len(self.intervals)} intervals do not hold."
        if not self.broken:
            return f"Alarm after {self.broken_after:,} of {labels}: some interval is broken, it is not clear which."
        broken = counted(len(self.broken), "interval is broken:", "intervals are broken, first")
        first = self.broken[0]
        # All bets together may tell that something is broken before those on one interval do.
        when = "" if first.broken_after == self.broken_after else f" (after {first.broken_after:,})"
        return f"Alarm after {self.broken_after:,} of {labels}: {broken} {first.name}{when}."


def watch(
    model: QACalibrator | str | Path,
    records: Any,
    *,
    alpha: float = 0.1,
    columns: Mapping[str, str] | None = None,
    percent: bool | None = None,
    expressions: Mapping[str, float] | None = None,
    allow_other_source: AllowOtherSource = False,
    on_fault: OnFault | None = None,
    max_bad: float = MAX_BAD,
) -> Watch:
    """Return whether the intervals of a model hold for labelled records that came after the fit, in their order.

    Call it as often as you like, with all labels so far: all alarms that are ever raised are right with probability
    1 - alpha, if rows are independent (or belong to independent documents, by their id) and were labelled because of a
    random draw, not because of how they looked. Rows of the fit are refused. If rows have a column `label_probability`
    with different values, they are thinned to equal chances. (Rows of :func:`label_next` have the column `stratum`,
    too, and are not thinned: each question had the same chance.)

    model : a fitted model, or the path of a saved one.
    alpha : the probability that any alarm is ever wrong.
    columns, percent, expressions, allow_other_source, on_fault, max_bad : as in :meth:`QACalibrator.calibrate`.

    Examples
    --------
    The LLM was replaced, and its answers about law are now less often correct:

    >>> from qacal import Column, QACalibrator
    >>> rng = np.random.default_rng(0)
    >>> def answers(first, n, law):
    ...     h, loss = rng.choice([0.7, 0.9], n), np.tile([0.1, 0.1 + law], n // 2)
    ...     return {"id": first + np.arange(n), "subject": ["art", "law"] * (n // 2), "confidence": h,
    ...             "correct": rng.random(n) < h - loss}
    >>> model = QACalibrator(partition=Column("subject")).fit(answers(0, 2000, law=0))
    >>> print(watch(model, answers(5000, 400, law=0)).headline)
    No alarm after 400 labels: nothing says that the 5 intervals do not hold.
    >>> print(watch(model, answers(6000, 400, law=0.3)).broken[0])
    group law: promised 0.67 to 0.74, 0.35 in 200 labels; broken after 24.
    """
    loaded = as_model(model)
    if loaded._by is not None:
        raise InputError(
            "this is a set of models; watch each of them with its own rows: watch(models.models[name], ...)."
        )
    reading = loaded._reading(records, columns, percent, expressions, on_fault=on_fault or refuse, max_bad=max_bad)
    return watches(loaded, records, reading, alpha=alpha, allow_other_source=allow_other_source)[None]


def watches(
    model: BaseModel,
    records: Any,
    reading: Reading,
    *,
    alpha: float = 0.1,
    allow_other_source: AllowOtherSource = False,
    progress: Progress | None = None,
) -> dict[Any, Watch]:
    """Return the watch of a model (under None), or of each model of a set that has rows, at alpha each."""
    check_alpha(alpha)
    for value, one in model._models.items():
        if not has_intervals(one):
            raise InputError(
                f"{_where(model, value)}this model has no intervals ({type(one.calibrator_).__name__}), so there is "
                "nothing to watch. Fit with the default calibrator, or with another one that certifies."
            )
    rows: dict[Any, Gathered] = {}
    done = 0
    lacking = {feature.name for one in model._models.values() for feature in one.pipeline_.features}
    for batch in read(records, reading, needs_labels=True, **model._needs):
        lacking -= {name for name in lacking if batch.reading.has(name, batch.table.names)}
        for value, one, part in model._parts(batch):
            if len(part):
                found = _read(one, part, allow_other_source, (progress, done))
                rows.setdefault(value, Gathered()).add(**found)
        done += len(batch.whole)
        if progress is not None:
            progress("calibrating", done)
    if not rows:
        raise InputError("there are no labelled rows to watch.")
    out = {}
    for value in (value for value in model._models if value in rows):
        where, gathered = _where(model, value), rows[value]
        require_unseen(model._models[value], gathered.get("ids"), gathered["questions"], "watch later answers", where)
        out[value] = _watched(model._models[value], gathered, lacking, alpha, where)
    return out


def _where(model: BaseModel, value: Any) -> str:
    return "" if model._by is None else f"{model._by} {value}: "


def _read(
    model: QACalibrator, batch: Batch, allow_other_source: AllowOtherSource, tell: tuple[Progress | None, int]
) -> dict[str, Any]:
    """Return the columns of labelled rows that a watch needs."""
    require_known_origin(batch, model.origins_, allow_other_source, uses_labels=True)
    with model.pipeline_.vectors.telling(*tell):
        read, groups = model.pipeline_.inputs(batch)
    rows = model.pipeline_.rows_of(read, groups, batch.ids)
    maps: Any = model.calibrator_.maps_
    evidence = maps.explain(rows)
    drawn, chance = (name in batch.table.names for name in NEW_COLUMNS)
    return {
        "correct": require_labels(batch.correct, batch.table.origin),
        "answer": evidence.calibrated,
        "cells": maps.bins_by_level(rows),
        "groups": evidence.group,
        "confidence": batch.confidence,
        "unlike": read.unlike,
        "ids": batch.ids,
        "questions": batch.question_hashes(),
        # In a draw of `label_next` every question has the same chance; the column is about rows.
        "chance": batch.numbers(NEW_COLUMNS[1], 1.0) if chance and not drawn else np.full(len(batch), np.nan),
        "has_chance": np.full(len(batch), chance and not drawn),
    }


# Which rows count


def _watched(model: QACalibrator, gathered: Gathered, lacking: set[str], alpha: float, where: str) -> Watch:
    """Return the watch of one model, from the gathered columns of its rows."""
    ids = gathered.get("ids")
    has_chance = np.full(len(gathered["chance"]), gathered["has_chance"].any())
    kept, is_rare, known = equal_chances(gathered["chance"], has_chance, ids, where)
    rows = Labelled(
        correct=gathered["correct"],
        answer=gathered["answer"],
        cells=gathered["cells"],
        is_far=gathered["unlike"] >= FAR,
        ids=np.arange(len(kept), dtype=np.uint64) if ids is None else ids,
    ).only(kept)
    groups = [name for name, keep in zip(gathered["groups"], kept.tolist(), strict=True) if keep]
    changes = signals(model, groups, gathered["confidence"][kept], gathered["unlike"][kept], lacking)
    found = watched(model, rows, alpha, changes)
    rare, volunteered = int(np.count_nonzero(is_rare)), int(np.count_nonzero(~known))
    return replace(found, thinned=int(np.count_nonzero(known & ~kept)) - rare, rare=rare, volunteered=volunteered)


def watched(model: QACalibrator, rows: Labelled, alpha: float, changes: Iterable[Signal] = ()) -> Watch:
    """Return the watch of one model, from labelled rows that all had the same chance of a label."""
    broken = broken_intervals(model, rows, alpha)
    return Watch(
        alpha=alpha,
        labels=len(rows.correct),
        documents=broken.documents,
        far=broken.far,
        thinned=0,
        rare=0,
        volunteered=0,
        broken_after=broken.broken_after,
        intervals=broken.intervals,
        signals=tuple(changes),
    )


def equal_chances(chance: Floats, has_chance: Bools, ids: Hashes | None, where: str) -> tuple[Bools, Bools, Bools]:
    """Return which rows to keep so that all had the same chance, which had a smaller one, and which a known one.

    The smallest chance of the first rows is that of all; later rows change nothing about earlier ones. Of a document,
    all rows are kept or none, by its first row.

    has_chance : rows without are kept.
    """
    kept, is_rare, known = ~has_chance, np.zeros(len(chance), dtype=bool), ~has_chance | (chance > 0)
    if not has_chance.any():
        return kept, is_rare, known
    place = np.flatnonzero(has_chance & known)
    if not len(place) or ids is None:
        what = "no row has" if ids is not None else "rows need an id or a question for"
        raise InputError(f"{where}{what} a label_probability above 0; it is the chance that a row had to be labelled.")
    reference = chance[place][:_FIRST].min()
    _, first, document = np.unique(ids[place], return_index=True, return_inverse=True)
    # No split uses this seed.
    is_drawn = mix(ids[place][first], 2**46) / 2.0**64 * chance[place][first] <= reference
    is_rare[place] = (chance[place][first] < reference)[document]
    kept[place] = is_drawn[document] & ~is_rare[place]
    return kept, is_rare, known
