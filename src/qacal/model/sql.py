"""The words of SQL: numbers, text, names and CASE, as PostgreSQL, SQLite and DuckDB all read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from qacal.errors import InputError

# A line break, or a text or a name in quotes, whose own line breaks must stay as they are.
_BREAK_OR_QUOTED = re.compile(r"""\n|'[^']*'|["][^"]*["]""")

# PostgreSQL has no NUL in a text, and no encoding has half of a surrogate pair.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")

_SIMPLE_NAME = re.compile(r"[a-z_][a-z0-9_]*")

# What one of the three keeps for itself. A simple name is quoted only if it is among these: SQLite takes a quoted name
# that no column has for a text, and a misspelt column must not pass as one.
_RESERVED_WORDS = """
    abort action add all alter always analyse analyze and anti any array as asc asof asymmetric at attach
    authorization autoincrement before begin between binary both by cascade case cast check collate collation column
    columns commit concurrently conflict constraint create cross current current_catalog current_date current_role
    current_schema current_time current_timestamp current_user database default deferrable deferred delete desc
    describe detach distinct do drop each else end escape except exclusive exists explain fail false fetch filter for
    foreign freeze from full generated glob grant group groups having if ignore ilike immediate in index indexed
    initially inner insert instead intersect into is isnull join key lambda lateral lead leading left like limit
    localtime localtimestamp map match materialized natural no not nothing notnull null of offset on only or order
    outer over overlaps pivot pivot_longer pivot_wider placing plan positional pragma primary qualify query raise
    recursive references regexp reindex release rename replace restrict returning right rollback row rows savepoint
    select semi session_user set show similar some struct summarize symmetric system_user table tablesample temp
    temporary then to trailing transaction trigger true try_cast tuple union unique unpack unpivot update user using
    vacuum values variadic verbose view virtual when where window with without
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


def name(identifier: str) -> str:
    """Return the name of a column, quoted where it must be.

    >>> print(name("confidence"), name("group"), name('the "x" column'))
    confidence "group" "the ""x"" column"
    """
    if not isinstance(identifier, str) or not identifier or _NOT_TEXT.search(identifier):
        raise InputError(f"{identifier!r} is not the name of a column; give it as text.")
    if _SIMPLE_NAME.fullmatch(identifier) and identifier not in _RESERVED:
        return identifier
    return '"' + identifier.replace('"', '""') + '"'


def number(value: float) -> str:
    """Return a floating-point number, to its last digit.

    With an exponent, always: DuckDB takes 0.8 for a decimal and 0.8e0 for a double.

    >>> number(0.8), number(1e-5), number(1)
    ('0.8e0', '1e-05', '1.0e0')
    """
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def literal(label: Any) -> str:
    """Return the label of a group.

    >>> literal("O'Hara"), literal(7), literal(True), literal(2.5)
    ("'O''Hara'", '7', 'TRUE', '2.5e0')
    """
    if isinstance(label, bool):
        return "TRUE" if label else "FALSE"
    if isinstance(label, int):
        return str(label)
    if isinstance(label, float) and math.isfinite(label):
        return number(label)
    if not isinstance(label, str) or _NOT_TEXT.search(label):
        raise InputError(f"the group {label!r} has no equal in SQL; convert groups to text before fitting.")
    return "'" + label.replace("'", "''") + "'"


def case(branches: Sequence[tuple[str, str]], otherwise: str | None) -> str:
    """Return the first value whose condition is true; without branches the last resort alone.

    >>> print(case([("a <= 0.5e0", "0.1e0")], "0.9e0"))
    CASE
      WHEN a <= 0.5e0 THEN 0.1e0
      ELSE 0.9e0
    END
    """
    if not branches:
        return "NULL" if otherwise is None else otherwise
    lines = [f"WHEN {condition} THEN {value}" for condition, value in branches]
    lines += [] if otherwise is None else [f"ELSE {otherwise}"]
    inner = _BREAK_OR_QUOTED.sub(lambda found: "\n  " if found[0] == "\n" else found[0], "\n".join(lines))
    return f"CASE\n  {inner}\nEND"
