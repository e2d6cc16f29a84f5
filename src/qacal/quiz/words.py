"""Letters of words: what a model that reads whole words at once does not see."""

from __future__ import annotations

from qacal.quiz.facts import facts
from qacal.quiz.numbers import number_forms, ordinal
from qacal.quiz.question import Draws, Item, Topic, drawn

_WORDS = tuple(word for ((word,),) in facts("words"))
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _length(draws: Draws) -> Item:
    word = draws.pick(_WORDS)
    return Item(word, f"How many letters are in the word '{word}'?", number_forms(len(word), "letters"))


def _occurrences(draws: Draws) -> Item:
    """Letters that occur, mostly; and those of which there are several, more often than chance has it."""
    word = draws.pick(_WORDS)
    letter = draws.pick(word.lower()) if draws.number(0, 9) else draws.pick(_LETTERS)
    times = word.lower().count(letter)
    forms = (*number_forms(times, "times"), *(("none", "no") if times == 0 else ("once", "twice")[times - 1 : times]))
    return Item(f"{word} {letter}", f"How many times does the letter '{letter}' occur in the word '{word}'?", forms)


def _reversed(draws: Draws) -> Item:
    word = draws.pick([word for word in _WORDS if len(word) <= 9]).lower()
    backwards = word[::-1]
    return Item(
        word, f"How is the word '{word}' spelt backwards?", (backwards, "-".join(backwards), " ".join(backwards))
    )


def _letter_at(draws: Draws) -> Item | None:
    word = draws.pick(_WORDS).lower()
    place = draws.number(2, len(word) - 1)
    letter = word[place - 1]
    # "a" is an article to whoever compares answers, and would be taken away.
    if letter == "a":
        return None
    question = f"What is the {ordinal(place)} letter of the word '{word}'?"
    return Item(f"{word} {place}", question, (letter, f"the letter {letter}"))


def _first_of_four(draws: Draws) -> Item:
    """Four words, at least two of which begin alike."""
    start = draws.pick(_WORDS).lower()[0]
    alike = [word.lower() for word in _WORDS if word.lower().startswith(start)]
    others = [word.lower() for word in _WORDS if not word.lower().startswith(start)]
    near = draws.some(alike, min(len(alike), draws.number(2, 3)))
    four = draws.some(near + draws.some(others, 4 - len(near)), 4)
    question = f"Which of these words comes first in alphabetical order: {', '.join(four)}?"
    return Item(" ".join(sorted(four)), question, (min(four),), tuple(four))


TOPICS = (
    Topic("word-length", "the number of letters in a word", drawn("word-length", 120, _length)),
    Topic("letter-count", "how often a letter is in a word", drawn("letter-count", 130, _occurrences)),
    Topic("backwards", "a word spelt backwards", drawn("backwards", 120, _reversed)),
    Topic("letter-at", "the letter at a place in a word", drawn("letter-at", 120, _letter_at)),
    Topic(
        "alphabetical", "the first of four words in the alphabet, to choose", drawn("alphabetical", 130, _first_of_four)
    ),
)
