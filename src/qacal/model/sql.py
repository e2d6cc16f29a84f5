"""Export fitted maps as one SQL expression, to calibrate in a database."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from qacal.calibrators.base import LOGIT_CUT, Calibrator, Feature, expit, feature_values
from qacal.calibrators.curves import IsotonicCurve, LogisticMap
from qacal.calibrators.hierarchical import LogisticMaps
from qacal.calibrators.identity import IdentityMap
from qacal.calibrators.isotonic import IsotonicMaps
from qacal.calibrators.maps import BinMaps
from qacal.calibrators.margins import MarginMaps
from qacal.calibrators.tree_scaling import TreeMaps
from qacal.errors import InputError
from qacal.model.export import Entry, edges_of, entries_of, exportable_maps
from qacal.tally.arrays import Floats, seven_decimals
from qacal.tally.cells import last_read_as
from qacal.tally.sql import (
    as_double,
    case,
    column,
    dialect_of,
    exp,
    is_probability,
    literal,
    number,
    quotient,
    written,
)

Branches = list[tuple[exp.Expr, exp.Expr]]

# PostgreSQL refuses an exp that overflows or underflows; a curve is 0 or 1 to 300 digits long before.
_STEEPEST = 700.0


def to_sql(calibrator: Calibrator, *, dialect: str, confidence: str = "confidence", group: str = "group_id") -> str:
    """Return the maps as one SQL expression for the calibrated confidence.

    Put it wherever a value may stand: ``SELECT question, (...) AS calibrated FROM answers``. Bins give exactly what
    `predict` gives, in columns of 32 and of 64 bits. Curves do so, up to the rounding of the database, for confidences
    of up to seven decimals; others may be read as a neighbour, 0.0000001 away. A group that is NULL or unknown reads
    the root's map. A confidence that is NULL or not in [0, 1] gives NULL: 85 is not guessed to be a percentage.
    The result is a double; for `Identity` it has the type of the column.

    dialect : "bigquery", "duckdb", "postgres", "snowflake", "spark" or "sqlite".
    confidence, group : the columns. Groups are labels as in the fit, all of one type; for a tree, the numbers that
        calibrated rows have in `group` (those of the depth in use), NULL or -1 for none. A row outside of
        all boxes of a kd-tree has none: `TreeScaling` reads its last ancestor's curve, SQL the root's.

    Examples
    --------
    >>> from qacal import QABinning
    >>> right = np.repeat([1, 0, 1, 0], [65, 35, 95, 5])
    >>> model = QABinning().fit(np.full(200, 0.8), right, groups=np.repeat(["law", "physics"], 100))
    >>> print(to_sql(model, dialect="postgres", group="subject"))
    CAST(CASE
      WHEN "confidence" >= 0 AND "confidence" <= 1
      THEN CASE WHEN "subject" = 'law' THEN 0.65e0 WHEN "subject" = 'physics' THEN 0.95e0 ELSE 0.8e0 END
    END AS DOUBLE PRECISION)
    """
    maps, language = exportable_maps(calibrator), dialect_of(dialect)
    stated, of_group = column(confidence, language), column(group, language)
    margins = maps if isinstance(maps, MarginMaps) else None
    if isinstance(maps, MarginMaps):
        assert maps.curves is not None
        maps = maps.curves
    if isinstance(maps, IdentityMap):
        return written(case([(is_probability(stated), stated.copy())], None), language)
    if isinstance(maps, LogisticMap):
        value = _curve(maps.intercept, maps.slope, maps.feature, stated)
    elif isinstance(maps, TreeMaps) and maps.shape is not None:
        value = _shaped(maps, maps.shape, stated, of_group)
    else:
        value = _by_group(entries_of(maps), of_group, _formula(maps, stated))
    if margins is not None and margins.shift.any():
        edges = edges_of(margins.cells)
        plus, times = (_steps(edges[: len(line) - 1], line, stated) for line in margins.moves)
        value = _line(plus, times, exp.paren(value))
    # PostgreSQL takes 0.65e0 for NUMERIC: without a cast the type would depend on the model and on the column.
    return written(as_double(case([(is_probability(stated), value)], None)), language)


def _by_group(entries: list[Entry], group: exp.Column, value: Callable[[int], exp.Expr]) -> exp.Expr:
    """Return the value of the map that a row's group uses."""
    types = sorted({type(label).__name__ for entry in entries for label in entry.labels})
    if len(types) > 1 and types != ["float", "int"]:
        raise InputError(
            f"the groups are {' and '.join(types)}; a column has one type. Convert them to text, fit again."
        )
    users = [(entry.number, _uses(entry, group)) for entry in entries[1:] if entry.labels or entry.leaves]
    return case([(condition, value(at)) for at, condition in users], value(0))


