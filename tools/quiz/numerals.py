"""The same number in another numeral system, the same amount in another unit."""

from __future__ import annotations

from collections.abc import Iterator

from tools.quiz.facts import facts
from tools.quiz.numbers import number_forms, roman
from tools.quiz.question import Draws, Item, Topic, drawn


def _from_roman(draws: Draws) -> Item:
    numeral = roman(number := draws.number(13, 2999))
    return Item(numeral, f"Which number is the Roman numeral {numeral}?", number_forms(number))


def _to_roman(draws: Draws) -> Item:
    number = draws.number(13, 399) if draws.number(0, 1) else draws.number(400, 2030)
    return Item(str(number), f"How is the number {number} written in Roman numerals?", (roman(number),))


def _from_binary(draws: Draws) -> Item:
    number = draws.number(9, 255)
    return Item(f"{number:b}", f"What is the binary number {number:b} in decimal?", number_forms(number))


def _from_hexadecimal(draws: Draws) -> Item:
    number = draws.number(17, 999)
    return Item(f"{number:X}", f"What is the hexadecimal number 0x{number:X} in decimal?", number_forms(number))


def _units() -> Iterator[Item]:
    for (many,), (factor,), (small, *names), amounts in facts("units"):
        for amount in map(int, amounts):
            question = f"How many {small} are in {amount} {many}?"
            yield Item(f"{amount} {many} {small}", question, number_forms(amount * int(factor), small, *names))


TOPICS = (
    drawn("roman-to-number", 120, _from_roman),
    drawn("number-to-roman", 120, _to_roman),
    drawn("binary-to-number", 110, _from_binary),
    drawn("hexadecimal-to-number", 120, _from_hexadecimal),
    Topic("units", _units),
)
