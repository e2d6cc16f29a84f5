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

_KINDS = {"g": "guess", "p": "probability", "guesses": "guess", "prob": "probability"}
_LABEL = re.compile(
    r"(?<![^\W_])(?P<name>guess(?:es)?|answer|prob(?:ability)?|confidence|likelihood|[gp](?=[ ]?\d)"
    r"|explanation|reason(?:ing)?|rationale|question|note|justification)"
    r"(?:[ ]?\#?(?P<number>\d{1,2})(?=[*_`\"')\]]{0,4}[ ]{0,3}[:=]))?"
    r"(?:[ ](?:score|level)|[ ]\(0(?:\.0)?[ ]?(?:-|to)[ ]?1(?:\.0)?\)|[ ](?:that|of)[ ][a-z ]{0,40}(?=[:=]))?"
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


@dataclass(frozen=True)
class Label:
    """A label: what it names, its number if it has one, where it begins and ends, and whether it opens its line."""

    kind: str
    number: int | None
    start: int
    end: int
    opens_line: bool


@dataclass(frozen=True)
class Field:
    """What a label names: from the end of the label to the next one, or to the end."""

    label: Label
    start: int
    end: int


def fields(text: str, *families: Sequence[str]) -> list[Field]:
    """Return the fields of a plain text, in order.

    families : names for the same thing, the ones that were asked for first. The first that occurs counts; labels of
        other names end a field, where they open a line, and have none themselves.

    >>> text = "Guess: 4 P: 1 Probability: 0.9"
    >>> [(field.label.kind, text[field.start : field.end].strip()) for field in fields(text, GUESS, CONFIDENCE)]
    [('guess', '4 P: 1'), ('probability', '0.9')]
    """
    labels = [label for match in _LABEL.finditer(text) if (label := _label(text, match))]
    kinds = first_named({label.kind for label in labels}, families)
    counting = _counting(labels, kinds)
    ends = [*(label.start for label in counting[1:]), len(text)]
    return [Field(label, label.end, end) for label, end in zip(counting, ends, strict=False) if label.kind in kinds]


def first_named(present: set[str], families: Sequence[Sequence[str]]) -> set[str]:
    """Return, of each family of names, the first that is present.

    >>> first_named({"answer", "likelihood"}, [GUESS, CONFIDENCE]) == {"answer", "likelihood"}
    True
    """
    return {next((name for name in names if name in present), names[0]) for names in families}


def _label(text: str, match: re.Match[str]) -> Label | None:
    """Return the label that was found, None if the word is but a word where it stands."""
    name = match["name"].lower()
    kind, start = _KINDS.get(name, name), _line_start(text, match.start())
    if match["colon"] is None:
        is_alone = match["alone"] is not None and start is not None
        names_number = match["before"] is not None and kind in CONFIDENCE
        if len(name) == 1 or not (is_alone or names_number):
            return None
    number = int(match["number"]) if match["number"] else None
    at = _begin(text, match.start()) if start is None else start
    return Label(kind, number, at, match.end(), start is not None)


def _begin(text: str, at: int) -> int:
    """Return where the quotes and the Markdown right before a label begin."""
    return at - len(text[max(0, at - 4) : at]) + len(text[max(0, at - 4) : at].rstrip("\"'*_`"))


def _line_start(text: str, at: int) -> int | None:
    """Return where the line of a label begins if nothing but its opening precedes the label, else None."""
    earliest = max(0, at - _LONGEST_OPENING)
    start = text.rfind("\n", earliest, at) + 1
    if start == 0 and earliest > 0:
        return None
    return start if _OPENING.fullmatch(text, start, at) else None


def _counting(labels: Sequence[Label], kinds: set[str]) -> list[Label]:
    """Return the labels that count: those that open lines, and others that come after all equal ones that do."""
    last = {(label.kind, label.number): label.start for label in labels if label.opens_line}
    return [
        label
        for label in labels
        if label.opens_line or (label.kind in kinds and label.start > last.get((label.kind, label.number), -1))
    ]
