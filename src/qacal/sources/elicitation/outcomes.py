"""The outcome of a reply: an answer with a confidence, a refusal, or a reply that cannot be read.

A reply that cannot be read is never guessed at. It has a reason from a short list, so that a run can count lost replies
by reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

_SHOWN = 200


class Reason(StrEnum):
    """Why a reply could not be read."""

    EMPTY = "the reply is empty"
    NO_GUESS = "there is no guess"
    NO_CONFIDENCE = "there is no confidence"
    SEVERAL_GUESSES = "there are several guesses"
    SEVERAL_CONFIDENCES = "there are several confidences"
    UNCLEAR_NUMBER = "the number can be read in several ways"
    OUT_OF_RANGE = "the number is not between 0 and 1"
    UNKNOWN_EXPRESSION = "the expression is not one of the list"
    ECHO = "the prompt is repeated, not answered"
    CUT = "the reply is cut off"
    THINKING = "the reply ends within the LLM's thoughts"
    NO_LOGPROBS = "there are no token probabilities"
    NEITHER_TRUE_NOR_FALSE = "neither True nor False is among the likely tokens"


@dataclass(frozen=True)
class Stated:
    """An answer and its stated confidence, in [0, 1]."""

    answer: str
    confidence: float


@dataclass(frozen=True)
class Refused:
    """The LLM declined to answer; `said` is the beginning of the reply."""

    said: str


@dataclass(frozen=True)
class Malformed:
    """A reply that cannot be read: `why` is one of :class:`Reason`, `said` is the beginning of the reply.

    >>> print(Malformed(Reason.EMPTY, "").why)
    the reply is empty
    """

    why: str
    said: str


Outcome: TypeAlias = Stated | Refused | Malformed


def refused(text: str) -> Refused:
    """Return a refusal with the beginning of the text."""
    return Refused(shown(text))


def malformed(why: Reason, text: str) -> Malformed:
    """Return why a text could not be read, with its beginning."""
    return Malformed(why, shown(text))


def shown(text: str) -> str:
    """Return the text without white space around it, cut to 200 characters.

    >>> shown("  No.  "), len(shown("no " * 1000))
    ('No.', 200)
    """
    begins = text[: 10 * _SHOWN].strip()
    return begins if len(begins) <= _SHOWN else begins[: _SHOWN - 1] + "…"
