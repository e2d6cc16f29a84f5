r"""From the text of a reply to its outcome: an answer with a confidence, a refusal, or why it cannot be read.

The prompt asks for ``Guess: Paris``, line break, ``Probability: 0.9``. LLMs write that in bold, in JSON, in one line,
after a page of thoughts, twice, in part, or not at all. These rules decide:

* Thoughts in tags (``<think>``) are not read. Text before the labels and after the confidence is ignored.
* A guess needs its label. Two guesses, or two confidences, must agree.
* A reply has one scale: beside ``P1: 98`` a bare ``P2: 1`` is not read.
* A guess that declines to answer is a refusal, with any number. "I don't know" with a number is an answer: an LLM that
  says so at 0.0 is right about itself, and leaving it out would make it look worse. Without a number it is a refusal.
* An answer goes to the end of its paragraph, without quotes, Markdown and brackets around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from qacal.sources.elicitation.matching import normalise_answer
from qacal.sources.elicitation.reading.characters import ends_in_thoughts, plain, without_thoughts
from qacal.sources.elicitation.reading.expressions import EXPRESSIONS, read_expression
from qacal.sources.elicitation.reading.labels import CONFIDENCE, GUESS, Named, labelled_texts, named_texts, trimmed
from qacal.sources.elicitation.reading.numbers import read_probability, scale_of
from qacal.sources.elicitation.reply import (
    Malformed,
    Outcome,
    Reason,
    Refused,
    Stated,
    malformed,
    refused,
)

# Takes the text of a confidence, and `is_cut`: whether the reply was cut there.
ReadConfidence: TypeAlias = Callable[..., float | Malformed]

# Words of the prompts that no answer has, and copied placeholders.
_ECHO = re.compile(
    r"not a complete sentence, just the guess|without any extra commentary|<description of confidence"
    r"|<[^<>\n]{0,40}\b(?:guess|probability)\b[^<>\n]{0,60}>",
    re.IGNORECASE,
)
_DIGIT_AFTER_LABEL = re.compile(r"\b(?:probability|confidence|likelihood)[ ]{0,3}[:=][ ]{0,3}\.?\d", re.IGNORECASE)
_LONGEST_LINE = 300

# A refusal is recognised by the beginning of a reply.
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


def parse_guess(text: str, *, is_cut: bool = False) -> Outcome:
    r"""Read ``Guess: ...`` and ``Probability: ...``.

    is_cut : the reply reached its limit; a number at its end may lack digits.

    >>> parse_guess("**Guess:** Paris\n**Probability:** 90%")
    Stated(answer='Paris', confidence=0.9)
    >>> parse_guess("I'm sorry, I can't answer that.")
    Refused(said="I'm sorry, I can't answer that.")
    >>> print(parse_guess("Guess: Paris\nProbability: 0.9 or 0.5").why)
    there are several confidences
    """
    return _single(text, read_probability, is_cut)


def parse_expression_guess(
    text: str, expressions: Mapping[str, float] = EXPRESSIONS, *, is_cut: bool = False
) -> Outcome:
    r"""Read ``Guess: ...`` and ``Confidence: ...``, where the confidence is an expression of a list.

    >>> parse_expression_guess("Guess: Paris\nConfidence: highly likely")
    Stated(answer='Paris', confidence=0.9)
    """
    return _single(text, partial(read_expression, expressions=expressions), is_cut)


def parse_guesses(text: str, count: int, *, is_cut: bool = False) -> tuple[Outcome, ...]:
    r"""Read ``G1: ...``, ``P1: ...`` to ``Gk: ...``, ``Pk: ...``: one outcome for each.

    Every guess and probability needs its number. A reply has one scale: beside percents or shares a bare 1 is not read,
    because it is one percent as often as certainty.

    >>> parse_guesses("G1: Paris\nP1: 0.8\nG2: Lyon\nP2: 0.15", 2)
    (Stated(answer='Paris', confidence=0.8), Stated(answer='Lyon', confidence=0.15))
    """
    visible = without_thoughts(text)
    fault = _fault(visible, text, is_cut)
    if fault is not None:
        return (fault,) * count
    parts = named_texts(visible)
    if any(part.number is None for part in parts):
        parts = []
    if not parts and declines(visible):
        return (refused(visible),) * count
    has_percents = any(part.kind in CONFIDENCE and scale_of(part.text) == 100 for part in parts)

    def read(confidence: str, *, is_cut: bool) -> float | Malformed:
        if has_percents and scale_of(confidence) == 1:
            return malformed(Reason.UNCLEAR_NUMBER, confidence)
        return read_probability(confidence, is_cut=is_cut)

    rows = ([part for part in parts if part.number == number] for number in range(1, count + 1))
    return tuple(_named_ending(_outcome(visible, row, read, is_cut), text, is_cut) for row in rows)


def parse_stated(text: str, *, is_cut: bool = False) -> Outcome:
    r"""Read a reply of any of these forms: a confidence as a number or, without one, in words.

    Several guesses are not read; :func:`parse_guesses` needs to know their number.

    >>> parse_stated("Answer: 42\nConfidence: Almost certain")
    Stated(answer='42', confidence=0.95)
    """
    outcome = parse_guess(text, is_cut=is_cut)
    if isinstance(outcome, Malformed) and outcome.why == Reason.NO_CONFIDENCE:
        worded = parse_expression_guess(text, is_cut=is_cut)
        return outcome if isinstance(worded, Malformed) and worded.why == Reason.UNKNOWN_EXPRESSION else worded
    return outcome


def parse_answer(text: str, *, is_cut: bool = False) -> str | Refused | Malformed:
    r"""Read ``Guess: ...`` alone: the first stage of prompts that ask for the confidence later.

    A single short line without a label is an answer too.

    >>> parse_answer("Guess: Paris"), parse_answer("Paris")
    ('Paris', 'Paris')
    """
    visible = without_thoughts(text)
    fault = _fault(visible, text, is_cut) or (malformed(Reason.CUT, text) if is_cut else None)
    if fault is not None:
        return fault
    guesses = _guesses(named_texts(visible))
    if guesses and not _are_same(guesses):
        return malformed(Reason.SEVERAL_GUESSES, visible)
    answer = guesses[0].text if guesses else visible
    if declines(answer, is_guess=bool(guesses)) or does_not_know(answer):
        return refused(visible)
    if guesses:
        return answer
    start, end = trimmed(plain(visible), 0, len(visible))
    is_line = start < end <= start + _LONGEST_LINE and "\n" not in visible[start:end]
    return visible[start:end] if is_line else malformed(Reason.NO_GUESS, visible)


def parse_confidence(text: str, *, is_cut: bool = False) -> float | Refused | Malformed:
    r"""Read ``Probability: ...`` alone, or a probability without a label: the second stage of such prompts.

    >>> parse_confidence("Probability: 0.9\n\nNote: founded in 987."), parse_confidence("0.9")
    (0.9, 0.9)
    """
    visible = without_thoughts(text)
    fault = _fault(visible, text, is_cut)
    if fault is not None:
        return fault
    confidences = [part for part in named_texts(visible) if part.kind in CONFIDENCE and part.text.strip()]
    stated = [(part.text, is_cut and part.is_last) for part in confidences] or [(visible, is_cut)]
    confidence = _agreed([read_probability(said, is_cut=is_at_cut) for said, is_at_cut in stated])
    if isinstance(confidence, float):
        return confidence
    is_missing = confidence == Reason.NO_CONFIDENCE
    if is_missing and declines(visible):
        return refused(visible)
    ending = _ending(text, is_cut) if is_missing else None
    return malformed(ending or Reason(confidence), visible)


def answer_place(text: str, answer: str) -> tuple[int, int] | None:
    r"""Return the place of an answer in the reply that it was read from; None if that is not clear.

    It is the place after the label, or the only one where the answer occurs.

    >>> answer_place("Is it Oslo? Guess: Oslo", "Oslo")
    (19, 23)
    """
    visible = without_thoughts(text)
    starts = [part.start for part in _guesses(labelled_texts(visible)) if part.text == answer]
    if not starts and answer and visible.count(answer) == 1:
        starts = [visible.index(answer)]
    # An escape in JSON may be the answer, which is then not what it is found to be elsewhere.
    is_unclear = not starts or (visible.lstrip()[:1] in ("{", "[") and "\\" in visible)
    return None if is_unclear else (starts[0], starts[0] + len(answer))


def _single(text: str, read: ReadConfidence, is_cut: bool) -> Outcome:
    visible = without_thoughts(text)
    fault = _fault(visible, text, is_cut)
    return fault or _named_ending(_outcome(visible, named_texts(visible), read, is_cut), text, is_cut)


def _fault(visible: str, text: str, is_cut: bool) -> Malformed | None:
    if not visible.strip():
        return malformed(_ending(text, is_cut) or Reason.EMPTY, text)
    is_echo = _ECHO.search(plain(visible)) is not None and "</" not in visible
    return malformed(Reason.ECHO, visible) if is_echo else None


def _ending(text: str, is_cut: bool) -> Reason | None:
    return Reason.THINKING if ends_in_thoughts(text) else Reason.CUT if is_cut else None


def _named_ending(outcome: Outcome, text: str, is_cut: bool) -> Outcome:
    """Return the outcome; if something is missing because the reply ends too early, that is the reason."""
    is_missing = isinstance(outcome, Malformed) and outcome.why in (Reason.NO_GUESS, Reason.NO_CONFIDENCE)
    ending = _ending(text, is_cut) if is_missing else None
    return outcome if ending is None else malformed(ending, text)


def _outcome(visible: str, parts: list[Named], read: ReadConfidence, is_cut: bool) -> Outcome:
    """Return the outcome of the parts of one guess."""
    guess = " ".join(part.text for part in _guesses(parts))
    outcome = _stated(visible, parts, read, is_cut)
    if isinstance(outcome, Stated):
        return refused(visible) if declines(guess, is_guess=True) else outcome
    is_silent = outcome.why in (Reason.NO_GUESS, Reason.NO_CONFIDENCE, Reason.UNKNOWN_EXPRESSION)
    is_refusal = declines(guess or visible, is_guess=bool(guess)) or does_not_know(guess or visible)
    return refused(visible) if is_silent and is_refusal else outcome


def _stated(visible: str, parts: list[Named], read: ReadConfidence, is_cut: bool) -> Stated | Malformed:
    guesses = _guesses(parts)
    confidences = [part for part in parts if part.kind in CONFIDENCE and part.text.strip()]
    if not guesses:
        return malformed(Reason.NO_GUESS, visible)
    if not _are_same(guesses):
        return malformed(Reason.SEVERAL_GUESSES, visible)
    answer = guesses[0].text
    if not confidences:
        return malformed(Reason.NO_CONFIDENCE, visible)
    if _DIGIT_AFTER_LABEL.search(plain(answer)):
        return malformed(Reason.SEVERAL_CONFIDENCES, visible)
    confidence = _agreed([read(part.text, is_cut=is_cut and part.is_last) for part in confidences])
    return Stated(answer, confidence) if isinstance(confidence, float) else malformed(Reason(confidence), visible)


def _agreed(values: Sequence[float | Malformed]) -> float | str:
    """Return the one confidence, or why there is none; "Confidence: high" beside a number is ignored."""
    reasons = [value.why for value in values if isinstance(value, Malformed)]
    faults = [why for why in reasons if why != Reason.NO_CONFIDENCE]
    numbers = {value for value in values if isinstance(value, float)}
    if faults or not numbers:
        return (faults or reasons)[0]
    return numbers.pop() if len(numbers) == 1 else Reason.SEVERAL_CONFIDENCES


def _guesses(parts: Sequence[Named]) -> list[Named]:
    return [part for part in parts if part.kind in GUESS and part.text]


def _are_same(guesses: Sequence[Named]) -> bool:
    return len({normalise_answer(guess.text) for guess in guesses}) == 1


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
