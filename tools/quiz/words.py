"""Letters of words, which an LLM that reads whole words as tokens does not see."""

from __future__ import annotations

from tools.quiz.facts import facts
from tools.quiz.numbers import number_forms, ordinal
from tools.quiz.question import Draws, Item, drawn, shuffled

_WORDS = tuple(word for ((word,),) in facts("words"))
_ADVERBS = {0: ("none",), 1: ("once",), 2: ("twice",)}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _length(draws: Draws) -> Item:
    word = draws.pick(_WORDS)
    return Item(word, f"How many letters are in the word '{word}'?", number_forms(len(word), "letters"))


def _occurrences(draws: Draws) -> Item:
    """Ask for repeated letters more often than for others; otherwise "1" would nearly always be correct."""
    word = draws.pick(_WORDS)
    repeated = [letter for letter in _LETTERS if word.lower().count(letter) > 1]
    letter = draws.pick(draws.pick((repeated or _LETTERS, repeated or _LETTERS, word.lower())))
    times = word.lower().count(letter)
    forms = (*number_forms(times, "time" if times == 1 else "times"), *_ADVERBS.get(times, ()))
    return Item(f"{word} {letter}", f"How many times does the letter '{letter}' occur in the word '{word}'?", forms)


def _reversed(draws: Draws) -> Item:
    digits = "".join(str(draws.number(1, 9)) for _ in range(draws.number(3, 7)))
    backwards = digits[::-1]
    forms = (backwards, f"{int(backwards):,}", "-".join(backwards), " ".join(backwards))
    return Item(digits, f"What is {digits} with its digits in reverse order?", forms)


def _letter_at(draws: Draws) -> Item | None:
    word = draws.pick(_WORDS).lower()
    place = draws.number(2, len(word) - 1)
    letter = word[place - 1]
    # Comparing answers removes articles, so nothing would be left of "a".
    if letter == "a":
        return None
    question = f"What is the {ordinal(place)} letter of the word '{word}'?"
    return Item(f"{word} {place}", question, (letter, f"the letter {letter}"))


def _first_of_four(draws: Draws) -> Item:
    """Ask for the first of four words; two or three of them share the first letter."""
    words = [word.lower() for word in _WORDS]
    start = draws.pick(words)[0]
    alike = [word for word in words if word[0] == start]
    near = draws.some(alike, min(len(alike), draws.number(2, 3)))
    others = draws.some([word for word in words if word[0] != start], 4 - len(near))
    four = shuffled((*near, *others))
    question = f"Which of these words comes first in alphabetical order: {', '.join(four)}?"
    return Item(" ".join(sorted(four)), question, (min(four),), four)


TOPICS = (
    drawn("word-length", 120, _length),
    drawn("letter-count", 130, _occurrences),
    drawn("backwards", 120, _reversed),
    drawn("letter-at", 120, _letter_at),
    drawn("alphabetical", 130, _first_of_four),
)
