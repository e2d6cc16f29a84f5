"""Regular expressions from files of unknown origin, with bounds on their length and their time.

The package `regex` can stop a match; the standard library cannot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import regex

from qacal.errors import InputError

# Of the processor, for one text. Ordinary patterns take microseconds.
_SECONDS = 2.0
# Patterns of prompts and filters have tens of characters; compiling this many takes a tenth of a second at worst.
_LONGEST = 2_000
# Matches of nested groups can be many times as long as the text.
_MOST_MATCHED = 100


class PatternError(InputError):
    """A pattern that is not a regular expression."""


def all_matches(pattern: str, text: str) -> list[Any]:
    r"""Return all matches of a pattern in a text, as ``re.finditer`` gives them.

    >>> [match["share"] for match in all_matches(r"\w+ @ (?P<share>\S+)", "Paris @ 90%, Rome @ 8%")]
    ['90%,', '8%']
    """
    matches, size = [], 0
    try:
        for match in compiled(pattern).finditer(text, timeout=_SECONDS):
            matches.append(match)
            size += sum(len(part or "") + 8 for part in (match[0], *match.groups()))
            if size > _MOST_MATCHED * len(text) + 10_000:
                raise InputError(f"the groups of the pattern {pattern!r:.200} match the same text again and again.")
    except TimeoutError:
        raise InputError(
            f"the pattern {pattern!r:.200} takes more than {_SECONDS:g} s for a text of {len(text):,} characters: it "
            "tries too many ways, as (a|a)+ does. If it is yours, write it without repeats within repeats; if not, it "
            "may have been made to do harm."
        ) from None
    return matches


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern."""
    if len(pattern) > _LONGEST:
        raise PatternError(
            f"the pattern {pattern!r:.80} has {len(pattern):,} characters; expected {_LONGEST:,} at most."
        )
    try:
        return regex.compile(pattern)
    except (regex.error, ValueError, RecursionError, OverflowError) as error:
        raise PatternError(f"the pattern {pattern!r:.200} is not a regular expression: {error}.") from None
