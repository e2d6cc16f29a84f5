"""The parts of a reply that are named: guesses and confidences, by labels or by the keys of JSON, with their places."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qacal.elicitation.glyphs import plain
from qacal.elicitation.labels import CONFIDENCE, GUESS, fields, first_named

_KEY = re.compile(r"(?:best |my |final )?(guess|answer|g|probability|prob|confidence|likelihood|p)[ _#]?(\d{0,2})")
_KINDS = {"g": "guess", "p": "probability", "prob": "probability"}
_PAIRS = (*(2 * (mark,) for mark in ("**", "__", "*", "`")), *(tuple(pair) for pair in ('""', "“”", "«»", "''", "<>")))
_SEPARATORS = " \n\t\r,;|/(–—-"


@dataclass(frozen=True)
class Named:
    """A part of a reply: what it is, its number, its text, where it is, and whether nothing follows it.

    The place is None for what had to be taken out of JSON.
    """

    kind: str
    number: int | None
    text: str
    place: tuple[int, int] | None
    is_last: bool


def named_texts(text: str, confidences: Sequence[str] = CONFIDENCE) -> list[Named]:
    """Return the guesses and confidences of a reply, in order.

    Where there are guesses, answers are something else; of the names of a confidence the first that occurs counts.

    confidences : names of a confidence, the ones that were asked for first.

    >>> [(part.kind, part.text) for part in named_texts("Guess: **Oslo**, Probability: 0.9")]
    [('guess', 'Oslo'), ('probability', '0.9')]
    """
    parts = _from_json(text)
    if parts is None:
        return _from_labels(text, confidences)
    kinds = first_named({part.kind for part in parts}, (GUESS, confidences))
    return [part for part in parts if part.kind in kinds]


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place without white space, quotes, Markdown and brackets around it.

    >>> text = ' "**Oslo**"'
    >>> text[slice(*trimmed(text, 0, len(text)))]
    'Oslo'
    """
    start, end = _stripped(text, start, end)
    for opening, closing in _PAIRS * 2:
        inner = start + len(opening), end - len(closing)
        is_wrapped = inner[0] < inner[1] and text.startswith(opening, start) and text.endswith(closing, start, end)
        if is_wrapped and text.find(opening, *inner) < 0 and text.find(closing, *inner) < 0:
            start, end = _stripped(text, *inner)
    return start, end


def _from_labels(text: str, confidences: Sequence[str]) -> list[Named]:
    spelled = plain(text)
    parts = []
    for field in fields(spelled, GUESS, confidences):
        is_guess = field.label.kind in GUESS
        start, end = _guess(text, field.start, field.end) if is_guess else _lines(spelled, field.start, field.end)
        parts.append(Named(field.label.kind, field.label.number, text[start:end], (start, end), end == len(text)))
    return parts


def _guess(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of a guess; what parts it from a label that follows in its line is not of it."""
    if end < len(text) and text[end - 1] != "\n":
        while end > start and text[end - 1] in _SEPARATORS:
            end -= 1
    start, end = _stripped(text, start, end)
    for mark in ("**", "__", "`"):
        # "**Guess: Oslo**": the label began what ends here.
        if text.endswith(mark, start, end) and text.count(mark, start, end) % 2:
            start, end = _stripped(text, start, end - len(mark))
    return trimmed(text, start, end)


def _lines(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of the first line that is not empty, and of numbers alone in lines below it."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    until = text.find("\n", start, end)
    if until < 0:
        return start, end
    for line in re.finditer(r"[^\n]+", text[until:end]):
        if any(letter.isdigit() for letter in line[0]) and not any(letter.isalpha() for letter in line[0]):
            return start, until + line.end()
        if line[0].strip():
            break
    return start, until


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, end - (len(part) - len(part.rstrip())))


def _from_json(text: str) -> list[Named] | None:
    """Return the named values of an object of JSON, or of a list of them, which are numbered; None if it is none."""
    body = text.strip()
    if body[:1] not in ("{", "[") or body[-1:] not in ("}", "]"):
        return None
    try:
        value = json.loads(body, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, _Pairs):
        return _from_pairs(value, None)
    if isinstance(value, list) and all(isinstance(entry, _Pairs) for entry in value):
        return [part for number, entry in enumerate(value, 1) for part in _from_pairs(entry, number)]
    return None


class _Pairs(list[tuple[str, Any]]):
    """The pairs of an object, a key twice among them."""


def _from_pairs(pairs: _Pairs, number: int | None) -> list[Named]:
    parts = []
    for key, value in pairs:
        match = _KEY.fullmatch(plain(key).strip().lower())
        if match and isinstance(value, str):
            numbered = int(match[2]) if match[2] else number
            parts.append(Named(_KINDS.get(match[1], match[1]), numbered, value.strip(), None, False))
    return parts
