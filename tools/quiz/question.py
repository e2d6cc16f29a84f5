"""What a quiz is made of: questions, the topics that make them, and draws that are the same on every machine."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import TypeVar

from qacal.errors import InputError

_TRIES = 100
# Letters that Unicode does not take apart into a plain one and a mark.
_UNMARKED = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "đ": "d", "ß": "ss", "œ": "oe", "æ": "ae", "ʻ": ""})

T = TypeVar("T")


class Draws:
    """Numbers that follow from a seed alone; Python's own generator may draw otherwise in its next version.

    >>> draws = Draws("addition-0")
    >>> draws.number(10, 99), draws.pick("abc")
    (93, 'a')
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._drawn = count()

    def number(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        digest = sha256(f"{self._seed}/{next(self._drawn)}".encode()).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.number(0, len(values) - 1)]

    def some(self, values: Sequence[T], size: int) -> list[T]:
        """Return several of the values, each at most once, in a drawn order."""
        left = list(values)
        return [left.pop(self.number(0, len(left) - 1)) for _ in range(size)]


@dataclass(frozen=True)
class Item:
    """A question before it belongs to a topic.

    key : what it asks about; unique within the topic, and part of the id.
    answers : the truth, in all its usual forms; the first is the canonical one.
    choices : what to choose from, where the question names it.
    """

    key: str
    question: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] | None = None

    @property
    def gives_itself_away(self) -> bool:
        """Whether an answer stands in the question, word for word, with nothing to choose from."""
        return self.choices is None and any(_has_words(self.question, answer) for answer in self.answers)


@dataclass(frozen=True)
class Question:
    """A question of the quiz.

    ground_truth : the answer and its other usual forms, the canonical one first.
    subject : the name of its topic.
    choices : what to choose from; None where nothing is.
    """

    id: str
    question: str
    ground_truth: tuple[str, ...]
    subject: str
    choices: tuple[str, ...] | None = None
    dataset: str = "quiz"


@dataclass(frozen=True)
class Topic:
    """Questions of one kind.

    name : goes into the ids and seeds the draws, so it stays as it is.
    about : what is asked, in a few words.
    items : makes the questions.
    """

    name: str
    about: str
    items: Callable[[], Iterator[Item]]

    def questions(self) -> Iterator[Question]:
        """Yield the questions."""
        for item in self.items():
            key = f"{self.name}-{slug(item.key)}"
            yield Question(key, item.question, with_plain_letters(item.answers), self.name, item.choices)


def shuffled(values: Sequence[str]) -> tuple[str, ...]:
    """Return values in an order that they alone decide, so that the same choices are always asked in the same way.

    >>> shuffled(["Chad", "Peru"]) == shuffled(["Peru", "Chad"])
    True
    """
    ordered = sorted(values)
    return tuple(Draws(" ".join(ordered)).some(ordered, len(ordered)))


def drawn(name: str, about: str, size: int, make: Callable[[Draws], Item | None]) -> Topic:
    """Return a topic of `size` different questions, the n-th made with draws that only the name and n decide.

    So a larger size adds questions and changes none. What `make` turns down (None), what gives its answer away and what
    was made before is passed over.
    """

    def items() -> Iterator[Item]:
        seen: set[str] = set()
        for number in range(_TRIES * size):
            item = make(Draws(f"{name}-{number}"))
            if item is not None and item.key not in seen and not item.gives_itself_away:
                seen.add(item.key)
                yield item
            if len(seen) == size:
                return
        raise InputError(
            f"{_TRIES * size} draws made {len(seen)} questions of topic {name!r}, not {size}; ask for fewer."
        )

    return Topic(name, about, items)


def slug(text: str) -> str:
    """Return text as it may stand in an id.

    >>> slug("Côte d'Ivoire")
    'cote-d-ivoire'
    """
    return re.sub(r"[^a-z0-9]+", "-", plain_letters(text).lower()).strip("-")


def plain_letters(text: str) -> str:
    """Return text without marks on its letters.

    >>> plain_letters("Dvořák, Jørn, złoty, Straße")
    'Dvorak, Jorn, zloty, Strasse'
    """
    apart = unicodedata.normalize("NFD", text.translate(_UNMARKED))
    return "".join(letter for letter in apart if not unicodedata.combining(letter))


def with_plain_letters(forms: Sequence[str]) -> tuple[str, ...]:
    """Return all forms, those with marks on their letters also without, each once."""
    return tuple(dict.fromkeys((*forms, *map(plain_letters, forms))))


def _has_words(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words.casefold())}(?!\w)", text.casefold()) is not None
