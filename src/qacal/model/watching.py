r"""Whether the intervals of a model still hold: bets on labelled rows, in their order.

Each end of each interval is a statement about a mean, and a process of :mod:`qacal.metrics.betting` tests it. Here
:math:`Y` is a label, :math:`p` an answer, and :math:`b` a band:

- of a band: :math:`\mathrm{E}[Y - p \mid b] \le` `above`, and :math:`\ge -` `below`,
- of a group, or of a bin of other calibrators: :math:`\mathrm{E}[Y] \le` `high`, and :math:`\ge` `low`,
- of all answers: :math:`\mathrm{E}[Y - p - \text{above}_b] \le 0`, and the same below. The bands imply it, and it has
  the labels of all of them.

All alarms that are ever raised are right with probability :math:`1 - \alpha`. An alarm says that an interval does not
hold for these rows: they have changed, or the interval was wrong from the start, which the certificate of the fit
allows with its own :math:`\alpha`.

*Documents.* Rows with one id are a document, and may depend on each other. A document counts once for each interval,
with the mean of its rows there: documents are independent, and the expectation of this mean is what is certified. It
varies less than one drawn row. A document is counted at its last row, so its rows must come together. The line of all
answers is left out then: it weighs bands by the rows of a document in them, and the statements about bands do not.

*Chances.* If rows were chosen for labelling with different probabilities, they are thinned: a row with the chance
:math:`\pi` is kept with probability :math:`\pi_{\min} / \pi`, by a hash of its id. The rows that stay all had the
chance :math:`\pi_{\min}`, so their means are those of all answers, without weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from qacal.calibrators.maps import BinMaps, deepest_level
from qacal.calibrators.margins import MarginMaps
from qacal.calibrators.score.likeness import FAR
from qacal.errors import InputError, counted
from qacal.guarantee import check_alpha
from qacal.metrics.betting import Alarms, bet
from qacal.metrics.evaluation import require_labels
from qacal.model.base import BaseModel
from qacal.model.choosing import require_unseen
from qacal.model.labelling import NEW_COLUMNS
from qacal.model.model import QACalibrator
from qacal.model.pipeline import Progress
from qacal.records.files import OnFault, refuse
from qacal.records.provenance import AllowOtherSource, require_known_origin
from qacal.records.reading import MAX_BAD, Batch, Gathered, Reading, read
from qacal.tally.arrays import Bools, Floats, Hashes, Ints
from qacal.tally.ids import mix

# A signal is notable if it is this many standard errors from the fit, and this large.
_DEVIATIONS, _LEAST, _FEWEST = 4.0, 0.05, 30
# An end of an interval this close to what always holds says nothing.
_NEAR = 1e-9
_SMALLEST_BOUND = 1e-6
# Wealths are shown up to this logarithm.
_MOST_LOG_WEALTH = 600.0


@dataclass(frozen=True)
class Watched:
    """One interval, and what the labels say about it.

    name : which answers it is about.
    kind : "all", "band", "group", or "bin" for a bin of confidences or scores.
    group : the name of the group; None for all groups.
    low, high : the accuracy of the labelled answers is promised to be between these two, on average.
    labels : how many labels (of documents, if ids repeat) are about it.
    accuracy : of these; None without labels.
    wealth : of the bet against the end that looks worse, which started at 1; a false alarm needs 1/alpha or more.
    side : which end that is: "low" if answers are less accurate than promised, "high" if they are more accurate.
    broken_after : the number of labels, of all answers, after which the interval was called broken; None if it was not.
    """

    name: str
    kind: Literal["all", "band", "group", "bin"]
    group: Any
    low: float
    high: float
    labels: int
    accuracy: float | None
    wealth: float
    side: Literal["low", "high"]
    broken_after: int | None

    @property
    def is_broken(self) -> bool:
        return self.broken_after is not None

    def __str__(self) -> str:
        if self.accuracy is None:
            return f"{self.name}: no labels yet."
        promise = f"promised {self.low:.2f} to {self.high:.2f}, {self.accuracy:.2f} in {counted(self.labels, 'label')}"
        return f"{self.name}: {promise}" + (f"; broken after {self.broken_after:,}." if self.is_broken else ".")


@dataclass(frozen=True)
class Signal:
    """A difference between these rows and those of the fit that needs no labels; at one look, without a guarantee.

    kind : "groups", "confidence", "unlike" or "columns".
    is_notable : whether it is larger than chance explains (four standard errors), and large.
    """

    kind: Literal["groups", "confidence", "unlike", "columns"]
    text: str
    is_notable: bool


@dataclass(frozen=True)
class Watch:
    """What labelled rows say about the intervals of a model.

    alpha : the probability that any alarm is ever wrong.
    labels : the labelled rows that were used, in their order.
    documents : how many documents these are; None if no id repeats.
    far : rows among them that are unlike the fit, and have no interval.
    thinned : further rows that were left out, so that all rows had the same chance to be labelled.
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
        if not self.is_alarm:
            return f"No alarm after {labels}: nothing says that the {len(self.intervals)} intervals do not hold."
        if not self.broken:
            return f"Alarm after {self.broken_after:,} of {labels}: some interval is broken, it is not clear which."
        names = counted(len(self.broken), "interval is", "intervals are")
        return f"Alarm after {self.broken_after:,} of {labels}: {names} broken, first {self.broken[0].name}."


