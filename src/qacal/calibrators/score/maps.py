r"""A fitted score: the pooled map, and what texts and columns change about it.

.. math:: \mathrm{logit}\,s = b_0 + b_1 c + u(z) + v(z)\,c + \sum_g (U_g + V_g c), \qquad c = x(h) - \bar x,

:math:`x(h)` being the pooled logit, :math:`u, v` smooth functions of the embedding, and the sum going over the values
of a row's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qacal.calibrators.platt import LOGIT_CUT, expit
from qacal.calibrators.score.effects import FIXED, EffectsFit, fit_effects
from qacal.calibrators.score.kernel import Kernel
from qacal.calibrators.score.pooled import PooledMap
from qacal.partitions import EMBEDDING
from qacal.storage import require, require_between, require_columns
from qacal.tally.arrays import Floats, Ints, require_length
from qacal.tally.groups import as_labels, kinds_of, require_common_kind

# How a confidence counts changes more slowly over texts than how often answers are right.
_SLOPES = 48

# Where the search for variances starts: at values found on the LLMs that this was developed with.
_START = {"text": 0.4, "text_slopes": 0.2, "shifts": 0.1, "level_slopes": 0.05}

# Values beyond the most frequent ones have no effects of their own: they would be a row or two each.
_MOST_LEVELS = 256
NO_LEVEL = -1


@dataclass(frozen=True, eq=False)
class Levels:
    """Values of columns that have effects: tenant, language, topic. Crossed: a row has one value of each column.

    names : of the columns.
    labels, column : the values, and which column each belongs to.
    """

    names: tuple[Any, ...]
    labels: tuple[Any, ...]
    column: Ints

    def __len__(self) -> int:
        return len(self.labels)

    def codes(self, columns: Mapping[str, Any]) -> Ints:
        """Return the place of each row's values, a column for each column; `NO_LEVEL` for values without effects."""
        codes = []
        for at, name in enumerate(self.names):
            known = {self.labels[place]: place for place in np.flatnonzero(self.column == at).tolist()}
            values = as_labels(columns[name], name).tolist()
            # Files disagree on numbers and text: without its effects, a row would get another score unnoticed.
            require_common_kind(kinds_of(values), kinds_of(known), name)
            codes.append(np.fromiter((known.get(value, NO_LEVEL) for value in values), np.int64, len(values)))
        return np.column_stack(codes)

    def validate(self) -> None:
        require(all(isinstance(name, str) for name in self.names), "the columns of a score have names.")
        require_columns(len(self.labels), column=self.column)
        require(len(self.labels) > 0, "the columns of a score have no values.")
        require_between(0, len(self.names) - 1, column=self.column)
        known = set(zip(self.column.tolist(), self.labels, strict=True))
        require(len(known) == len(self.labels), "a column of a score has a value twice.")


def find_levels(columns: Mapping[str, Any]) -> Levels | None:
    """Return the values with effects; None if there are no columns, or none of them has two values."""
    labels: list[Any] = []
    owners: list[int] = []
    for at, (name, values) in enumerate(columns.items()):
        counts = Counter(as_labels(values, name).tolist())
        del counts[None]
        # In an order that does not depend on that of the rows.
        frequent = sorted(counts, key=lambda label: (-counts[label], str(type(label)), str(label)))[:_MOST_LEVELS]
        if len(frequent) > 1:
            labels += frequent
            owners += [at] * len(frequent)
    return Levels(tuple(columns), tuple(labels), np.array(owners, dtype=np.int64)) if labels else None


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """The inputs of a score.

    confidences : a column for each, NaN where one is missing.
    coordinates : of the texts in a kernel; None without texts.
    codes : of the values of the columns; None without columns.
    """

    confidences: Floats
    coordinates: Floats | None = None
    codes: Ints | None = None

    def only(self, keep: Any) -> ScoreInputs:
        return ScoreInputs(
            self.confidences[keep],
            None if self.coordinates is None else self.coordinates[keep],
            None if self.codes is None else self.codes[keep],
        )