def _uses(entry: Entry, group: exp.Column) -> exp.Expr:
    """Return the condition for rows that use a map."""
    single = [*map(literal, entry.labels), *(literal(first) for first, last in entry.leaves if first == last)]
    parts: list[exp.Expr] = [
        exp.Between(this=group.copy(), low=literal(first), high=literal(last))
        for first, last in entry.leaves
        if first < last
    ]
    if len(single) == 1:
        parts.append(exp.EQ(this=group.copy(), expression=single[0]))
    elif single:
        parts.append(exp.In(this=group.copy(), expressions=single))
    return exp.or_(*parts, copy=False)


def _formula(maps: BinMaps | IsotonicMaps | LogisticMaps | TreeMaps, stated: exp.Column) -> Callable[[int], exp.Expr]:
    """Return the function that writes a map, by its number, as SQL."""
    if isinstance(maps, BinMaps | IsotonicMaps):
        parts = [slice(first, last) for first, last in pairwise(maps.offset.tolist())]
        if isinstance(maps, IsotonicMaps):
            return lambda number: _lines(maps.x[parts[number]], maps.y[parts[number]], stated)
        edges = edges_of(maps)
        return lambda number: _steps(edges[parts[number]][:-1], maps.value[parts[number]], stated)
    feature: Feature = "logit" if maps.feature == "logit" else "confidence"
    return lambda number: _curve(maps.intercept[number], maps.slope[number], feature, stated)


def _steps(edges: Floats, values: Floats, stated: exp.Column) -> exp.Expr:
    """Return the value of the first edge that a confidence does not exceed; the last value is for the others."""
    branches = [(_is_up_to(edge, stated), number(value)) for edge, value in zip(edges, values[:-1], strict=True)]
    return case(branches, number(values[-1]))


def _lines(x: Floats, y: Floats, stated: exp.Column) -> exp.Expr:
    """Return straight lines between knots, level outside of them."""
    edges = last_read_as(x, seven_decimals)
    branches: Branches = [(_is_up_to(edges[0], stated), number(y[0]))]
    for left in range(len(x) - 1):
        width, height = x[left + 1] - x[left], y[left + 1] - y[left]
        value: exp.Expr = number(y[left])
        if height > 0:
            share = quotient(exp.paren(_read(stated) - number(x[left])), number(width))
            value = _line(value, share, number(height))
        branches.append((_is_up_to(edges[left + 1], stated), value))
    return case(branches, number(y[-1]))


def _shaped(maps: TreeMaps, shape: IsotonicCurve, stated: exp.Column, group: exp.Column) -> exp.Expr:
    """Return the curves on a common shape: the shape is written once, and not once for every group."""
    entries = entries_of(maps)
    intercept = _by_group(entries, group, lambda at: number(maps.intercept[at]))
    slope = _by_group(entries, group, lambda at: number(maps.slope[at]))
    ends = maps.intercept[:, None] + maps.slope[:, None] * shape.score[[0, -1]]
    line = _line(intercept, slope, _lines(shape.confidence, shape.score, stated))
    return _logistic(line, float(np.abs(ends).max()), [])


def _curve(intercept: float, slope: float, feature: Feature, stated: exp.Column) -> exp.Expr:
    """Return a logistic curve. Where it is so steep that exp might overflow, its ends are written as 0 and 1."""
    ends = feature_values(np.array([0.0, 1.0]), feature)
    x, branches = _read(stated), Branches()
    if feature == "logit":
        x = exp.Ln(this=quotient(x, exp.paren(number(1) - x)))
        low, high = (number(value) for value in expit(intercept + slope * ends))
        is_high = exp.GTE(this=stated.copy(), expression=number(1 - LOGIT_CUT))
        branches = [(_is_up_to(LOGIT_CUT, stated), low), (is_high, high)]
    line = _line(number(intercept), number(slope), x)
    return _logistic(line, float(np.abs(intercept + slope * ends).max()), branches)


def _read(stated: exp.Column) -> exp.Expr:
    """Return a confidence to seven decimals; if it has more, it may differ by 0.0000001 from what `predict` reads."""
    return exp.paren(quotient(exp.Round(this=stated * number(1e7)), number(1e7)))


def _logistic(line: exp.Expr, largest: float, branches: Branches) -> exp.Expr:
    if largest > _STEEPEST:
        for bound, end in ((exp.GT, 1), (exp.LT, 0)):
            edge = number(_STEEPEST if end else -_STEEPEST)
            branches = [*branches, (bound(this=line.copy(), expression=edge), number(end))]
    return case(branches, quotient(number(1), exp.paren(number(1) + exp.Exp(this=exp.Neg(this=exp.paren(line))))))


def _line(intercept: exp.Expr, slope: exp.Expr, x: exp.Expr) -> exp.Expr:
    return exp.Add(this=intercept, expression=exp.Mul(this=slope, expression=x))


def _is_up_to(edge: float, stated: exp.Column) -> exp.Expr:
    return exp.LTE(this=stated.copy(), expression=number(edge))
