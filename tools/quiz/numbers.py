"""Forms of numbers: the same answer in digits, with commas, in words, with its unit."""

from __future__ import annotations

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)


def number_forms(number: int, *units: str) -> tuple[str, ...]:
    """Return the usual forms of a number, also with each of the units.

    >>> number_forms(1234)
    ('1234', '1,234')
    >>> number_forms(7, "days")
    ('7', 'seven', '7 days', 'seven days')
    """
    bare = [str(number)]
    if number >= 1000:
        bare.append(f"{number:,}")
    if number < 100:
        bare.append(in_words(number))
    return (*bare, *(f"{form} {unit}" for unit in units for form in bare))


def in_words(number: int) -> str:
    """Return a number below 100 in words.

    >>> in_words(42)
    'forty-two'
    """
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens] + (f"-{_SMALL[ones]}" if ones else "")


def ordinal(number: int) -> str:
    """Return a number as an ordinal.

    >>> ordinal(1), ordinal(12), ordinal(23)
    ('1st', '12th', '23rd')
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else endings.get(number % 10, 'th')}"


def roman(number: int) -> str:
    """Return a number from 1 to 3999 as a Roman numeral.

    >>> roman(1994)
    'MCMXCIV'
    """
    out = ""
    for value, letters in _ROMAN:
        times, number = divmod(number, value)
        out += letters * times
    return out
