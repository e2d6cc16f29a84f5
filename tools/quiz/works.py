"""Who made it: books, films, works of art."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tools.quiz.facts import facts, quoted
from tools.quiz.question import Item, Topic


def _names(forms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms of a name; if the table has only one, also the surname."""
    return (*forms, forms[0].split()[-1]) if len(forms) == 1 else forms


def _made(table: str, verb: str) -> Callable[[], Iterator[Item]]:
    def items() -> Iterator[Item]:
        for (title,), makers in facts(table):
            yield Item(title, f"Who {verb} {quoted(title)}?", _names(makers))

    return items


def _art() -> Iterator[Item]:
    for (verb,), (work,), makers in facts("artworks"):
        yield Item(work, f"Who {verb} {work}{'' if work.endswith('?') else '?'}", _names(makers))


TOPICS = (
    Topic("authors", _made("books", "wrote")),
    Topic("directors", _made("films", "directed the film")),
    Topic("artists", _art),
)
