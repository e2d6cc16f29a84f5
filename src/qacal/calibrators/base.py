"""What every calibrator is: a thin shell of parameters around a solver that takes a tally and returns frozen maps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from qacal.calibrators.evidence import Evidence
from qacal.errors import InputError, NotFittedError, RepeatedQuestionsWarning
from qacal.parameters import MOST, HasParameters, shown
from qacal.storage import require
from qacal.tally import ids as identity
from qacal.tally.arrays import ArrayLike, Floats, Hashes, Ints, require_length, seven_decimals, unit_values
from qacal.tally.groups import NO_GROUP, GroupColumn, Paths
from qacal.tally.tally import Tally

_REPEATED = (
    "some ids have several rows (the answers of several LLMs, perhaps). Intervals take rows as independent, so theirs "
    "come out too narrow; keep one row per question, or do not rely on low and high."
)


@dataclass(frozen=True)
class Rows:
    """Checked rows that ask for a calibrated confidence.

    stated : the confidences as they came.
    confidence : the same, read to seven decimals.
    """

    stated: Floats
    groups: ArrayLike | Paths | None
    tie: Hashes | None
    confidence: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", seven_decimals(self.stated))

    def leaves(self, fitted: GroupColumn | None, max_depth: int | None = None) -> Ints:
        """Return each row's group in the codes of the fit, `NO_GROUP` for groups that it cannot know."""
        if fitted is None or self.groups is None:
            return np.full(len(self.confidence), NO_GROUP)
        column = fitted.encode(self.groups, len(self.confidence))
        return (column if max_depth is None else column.at_depth(max_depth)).leaves()

    def names(self, fitted: GroupColumn | None, max_depth: int | None = None) -> list[Any]:
        """Return the name of each row's group, None for groups that had no row in the fit."""
        if fitted is None:
            return [None] * len(self.confidence)
        known = (fitted if max_depth is None else fitted.at_depth(max_depth)).leaves()
        codes = self.leaves(fitted, max_depth)
        return fitted.decode(np.where(np.isin(codes, known), codes, NO_GROUP))


class Maps(Protocol):
    """The frozen result of a fit: everything that prediction needs, and what gets saved."""

    def apply(self, rows: Rows) -> Floats:
        """Return the calibrated confidences."""
        ...

    def explain(self, rows: Rows) -> Evidence:
        """Return the calibrated confidences with their evidence."""
        ...

    def validate(self) -> None:
        """Raise `InputError` if no fit can have given this content. Maps from a file are asked; fits need not be."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return those parameters of the fit that can be read off the maps."""
        ...


@dataclass(frozen=True)
class Properties:
    """What a calibrator promises of its maps; the contract test holds it to them.

    is_monotone : within a group, the output only rises (or only falls) with the confidence.
    keeps_mean : in every group with a map of its own, the outputs on the fitting rows average to its share of right
        answers.
    is_discrete : finitely many outputs, fixed by the fit.
    is_certified : `explain` gives intervals that hold all at once with probability 1 - alpha.
    uses_groups : the output depends on the group.
    """

    is_monotone: bool = False
    keeps_mean: bool = False
    is_discrete: bool = False
    is_certified: bool = False
    uses_groups: bool = False


