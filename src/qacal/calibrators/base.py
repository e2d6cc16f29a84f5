"""The base of all calibrators: parameters around a solver that takes a tally and returns frozen maps.

Maps take :class:`Rows` and return :class:`Evidence`: one schema for arrays, tables, JSON and reports.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

import numpy as np

from qacal.errors import InputError, NotFittedError, RepeatedQuestionsWarning
from qacal.parameters import MOST, HasParameters, require, shown
from qacal.tally import ids as identity
from qacal.tally.arrays import ArrayLike, Floats, Hashes, Ints, require_length, seven_decimals, unit_values
from qacal.tally.groups import NO_GROUP, GroupColumn, Paths, as_grouping, distinct, object_array
from qacal.tally.tally import DOCUMENTS, Tally

if TYPE_CHECKING:
    import polars as pl

SOURCES = np.array(["group", "ancestor", "root", "band", "far"])
FROM_GROUP, FROM_ANCESTOR, FROM_ROOT, FROM_BAND, FROM_FAR = range(5)


@dataclass(frozen=True)
class Rows:
    """Validated rows to calibrate: `exact` is a confidence or a score, `confidence` the same to seven decimals.

    answer : the score to answer with, if it is another one than the score that finds a row's bin; None if not.
    """

    exact: Floats
    groups: ArrayLike | Paths | None
    tie: Hashes | None
    answer: Floats | None = None
    confidence: Floats = field(init=False)
    # Bins by the maps that found them, and groups by column and depth: several things are asked about the same rows.
    found: dict[Any, Ints] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", seven_decimals(self.exact))

    def leaves(self, fitted: GroupColumn | None, max_depth: int | None = None) -> Ints:
        """Return each row's group in the codes of the fit, `NO_GROUP` for unknown groups."""
        if fitted is None or self.groups is None:
            return np.full(len(self.confidence), NO_GROUP)
        if (fitted, max_depth) not in self.found:
            self.found[fitted, max_depth] = fitted.encode(self._grouping, len(self.confidence)).leaves(max_depth)
        return self.found[fitted, max_depth]

    @cached_property
    def _grouping(self) -> GroupColumn:
        """The groups; calibrators ask for them at several depths."""
        return as_grouping(self.groups, len(self.confidence))


def group_names(codes: Ints, fitted: GroupColumn | None, max_depth: int | None = None) -> list[Any]:
    """Return the names of groups by their codes, None for groups without rows in the fit."""
    if fitted is None:
        return [None] * len(codes)
    names = fitted.names(max_depth)
    if len(codes) <= len(names):
        return list(map(names.get, codes.tolist()))
    used, place = distinct(codes)  # Python sees each group once
    return list(object_array(map(names.get, used.tolist()))[place].tolist())