def watch(
    model: QACalibrator,
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
    if model._by is not None:
        raise InputError(
            "this is a set of models; watch each of them with its own rows: watch(models.models[name], ...)."
        )
    reading = model._reading(records, columns, percent, expressions, on_fault=on_fault or refuse, max_bad=max_bad)
    return watches(model, records, reading, alpha=alpha, allow_other_source=allow_other_source)[None]


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
        if not isinstance(one.calibrator_.maps_, BinMaps | MarginMaps):
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
                found = _read(one, part, allow_other_source, progress)
                rows.setdefault(value, Gathered()).add(**found)
        done += len(batch)
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
    model: QACalibrator, batch: Batch, allow_other_source: AllowOtherSource, progress: Progress | None
) -> dict[str, Any]:
    """Return the columns of labelled rows that a watch needs."""
    require_known_origin(batch, model.origins_, allow_other_source, uses_labels=True)
    with model.pipeline_.vectors.telling(progress):
        read, groups = model.pipeline_.inputs(batch)
    rows = model.pipeline_.rows_of(read, groups, batch.ids)
    maps: Any = model.calibrator_.maps_
    evidence = maps.explain(rows)
    drawn, chance = (name in batch.table.names for name in NEW_COLUMNS)
    return {
        "correct": require_labels(batch.correct, batch.table.origin),
        "answer": evidence.calibrated,
        "bins": _cells(maps).bins_by_level(rows),
        "groups": evidence.group,
        "confidence": batch.confidence,
        "unlike": read.unlike,
        "ids": batch.ids,
        "questions": batch.question_hashes(),
        # In a draw of `label_next` every question has the same chance; the column is about rows.
        "chance": batch.numbers(NEW_COLUMNS[1], 1.0) if chance and not drawn else np.full(len(batch), np.nan),
        "has_chance": np.full(len(batch), chance and not drawn),
    }


def _cells(maps: BinMaps | MarginMaps) -> BinMaps:
    return maps.cells if isinstance(maps, MarginMaps) else maps


# Which rows count


def _watched(model: QACalibrator, gathered: Gathered, lacking: set[str], alpha: float, where: str) -> Watch:
    """Return the watch of one model, from the gathered columns of its rows."""
    kept, known = _equal_chances(gathered["chance"], gathered["has_chance"], gathered.get("ids"), where)
    ids = gathered.get("ids")
    document, last = _documents(np.arange(len(kept), dtype=np.uint64)[kept] if ids is None else ids[kept])
    labels, is_repeated = len(document), len(last) < len(document)
    is_far = gathered["unlike"][kept] >= FAR
    maps: Any = model.calibrator_.maps_
    limits = _Limits.of(maps)
    answer, correct, bins = (gathered[name][kept] for name in ("answer", "correct", "bins"))
    means = _means(document, np.where(is_far[:, None], -1, bins), answer, correct, limits)
    has_all = limits.roots > 1 and not (is_repeated or maps.certificate.is_by_document)
    bets = _bets(means, limits, len(last), alpha, has_all=has_all)
    found = _intervals(model, means, limits, bets, last)
    groups = [name for name, keep in zip(gathered["groups"], kept.tolist(), strict=True) if keep]
    return Watch(
        alpha=alpha,
        labels=labels,
        documents=len(last) if is_repeated else None,
        far=int(np.count_nonzero(is_far)),
        thinned=int(np.count_nonzero(known & ~kept)),
        volunteered=int(np.count_nonzero(~known)),
        broken_after=None if bets.any_at < 0 else int(last[bets.any_at]) + 1,
        intervals=tuple(sorted(found, key=lambda one: (one.broken_after or np.inf, -one.wealth))),
        signals=signals(model, groups, gathered["confidence"][kept], gathered["unlike"][kept], lacking),
    )


