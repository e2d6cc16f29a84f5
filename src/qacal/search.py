r"""Search depth and points per bin: fit on calibration rows, choose on tuning rows.

Both samples are tallies over the same groups. The tally of a tree rolls up to every depth, so one tally serves all
depths, and a fit takes milliseconds: it works on cells, not on rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from qacal.calibrators.base import Calibrator, Rows
from qacal.errors import InputError, RepeatedQuestionsWarning
from qacal.metrics.calibration import calibration_error
from qacal.metrics.proper_scores import brier_score, log_loss
from qacal.metrics.selective import auac
from qacal.parameters import require_kind, shown
from qacal.planning import Ranges, search_ranges
from qacal.tally.arrays import Floats
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
            for b, confidence in self._answers(calibrator, cut, groups):
                yield Trial(cut, b, OBJECTIVES[self.objective](self, confidence))
            if self.progress is not None:
                self.progress(done + 1, len(cuts))

    def _answers(self, calibrator: Calibrator, cut: Cut, groups: int) -> Iterator[tuple[int | None, Floats]]:
        """Yield the points per bin to try, with the answers for all tuning cells."""
        calibration = self.at(self.calibration, cut)
        rows = Rows(self.tuning.confidence, self._groups(cut), self.tuning.tie)
        tried: list[int | None] = [None]
        if "points_per_bin" in calibrator.get_params():
            is_half = not getattr(calibrator, "cross_fit", True)  # a curve is fitted on the other half
            binned = calibration.fold(1, of=2).n if is_half and calibration.block is not None else calibration.n
            tried = [b for b in self.ranges.points_per_bin if groups == 1 or self.ranges.admits(binned, groups, b)]
        for b in tried:
            with warnings.catch_warnings():
                # The fit of the best setting warns once.
                warnings.simplefilter("ignore", RepeatedQuestionsWarning)
                fitted = _configured(calibrator, None, b).fit_tally(calibration)
            yield b, fitted._fitted_maps().apply(rows)

    def _groups(self, cut: Cut) -> GroupColumn | None:
        """Return the groups of the tuning cells."""
        if cut == ROOT:
            return None
        if self._is_tree:
            return next(iter(self.tuning.partitions.values())).at_depth(int(cut))
        return self.tuning.partitions[str(cut)]


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
