"""Everything one block of the report shows, as plain values: the page is a function of them and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.answering import Progress
from qacal.calibrators.binmaps import BinMaps
from qacal.errors import InputError
from qacal.evaluation import BINS
from qacal.guarantee import epsilon
from qacal.metrics.calibration import CalibrationError, calibration_error
from qacal.metrics.scores import brier_score, log_loss, sharpness
from qacal.metrics.selective import auac, aurc
from qacal.model import QACalibrator
from qacal.model_set import ModelSet
from qacal.partitions import Column
from qacal.records import Reading
from qacal.report.facts import facts_of
from qacal.report.gathering import Gathered, gather
from qacal.report.inputs import Pairs, Scored
from qacal.report.realised import Realised, realised_errors
from qacal.tally import Tally

# Below this many test rows the error of a group is mostly noise, and it is shown after those that have more.
FEW_ROWS = 50


@dataclass(frozen=True)
class Measured:
    """What one score is worth; see :class:`qacal.evaluation.Scores`, and AUAC and sharpness (a variance)."""

    confidence: float
    error: CalibrationError
    error_by_group: CalibrationError | None
    brier: float
    log_loss: float
    aurc: float
    auac: float
    sharpness: float

    @staticmethod
    def of(tally: Tally) -> Measured:
        """Measure a score on the rows of a tally; 15 bins for every score, since all need the same ruler."""
        pooled = tally.pooled()
        return Measured(
            confidence=float(tally.w @ tally.confidence / tally.w.sum()),
            error=calibration_error(pooled, bins=BINS),
            error_by_group=calibration_error(tally, bins=BINS) if tally.partitions else None,
            brier=brier_score(tally).score,
            log_loss=log_loss(tally),
            aurc=aurc(tally).aurc,
            auac=auac(tally),
            sharpness=sharpness(tally),
        )


@dataclass(frozen=True, eq=False)
class Group:
    """One group of test rows: how often it is right, what each score claims, and how far each is off.

    words, examples : what sets it apart, and some of its rows; empty where the records have no texts.
    """

    label: Any
    rows: int
    accuracy: float
    confidence: dict[str, float]
    errors: dict[str, float]
    tallies: dict[str, Tally]
    words: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def gain(self) -> float:
        """By how much the debiased error falls; what is below noise counts as none."""
        before, after = (np.nan_to_num(max(self.errors[name], 0.0)) for name in ("stated", "calibrated"))
        return float(before - after)


@dataclass(frozen=True)
class Promise:
    """What the fit's bins promise: by the theorem before a row was seen, and by their certificates after.

    certified : half of the test rows are in bins that are certified to be off by this much at most.
    """

    points_per_bin: int
    rows: int
    alpha: float
    levels: int
    epsilon: float
    certified: float
    largest: float
    kind: str


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that is shown of one model on its test rows.

    facts : what was fitted and on what, as (name, text).
    tallies, measured, pairs : by score: "stated", "pooled" (where groups are used) and "calibrated".
    groups : those that gain most first.
    promise, realised : None for calibrators without bins, which certify nothing; `why_no_promise` says it.
    threshold : the one that was chosen, if any.
    """

    rows: int
    accuracy: float
    facts: tuple[tuple[str, str], ...]
    tallies: dict[str, Tally]
    measured: dict[str, Measured]
    pairs: dict[str, Pairs]
    grouped_by: str | None
    groups: tuple[Group, ...]
    promise: Promise | None
    realised: Realised | None
    why_no_promise: str
    has_texts: bool
    threshold: float | None


