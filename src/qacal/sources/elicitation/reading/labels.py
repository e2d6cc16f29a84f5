r"""The guesses and confidences in a reply, named by labels ("Guess:", "**Probability:**", "G2 =") or by keys of JSON.

A label that opens a line counts more than one within a line: a line of thought such as "my first guess: Lyon" is not an
answer when a line "Guess: Paris" follows. A label within a line counts if no line further down begins with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from qacal.sources.elicitation.reading.characters import plain

GUESS = ("guess", "answer")
CONFIDENCE = ("probability", "confidence", "likelihood")

KINDS = {"g": "guess", "p": "probability", "guesses": "guess", "prob": "probability"}
_LABEL = re.compile(
    r"(?<![^\W_])(?P<name>guess(?:es)?|answer|prob(?:ability)?|confidence(?![ ]interval)|likelihood|[gp](?=[ ]?\d)"
    r"|confidence[ ]interval|explanation|reason(?:ing)?|rationale|question|note|justification)"
    r"(?:[ ]?\#?(?P<number>\d{1,2})(?=[*_`\"')\]]{0,4}[ ]{0,3}[:=]))?"
    # Other probabilities, such as that of being wrong, are not labels.
    r"(?:[ ](?:score|level)|[ ]\(0(?:\.0)?[ ]?(?:-|to)[ ]?1(?:\.0)?\)|[ ]of[ ](?:being[ ])?(?:correct|right)(?:ness)?"
    r"|[ ]that[ ](?:it|this|(?:my|your|the|this)[ ](?:guess|answer)|g\d{1,2})[ ]is[ ](?:correct|right|true))?"
    r"[*_`\"')\]]{0,4}[ ]{0,3}"
    r"(?:(?P<colon>[:=][*_`]{0,3})|(?P<alone>-(?=[ ])|(?=\n|$))|(?P<before>(?:is|of)?(?=[ ]?[*_`(\[~<]{0,4}\.?\d)))",
    re.IGNORECASE,
)
# What may precede the label that opens a line: bullets, numbers of lists, quotes, Markdown, words like "my best".
_OPENING = re.compile(
    r"[ >#*_`\"'{(\[|,-]{0,16}(?:\d{1,2}[.)][ ]{0,3})?[*_`\"']{0,4}"
    r"(?:(?:my|the|best|final|top|most|likely|overall|stated)[ ]){0,3}",
    re.IGNORECASE,
)
_LONGEST_OPENING = 60
# Words and marks right before a label within a line that belong to it.
_LEADING = re.compile(r"(?:\b(?:with|and|at|has)(?:[ ](?:an?|the|my))?[ ])?[\"'*_`]{0,4}$", re.IGNORECASE)
_LONGEST_LEADING = 16
_KEY = re.compile(r"(?:best |my |final )?(guess|answer|g|probability|prob|confidence|likelihood|p)[ _#]?(\d{0,2})")
# Underscores are not among them, because __init__ is an answer.
_PAIRS = (("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("'", "'"), ("<", ">"))
_TAG = re.compile(r"</?[a-z][a-z0-9]*/?>")
_BLANK_LINE = re.compile(r"\n[ ]*\n")
# A line that belongs to the number above it: it has only numbers, or it names a scale.
_GOES_ON = re.compile(
    r"[^\w\n]*\d[\W\d]*$|\W*(?:/|(?:in|of) (?:a )?(?:\d|ten\b|hundred\b))"
    r"|.*(?:%|\b(?:per ?cents?|percentages?|pct|out of|points?|scale)\b)",
    re.IGNORECASE,
)
_SEPARATORS = " \n,;|/([-"


@dataclass(frozen=True)
class Label:
    """A label: its name, its number if it has one, its place, and whether it opens its line."""

    name: str
    number: int | None
    start: int
    end: int
    opens_line: bool

    @property
    def kind(self) -> str:
        return KINDS.get(self.name, self.name)

    @property
    def family(self) -> str:
        return "guess" if self.kind in GUESS else "confidence" if self.kind in CONFIDENCE else self.kind


@dataclass(frozen=True)
class Named:
    """A part of a reply: kind, number, text, where the text starts (-1 in JSON), and whether it ends the reply."""

    kind: str
    number: int | None
    text: str
    start: int = -1
    is_last: bool = False


def named_texts(text: str) -> list[Named]:
    """Return the guesses and confidences of a reply, in order.

    >>> [(part.kind, part.text) for part in named_texts("Guess: **Oslo**, Probability: 0.9")]
    [('guess', 'Oslo'), ('probability', '0.9')]
    """
    in_json = _json_texts(text)
    return labelled_texts(text) if in_json is None else in_json


# Labels


def labelled_texts(text: str) -> list[Named]:
    """Return the guesses and confidences that labels name, in order; JSON is read as if its keys were labels."""
    spelled = plain(text)
    parts = []
    for label, until in _fields(spelled):
        place_in = _guess if label.kind in GUESS else _lines
        start, end = place_in(spelled, label.end, until)
        parts.append(Named(label.kind, label.number, text[start:end], start, end == len(text)))
    return parts


def _fields(text: str) -> list[tuple[Label, int]]:
    """Return the labels of guesses and confidences in a plain text, each with the end of what it names.

    Where there are guesses, answers are something else. Labels of something else end a field if they open a line. A
    label within a line counts after the last of its family that opens one.

    >>> text = "Guess: 4 P: 1 Probability: 0.9"
    >>> [(label.kind, text[label.end : end].strip()) for label, end in _fields(text)]
    [('guess', '4 P: 1'), ('probability', '0.9')]
    """
    labels = [label for match in _LABEL.finditer(text) if (label := _label(text, match))]
    guesses = [label for label in labels if label.family == "guess"]
    guesses.sort(key=lambda label: (not label.opens_line, label.kind != "guess"))
    wanted = {guesses[0].kind if guesses else "guess", *CONFIDENCE}
    last = {(label.family, label.number): label.start for label in labels if label.opens_line}
    # G1 and P1 within lines count if one of them opens a line; otherwise G20 may be a summit.
    has_letters = any(label.opens_line and len(label.name) == 1 for label in labels)

    def counts(label: Label) -> bool:
        is_meant = label.kind in wanted and (len(label.name) > 1 or has_letters)
        return label.opens_line or (is_meant and label.start > last.get((label.family, label.number), -1))

    counting = list(filter(counts, labels))
    ends = [*(label.start for label in counting[1:]), len(text)]
    return [(label, end) for label, end in zip(counting, ends, strict=False) if label.kind in wanted]


def _label(text: str, match: re.Match[str]) -> Label | None:
    """Return the label at a match, None if it is an ordinary word there."""
    name, at = match["name"].lower(), match.start()
    earliest = max(0, at - _LONGEST_OPENING)
    start = text.rfind("\n", earliest, at) + 1
    opens_line = (start > 0 or earliest == 0) and _OPENING.fullmatch(text, start, at) is not None
    if not opens_line:
        leading = _LEADING.search(text, max(0, at - _LONGEST_LEADING), at)
        start = at if leading is None else leading.start()
    label = Label(name, int(match["number"]) if match["number"] else None, start, match.end(), opens_line)
    is_alone = match["alone"] is not None and opens_line
    names_number = match["before"] is not None and label.family == "confidence"
    is_label = match["colon"] is not None or (len(name) > 1 and (is_alone or names_number))
    return label if is_label else None


# JSON


def _json_texts(text: str) -> list[Named] | None:
    r"""Return the guesses and confidences in JSON; None if the reply has no such JSON.

    Objects in a list are numbered. JSON with words around it counts if only the JSON has guess and confidence.
    """
    body = text.strip()
    if body[:1] in ("{", "[") and body[-1:] in ("}", "]"):
        return _named_in_json(body)
    begin = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    end = max(text.rfind("}"), text.rfind("]")) + 1
    if begin < 0 or end <= begin:
        return None
    parts = _named_in_json(text[begin:end]) or []
    is_whole = any(part.kind in GUESS for part in parts) and any(part.kind in CONFIDENCE for part in parts)
    around = plain(text[:begin] + "\n" + text[end:])
    says_more = any(around[label.end : end].partition("\n")[0].strip() for label, end in _fields(around))
    return parts if is_whole and not says_more else None


class _Pairs(list[tuple[str, Any]]):
    """The pairs of an object; a key may be there twice."""


def _named_in_json(body: str) -> list[Named] | None:
    try:
        value = json.loads(body, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(value, list) and not isinstance(value, _Pairs)
    objects = value if is_list else [value]
    if not all(isinstance(pairs, _Pairs) for pairs in objects):
        return None
    parts = []
    for place, pairs in enumerate(objects, 1):
        in_list = place if is_list else None
        for key, content in pairs:
            kind, number = _kind_of_key(key)
            if kind is not None and isinstance(content, str):
                parts.append(Named(kind, in_list if number is None else number, content.strip()))
    return parts


def _kind_of_key(key: str) -> tuple[str | None, int | None]:
    match = _KEY.fullmatch(plain(key).strip().lower())
    return (None, None) if match is None else (KINDS.get(match[1], match[1]), int(match[2]) if match[2] else None)


# Places of guesses and numbers


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place in a plain text without white space, quotes, Markdown and brackets around it; tags stay.

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
    """Return the place of a guess, without the words that lead to the next label in its line."""
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
    """Return the place of the first line that is not empty, with the next one if it is about the same number."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    until = text.find("\n", start, end)
    if until < 0:
        return start, end
    below = re.search(r"\S.*", text[until:end])
    return start, until + below.end() if below and _GOES_ON.match(below[0]) else until


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, end - (len(part) - len(part.rstrip())))
