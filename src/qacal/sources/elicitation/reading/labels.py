r"""Labels in a reply ("Guess:", "**Probability:**", "G2 ="), and the places of what they name.

A label that opens a line counts more than one within a line: a line of thought such as "my first guess: Lyon" is not an
answer when a line "Guess: Paris" follows. A label within a line counts if no line further down begins with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
