"""Filters of lm-evaluation-harness: what a task takes out of each reply, by the steps that its results name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qacal.sources.elicitation.patterns import Match, PatternError, found

# What lm-eval's filters put in the place of an answer that they did not find.
NOTHING_FOUND = "[invalid]"
_PATTERN = r"#### (\-?[0-9\.\,]+)"
# They choose among replies and leave each as it is.
_SELECTIONS = ("take_first", "majority_vote")


def filtered_replies(replies: Sequence[str], steps: Sequence[Mapping[str, Any]] | None) -> list[str] | None:
    r"""Return what a filter takes out of each of the replies that it looks at; None if a step cannot be done here.

    >>> steps = [{"function": "regex", "regex_pattern": r"The answer is (\d+)"}, {"function": "majority_vote"}]
    >>> filtered_replies(["So 7. The answer is 7.", "The answer is 8.", "Hard to say."], steps)
    ['7', '8', '[invalid]']
    """
    texts: list[str] | None = list(replies) if steps else None
    for step in steps or ():
        name, number = step.get("function"), step.get("k")
        if texts is None or name in _SELECTIONS:
            continue
        if name == "take_first_k" and isinstance(number, int) and number > 0:
            texts = texts[:number]
        elif name == "remove_whitespace":
            texts = [text.strip() for text in texts]
        elif name in ("lowercase", "uppercase"):
            texts = [text.lower() if name == "lowercase" else text.upper() for text in texts]
        else:
            texts = _matches(texts, step) if name == "regex" else None
    return texts


def _matches(texts: Sequence[str], step: Mapping[str, Any]) -> list[str] | None:
    """Return the chosen match of a pattern in each text, as ``re.findall`` gives it; of groups, the first with text."""
    pattern, place, fallback = (
        step.get(name, default)
        for name, default in (("regex_pattern", _PATTERN), ("group_select", 0), ("fallback", NOTHING_FOUND))
    )
    if not (isinstance(pattern, str) and isinstance(place, int) and isinstance(fallback, str)):
        return None
    try:
        matches = [found(pattern, text) for text in texts]
    except PatternError:
        return None
    chosen = [all_[place] if -len(all_) <= place < len(all_) else None for all_ in matches]
    return [fallback if match is None else _text(match, fallback).strip() for match in chosen]


def _text(match: Match, fallback: str) -> str:
    if len(match.groups) < 2:
        return match.groups[0] or "" if match.groups else match.whole
    return next(filter(None, match.groups), fallback)
