"""Counting in a warehouse: the SELECT that makes a tally, and the words of SQL that exported models use, too.

Expressions are built once; sqlglot writes them in a dialect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from qacal.errors import InputError, missing_package
from qacal.parameters import shown
from qacal.tally.cells import last_read_as, snap

try:
    from sqlglot import Dialect, parse, parse_one
    from sqlglot import exp as exp  # for model/sql.py, too
    from sqlglot.dialects.dialect import NormalizationStrategy
    from sqlglot.errors import SqlglotError
except ModuleNotFoundError as error:
    raise missing_package("sqlglot", "sql") from error

DIALECTS = ("bigquery", "duckdb", "postgres", "snowflake", "spark", "sqlite")

# PostgreSQL has no NUL in a text, and no encoding has half of a surrogate pair.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")

_SIMPLE_NAME = re.compile("[a-z_][a-z0-9_]*")

# A finer grid is a longer query: each of its points is a line.
_MOST_STEPS = 1000


def dialect_of(name: str) -> Dialect:
    """Return a dialect of sqlglot; raise if it is none of those that qacal is tested with."""
    if name not in DIALECTS:
        raise InputError(f"dialect is {shown(name)}; expected one of {', '.join(DIALECTS)}.")
    dialect = Dialect.get_or_raise(name)
    if name == "sqlite":
        # In double quotes, SQLite reads the name of a column that does not exist as a text.
        dialect.IDENTIFIER_START = dialect.IDENTIFIER_END = "`"
    return dialect


def written(expression: exp.Expr, dialect: Dialect) -> str:
    """Return an expression as text."""
    return expression.sql(dialect, pretty=True, copy=False)


def column(name: str, dialect: Dialect) -> exp.Column:
    """Return a column. Names are always quoted, so that none is a reserved word.

    A name of lower-case letters, digits and underscores means what it means without quotes: in Snowflake, upper case.

    >>> dialects = [dialect_of(name) for name in ("duckdb", "spark", "snowflake")]
    >>> for name in ("group", 'the "x" column'):
    ...     print(*(written(column(name, dialect), dialect) for dialect in dialects))
    "group" `group` "GROUP"
    "the ""x"" column" `the "x" column` "the ""x"" column"
    """
    if not isinstance(name, str) or not name or _NOT_TEXT.search(name):
        raise InputError(f"{name!r} is not the name of a column; give it as text.")
    is_upper = dialect.NORMALIZATION_STRATEGY is NormalizationStrategy.UPPERCASE
    return _exact(name.upper() if is_upper and _SIMPLE_NAME.fullmatch(name) else name)


def number(value: float) -> exp.Literal:
    """Return a floating-point number, to its last digit.

    With an exponent, always: DuckDB and Spark take 0.8 for a decimal and 0.8e0 for a double.

    >>> number(0.8).sql(), number(1e-5).sql(), number(1).sql()
    ('0.8e0', '1e-05', '1.0e0')
    """
    text = repr(float(value))
    return exp.Literal(this=text if "e" in text else f"{text}e0", is_string=False)


def literal(label: Any) -> exp.Expr:
    """Return the label of a group.

    >>> [literal(label).sql() for label in ("O'Hara", 7, -7, True, 2.5)]
    ["'O''Hara'", '7', '-7', 'TRUE', '2.5e0']
    """
    if isinstance(label, bool):
        return exp.Boolean(this=label)
    if isinstance(label, int):
        return exp.Literal(this=str(label), is_string=False)
    if isinstance(label, float) and math.isfinite(label):
        return number(label)
    if not isinstance(label, str) or _NOT_TEXT.search(label):
        raise InputError(f"the group {label!r} has no equal in SQL; convert groups to text before fitting.")
    return exp.Literal(this=label, is_string=True)


def case(branches: Sequence[tuple[exp.Expr, exp.Expr]], otherwise: exp.Expr | None) -> exp.Expr:
    """Return the first value whose condition is true; without branches the last resort alone.

    >>> case([(exp.column("a") <= number(0.5), number(0.1))], number(0.9)).sql()
    'CASE WHEN a <= 0.5e0 THEN 0.1e0 ELSE 0.9e0 END'
    """
    if not branches:
        return exp.Null() if otherwise is None else otherwise
    ifs = [exp.If(this=condition, true=value) for condition, value in branches]
    return exp.Case(ifs=ifs, default=otherwise)


def quotient(value: exp.Expr, divisor: exp.Expr) -> exp.Div:
    """Return a division as the database does it; sqlglot would cast whatever may be a whole number."""
    return exp.Div(this=value, expression=divisor, typed=True)


def as_double(value: exp.Expr) -> exp.Cast:
    """Return a cast to floats of 64 bits, whatever the dialect calls them."""
    return exp.Cast(this=value, to=exp.DataType.build("double"))


def is_probability(value: exp.Column) -> exp.Expr:
    """Return the condition that a value is from 0 to 1: NULL and NaN are not."""
    zero, one = exp.Literal.number(0), exp.Literal.number(1)
    return exp.And(this=exp.GTE(this=value.copy(), expression=zero), expression=exp.LTE(this=value, expression=one))


# The tally

# If a label or a weight is impossible, a sum is NULL, and the reader of the cells refuses it.
_SUMS = {
    "rows": "COUNT(*)",
    "w": "COUNT(*)",
    "wt": "CASE WHEN COUNT(target) = COUNT(*) AND MIN(target) >= 0 AND MAX(target) <= 1 THEN SUM(target) END",
    "wtt": "SUM(target * target)",
    "ww": "COUNT(*)",
    "wwt": "SUM(target)",
    "wwtt": "SUM(target * target)",
}
_WEIGHTED_SUMS = {
    "rows": "COUNT(*)",
    "w": "CASE WHEN COUNT(weight) = COUNT(*) AND MIN(weight) >= 1e-100 AND MAX(weight) <= 1e100 THEN SUM(weight) END",
    "wt": _SUMS["wt"].replace("SUM(target)", "SUM(weight * target)"),
    "wtt": "SUM(weight * target * target)",
    "ww": "SUM(weight * weight)",
    "wwt": "SUM(weight * weight * target)",
    "wwtt": "SUM(weight * weight * target * target)",
}
_ROWS = "qacal_rows"
_REPEATS_IDS = "CASE WHEN COUNT(id) = COUNT(*) THEN COUNT(DISTINCT id) < COUNT(*) END"


def tally_sql(
    table: str,
    *,
    dialect: str,
    confidence: str,
    correct: str,
    groups: str | Sequence[str] | None,
    sample_weight: str | None,
    ids: str | None,
    resolution: float | None,
) -> str:
    """Return the SELECT of :meth:`qacal.Tally.sql`."""
    language = dialect_of(dialect)
    names = [groups] if isinstance(groups, str) else groups or []
    if not isinstance(names, list | tuple):
        raise InputError(f"groups is {shown(groups)}; expected the name of a column, or a list of names.")
    stated, label = column(confidence, language), column(correct, language)
    values: dict[str, exp.Expr] = {f"{name}:label": column(name, language) for name in names}
    values["confidence"] = stated if resolution is None else _snapped(stated, resolution)
    values["target"] = _as_number(label, language)
    conditions: list[exp.Expr] = [label.is_(exp.Null()).not_()]
    if sample_weight is not None:
        weight = column(sample_weight, language)
        values["weight"] = _as_number(weight, language)
        # A missing weight stays, to be refused by the reader.
        conditions.append(exp.or_(weight.is_(exp.Null()), weight.neq(0)))
    if ids is not None:
        values["id"] = column(ids, language)
    rows = exp.select(*_named(values)).from_(_source(table, language)).where(*conditions)
    keys = [_exact(name) for name in (*(f"{name}:label" for name in names), "confidence")]
    sums = _SUMS if sample_weight is None else _WEIGHTED_SUMS
    cells = {name: _parsed(text) for name, text in sums.items()} | {
        "n_blocks": exp.Literal.number(1),
        "seed": exp.Literal.number(0),
        "is_clustered": exp.false() if ids is None else exp.select(_parsed(_REPEATS_IDS)).from_(_ROWS).subquery(),
        "is_sum": exp.false(),
        "resolution": as_double(exp.Null() if resolution is None else number(resolution)),
    }
    query = exp.select(*keys, *_named(cells)).from_(_ROWS).group_by(*keys)
    return written(query.with_(_ROWS, as_=rows), language)


def _source(table: str, dialect: Dialect) -> exp.Expr:
    """Return what stands after FROM: a table, a function that reads one, or a SELECT in brackets."""
    try:
        try:
            return parse_one(table, into=exp.Table, dialect=dialect)
        except SqlglotError:
            (query,) = parse(table, dialect=dialect)
            if isinstance(query, exp.Subquery):
                query = query.this
            if isinstance(query, exp.Query):
                return query.subquery("answers")
    except (SqlglotError, ValueError, TypeError, AttributeError):
        pass
    raise InputError(f"table is {shown(table)}; expected the name of a table, or a SELECT.")


def _snapped(stated: exp.Column, resolution: float) -> exp.Expr:
    """Return the confidence on a grid.

    Databases round halves, and shorter floats, in their own ways. So only numbers that are clearly nearest to a point
    are rounded; for those about halfway between two points, bisection finds the last number of each point.
    """
    snap(np.zeros(1), resolution)  # refuses what is no grid
    steps = round(1 / resolution)
    if steps > _MOST_STEPS:
        raise InputError(
            f"resolution is {shown(resolution)}; in SQL, expected {1 / _MOST_STEPS:g} or more. Leave it out, and "
            "round the tally: Tally.from_polars(...).snapped(resolution)."
        )
    grid = snap(np.linspace(0, 1, steps + 1), resolution)
    ends = last_read_as(grid, lambda h: snap(h, resolution))

    def within(first: int, last: int) -> exp.Expr:
        if first == last:
            return number(grid[first])
        middle = (first + last) // 2
        is_lower = exp.LTE(this=stated.copy(), expression=number(ends[middle]))
        return case([(is_lower, within(first, middle))], within(middle + 1, last))

    scaled = as_double(stated.copy()) * number(steps)
    nearest = exp.Round(this=scaled)
    # Seven decimals of a 32-bit float move a number by 1.1e-7 at most.
    is_clear = exp.LT(this=exp.Abs(this=scaled - nearest), expression=number(0.5 - 2e-7 * steps))
    rounded = case([(is_clear, quotient(nearest, number(steps)))], within(0, steps))
    return as_double(case([(is_probability(stated), rounded)], stated.copy()))


def _as_number(value: exp.Column, dialect: Dialect) -> exp.Expr:
    """Return a column of numbers or booleans as a double."""
    name = type(dialect).__name__.lower()
    if name == "sqlite":  # has no booleans, and casts any text to 0
        return value
    if name in ("duckdb", "spark"):
        return as_double(value)
    # The others do not cast a boolean to a double.
    text = exp.Cast(this=value, to=exp.DataType.build("text"))
    words = {"true": 1.0, "false": 0.0}
    ifs = [exp.If(this=literal(word), true=number(meaning)) for word, meaning in words.items()]
    return exp.Case(this=text, ifs=ifs, default=as_double(text.copy()))


def _parsed(text: str) -> exp.Expr:
    """Return an expression on columns of ours, whose names are then quoted."""
    expression = parse_one(text)
    for identifier in expression.find_all(exp.Identifier):
        identifier.set("quoted", True)
    return expression


def _named(values: dict[str, Any]) -> list[exp.Expr]:
    return [exp.alias_(value, name, quoted=True) for name, value in values.items()]


def _exact(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))
