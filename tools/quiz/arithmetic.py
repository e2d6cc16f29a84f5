"""Sums, products, remainders and sequences: easy ones, and ones that few people do in their head."""

from __future__ import annotations

from fractions import Fraction

from tools.quiz.numbers import number_forms
from tools.quiz.question import Draws, Item, drawn, shuffled


def _sum(draws: Draws, low: int, high: int) -> Item:
    a, b = draws.number(low, high), draws.number(low, high)
    return Item(f"{a} {b}", f"What is {a} + {b}?", (*number_forms(a + b), f"{a} + {b} = {a + b}"))


def _product(draws: Draws, first: tuple[int, int], second: tuple[int, int]) -> Item:
    a, b = draws.number(*first), draws.number(*second)
    forms = (*number_forms(a * b), f"{a} × {b} = {a * b}", f"{a} * {b} = {a * b}", f"{a} x {b} = {a * b}")
    return Item(f"{a} {b}", f"What is {a} × {b}?", forms)


def _remainder(draws: Draws) -> Item:
    a, b = draws.number(100, 999), draws.number(6, 29)
    return Item(f"{a} {b}", f"What is the remainder when {a} is divided by {b}?", number_forms(a % b))


def _next_prime(draws: Draws) -> Item:
    number = draws.number(20, 999)
    prime = number + 1
    while any(prime % divisor == 0 for divisor in range(2, prime)):
        prime += 1
    return Item(str(number), f"What is the smallest prime number greater than {number}?", number_forms(prime))


def _larger_decimal(draws: Draws) -> Item | None:
    """Ask for the larger of two decimals; mostly it is the shorter one."""
    whole, short, long = draws.number(0, 99), draws.number(2, 9), draws.number(11, 99)
    if long % 10 == 0 or long // 10 == short or (long // 10 > short and draws.number(0, 2)):
        return None
    one, two = choices = shuffled((f"{whole}.{short}", f"{whole}.{long}"))
    answer = max(choices, key=Fraction)
    return Item(" ".join(sorted(choices)), f"Which number is larger, {one} or {two}?", (answer,), choices)


def _row(draws: Draws) -> list[int]:
    kind, start, step = draws.number(0, 5), draws.number(2, 40), draws.number(2, 13)
    if kind == 0:
        return [start + step * n for n in range(6)]
    if kind == 1:
        return [200 - start - step * n for n in range(6)]
    if kind == 2:
        return [(start % 7 + 1) * (2 + step % 3) ** n for n in range(6)]
    if kind == 3:
        return [(start + n) ** 2 + step for n in range(6)]
    if kind == 4:
        return [start + step * n * (n + 1) // 2 for n in range(6)]
    row = [start % 9 + 1, step]
    while len(row) < 7:
        row.append(row[-1] + row[-2])
    return row


def _sequence(draws: Draws) -> Item:
    *shown, following = _row(draws)
    text = ", ".join(map(str, shown))
    return Item(text, f"What is the next number in the sequence {text}?", number_forms(following))


TOPICS = (
    drawn("addition-3", 120, lambda draws: _sum(draws, 101, 999)),
    drawn("addition-5", 130, lambda draws: _sum(draws, 10_001, 99_999)),
    drawn("multiplication-1x3", 120, lambda draws: _product(draws, (3, 9), (112, 999))),
    drawn("multiplication-2x2", 130, lambda draws: _product(draws, (13, 99), (13, 99))),
    drawn("remainders", 120, _remainder),
    drawn("next-prime", 120, _next_prime),
    drawn("larger-decimal", 130, _larger_decimal),
    drawn("sequences", 120, _sequence),
)
