"""Answers that can be computed, computed again in another way from the text of the question."""

from __future__ import annotations

import calendar
import datetime
import itertools
import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal

import pytest

from tests.tools.quiz.rows import everything
from tools.quiz import Question

MONTHS = list(calendar.month_name)[1:]


def of(subject: str) -> list[Question]:
    rows = [row for row in everything() if row.subject == subject]
    assert rows
    return rows


def numbers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", text)]


@pytest.mark.parametrize("subject", ["addition-3", "addition-5"])
def test_sums(subject):
    for row in of(subject):
        a, b = numbers(row.question)
        assert int(row.ground_truth[0]) - b == a
        assert len(str(a)) == len(str(b)) == int(subject[-1])


@pytest.mark.parametrize("subject", ["multiplication-1x3", "multiplication-2x2"])
def test_products(subject):
    for row in of(subject):
        a, b = numbers(row.question)
        assert sum(a for _ in range(b)) == int(row.ground_truth[0])
        assert (len(str(a)), len(str(b))) == (int(subject[-3]), int(subject[-1]))


def test_remainders():
    for row in of("remainders"):
        left, divisor = numbers(row.question)
        while left >= divisor:
            left -= divisor
        assert row.ground_truth[0] == str(left)


def test_next_primes():
    sieve = [True] * 1100
    sieve[:2] = [False, False]
    for number in range(2, 34):
        sieve[number * number :: number] = [False] * len(sieve[number * number :: number])
    primes = [number for number, is_prime in enumerate(sieve) if is_prime]
    for row in of("next-prime"):
        (number,) = numbers(row.question)
        assert int(row.ground_truth[0]) == min(prime for prime in primes if prime > number)


def test_larger_decimals():
    shorter = 0
    for row in of("larger-decimal"):
        one, two = re.findall(r"\d+\.\d+", row.question)
        assert row.ground_truth == (one if Decimal(one) > Decimal(two) else two,)
        shorter += len(row.ground_truth[0]) == min(len(one), len(two))
    assert 0.5 < shorter / len(of("larger-decimal")) < 0.95


def differences(row: list[int]) -> list[int]:
    return [after - before for before, after in itertools.pairwise(row)]


def is_lawful(row: list[int]) -> bool:
    """Return whether second differences or ratios are constant, or each number is the sum of the two before."""
    is_polynomial = len(set(differences(differences(row)))) == 1
    is_geometric = all(b * b == a * c for a, b, c in zip(row, row[1:], row[2:], strict=False))
    return is_polynomial or is_geometric or all(a + b == c for a, b, c in zip(row, row[1:], row[2:], strict=False))


def test_sequences():
    for row in of("sequences"):
        shown = numbers(row.question)
        assert len(shown) >= 5
        assert is_lawful([*shown, int(row.ground_truth[0])])
        assert not is_lawful([*shown, int(row.ground_truth[0]) + 1])


def by_letters(numeral: str) -> int:
    """Add the letters up; a letter before a larger one is subtracted."""
    worth = [dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))[letter] for letter in numeral]
    return sum(-one if one < after else one for one, after in zip(worth, [*worth[1:], 0], strict=True))


def in_roman(number: int) -> str:
    """Write ones, and replace groups of them."""
    text = "I" * number
    steps = ("IIIII", "V"), ("VV", "X"), ("XXXXX", "L"), ("LL", "C"), ("CCCCC", "D"), ("DD", "M")
    short = ("DCCCC", "CM"), ("CCCC", "CD"), ("LXXXX", "XC"), ("XXXX", "XL"), ("VIIII", "IX"), ("IIII", "IV")
    for long, letters in (*steps, *short):
        text = text.replace(long, letters)
    return text


def test_roman_numerals():
    for row in of("roman-to-number"):
        numeral = re.search(r"numeral ([IVXLCDM]+)\?", row.question)[1]
        assert str(by_letters(numeral)) == row.ground_truth[0]
        assert in_roman(by_letters(numeral)) == numeral
    for row in of("number-to-roman"):
        assert row.ground_truth == (in_roman(numbers(row.question)[0]),)


@pytest.mark.parametrize(("subject", "base"), [("binary-to-number", 2), ("hexadecimal-to-number", 16)])
def test_other_bases(subject, base):
    for row in of(subject):
        digits = re.search(r"number (?:0x)?([0-9A-F]+) in", row.question)[1]
        value = 0
        for digit in digits:
            value = value * base + "0123456789ABCDEF".index(digit)
        assert row.ground_truth[0] == str(value)


def dates(text: str) -> list[datetime.date]:
    found = re.findall(rf"(\d+) ({'|'.join(MONTHS)}) (\d{{4}})", text)
    return [datetime.date(int(year), MONTHS.index(month) + 1, int(day)) for day, month, year in found]