@dataclass(frozen=True, eq=False)
class Evidence:
    """Each row's probability, and what it rests on.

    confidence : what the LLM stated.
    calibrated : the probability that the answer is correct.
    low, high : the interval; with probability 1 - alpha all intervals hold at once. If `source` is "band", answers with
        a similar score are too high by at most `calibrated - low`, and too low by at most `high - calibrated`, on
        average. Else the accuracy of the answers in the bin is between the two. NaN if the calibrator guarantees
        nothing.
    group : the row's group; None if the calibrator does not know it.
    source : which answers the interval is about. "band": all answers with a similar score or, without a learned score,
        with a similar stated confidence, of any group. Else those of the map that was used: "group", "ancestor" or
        "root"; the last two are larger sets than this group. "far" for a row that is unlike those of the fit, and has
        no interval.
    rows : the number of calibration rows in the bin or band; for curves, those that the curve was fitted on.
    group_low, group_high, group_rows : the accuracy of all answers of the group, whatever their probability, is between
        the two; and the calibration rows behind this. With intervals of "band" only, else NaN and 0.
    alpha : the probability that at least one interval of the fit is wrong; NaN without intervals.
    unlike : the share of the rows of the fit that are nearer to the others than this row; NaN without a score.
    decision, threshold : "answer" or "abstain" after a threshold has been chosen; None and NaN before.
    """

    confidence: Floats
    calibrated: Floats
    low: Floats
    high: Floats
    group: list[Any]
    source: np.ndarray[Any, np.dtype[np.str_]]
    rows: Ints
    group_low: Floats
    group_high: Floats
    group_rows: Ints
    alpha: Floats
    unlike: Floats
    decision: list[str | None]
    threshold: Floats

    @staticmethod
    def of(
        confidence: Floats,
        calibrated: Floats,
        *,
        group: list[Any] | None = None,
        source: Ints | int = FROM_ROOT,
        rows: Ints | int = 0,
        low: Floats | float = np.nan,
        high: Floats | float = np.nan,
        group_low: Floats | float = np.nan,
        group_high: Floats | float = np.nan,
        group_rows: Ints | int = 0,
        alpha: float = np.nan,
    ) -> Evidence:
        """Return evidence from arrays, or from one value for all rows."""
        n = len(confidence)

        def column(values: Any) -> Any:
            return values if isinstance(values, np.ndarray) else np.full(n, values)

        return Evidence(
            confidence=confidence,
            calibrated=calibrated,
            low=column(low),
            high=column(high),
            group=[None] * n if group is None else group,
            source=SOURCES[column(source)],
            rows=column(rows),
            group_low=column(group_low),
            group_high=column(group_high),
            group_rows=column(group_rows),
            alpha=column(alpha),
            unlike=np.full(n, np.nan),
            decision=[None] * n,
            threshold=np.full(n, np.nan),
        )

    def __len__(self) -> int:
        return len(self.calibrated)

    def to_polars(self) -> pl.DataFrame:
        """Return the evidence as a table; missing values are null."""
        import polars as pl

        columns = {}
        for name in (column.name for column in fields(self)):
            values = getattr(self, name)
            if name == "source":
                # Few different texts: polars takes long to convert all of them one by one.
                codes = np.select([values == source for source in SOURCES[1:]], range(1, len(SOURCES)), 0)
                values = pl.Series(SOURCES.tolist()).gather(codes)
            elif isinstance(values, np.ndarray):
                values = pl.Series(values, nan_to_null=True)
            elif name == "decision":
                values = pl.Series(values, dtype=pl.String)
            columns[name] = values
        return pl.DataFrame(columns, strict=False)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the evidence of each row as an object; missing values are None."""
        names = [column.name for column in fields(self)]
        columns = (getattr(self, name) for name in names)
        rows = zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in columns), strict=True)
        # Only NaN differs from itself.
        return [
            {name: value if value == value else None for name, value in zip(names, row, strict=True)} for row in rows
        ]


class Maps(Protocol):
    """The frozen result of a fit: all that prediction needs, and what is saved."""

    def apply(self, rows: Rows) -> Floats:
        """Return the calibrated confidences."""

    def explain(self, rows: Rows) -> Evidence:
        """Return the calibrated confidences with their evidence."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the fit that the maps show."""


@dataclass(frozen=True)
class Properties:
    """What a calibrator guarantees about its maps; the contract test checks it.

    is_monotone : within a group, the output only rises (or only falls) with the confidence.
    keeps_mean : in every group with a map of its own, the mean output on the training rows is the group's accuracy.
    is_discrete : finitely many outputs, fixed by the fit.
    is_certified : `explain` gives intervals that hold all at once with probability 1 - alpha.
    counts_documents : intervals hold even if rows with one id depend on each other.
    """

    is_monotone: bool = False
    keeps_mean: bool = False
    is_discrete: bool = False
    is_certified: bool = False
    uses_groups: bool = False
    counts_documents: bool = False