class Calibrator(HasParameters, ABC):
    """Base of all calibrators: `fit` sets `maps_` and returns self; predicting changes nothing."""

    maps_: Maps

    @property
    @abstractmethod
    def properties(self) -> Properties:
        """What this calibrator, with these parameters, promises."""

    @abstractmethod
    def _fit_tally(self, tally: Tally) -> Maps:
        """Return the frozen maps for a tally."""

    def tally_options(self) -> dict[str, Any]:
        """Return what the tally of the fitting rows must carry beyond groups and confidences."""
        return {}

    def fit(
        self,
        confidence: ArrayLike,
        correct: ArrayLike,
        *,
        groups: ArrayLike | Paths | None = None,
        sample_weight: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Learn the maps from rows.

        Parameters
        ----------
        confidence : what the LLM stated, in [0, 1]; it is read to seven decimals, here and in `predict`.
        correct : 0/1, or a soft target in [0, 1].
        groups : one label per row, of any type, or :class:`qacal.Paths` of a tree.
        sample_weight : importance of each row; 0 leaves a row out.
        ids : the question's id, for whatever must treat the rows of one question alike (halves, order of ties).
        """
        self._require_parameters()
        confidence = seven_decimals(unit_values(confidence, "confidence"))
        if groups is not None and not self.properties.uses_groups:
            require_length(groups, len(confidence), "groups")
            groups = None
        options = self.tally_options()
        tally = Tally.of(confidence, correct, groups=groups, sample_weight=sample_weight, ids=ids, **options)
        return self._fit(tally)

    def fit_tally(self, tally: Tally) -> Self:
        """Learn the maps from a tally; see :meth:`tally_options` for what it must carry."""
        self._require_parameters()
        return self._fit(tally)

    def _fit(self, tally: Tally) -> Self:
        _relevant = self._relevant(tally)
        if self.properties.is_certified and tally.is_clustered:
            # Shown at the line that called fit or fit_tally.
            warnings.warn(_REPEATED, RepeatedQuestionsWarning, stacklevel=3)
        self.maps_ = self._fit_tally(_relevant)
        return self

    def _require_parameters(self) -> None:
        """Refuse parameters that are lists, arrays or objects: each is a number, a word, True, False or None."""
        for name, value in self.get_params().items():
            is_vast = isinstance(value, int) and abs(value) > MOST
            if is_vast or not (value is None or isinstance(value, str | int | float | np.generic)):
                raise InputError(f"{name} is {shown(value)}, a {type(value).__name__}; expected a number or a word.")

    def _require(self, tally: Tally) -> None:
        """Refuse a tally that lacks what this calibrator needs."""
        needed = self.tally_options()
        if not isinstance(tally, Tally):
            got = type(tally).__name__
            raise InputError(f"fit_tally takes a Tally and got {got}; see Tally.of and Tally.from_polars.")
        if self.properties.uses_groups and len(tally.partitions) > 1:
            names = list(tally.partitions)
            raise InputError(f"groups holds the columns {names}; give one, or join them into one label per row.")
        if needed.get("ties") and tally.tie is None:
            raise InputError('ties="jitter" needs a tally that keeps ties: Tally.of(..., ids=ids, ties=True).')
        if tally.n_blocks % needed.get("n_blocks", 1) or tally.seed != needed.get("seed", tally.seed):
            how = f"Tally.of(..., ids=ids, n_blocks={needed['n_blocks']}, seed={needed['seed']})"
            raise InputError(f"this calibrator splits rows, and needs a tally that was dealt for it: {how}.")

    def _relevant(self, tally: Tally) -> Tally:
        """Drop whatever else the tally carries: it is none of this calibrator's business, and must not show."""
        self._require(tally)
        needed = self.tally_options()
        if not self.properties.uses_groups:
            tally = tally.pooled()
        if not needed.get("ties"):
            tally = tally.without_ties()
        if needed.get("n_blocks", 1) == 1:
            tally = tally.without_blocks()
        resolution = needed.get("resolution")
        return tally.to_seven_decimals() if resolution is None else tally.snapped(resolution)

    def predict(
        self, confidence: ArrayLike, *, groups: ArrayLike | Paths | None = None, ids: ArrayLike | None = None
    ) -> Floats:
        """Return the calibrated confidence of each row. Rows of unknown groups get the root's."""
        return self.fitted_maps().apply(self._checked_rows(confidence, groups, ids))

    def explain(
        self, confidence: ArrayLike, *, groups: ArrayLike | Paths | None = None, ids: ArrayLike | None = None
    ) -> Evidence:
        """Return the calibrated confidence of each row with the evidence behind it."""
        return self.fitted_maps().explain(self._checked_rows(confidence, groups, ids))

    def predict_tally(self, tally: Tally) -> Floats:
        """Return the calibrated confidence of each cell of a tally."""
        groups = tally.grouping if self.properties.uses_groups else None
        return self.fitted_maps().apply(Rows(tally.confidence, groups, tally.tie))

    def fitted_maps(self) -> Maps:
        """Return `maps_`, or say that there are none yet."""
        if not hasattr(self, "maps_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")
        return self.maps_

    def validate(self) -> None:
        """Raise `InputError` if no fit with these parameters can have given `maps_`, which may come from a file."""
        self._require_parameters()
        maps, given = self.fitted_maps(), self.get_params(deep=False)
        maps.validate()
        for name, fitted in maps.parameters().items():
            # Tallies may bring a grid with them that the calibrator did not ask for.
            is_so = name not in given or given[name] == fitted or (name == "resolution" and given[name] is None)
            require(is_so, f"{name} is {given.get(name)!r}, and the maps were fitted with {fitted!r}; fit again.")
        has_groups = getattr(maps, "grouping", None) is not None
        require(self.properties.uses_groups or not has_groups, "the maps have groups, which this calibrator ignores.")

    def _checked_rows(self, confidence: ArrayLike, groups: ArrayLike | Paths | None, ids: ArrayLike | None) -> Rows:
        """Return rows as the maps take them, checked."""
        h = unit_values(confidence, "confidence")
        if groups is not None:
            require_length(groups, len(h), "groups")
        uses_ids = ids is not None and self.tally_options().get("ties")
        tie = identity.as_tie(identity.id_hashes(ids, len(h))) if uses_ids else None
        return Rows(h, groups if self.properties.uses_groups else None, tie)
