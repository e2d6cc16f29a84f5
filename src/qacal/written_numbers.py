"""Numbers as people write them into tables: text that is a number, a percent, or a word for right and wrong."""

from __future__ import annotations

import math

TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
"""What labels may also be."""


def number_in(text: str, most: float = 1.0) -> float:
    """Return the number that a text is, NaN if it is none; `most` is 1 where 1 is certain, 100 where that is.

    A sign says what is a percent, whatever all others are. "0.9%" may be meant or not, so it is none. A comma is a
    decimal point: thousands are no confidences.

    >>> number_in(" .7"), number_in("70%"), number_in("70%", most=100.0), number_in("0.9%"), number_in("1_0")
    (0.7, 0.7, 70.0, nan, nan)
    >>> number_in("0,75"), number_in("85,5%", most=100.0), number_in("1,0,0")
    (0.75, 85.5, nan)
    """
    stripped = text.strip()
    if stripped.count(",") == 1:
        stripped = stripped.replace(",", ".")
    try:
        # Digits with underscores are a number to Python, and to nobody else.
        number = float(stripped.removesuffix("%")) if "_" not in stripped else math.nan
    except ValueError:
        return math.nan
    if not stripped.endswith("%"):
        return number
    return number * most / 100 if number == 0 or number >= 1 else math.nan
