"""Filters of lm-evaluation-harness: what a task takes out of each reply, by the steps that its results name.

A pattern comes from the log, and a log may come from anybody. Patterns are therefore matched by the engine of polars,
which takes time in proportion to the text whatever the pattern is; it has no look-around and no references back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    import polars as pl

    pattern, place, fallback = (
        step.get(name, default)
        for name, default in (("regex_pattern", _PATTERN), ("group_select", 0), ("fallback", NOTHING_FOUND))
    )
    if not (isinstance(pattern, str) and isinstance(place, int) and isinstance(fallback, str)):
        return None
    sound = [text.encode("utf-8", "replace").decode() for text in texts]
    if "$" in pattern:  # in Python it also stands before a line break that ends the text
        sound = [text.removesuffix("\n") for text in sound]
    try:
        found = pl.Series(sound, dtype=pl.String).str.extract_all(pattern).to_list()
        chosen = [all_[place] if -len(all_) <= place < len(all_) else None for all_ in found]
        groups = pl.Series(chosen, dtype=pl.String).str.extract_groups(pattern).to_list()
    except (pl.exceptions.PolarsError, UnicodeError):
        return None
    return [_chosen(whole, group, fallback).strip() for whole, group in zip(chosen, groups, strict=True)]


def _chosen(whole: str | None, group: dict[str, str | None] | None, fallback: str) -> str:
    parts = list((group or {}).values())
    if whole is None or not parts:
        return fallback if whole is None else whole
    return parts[0] or "" if len(parts) == 1 else next(filter(None, parts), fallback)