def read_contents(
    model: QACalibrator | ModelSet,
    records: Any,
    how: Reading | None = None,
    *,
    groups: str | None = None,
    by: str | None = None,
    threshold: float | None = None,
    examples: int = 4,
    any_origin: bool = False,
    progress: Progress | None = None,
) -> dict[str, Content]:
    """Measure a model on labelled records that it was not fitted on; one content for each model of a set.

    Parameters
    ----------
    records : anything with `confidence`, `correct` and what the model needs to find groups; read once, as a stream.
    groups : measure within the values of this column; within the model's own groups by default.
    by : one content for each value of this column; all under "" without it.
    threshold : the chosen threshold, to be marked; by default the one that the model keeps, if any.
    examples : how many pairs of each group to show; 0 shows no text of the records, nor words of it.
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold}; expected 0 to 1.")
    parts = gather(model, records, how, groups=groups, by=by, any_origin=any_origin, progress=progress)
    return {name: content_of(part, threshold=threshold, examples=examples) for name, part in parts.items()}


def content_of(gathered: Gathered, *, threshold: float | None = None, examples: int = 4) -> Content:
    """Return what is shown of the rows that were gathered for one model."""
    scored = gathered.scored()
    _require_both_kinds(scored)
    tallies = scored.tallies()
    maps = gathered.model.calibrator_.fitted_maps()
    has_bins = isinstance(maps, BinMaps)
    return Content(
        rows=len(scored.correct),
        accuracy=float(scored.correct.mean()),
        facts=facts_of(gathered),
        tallies=tallies,
        measured={name: Measured.of(tally) for name, tally in tallies.items()},
        pairs=scored.pairs(),
        grouped_by=_grouped_by(gathered),
        groups=tuple(sorted(_groups(gathered, tallies, examples), key=_place)),
        promise=_promise(gathered, maps) if isinstance(maps, BinMaps) else None,
        realised=_realised(gathered, maps) if isinstance(maps, BinMaps) else None,
        why_no_promise="" if has_bins else _NO_BINS.format(name=type(gathered.model.calibrator_).__name__),
        has_texts=gathered.has_texts and examples > 0,
        threshold=_overall(gathered.model) if threshold is None else threshold,
    )


def _overall(model: QACalibrator) -> float | None:
    """Return the threshold for all rows that the model was given, if it has one."""
    return None if model.decision_rule_ is None else model.decision_rule_.threshold


_NO_BINS = (
    "{name} answers without bins, and so certifies nothing that could be held against these rows. A model as it comes, "
    "or one with QABinning or TreeBinning, does."
)


def _require_both_kinds(scored: Scored) -> None:
    mean = float(scored.correct.mean())
    if mean in (0.0, 1.0):
        kind = "wrong" if mean == 0 else "right"
        raise InputError(
            f"all {len(scored.correct):,} rows are {kind}; a report needs right and wrong answers. Take more rows, or "
            "check the column `correct`."
        )


def _grouped_by(gathered: Gathered) -> str | None:
    if not gathered.labels:
        return None
    partition = gathered.model.partition_
    own = partition.name if isinstance(partition, Column) else "the model’s groups"
    return gathered.grouped_by or own


def _place(group: Group) -> tuple[bool, float, str]:
    return (group.rows < FEW_ROWS, -group.gain, str(group.label))


def _groups(gathered: Gathered, tallies: dict[str, Tally], examples: int) -> Iterator[Group]:
    if not gathered.labels:
        return
    labels = {code: label for label, code in gathered.labels.items()}
    words, pairs = gathered.sampler.words(), gathered.sampler.examples(examples)
    columns = {name: dict(iter(tally)) for name, tally in tallies.items()}
    for code, first in columns["stated"].items():
        mine = {name: column[code] for name, column in columns.items()}
        yield Group(
            label=labels.get(code),
            rows=first.n,
            accuracy=first.mean,
            confidence={name: float(tally.w @ tally.confidence / tally.w.sum()) for name, tally in mine.items()},
            errors={name: _debiased(tally) for name, tally in mine.items()},
            tallies={name: tally.without_blocks() for name, tally in mine.items()},
            words=words.get(code, ()) if examples else (),
            examples=pairs.get(code, ()),
        )


def _debiased(tally: Tally) -> float:
    return calibration_error(tally, bins=BINS, redraws=0).debiased if tally.n > 1 else float("nan")


def _promise(gathered: Gathered, maps: BinMaps) -> Promise:
    chosen = gathered.model.calibrator_.get_params()
    rows = max(_binned_rows(maps), 2)
    levels, alpha = len(np.unique(maps.lineage.depth)), float(maps.certificate.alpha)
    # The bins of groups, where there are groups: the root's hold the same rows once more.
    first = int(maps.offset[1]) if len(maps.offset) > 2 else 0
    bounds, behind = maps.error_bounds()[first:], maps.rows[first:]
    n_bins = chosen.get("n_bins")
    # Bins that follow curves were asked for no number of points; half of the rows are in bins of the middle one.
    points = rows // n_bins if n_bins else int(chosen.get("points_per_bin", _middle(behind, behind)))
    points = min(max(points, 2), rows)
    return Promise(
        points_per_bin=points,
        rows=rows,
        alpha=alpha,
        levels=levels,
        epsilon=epsilon(points, rows, alpha, levels=levels),
        certified=float(np.median(maps.error_bounds()[gathered.column("bins")])),
        # Of bins without rows nothing is known, and nobody has asked.
        largest=float(bounds[behind > 0].max(initial=0.0)),
        kind=maps.certificate.kind,
    )


def _middle(values: Any, rows: Any) -> float:
    """Return the median of a value of bins over their rows."""
    order = np.argsort(values)
    through = np.cumsum(rows[order])
    return float(values[order][np.searchsorted(through, through[-1] / 2)])


def _binned_rows(maps: BinMaps) -> int:
    """Return N: the rows of the root's bins, and the edge rows between them that Algorithm UMD keeps out of them."""
    root = int(maps.offset[1])
    return int(maps.rows[:root].sum()) + (root - 1 if maps.is_jittered else 0)


def _realised(gathered: Gathered, maps: BinMaps) -> Realised | None:
    return realised_errors(maps, gathered.column("bins"), gathered.column("correct"), gathered.is_own)