def test_weekdays():
    rows = of("weekdays")
    for row in rows:
        (day,) = dates(row.question)
        assert row.ground_truth[0] == day.strftime("%A")
        assert day.strftime("%a") in row.ground_truth
    assert len({row.ground_truth[0] for row in rows}) == 7


def test_days_between():
    for row in of("days-between"):
        start, end = dates(row.question)
        assert row.ground_truth[0] == str(end.toordinal() - start.toordinal())
        assert f"{row.ground_truth[0]} days" in row.ground_truth


IN_METRES = {"kilometres": "1000", "metres": "1", "centimetres": "0.01", "millimetres": "0.001"}
IN_INCHES = {"miles": 63360, "furlongs": 7920, "yards": 36, "fathoms": 72, "feet": 12, "inches": 1}
IN_SECONDS = {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
IN_YEARS = {"centuries": 100, "decades": 10, "years": 1}
IN_GRAMS = {"tonnes": "1e6", "kilograms": "1e3", "grams": "1", "milligrams": "0.001"}
IN_LITRES = {"cubic metres": "1e3", "litres": "1", "centilitres": "0.01", "millilitres": "0.001"}
IN_SQUARE_METRES = {"square kilometres": "1e6", "hectares": "1e4", "square metres": "1", "square centimetres": "1e-4"}
IN_OUNCES = {"stone": 224, "pounds": 16, "pounds (weight)": 16, "ounces": 1}
IN_US_FLUID_OUNCES = {"US gallons": 128, "quarts": 32, "pints": 16, "cups": 8, "fluid ounces": 1}
IN_ACRES = {"acres": 43560, "square yards": 9}
IN_UNITS = {"gross": 144, "dozen": 12, "units": 1}
IN_ARCMINUTES = {"right angles": 5400, "degrees of arc": 60, "degrees": 60, "arcminutes": 1}
IN_BITS = {"kibibytes": 8192, "bytes": 8, "bits": 1}
SCALES = (
    *(IN_METRES, IN_INCHES, IN_SECONDS, IN_YEARS, IN_GRAMS, IN_LITRES, IN_SQUARE_METRES, IN_OUNCES),
    *(IN_US_FLUID_OUNCES, IN_ACRES, IN_UNITS, IN_ARCMINUTES, IN_BITS),
)


def test_units():
    for row in of("units"):
        small, amount, large = re.fullmatch(r"How many (.+) are in (\d+) (.+)\?", row.question).groups()
        (scale,) = (scale for scale in SCALES if small in scale and large in scale)
        assert Decimal(row.ground_truth[0]) * Decimal(scale[small]) == int(amount) * Decimal(scale[large]), row


def quoted(text: str) -> list[str]:
    return re.findall(r"'(\w+)'", text)


def test_letters():
    for row in of("word-length"):
        (word,) = quoted(row.question)
        assert row.ground_truth[0] == str(sum(1 for _ in word))
    for row in of("letter-count"):
        letter, word = quoted(row.question)
        assert row.ground_truth[0] == str(len(word.lower().split(letter)) - 1)
    for row in of("letter-at"):
        (word,), (place,) = quoted(row.question), numbers(row.question)
        assert row.ground_truth[0] == word[:place][-1]
    for row in of("backwards"):
        (number,) = numbers(row.question)
        assert "".join(reversed(row.ground_truth[0])) == str(number)


@pytest.mark.parametrize("subject", ["letter-count", "word-length", "weekdays", "remainders", "python-programs"])
def test_no_single_answer_is_correct_for_half_of_a_topic(subject):
    rows = of(subject)
    assert Counter(row.ground_truth[0] for row in rows).most_common(1)[0][1] < len(rows) / 2


def test_alphabetical_order():
    for row in of("alphabetical"):
        four = row.question.removesuffix("?").split(": ")[1].split(", ")
        assert sorted(four)[0] == row.ground_truth[0]
        assert len(four) == 4
        assert len({word[0] for word in four}) < 4


def test_small_numbers_may_be_in_words():
    forms = {row.ground_truth[0]: row.ground_truth for row in of("remainders")}
    assert "seven" in forms["7"]
    assert "twelve" in forms["12"]
    assert "twenty-one" in forms["21"]
    assert all("," in row.ground_truth[1] for row in of("addition-5"))


def test_programs_print_the_stated_answer():
    """All programs run in a fresh interpreter, each in its own namespace."""
    rows = [*of("python-expressions"), *of("python-programs")]
    programs = [re.sub(r"^What does this Python \w+ print\?\s+", "", row.question) for row in rows]
    runner = f"for number, text in enumerate({programs!r}):\n    print(end=f'{{number}}:')\n    exec(text, {{}})"
    ran = subprocess.run([sys.executable, "-c", runner], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{number}:{row.ground_truth[0]}" for number, row in enumerate(rows)]
    assert all(re.fullmatch(r"\w+", row.ground_truth[0]) for row in rows)