def _equal_chances(chance: Floats, has_chance: Bools, ids: Hashes | None, where: str) -> tuple[Bools, Bools]:
    """Return which rows to keep so that all had the same chance of a label, and for which rows the chance is known."""
    if not has_chance.any():
        return np.ones(len(chance), dtype=bool), np.ones(len(chance), dtype=bool)
    known = chance > 0
    if not known.any() or ids is None:
        what = "no row has" if ids is not None else "rows need an id or a question for"
        raise InputError(f"{where}{what} a label_probability above 0; it is the chance that a row had to be labelled.")
    _, document = np.unique(ids, return_inverse=True)
    lowest = np.full(document.max() + 1, np.inf)
    np.minimum.at(lowest, document[known], chance[known])
    # Of a document, all rows are kept or none. No split uses this seed.
    is_drawn = mix(ids, 2**46) / 2.0**64 * lowest[document] < lowest.min()
    return known & is_drawn, known


def _documents(ids: Hashes) -> tuple[Ints, Ints]:
    """Return the document of each row, numbered by their last rows, and the place of the last row of each."""
    _, document = np.unique(ids, return_inverse=True)
    last = np.zeros(document.max(initial=-1) + 1, dtype=np.int64)
    np.maximum.at(last, document, np.arange(len(ids)))
    order = np.argsort(last)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[document], last[order]


# What the intervals say about them


class _Limits(NamedTuple):
    """What the certificate says about each cell: the mean of label minus base is between `low` and `high`.

    bands : in so many cells, the first ones, the base is the answer; in others it is 0.
    roots : so many cells, the first ones, are about all groups.
    """

    low: Floats
    high: Floats
    bands: int
    roots: int

    @staticmethod
    def of(maps: Any) -> _Limits:
        cells = _cells(maps)
        low, high, roots = cells.low, cells.high, int(cells.offset[1])
        if not isinstance(maps, MarginMaps):
            return _Limits(low, high, 0, roots)
        low, high = np.concatenate([-maps.below, low[roots:]]), np.concatenate([maps.above, high[roots:]])
        return _Limits(low, high, roots, roots)

    @property
    def most_base(self) -> Floats:
        return np.where(np.arange(len(self.low)) < self.bands, 1.0, 0.0)


class _Means(NamedTuple):
    """The means of documents in cells: of label minus base, and of the base."""

    document: Ints
    cell: Ints
    value: Floats
    base: Floats


