"""Chemical elements and animals."""

from __future__ import annotations

from collections.abc import Iterator

from tools.quiz.facts import facts
from tools.quiz.numbers import number_forms
from tools.quiz.question import Item, Topic


def _symbols() -> Iterator[Item]:
    for names, (symbol,) in facts("elements"):
        yield Item(names[0], f"What is the chemical symbol of {names[0]}?", (symbol, f"{names[0]} ({symbol})"))


def _names() -> Iterator[Item]:
    for names, (symbol,) in facts("elements"):
        forms = (*names, *(f"{name} ({symbol})" for name in names))
        yield Item(names[0], f"Which chemical element has the symbol {symbol}?", forms)


def _numbers() -> Iterator[Item]:
    for number, (names, _) in enumerate(facts("elements"), start=1):
        yield Item(names[0], f"What is the atomic number of {names[0]}?", number_forms(number))


def _animals() -> Iterator[Item]:
    for (question,), answers, *choices in facts("animals"):
        yield Item(question, question, answers, choices[0] if choices else None)


TOPICS = (
    Topic("symbol-of-element", _symbols),
    Topic("element-of-symbol", _names),
    Topic("atomic-number", _numbers),
    Topic("animals", _animals),
)
