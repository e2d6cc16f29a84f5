r"""Search depth and points per bin: fit on calibration rows, choose on tuning rows.

Both samples are tallies over the same groups, and the search works on their cells:

- The tally of a tree rolls up to every depth, so one tally serves all depths.
- The bins of a group depend only on points per bin :math:`b`, so they are made once for every (depth, :math:`b`), and
  each tuning cell looks up its bin once. Methods that bin the same rows share both.
- A group with fewer than :math:`b` rows uses its nearest ancestor with enough. So its answer at depth :math:`d` comes
  from the deepest level up to :math:`d` at which it has enough rows.

The calibrator then fits the chosen setting itself, so the search leaves nothing to save.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from qacal.calibrators.base import Calibrator, Rows
from qacal.calibrators.binning import BinningCalibrator
from qacal.errors import InputError, RepeatedQuestionsWarning
from qacal.metrics.calibration import calibration_error
from qacal.metrics.scores import brier_score, log_loss
from qacal.metrics.selective import auac
from qacal.parameters import require_kind, shown
from qacal.planning import Ranges, search_ranges
from qacal.tally.arrays import Floats, Ints, seven_decimals
from qacal.tally.bins import Bins, mass_bins, search_within
from qacal.tally.cells import snap
from qacal.tally.groups import NO_GROUP, GroupColumn
from qacal.tally.tally import Tally

Cut: TypeAlias = int | str
"""Which groups to use: a depth of the tree, or the name of a partition; 0 for none."""

ROOT: Cut = 0

# Errors within groups are measured on groups with at least 30 tuning rows on average, in bins of 10.
ROWS_A_GROUP = 30
ROWS_A_BIN = 10


@dataclass(frozen=True)
class Trial:
    """One setting and its score on the tuning rows; lower is better."""

    cut: Cut
    points_per_bin: int | None
    score: float


@dataclass(frozen=True)
class Tuned:
    """The best setting, fitted on the calibration rows; all trials; and the number of tuning rows."""

    calibrator: Calibrator
    best: Trial
    trials: list[Trial]
    rows: int
    note: str = ""

    @property
    def is_pooled(self) -> bool:
        """Whether flat groups lost to no groups; a tree is cut at depth 0 instead."""
        return self.best.cut == ROOT and any(isinstance(trial.cut, str) for trial in self.trials)

    @property
    def best_pooled(self) -> Trial | None:
        """The best setting without groups, if that was tried."""
        pooled = [trial for trial in self.trials if trial.cut == ROOT]
        return best_of(pooled) if pooled else None


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the best trial; among equals up to rounding, the first: fewest groups, most points per bin."""
    scores = [trial.score for trial in trials if not np.isnan(trial.score)]
    if not scores:
        raise InputError("no setting could be scored on the tuning rows; give more rows, or another objective.")
    return next(trial for trial in trials if trial.score <= min(scores) + 1e-12)


