r"""The guesses and confidences that a reply names, by labels ("Guess:", "**Probability:**", "G2 =") or by keys of JSON.

A label that opens a line counts more than one within a line: a line of thought such as "my first guess: Lyon" is not an
answer when a line "Guess: Paris" follows. A label within a line counts if no line further down begins with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from qacal.sources.elicitation.reading.characters import plain

GUESS = ("guess", "answer")
CONFIDENCE = ("probability", "confidence", "likelihood")

KINDS = {"g": "guess", "p": "probability", "guesses": "guess", "prob": "probability"}
_LABEL = re.compile(
    r"(?<![^\W_])(?P<name>guess(?:es)?|answer|prob(?:ability)?|confidence(?![ ]interval)|likelihood|[gp](?=[ ]?\d)"
    r"|confidence[ ]interval|explanation|reason(?:ing)?|rationale|question|note|justification)"
    r"(?:[ ]?\#?(?P<number>\d{1,2})(?=[*_`\"')\]]{0,4}[ ]{0,3}[:=]))?"
    # Of other probabilities, that of being wrong say, it is not the label.
    r"(?:[ ](?:score|level)|[ ]\(0(?:\.0)?[ ]?(?:-|to)[ ]?1(?:\.0)?\)|[ ]of[ ](?:being[ ])?(?:correct|right)(?:ness)?"
    r"|[ ]that[ ](?:it|this|(?:my|your|the|this)[ ](?:guess|answer)|g\d{1,2})[ ]is[ ](?:correct|right|true))?"
    r"[*_`\"')\]]{0,4}[ ]{0,3}"
    r"(?:(?P<colon>[:=][*_`]{0,3})|(?P<alone>-(?=[ ])|(?=\n|$))|(?P<before>(?:is|of)?(?=[ ]?[*_`(\[~<]{0,4}\.?\d)))",
    re.IGNORECASE,
)
# How a line may go on before its label: bullets, numbers of lists, quotes, Markdown, words that belong to the label.
_OPENING = re.compile(
    r"[ >#*_`\"'{(\[|,-]{0,16}(?:\d{1,2}[.)][ ]{0,3})?[*_`\"']{0,4}"
    r"(?:(?:my|the|best|final|top|most|likely|overall|stated)[ ]){0,3}",
    re.IGNORECASE,
)
_LONGEST_OPENING = 60
# What leads over to a label within a line, and belongs to it.
_LEADING = re.compile(r"(?:\b(?:with|and|at|has)(?:[ ](?:an?|the|my))?[ ])?[\"'*_`]{0,4}$", re.IGNORECASE)
_LONGEST_LEADING = 16


@dataclass(frozen=True)
class Label:
    """A label: its name and what that means, its number if it has one, its place, and whether it opens its line."""

    name: str
    number: int | None
    start: int
    end: int
    opens_line: bool

    @property
    def kind(self) -> str:
        """What it names, whichever way that is written."""
        return KINDS.get(self.name, self.name)

    @property
    def family(self) -> str:
        """Guess, confidence, or something else."""
        return "guess" if self.kind in GUESS else "confidence" if self.kind in CONFIDENCE else self.kind


@dataclass(frozen=True)
class Field:
    """What a label names: from the end of the label to the next one, or to the end."""

    label: Label
    start: int
    end: int


def fields(text: str) -> list[Field]:
    """Return the guesses and confidences of a plain text, in order.

    Where there are guesses, answers are something else. Labels of something else end a field if they open a line.

    >>> text = "Guess: 4 P: 1 Probability: 0.9"
    >>> [(field.label.kind, text[field.start : field.end].strip()) for field in fields(text)]
    [('guess', '4 P: 1'), ('probability', '0.9')]
    """
    labels = [label for match in _LABEL.finditer(text) if (label := _label(text, match))]
    wanted = {_name_of_guesses(labels), *CONFIDENCE}
    counting = _counting(labels, wanted)
    ends = [*(label.start for label in counting[1:]), len(text)]
    return [Field(label, label.end, end) for label, end in zip(counting, ends, strict=False) if label.kind in wanted]


def _label(text: str, match: re.Match[str]) -> Label | None:
    """Return the label that was found, None if the word is but a word where it stands."""
    name, start = match["name"].lower(), _line_start(text, match.start())
    number = int(match["number"]) if match["number"] else None
    label = Label(name, number, _begin(text, match.start()) if start is None else start, match.end(), start is not None)
    if match["colon"] is None:
        is_alone = match["alone"] is not None and label.opens_line
        names_number = match["before"] is not None and label.family == "confidence"
        if len(name) == 1 or not (is_alone or names_number):
            return None
    return label


def _begin(text: str, at: int) -> int:
    """Return where a label within a line begins with the quotes, Markdown and words right before it."""
    earliest = max(0, at - _LONGEST_LEADING)
    leading = _LEADING.search(text, earliest, at)
    return at if leading is None else leading.start()


def _line_start(text: str, at: int) -> int | None:
    """Return where the line of a label begins if nothing but its opening precedes the label, else None."""
    earliest = max(0, at - _LONGEST_OPENING)
    start = text.rfind("\n", earliest, at) + 1
    if start == 0 and earliest > 0:
        return None
    return start if _OPENING.fullmatch(text, start, at) else None


def _name_of_guesses(labels: Sequence[Label]) -> str:
    """Return what guesses are called: guesses, unless only answers open lines, or there are only answers."""
    named = {(label.opens_line, label.kind) for label in labels if label.family == "guess"}
    ranked = [(True, "guess"), (True, "answer"), (False, "guess"), (False, "answer")]
    return next((kind for opens_line, kind in ranked if (opens_line, kind) in named), "guess")


def _counting(labels: Sequence[Label], wanted: set[str]) -> list[Label]:
    """Return the labels that count: those that open lines, and wanted ones that come after all of their family that do.

    G1 and P1 within lines count if one of their like opens a line; else G20 may be a summit.
    """
    last = {(label.family, label.number): label.start for label in labels if label.opens_line}
    has_letters = any(label.opens_line and len(label.name) == 1 for label in labels)

    def counts(label: Label) -> bool:
        is_meant = label.kind in wanted and (len(label.name) > 1 or has_letters)
        return label.opens_line or (is_meant and label.start > last.get((label.family, label.number), -1))

    return [label for label in labels if counts(label)]


NamedText: TypeAlias = tuple[str, int | None, str]
Place: TypeAlias = tuple[int, int]

_KEY = re.compile(r"(?:best |my |final )?(guess|answer|g|probability|prob|confidence|likelihood|p)[ _#]?(\d{0,2})")


def json_texts(text: str) -> list[NamedText] | None:
    r"""Return kind, number and text of what JSON in a reply names; None if there is none to read.

    Objects in a list are numbered. JSON with words around it counts if it has guess and confidence, and the words none.

    >>> json_texts('Here it is: {"guess": "S\\u00e3o Paulo", "probability": 0.9}')
    [('guess', None, 'São Paulo'), ('probability', None, '0.9')]
    """
    body = text.strip()
    if body[:1] in ("{", "[") and body[-1:] in ("}", "]"):
        return _named(body)
    begin, end = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1), _end(text)
    if begin < 0 or end <= begin:
        return None
    found = _named(text[begin:end]) or []
    kinds = {kind for kind, _, _ in found}
    is_whole = bool(kinds & set(GUESS)) and bool(kinds & set(CONFIDENCE))
    return found if is_whole and not _says_more(text[:begin] + "\n" + text[end:]) else None


def json_place(text: str, guess: str) -> Place | None:
    r"""Return where in a reply a guess stands that was read from its JSON; None if it is escaped there, or twice.

    It stands after the key of a guess, not anywhere: "prob" may be a guess, and is a key.

    >>> json_place('{"guess": "prob", "prob": 0.9}', "prob"), json_place(r'{"guess": "\u0070rob", "prob": 0.9}', "prob")
    ((11, 15), None)
    """
    if not guess or not guess.isprintable() or "\\" in guess or '"' in guess:
        return None
    spelled = re.escape(guess)
    value = re.compile(rf'"([^"\\]*)"\s*:\s*(?:"\s*({spelled})\s*"|({spelled})(?=[\s,}}]))')
    found = [match.span(match.lastindex or 0) for match in value.finditer(text) if _is_guess(match[1])]
    return found[0] if len(found) == 1 else None


def _is_guess(key: str) -> bool:
    match = _KEY.fullmatch(plain(key).strip().lower())
    return match is not None and KINDS.get(match[1], match[1]) in GUESS


def _end(text: str) -> int:
    return max(text.rfind("}"), text.rfind("]")) + 1


def _says_more(text: str) -> bool:
    spelled = plain(text)
    return any(spelled[field.start : field.end].partition("\n")[0].strip() for field in fields(spelled))


def _named(body: str) -> list[NamedText] | None:
    try:
        value = json.loads(body, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, _Pairs):
        return _of_pairs(value, None)
    if isinstance(value, list) and all(isinstance(entry, _Pairs) for entry in value):
        return [part for number, entry in enumerate(value, 1) for part in _of_pairs(entry, number)]
    return None


class _Pairs(list[tuple[str, Any]]):
    """The pairs of an object, a key twice among them."""


def _of_pairs(pairs: _Pairs, number: int | None) -> list[NamedText]:
    found: list[NamedText] = []
    for key, value in pairs:
        match = _KEY.fullmatch(plain(key).strip().lower())
        if match and isinstance(value, str):
            found.append((KINDS.get(match[1], match[1]), int(match[2]) if match[2] else number, value.strip()))
    return found


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
