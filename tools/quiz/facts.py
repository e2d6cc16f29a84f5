"""Tables of facts: one fact per line; "|" separates columns, ";" separates forms of the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from tools.quiz.question import Item

Fact: TypeAlias = tuple[tuple[str, ...], ...]


def facts(name: str) -> Iterator[Fact]:
    """Yield the facts of a table: a tuple of columns, each a tuple of forms; an empty column has no forms.

    >>> next(facts("states"))
    (('Alabama',), ('Montgomery',))
    """
    text = (Path(__file__).parent / "facts" / f"{name}.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield tuple(tuple(form for form in column.split(";") if form) for column in line.split("|"))


def asked(
    name: str, template: str, column: int = 1, also: Callable[[str, tuple[str, ...]], tuple[str, ...]] | None = None
) -> Callable[[], Iterator[Item]]:
    """Return the generator of questions about a column of a table, given the first column.

    template : the question, with `{}` for the first column.
    also : returns further forms of an answer, from the first column and the forms in the table.
    """

    def items() -> Iterator[Item]:
        for fact in facts(name):
            if column < len(fact) and fact[column]:
                subject, answers = fact[0][0], fact[column]
                more = also(subject, answers) if also else ()
                yield Item(subject, template.format(subject), (*answers, *more))

    return items


def quoted(thing: str) -> str:
    """Return a name in quotation marks, followed by its explanation in brackets.

    >>> quoted("mouse (animal)")
    "'mouse' (animal)"
    """
    name, bracket, hint = thing.partition(" (")
    mark = '"' if "'" in name else "'"
    return f"{mark}{name}{mark}{bracket}{hint}"
