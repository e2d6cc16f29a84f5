"""Numbers as people write them into tables: as text, percents, words for right and wrong, or for a confidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from qacal.errors import InputError
from qacal.parameters import require_kind

TRUTHS = {
    **dict.fromkeys(("true", "yes", "y", "correct", "right", "pass", "passed"), 1.0),
    **dict.fromkeys(("false", "no", "n", "incorrect", "wrong", "fail", "failed"), 0.0),
}
"""What labels may also be."""

_LETTER = re.compile(r"[^\W\d_]")


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


def require_expressions(expressions: Mapping[str, float]) -> None:
    """Refuse a list of expressions that cannot be read.

    >>> require_expressions({"Sure": 90})
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the expression 'Sure' is worth 90; expected words and a number from 0 to 1.
    """
    require_kind(expressions, Mapping, "expressions", 'what words stand for, such as {"high": 0.85}')
    worths: dict[str, float] = {}
    for name, worth in expressions.items():
        has_words = isinstance(name, str) and _LETTER.search(name)
        if not has_words or not isinstance(worth, int | float) or not 0 <= worth <= 1:
            raise InputError(f"the expression {name!r} is worth {worth!r}; expected words and a number from 0 to 1.")
        known = worths.setdefault(expression_key(name), worth)
        if known != worth:
            raise InputError(f"the expression {name!r} is worth {known!r} and {worth!r}; expected one number.")


def expression_key(name: str) -> str:
    """Return what is the same for all spellings of an expression: capitals, and how its words are joined.

    >>> expression_key(" Highly-Likely")
    'highly likely'
    """
    return " ".join(part for part in re.split(r"[\s-]+", name.casefold()) if part)