@dataclass(frozen=True, eq=False)
class ScoreMaps:
    """A fitted score.

    centre : of the pooled logits.
    fixed : :math:`b_0` and :math:`b_1`; empty if nothing changes the pooled map.
    text, text_slopes, shifts, level_slopes : the coefficients of :math:`u, v, U, V`.
    """

    pooled: PooledMap
    kernel: Kernel | None
    levels: Levels | None
    centre: float
    fixed: Floats
    text: Floats
    text_slopes: Floats
    shifts: Floats
    level_slopes: Floats

    def rows(self, confidences: Floats, vectors: Any, columns: Mapping[str, Any]) -> ScoreInputs:
        """Return rows as the maps read them."""
        for name, column in columns.items():
            require_length(column, len(confidences), name)
        coordinates = None if self.kernel is None else self.kernel.coordinates(vectors)
        if coordinates is not None:
            require_length(coordinates, len(confidences), EMBEDDING)
        codes = None if self.levels is None else self.levels.codes(columns)
        return ScoreInputs(confidences[:, : self.pooled.n_confidences], coordinates, codes)

    def apply(self, rows: ScoreInputs) -> Floats:
        """Return the score of each row."""
        if not len(self.fixed):
            if self.pooled.kind == "stated" and self.pooled.n_confidences == 1:
                # A single wrong answer at 1.0 would cost more than a curve can gain.
                return np.clip(rows.confidences[:, 0], LOGIT_CUT, 1 - LOGIT_CUT)
            return expit(self.pooled.logits(rows.confidences))
        c = self.pooled.logits(rows.confidences) - self.centre
        shift, slope = np.full(len(c), self.fixed[0]), np.full(len(c), self.fixed[1])
        if rows.coordinates is not None:
            shift += rows.coordinates @ self.text
            slope += rows.coordinates[:, : len(self.text_slopes)] @ self.text_slopes
        if rows.codes is not None:
            shift += np.append(self.shifts, 0.0)[rows.codes].sum(axis=1)
            slope += np.append(self.level_slopes, 0.0)[rows.codes].sum(axis=1)
        return expit(shift + slope * c)

    def validate(self) -> None:
        self.pooled.validate()
        if self.kernel is not None:
            self.kernel.validate()
        if self.levels is not None:
            self.levels.validate()
        has_effects = self.kernel is not None or self.levels is not None
        require_columns(2 if has_effects else 0, fixed=self.fixed)
        width, count = 0 if self.kernel is None else self.kernel.width, 0 if self.levels is None else len(self.levels)
        require_columns(width, text=self.text)
        require_columns(min(width, _SLOPES), text_slopes=self.text_slopes)
        require_columns(count, shifts=self.shifts, level_slopes=self.level_slopes)
        columns = self.fixed, self.text, self.text_slopes, self.shifts, self.level_slopes
        for column in (*columns, np.array([self.centre])):
            # Products of these with logits and coordinates must stay finite.
            require_between(-1e50, 1e50, effects=column)


def pooled_maps(pooled: PooledMap) -> ScoreMaps:
    """Return the score that is the pooled map alone."""
    none = np.empty(0)
    return ScoreMaps(pooled, None, None, 0.0, none, none, none, none, none)


def fit_maps(
    pooled: PooledMap,
    rows: ScoreInputs,
    correct: Floats,
    *,
    kernel: Kernel | None,
    levels: Levels | None,
    start: EffectsFit | None = None,
) -> tuple[ScoreMaps, EffectsFit]:
    """Return the effects of texts and columns on a pooled map, and their fit; it begins at `start`, an earlier one."""
    logits = pooled.logits(rows.confidences)
    centre = float(logits.mean())
    design = _Design.of(logits - centre, rows, levels)
    if start is None:
        at = np.zeros(design.X.shape[1])
        at[:2] = centre, 1.0
        fit = fit_effects(design.X, correct, design.block, start=at, variances=design.start)
    else:
        fit = fit_effects(design.X, correct, design.block, start=start.coefficients, variances=start.variances)
    parts = dict(zip(design.names, np.split(fit.coefficients, design.ends[:-1]), strict=True))
    effects = {name: parts.get(name, np.empty(0)) for name in _START}
    return ScoreMaps(pooled, kernel, levels, centre, parts["fixed"], **effects), fit


@dataclass(frozen=True, eq=False)
class _Design:
    """The columns of a regression; `names` are those of its parts, which end at `ends`."""

    X: Floats
    block: Ints
    names: list[str]
    ends: list[int]
    start: Floats

    @staticmethod
    def of(c: Floats, rows: ScoreInputs, levels: Levels | None) -> _Design:
        parts = {"fixed": np.column_stack([np.ones_like(c), c])}
        blocks = {"fixed": np.full(2, FIXED)}
        starts: list[float] = []
        if rows.coordinates is not None:
            parts["text"] = rows.coordinates
            parts["text_slopes"] = rows.coordinates[:, :_SLOPES] * c[:, None]
            for name in ("text", "text_slopes"):
                blocks[name] = np.full(parts[name].shape[1], len(starts))
                starts.append(_START[name])
        if rows.codes is not None and levels is not None:
            indicators = np.zeros((len(c), len(levels) + 1))
            for column in rows.codes.T:
                indicators[np.arange(len(c)), column] = 1.0  # the last serves NO_LEVEL, which is -1
            parts["shifts"] = indicators[:, :-1]
            parts["level_slopes"] = parts["shifts"] * c[:, None]
            for name in ("shifts", "level_slopes"):
                # Each column has variances of its own: tenants may differ much and languages little.
                blocks[name] = levels.column + len(starts)
                starts += [_START[name]] * len(levels.names)
        ends = np.cumsum([part.shape[1] for part in parts.values()]).tolist()
        block = np.concatenate(list(blocks.values())).astype(np.int64)
        return _Design(np.hstack(list(parts.values())), block, list(parts), ends, np.array(starts))