class Calibrator(HasParameters, ABC):
    """Base of all calibrators: `fit` sets `maps_` and returns self; predicting changes nothing.

    A subclass is a dataclass, and its fields are its hyperparameters.
    """

    maps_: Maps

    @property
    @abstractmethod
    def properties(self) -> Properties:
        """What this calibrator guarantees with these parameters."""

    @abstractmethod
    def _fit_tally(self, tally: Tally) -> Maps:
        """Return the frozen maps for a tally."""

    def _tally_options(self) -> dict[str, Any]:
        """Return the options of `Tally.of` that this calibrator needs."""
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
        """Fit the maps to rows.

        Parameters
        ----------
        confidence : what the LLM stated, in [0, 1]; it is read to seven decimals, here and in `predict`.
        correct : 0/1, or a soft target in [0, 1].
        groups : one label per row, of any type, or :class:`qacal.Paths` of a tree.
        sample_weight : importance of each row; 0 leaves a row out.
        ids : the ids of the questions. They keep all rows of a question in one half, and order equal confidences.
        """
        self._require_parameters()
        confidence = seven_decimals(unit_values(confidence, "confidence"))
        if groups is not None and not self.properties.uses_groups:
            require_length(groups, len(confidence), "groups")
            groups = None
        options = self._tally_options()
        if self.properties.counts_documents and ids is not None:
            options |= {"n_blocks": DOCUMENTS}
        tally = Tally.of(confidence, correct, groups=groups, sample_weight=sample_weight, ids=ids, **options)
        return self._fit(tally)

    def fit_tally(self, tally: Tally) -> Self:
        """Fit the maps to a tally; raise if it was made without the options of `Tally.of` that are needed."""
        self._require_parameters()
        return self._fit(tally)

    def _fit(self, tally: Tally) -> Self:
        relevant = self._relevant(tally)
        if self.properties.is_certified and tally.is_clustered and not self._counts_documents(tally):
            message = (
                "some ids have several rows (the answers of several LLMs, perhaps). Intervals assume independent rows, "
                "so these are too narrow; keep one row per question, or do not rely on low and high."
            )
            # Shown at the line that called fit or fit_tally.
            warnings.warn(message, RepeatedQuestionsWarning, stacklevel=3)
        self.maps_ = self._fit_tally(relevant)
        return self

    def _counts_documents(self, tally: Tally) -> bool:
        """Return whether rows of one id are counted as one document: not with weights, which belong to rows."""
        return self.properties.counts_documents and tally.is_by_document and not tally.is_weighted

    def _require_parameters(self) -> None:
        """Refuse lists, arrays and objects: a parameter is a number, a word, True, False or None."""
        for name, value in self.get_params().items():
            is_too_large = isinstance(value, int) and abs(value) > MOST
            if is_too_large or not (value is None or isinstance(value, str | int | float | np.generic)):
                raise InputError(f"{name} is {shown(value)}, a {type(value).__name__}; expected a number or a word.")

    def _relevant(self, tally: Tally) -> Tally:
        """Refuse a tally that lacks what this calibrator needs; drop what it does not need."""
        needed = self._tally_options()
        if not isinstance(tally, Tally):
            got = type(tally).__name__
            raise InputError(f"fit_tally takes a Tally and got {got}; see Tally.of and Tally.from_polars.")
        if self.properties.uses_groups and len(tally.partitions) > 1:
            names = list(tally.partitions)
            raise InputError(f"groups holds the columns {names}; give one, or join them into one label per row.")
        if needed.get("ties") and tally.tie is None:
            raise InputError('ties="jitter" needs a tally that keeps ties: Tally.of(..., ids=ids, ties=True).')
        if tally.n_blocks % needed.get("n_blocks", 1) or tally.seed != needed.get("seed", tally.seed):
            call = f"Tally.of(..., ids=ids, n_blocks={needed['n_blocks']}, seed={needed['seed']})"
            raise InputError(f"this calibrator splits the rows, and needs a tally with such blocks: {call}.")
        if not self.properties.uses_groups:
            tally = tally.pooled()
        if not needed.get("ties"):
            tally = tally.without_ties()
        if needed.get("n_blocks", 1) == 1 and not self._counts_documents(tally):
            tally = tally.without_blocks()
        resolution = needed.get("resolution")
        return tally.to_seven_decimals() if resolution is None else tally.snapped(resolution)

    def predict(
        self, confidence: ArrayLike, *, groups: ArrayLike | Paths | None = None, ids: ArrayLike | None = None
    ) -> Floats:
        """Return the calibrated confidence of each row; rows of unknown groups get the root's."""
        return self._fitted_maps().apply(self._checked_rows(confidence, groups, ids))

    def explain(
        self, confidence: ArrayLike, *, groups: ArrayLike | Paths | None = None, ids: ArrayLike | None = None
    ) -> Evidence:
        """Return the calibrated confidence of each row with the evidence behind it."""
        return self._fitted_maps().explain(self._checked_rows(confidence, groups, ids))

    def predict_tally(self, tally: Tally) -> Floats:
        """Return the calibrated confidence of each cell of a tally."""
        groups = tally.grouping if self.properties.uses_groups else None
        return self._fitted_maps().apply(Rows(tally.confidence, groups, tally.tie))

    def _fitted_maps(self) -> Maps:
        """Return `maps_`; raise `NotFittedError` before `fit`."""
        if not hasattr(self, "maps_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")
        return self.maps_

    def _validate(self) -> None:
        """Raise `InputError` if no fit with these parameters can have made `maps_`, which may come from a file."""
        for name, fitted in self.maps_.parameters().items():
            own = getattr(self, name, fitted)
            # A tally may have a grid that the calibrator did not ask for.
            is_same = own == fitted or (name == "resolution" and own is None)
            require(is_same, f"{name} is {own!r}, and the maps were fitted with {fitted!r}; fit again.")
        has_groups = getattr(self.maps_, "grouping", None) is not None
        require(self.properties.uses_groups or not has_groups, "the maps have groups, which this calibrator ignores.")

    def _checked_rows(self, confidence: ArrayLike, groups: ArrayLike | Paths | None, ids: ArrayLike | None) -> Rows:
        h = unit_values(confidence, "confidence")
        if groups is not None:
            require_length(groups, len(h), "groups")
        return self._rows(h, groups, ids)

    def _rows(
        self,
        confidence: Floats,
        groups: ArrayLike | Paths | None,
        ids: ArrayLike | None,
        answer: Floats | None = None,
    ) -> Rows:
        """Return rows that are known to be valid in the form that maps take, without what this calibrator ignores."""
        tie = None
        if ids is not None and self._tally_options().get("ties"):
            tie = identity.as_tie(identity.id_hashes(ids, len(confidence)))
        # -0.0 equals 0.0 but has other bits.
        return Rows(confidence + 0.0, groups if self.properties.uses_groups else None, tie, answer)


# Logits

Feature: TypeAlias = Literal["confidence", "logit"]

# A stated 1.0 has an infinite logit. Cut off here it is 6.9: far from the middle, but a single one does not decide the
# slope.
LOGIT_CUT = 1e-3


def feature_values(confidence: Floats, feature: Feature) -> Floats:
    """Return the feature of the regression: the confidence, as in the paper, or its logit.

    >>> feature_values(np.array([0.5, 1.0]), "logit").round(3)
    array([0.   , 6.907])
    """
    if feature == "confidence":
        return confidence
    if feature == "logit":
        inside = np.minimum(np.maximum(confidence, LOGIT_CUT), 1 - LOGIT_CUT)
        return np.asarray(np.log(inside / (1 - inside)))
    raise InputError(f'feature is {feature!r}; expected "confidence" or "logit".')


def expit(eta: Floats) -> Floats:
    """Return 1 / (1 + exp(-eta)), for eta of any size, with numpy only: applying fitted curves does not need scipy.

    >>> expit(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    decay = np.exp(-np.abs(eta))
    return np.asarray(np.where(eta >= 0, 1.0, decay) / (1.0 + decay))
