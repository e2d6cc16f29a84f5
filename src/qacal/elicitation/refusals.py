"""Refusals: replies in which an LLM declines to answer."""

from __future__ import annotations

import re

from qacal.elicitation.glyphs import plain

# Long replies are told by how they begin.
_BEGINNING = 600

_DOES_NOT = (
    r"(?:can't|cannot|can not|could not|couldn't|won't|will not|am not able to|'m not able to|am unable to|'m unable to"
    r"|do not|don't|must decline to|have to decline to|refuse to|am not going to|'m not going to)"
)
_DEED = (
    r"(?:answer|assist|help (?:you|with)|provide|give|determine|guess|comply|discuss|fulfil|engage|respond|predict|say"
    r"|share|tell|offer|make a guess|make guesses|speculate|identify|verify|access|have (?:enough|access|any|the|that))"
)
_DECLINES = re.compile(
    "|".join(
        (
            rf"\bi\b ?(?:also |really |simply |just )?{_DOES_NOT} (?:actually |really |reliably )?{_DEED}\b",
            r"\bi(?:'m| am) (?:so |very |really |truly )?sorry(?:,|\.|! | but | i\b)",
            r"^\W*sorry,? (?:but|i|this|that|we)\b",
            r"\bi apologi[sz]e\b|\bmy apologies\b",
            r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
            r"\bi(?:'m| am) (?:just |only )?an? (?:ai|(?:large )?language model)\b",
            r"\bunable to (?:answer|provide|determine|assist|comply)\b",
            r"\bi(?:'d| would) (?:prefer|rather) not\b|\bi (?:must |have to )?(?:respectfully )?decline\b",
        )
    ),
    re.IGNORECASE,
)
# A title may begin like a refusal ("I Can't Help Myself"); as a guess it has to be a refusal beyond doubt.
_NOT_KNOWING = re.compile(r"\bi (?:do not|don't) know\b|^\W*(?:unknown|no idea)\W*$", re.IGNORECASE)


def declines(text: str) -> bool:
    """Return whether a reply declines to answer.

    >>> declines("I'm sorry, but I can't help with that."), declines("The capital is Paris.")
    (True, False)
    """
    return bool(_DECLINES.search(plain(text[:_BEGINNING]).strip()))


def does_not_know(text: str) -> bool:
    """Return whether a text is that the LLM does not know.

    >>> does_not_know("I don't know."), does_not_know("Unknown Mortal Orchestra")
    (True, False)
    """
    return bool(_NOT_KNOWING.search(plain(text[:_BEGINNING]).strip()))