class Search:
    """Calibration rows and tuning rows over the same groups, ready to try methods on.

    Parameters
    ----------
    calibration, tuning : tallies over the same tree, or over the same flat partitions; the search chooses one of them.
        They share no question. Some methods need calibration rows in two halves (``n_blocks=2``).
    ranges : what to try, or a function of the number of rows and the numbers of groups; by default the paper's ranges,
        if there are enough rows (:func:`qacal.planning.search_ranges`).
    objective : minimised on the tuning rows: "log_loss"; "brier"; "auac", the paper's choice, which is maximised;
        "error", the debiased calibration error within groups that are the same for all settings.
    keeps_groups : do not compare flat groups with no groups. A certificate covers the groups that it was made for, not
        the choice between partitions; for a tree it covers all depths.
    progress : called with the number of finished cuts and the number of all cuts.

    Examples
    --------
    Of four groups, the first two are similar, and so are the last two; depth 1 is enough:

    >>> from qacal import Paths, QABinning
    >>> rng = np.random.default_rng(0)
    >>> leaf, h = rng.integers(0, 4, 3000), rng.choice([0.7, 0.8, 0.9], 3000)
    >>> right = rng.random(3000) < np.where(leaf < 2, h - 0.4, h)
    >>> paths = Paths(leaf, np.full(3000, 3), 2)
    >>> fit = Tally.of(h[:2500], right[:2500], groups=Paths(leaf[:2500], paths.exit[:2500], 2))
    >>> tune = Tally.of(h[2500:], right[2500:], groups=Paths(leaf[2500:], paths.exit[2500:], 2))
    >>> tuned = Search(fit, tune).tune(QABinning())
    >>> tuned.best.cut, tuned.calibrator.max_depth
    (1, 1)
    """

    def __init__(
        self,
        calibration: Tally,
        tuning: Tally,
        *,
        ranges: Ranges | Callable[[int, list[int]], Ranges] = search_ranges,
        objective: str = "log_loss",
        keeps_groups: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        require_objective(objective)
        for name, tally in (("calibration", calibration), ("tuning", tuning)):
            if not isinstance(tally, Tally):
                raise InputError(f"{name} is {shown(tally)}; expected a Tally.")
        if not isinstance(ranges, Ranges) and not callable(ranges):
            raise InputError(f"ranges is {shown(ranges)}; expected Ranges, or a function that gives them.")
        require_kind(progress, Callable, "progress", "a function")
        self.calibration = calibration
        self.tuning = tuning
        self.keeps_groups = keeps_groups
        self.objective = objective
        self.progress = progress
        counts = [groups for _, groups in self.sizes]
        self.ranges = ranges if isinstance(ranges, Ranges) else ranges(calibration.n, counts)
        self._levels: dict[tuple[bool, float | None, Cut], _Level] = {}

    def tune(self, calibrator: Calibrator) -> Tuned:
        """Try all settings of a calibrator, and return the best one fitted on the calibration rows."""
        if not isinstance(calibrator, Calibrator):
            raise InputError(f"calibrator is {shown(calibrator)}; expected one, such as QABinning().")
        trials = list(self._trials(calibrator))
        best = best_of(trials)
        chosen = _configured(calibrator, best.cut if self._is_tree else None, best.points_per_bin)
        fitted = chosen.fit_tally(self.at(self.calibration, best.cut, is_final=True))
        return Tuned(fitted, best, trials, self.tuning.n, self.ranges.note)

    # The settings to try

    @cached_property
    def _is_tree(self) -> bool:
        columns = self.calibration.partitions
        return len(columns) == 1 and next(iter(columns.values())).is_tree

    @cached_property
    def sizes(self) -> list[tuple[Cut, int]]:
        """Every cut with its number of groups, the coarsest first."""
        columns = self.calibration.partitions
        if self._is_tree:
            depth = next(iter(columns.values())).depth or 0
            return [(cut, 2**cut) for cut in range(depth + 1)]
        sizes = {name: len(np.setdiff1d(column.leaves(), [NO_GROUP])) for name, column in columns.items()}
        return [(ROOT, 1), *sorted(sizes.items(), key=lambda item: item[1])]

    @cached_property
    def common_cut(self) -> Cut:
        """The finest cut with 30 tuning rows per group on average; errors within groups are measured on it."""
        large_enough = [cut for cut, groups in self.sizes if self.tuning.n >= ROWS_A_GROUP * groups]
        return large_enough[-1] if large_enough else ROOT

    def at(self, tally: Tally, cut: Cut, *, is_final: bool = False) -> Tally:
        """Return a tally with the groups of a cut.

        is_final : keep a tree whole, since certificates cover all depths that were searched.
        """
        if cut == ROOT and not (is_final and self._is_tree):
            return tally.pooled()
        if self._is_tree:
            return tally if is_final else tally.roll_up(int(cut))
        return tally.only(str(cut))

    def _trials(self, calibrator: Calibrator) -> Iterator[Trial]:
        uses_groups = calibrator.properties.uses_groups
        cuts = self.sizes if uses_groups else [(ROOT, 1)]
        if uses_groups and self.keeps_groups and not self._is_tree and len(cuts) > 1:
            cuts = cuts[1:]
        for done, (cut, groups) in enumerate(cuts):
            if isinstance(calibrator, BinningCalibrator) and calibrator.ties == "merge":
                answers = self._answers_of_bins(calibrator, cut, groups)
            else:
                answers = self._answers_of_fits(calibrator, cut, groups)
            for b, confidence in answers:
                yield Trial(cut, b, OBJECTIVES[self.objective](self, confidence))
            if self.progress is not None:
                self.progress(done + 1, len(cuts))

    # Any calibrator: fit it

    def _answers_of_fits(self, calibrator: Calibrator, cut: Cut, groups: int) -> Iterator[tuple[int | None, Floats]]:
        calibration = self.at(self.calibration, cut)
        rows = Rows(self.tuning.confidence, self._groups(cut), self.tuning.tie)
        has_bins = "points_per_bin" in calibrator.get_params()
        for b in self._admitted(calibration.n, groups) if has_bins else [None]:
            with warnings.catch_warnings():
                # The fit of the best setting warns once.
                warnings.simplefilter("ignore", RepeatedQuestionsWarning)
                fitted = _configured(calibrator, None, b).fit_tally(calibration)
            yield b, fitted._fitted_maps().apply(rows)

    # Bins: make them once

    def _answers_of_bins(
        self, calibrator: BinningCalibrator, cut: Cut, groups: int
    ) -> Iterator[tuple[int | None, Floats]]:
        labels, targets = calibrator._targets(calibrator._relevant(self.at(self.calibration, cut)))
        # The cuts from the root to this one: each may answer for a group.
        chain: list[Cut] = [*range(int(cut) + 1)] if self._is_tree else [*dict.fromkeys([ROOT, cut])]
        levels = [self._level(calibrator, labels, level) for level in chain]
        flat_targets = [_flat(targets, level) for level in chain]
        for b in self._admitted(labels.n, groups):
            root = confidence = levels[0].answers(b, flat_targets[0])
            for level, flat in zip(levels[1:], flat_targets[1:], strict=True):
                confidence = np.where(level.rows >= b, level.answers(b, flat), confidence)
            yield b, np.where(levels[-1].is_outside, root, confidence)

    def _admitted(self, rows: int, groups: int) -> Sequence[int]:
        return [b for b in self.ranges.points_per_bin if groups == 1 or self.ranges.admits(rows, groups, b)]

    def _level(self, calibrator: BinningCalibrator, labels: Tally, cut: Cut) -> _Level:
        # Without cross-fitting, scaled bins hold half of the rows.
        key = (getattr(calibrator, "cross_fit", True), labels.resolution, cut)
        if key not in self._levels:
            self._levels[key] = _Level(_flat(labels, cut), self.tuning.confidence, self._codes(cut))
        return self._levels[key]

    def _codes(self, cut: Cut) -> Ints | None:
        """Return the group of each tuning cell, in the codes of the calibration rows."""
        groups = self._groups(cut)
        if groups is None or self._is_tree:
            return None if groups is None else groups.leaves()
        return self.calibration.partitions[str(cut)].encode(groups, len(groups)).leaves()

    def _groups(self, cut: Cut) -> GroupColumn | None:
        """Return the groups of the tuning cells."""
        if cut == ROOT:
            return None
        if self._is_tree:
            return next(iter(self.tuning.partitions.values())).at_depth(int(cut))
        return self.tuning.partitions[str(cut)]


class _Level:
    """The groups of one cut: their calibration rows, and the bin of each tuning cell.

    rows : number of calibration rows in the group of each tuning cell; 0 if it has no group.
    is_outside : whether it has no group.
    """

    def __init__(self, labels: Tally, confidence: Floats, codes: Ints | None) -> None:
        self._labels = labels
        resolution = labels.resolution
        self._confidence = seven_decimals(confidence) if resolution is None else snap(confidence, resolution)
        groups, first, last = labels.group_runs()
        self._first = first
        self._places: dict[int, tuple[Bins, Ints]] = {}
        if codes is None:
            self._run = np.zeros(len(confidence), dtype=np.int64)
            self.rows = np.full(len(confidence), labels.n)
            self.is_outside = np.zeros(len(confidence), dtype=bool)
            return
        through = np.concatenate([[0], np.cumsum(labels.rows)])
        self._run = np.minimum(np.searchsorted(groups, codes), len(groups) - 1)
        self.is_outside = codes == NO_GROUP
        is_known = (groups[self._run] == codes) & ~self.is_outside
        self.rows = np.where(is_known, (through[last] - through[first])[self._run], 0)

    def answers(self, points_per_bin: int, targets: Tally) -> Floats:
        """Return the answer for each tuning cell: the mean of these targets in its bin."""
        bins, place = self._bins(points_per_bin)
        return np.clip(bins.sum(targets.wt) / bins.sum(targets.w), 0.0, 1.0)[place]

    def _bins(self, points_per_bin: int) -> tuple[Bins, Ints]:
        if points_per_bin not in self._places:
            bins = mass_bins(self._labels, points_per_bin)
            first = np.searchsorted(bins.start, self._first)
            last = np.append(first[1:], len(bins)) - 1
            place = search_within(bins.top, self._confidence, first[self._run], last[self._run])
            self._places[points_per_bin] = bins, place
        return self._places[points_per_bin]


def _flat(tally: Tally, cut: Cut) -> Tally:
    """Return a tally over the groups of a cut, as a flat column."""
    if cut == ROOT:
        return tally.pooled()
    column = tally.grouping
    return tally.roll_up(int(cut)).flat() if column is not None and column.is_tree else tally


def _configured(calibrator: Calibrator, cut: Cut | None, points_per_bin: int | None) -> Calibrator:
    """Return a new calibrator with these settings, as far as it has them."""
    settings = calibrator.get_params()
    if points_per_bin is not None:
        settings["points_per_bin"] = points_per_bin
        # Points per bin replace the number of bins.
        settings |= {"n_bins": None} if "n_bins" in settings else {}
    if cut is not None and "max_depth" in settings:
        settings["max_depth"] = cut
    return type(calibrator)(**settings)


def _error_within(search: Search, answers: Floats) -> float:
    """Return the debiased calibration error within groups that do not depend on the setting."""
    scored = _flat(search.at(search.tuning.with_confidence(answers), search.common_cut), search.common_cut)
    bins = int(np.clip(scored.n // (dict(search.sizes)[search.common_cut] * ROWS_A_BIN), 1, 15))
    return calibration_error(scored, bins=bins)


def _log_loss(search: Search, answers: Floats) -> float:
    """Return the log loss; a sum does not depend on the order of cells, so they are not sorted again."""
    return log_loss(replace(search.tuning, partitions={}, confidence=answers))


def _overall(measure: Callable[[Tally], float]) -> Objective:
    return lambda search, answers: measure(replace(search.tuning, partitions={}).with_confidence(answers))


Objective: TypeAlias = Callable[[Search, Floats], float]

OBJECTIVES: dict[str, Objective] = {
    "log_loss": _log_loss,
    "brier": _overall(lambda scored: brier_score(scored)),
    "auac": _overall(lambda scored: -auac(scored)),
    "error": _error_within,
}
"""The functions of the answers for all tuning cells that a search minimises."""


def require_objective(name: str, parameter: str = "objective") -> None:
    """Raise if an objective is unknown."""
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise InputError(f"{parameter} is {shown(name)}; expected one of {', '.join(OBJECTIVES)}.")
