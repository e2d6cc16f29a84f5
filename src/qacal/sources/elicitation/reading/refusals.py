"""Refusals: replies in which an LLM declines to answer."""

from __future__ import annotations

import re

from qacal.sources.elicitation.reading.characters import plain

# Long replies are recognised by their beginning.
_BEGINNING = 600

_DOES_NOT = (
    r"(?:can't|cannot|can not|could not|couldn't|won't|will not|am not able to|'m not able to|am unable to|'m unable to"
    r"|do not|don't|must decline to|have to decline to|refuse to|am not going to|'m not going to)"
)
_REFUSES = (
    r"(?:answer|assist|help (?:you with|with)|provide|determine|guess|comply|discuss|fulfil|engage|respond|predict"
    r"|speculate|identify|verify|make (?:a guess|guesses))"
)
# Titles begin like this too ("I Can't Tell You Why"), so a guess of this form is not a refusal.
_MAY_REFUSE = r"(?:give|say|share|tell|offer|access|have (?:enough|access|any|the|that))"
_REFUSAL = (
    r"\bi(?:'m| am) (?:so |very |really |truly )?sorry(?:,|\.|! | but | i\b)",
    r"^\W*sorry,? (?:but|i|this|that|we)\b",
    r"\bi apologi[sz]e\b|\bmy apologies\b",
    r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
    r"\bi(?:'m| am) (?:just |only )?an? (?:ai|(?:large )?language model)\b",
    r"\bunable to (?:answer|provide|determine|assist|comply)\b",
    r"\bi(?:'d| would) (?:prefer|rather) not\b|\bi (?:must |have to )?(?:respectfully )?decline\b",
)
_I_DO_NOT = rf"\bi\b ?(?:also |really |simply |just )?{_DOES_NOT} (?:actually |really |reliably )?"
_GUESS = re.compile("|".join((rf"{_I_DO_NOT}{_REFUSES}\b", *_REFUSAL)), re.IGNORECASE)
_REPLY = re.compile("|".join((rf"{_I_DO_NOT}(?:{_REFUSES}|{_MAY_REFUSE})\b", *_REFUSAL)), re.IGNORECASE)
_NOT_KNOWING = re.compile(
    r"^\W*(?:i (?:really |honestly )?(?:do not|don't) know(?: the answer| this| that| it)?|unknown|no idea)\W*(?:$|\n)",
    re.IGNORECASE,
)


def declines(text: str, *, is_guess: bool = False) -> bool:
    """Return whether a reply declines to answer, or a guess is a refusal.

    >>> declines("I'm sorry, but I can't help with that."), declines("The capital is Paris.")
    (True, False)
    >>> declines("I Can't Tell You Why"), declines("I Can't Tell You Why", is_guess=True)
    (True, False)
    """
    pattern = _GUESS if is_guess else _REPLY
    return bool(pattern.search(plain(text[:_BEGINNING]).strip()))


def does_not_know(text: str) -> bool:
    """Return whether a text says that the LLM does not know.

    >>> does_not_know("I don't know."), does_not_know("Unknown Mortal Orchestra")
    (True, False)
    """
    return bool(_NOT_KNOWING.search(plain(text[:_BEGINNING]).strip()))