def _means(document: Ints, bins: Ints, answer: Floats, correct: Floats, limits: _Limits) -> _Means:
    """Return the mean of each document in each of its cells; `bins` are the cells of each row, -1 for none."""
    row, level = np.nonzero(bins >= 0)
    cell = bins[row, level]
    base = np.where(cell < limits.bands, answer[row], 0.0)
    cells = len(limits.low)
    pairs, place, count = np.unique(document[row] * cells + cell, return_inverse=True, return_counts=True)
    value, base = (np.bincount(place, column, len(pairs)) / count for column in (correct[row] - base, base))
    return _Means(pairs // cells, pairs % cells, value, base)


def _bets(means: _Means, limits: _Limits, documents: int, alpha: float, *, has_all: bool) -> Alarms:
    """Bet against the upper ends of all cells and of all answers, and then against the lower ends, in this order.

    A statement that cannot fail is not tested: its log wealth is NaN. `has_all` : also test all answers.
    """
    cells = len(limits.low)
    tested = np.stack([limits.high < 1 - _NEAR, limits.low > _NEAR - limits.most_base])
    lowest = np.stack([-limits.most_base - limits.high, limits.low - 1])
    document, cell = means.document, means.cell
    x = np.zeros((documents, 2, cells + 1))
    x[document, 0, cell] = means.value - limits.high[cell]
    x[document, 1, cell] = limits.low[cell] - means.value
    roots = slice(limits.roots)
    for side in range(2):
        is_counted = (cell < limits.roots) & tested[side, cell]
        x[document[is_counted], side, cells] = x[document[is_counted], side, cell[is_counted]]
    all_tested = tested[:, roots].any(axis=1) & has_all
    all_lowest = np.where(tested[:, roots], lowest[:, roots], 0.0).min(axis=1, initial=0.0)
    is_tested = np.column_stack([tested, all_tested]).ravel()
    if not is_tested.any():
        raise InputError("all intervals of this model go from 0 to 1, and cannot be broken. Fit on more labelled rows.")
    bound = np.minimum(np.column_stack([lowest, all_lowest]).ravel(), -_SMALLEST_BOUND)
    # Bands, groups and all answers have the same weight together, so that a change of all answers is seen early.
    family = np.tile(np.append(np.where(np.arange(cells) < limits.roots, 0, 1), 2), 2)[is_tested]
    weights = 1 / np.bincount(family)[family]
    found = bet(x.reshape(documents, -1)[:, is_tested], bound[is_tested], alpha, weights)
    log_wealth, broken_at = np.full(len(is_tested), np.nan), np.full(len(is_tested), -1)
    log_wealth[is_tested], broken_at[is_tested] = found.log_wealth, found.broken_at
    return Alarms(log_wealth, broken_at, found.any_at)


def _intervals(model: QACalibrator, means: _Means, limits: _Limits, bets: Alarms, last: Ints) -> Iterator[Watched]:
    """Yield all intervals of which at least one end can fail."""
    cells = len(limits.low)
    log_wealth, broken_at = (column.reshape(2, -1) for column in (bets.log_wealth, bets.broken_at))
    names = _names(model)
    is_root = means.cell < limits.roots
    for at in range(cells + 1):
        if np.isnan(log_wealth[:, at]).all():
            continue
        mine = is_root if at == cells else means.cell == at
        low, high = (ends[means.cell[mine]] if at == cells else ends[[at]] for ends in (limits.low, limits.high))
        base = means.base[mine].mean() if mine.any() else names[at].base
        ends = broken_at[:, at]
        is_broken = bool((ends >= 0).any())
        # Of two broken ends the first one; of none, the one with more evidence against it.
        side = int(np.where(ends < 0, np.inf, ends).argmin() if is_broken else np.nanargmax(log_wealth[:, at]))
        yield Watched(
            name=names[at].name,
            kind=names[at].kind,
            group=names[at].group,
            low=float(np.clip(base + (low.mean() if len(low) else -1.0), 0, 1)),
            high=float(np.clip(base + (high.mean() if len(high) else 1.0), 0, 1)),
            labels=int(np.count_nonzero(mine)),
            accuracy=float(np.clip(base + means.value[mine].mean(), 0, 1)) if mine.any() else None,
            wealth=float(np.exp(min(log_wealth[side, at], _MOST_LOG_WEALTH))),
            side="high" if side == 0 else "low",
            broken_after=int(last[ends[side]]) + 1 if is_broken else None,
        )


class _Name(NamedTuple):
    """Which answers an interval is about; `base` is their usual mean answer, for bands."""

    name: str
    kind: Literal["all", "band", "group", "bin"]
    group: Any = None
    base: float = 0.0


def _names(model: QACalibrator) -> list[_Name]:
    """Return the names of all cells, and of all answers."""
    maps: Any = model.calibrator_.maps_
    cells, words = _cells(maps), {group.group: group.words for group in model.describe_groups()}
    column, deepest = cells.grouping, deepest_level(cells.grouping, cells.max_depth)
    out: list[_Name] = []
    what = "confidence" if model.learned_score_ is None else "score"
    for node, (first, end) in enumerate(pairwise(cells.offset.tolist())):
        depth, code = int(cells.lineage.depth[node]), int(cells.lineage.owner[node])
        group, about = None, ""
        if column is not None and depth == deepest and depth:
            group = column.label(code)
            about = f"group {group}" + (f" ({', '.join(words[group][:3])})" if words.get(group) else "")
        elif depth:
            about = f"groups {code << (deepest - depth)} to {((code + 1) << (deepest - depth)) - 1}"
        for at in range(first, end):
            if isinstance(maps, MarginMaps):
                base = float(cells.value[at])
                is_band = node == 0
                out.append(
                    _Name(f"answers around {base:.2f}", "band", None, base) if is_band else _Name(about, "group", group)
                )
            else:
                start, top = cells.top[at - 1] if at > first else 0.0, min(cells.top[at], 1.0)
                out.append(_Name(f"{what} {start:.2f} to {top:.2f}" + (f" in {about}" if about else ""), "bin", group))
    return [*out, _Name("all answers", "all")]


# What has changed, without labels


def signals(
    model: QACalibrator, groups: list[Any], confidence: Floats, unlike: Floats, lacking: Iterable[str] = ()
) -> tuple[Signal, ...]:
    """Return how rows differ from those of the fit: by group, stated confidence, and distance of their text.

    groups, confidence, unlike : as in the evidence of rows.
    lacking : columns that the score reads and no row has.
    """
    out = []
    fit, n = model.describe_groups(), len(groups)
    if names := sorted(lacking):
        text = f"These rows have no column {' and '.join(names)}, which the score reads."
        out.append(Signal("columns", text, True))
    if fit and n >= _FEWEST:
        rows = np.array([group.rows for group in fit], dtype=np.float64)
        out.append(_group_signal({one.group: one.rows for one in fit}, groups))
        stated = float(rows @ [group.confidence for group in fit] / rows.sum())
        error = confidence.std() * np.sqrt(1 / n + 1 / rows.sum())
        change = float(confidence.mean()) - stated
        text = f"Stated confidence: {confidence.mean():.2f} on average, and {stated:.2f} in the fit."
        out.append(Signal("confidence", text, abs(change) >= max(_DEVIATIONS * error, _LEAST)))
    rank = unlike[~np.isnan(unlike)]
    if len(rank) >= _FEWEST:
        # Of rows like those of the fit, 1% are far, and the average rank is one half.
        far, usual = float(np.mean(rank >= FAR)), 1 - FAR
        is_shifted = rank.mean() - 0.5 >= max(_DEVIATIONS / np.sqrt(12 * len(rank)), _LEAST)
        are_far = far - usual >= max(_DEVIATIONS * np.sqrt(usual * FAR / len(rank)), _LEAST)
        text = (
            f"Text: on average farther from the fit than {rank.mean():.0%} of it (usual: 50%); {far:.0%} of the rows "
            "are far and have no interval (usual: 1%)."
        )
        out.append(Signal("unlike", text, bool(is_shifted or are_far)))
    return tuple(out)


def _group_signal(fit: Mapping[Any, int], groups: list[Any]) -> Signal:
    """Return the group with the share that has changed most."""
    now, n, total = Counter(groups), len(groups), sum(fit.values())
    names = [*fit, *({*now} - {*fit})]
    shares = np.array([[now[name] / n, fit.get(name, 0) / total] for name in names])
    at = int(np.abs(shares[:, 0] - shares[:, 1]).argmax())
    both = (now[names[at]] + fit.get(names[at], 0)) / (n + total)
    error = np.sqrt(both * (1 - both) * (1 / n + 1 / total))
    is_notable = abs(shares[at, 0] - shares[at, 1]) >= max(_DEVIATIONS * error, _LEAST)
    which = "rows of no known group are" if names[at] is None else f"group {names[at]} is"
    text = (
        f"Groups: {which} {shares[at, 0]:.0%} of these rows, and {shares[at, 1]:.0%} in the fit; no other changed more."
    )
    return Signal("groups", text, bool(is_notable))
