"""The parts of a reply that are named: guesses and confidences, by labels or by the keys of JSON, with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qacal.sources.elicitation.reading.characters import plain
from qacal.sources.elicitation.reading.json_texts import json_texts
from qacal.sources.elicitation.reading.labels import GUESS, fields

# Not the underscores of bold type: __init__ is an answer.
_PAIRS = (("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("'", "'"), ("<", ">"))
_TAG = re.compile(r"</?[a-z][a-z0-9]*/?>")
_BLANK_LINE = re.compile(r"\n[ ]*\n")
# A line that puts the number above it on another scale; a bare 0 or 1 may be put there from anywhere in the line.
_SCALE = r"%|per ?cents?\b|percentages?\b|pct\b|out of\b|on a scale\b|scale\b"
_RESCALES = re.compile(
    rf"\W{{0,9}}(?:{_SCALE}|/[ ]?\d|(?:in|of)[ ](?:a[ ])?(?:\d|ten\b|hundred\b)|points?\b)", re.IGNORECASE
)
_SPEAKS_OF_SCALE = re.compile(rf"%|\b(?:{_SCALE})", re.IGNORECASE)
_WHOLE = re.compile(r"\W*[01]\W*")
_SEPARATORS = " \n,;|/([-"


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


def named_texts(text: str) -> list[Named]:
    """Return the guesses and confidences of a reply, in order.

    >>> [(part.kind, part.text) for part in named_texts("Guess: **Oslo**, Probability: 0.9")]
    [('guess', 'Oslo'), ('probability', '0.9')]
    """
    found = json_texts(text)
    if found is not None:
        return [Named(*part, place=None, is_last=False) for part in found]
    spelled = plain(text)
    parts = []
    for field in fields(spelled):
        is_guess = field.label.kind in GUESS
        start, end = _guess(spelled, field.start, field.end) if is_guess else _lines(spelled, field.start, field.end)
        parts.append(Named(field.label.kind, field.label.number, text[start:end], (start, end), end == len(text)))
    return parts


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place in a plain text without white space, quotes, Markdown and brackets around it; a tag has its own.

    >>> text = ' "**Oslo**"'
    >>> text[slice(*trimmed(text, 0, len(text)))]
    'Oslo'
    """
    start, end = _stripped(text, start, end)
    for opening, closing in _PAIRS * 2:
        inner = start + len(opening), end - len(closing)
        is_wrapped = inner[0] < inner[1] and text.startswith(opening, start) and text.endswith(closing, start, end)
        is_tag = opening == "<" and _TAG.fullmatch(text, start, end)
        if is_wrapped and not is_tag and text.find(opening, *inner) < 0 and text.find(closing, *inner) < 0:
            start, end = _stripped(text, *inner)
    return start, end


def _guess(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of a guess; what leads over to a label within a line is not of it."""
    if end < len(text) and text[end - 1] != "\n":
        line = text.rfind("\n", start, end)
        end = line if line > start and text[start:line].strip() else end
        while end > start and text[end - 1] in _SEPARATORS:
            end -= 1
    start, end = _stripped(text, start, end)
    paragraph = _BLANK_LINE.search(text, start, end)
    start, end = _stripped(text, start, end if paragraph is None else paragraph.start())
    for mark in ("**", "__", "`"):
        # "**Guess: Oslo**": the label began what ends here.
        if text.endswith(mark, start, end) and text.count(mark, start, end) % 2:
            start, end = _stripped(text, start, end - len(mark))
    return trimmed(text, start, end)


def _lines(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of the first line that is not empty, and of what is said below it of the same number."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    until = text.find("\n", start, end)
    if until < 0:
        return start, end
    is_whole = _WHOLE.fullmatch(text, start, until) is not None
    for line in re.finditer(r"[^\n]+", text[until:end]):
        if _goes_on(line[0], is_whole):
            return start, until + line.end()
        if line[0].strip():
            break
    return start, until


def _goes_on(line: str, is_whole: bool) -> bool:
    """Return whether a line is about the number above it: numbers alone, or another scale."""
    is_number = any(letter.isdigit() for letter in line) and not any(letter.isalpha() for letter in line)
    return is_number or bool(_SPEAKS_OF_SCALE.search(line) if is_whole else _RESCALES.match(line))


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, end - (len(part) - len(part.rstrip())))
