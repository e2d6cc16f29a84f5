"""Questions of the quiz, the topics that generate them, and draws that are the same on every machine."""

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
# Letters that Unicode does not decompose into a plain letter and a mark.
_UNMARKED = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "đ": "d", "ß": "ss", "œ": "oe", "æ": "ae", "ʻ": ""})

T = TypeVar("T")


class Draws:
    """Numbers that depend on a seed alone; Python's own generator may draw other numbers in its next version.

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

    key : the subject of the question; unique within the topic, and part of the id.
    answers : the correct answer in all its usual forms, the canonical one first.
    choices : the choices that the question lists, if any.
    """

    key: str
    question: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] | None = None

    @property
    def gives_itself_away(self) -> bool:
        """Whether the question contains an answer word for word, without being a choice."""
        patterns = (rf"(?<!\w){re.escape(answer.casefold())}(?!\w)" for answer in self.answers)
        return self.choices is None and any(re.search(pattern, self.question.casefold()) for pattern in patterns)


@dataclass(frozen=True)
class Question:
    """A question of the quiz.

    ground_truth : the correct answer in all its usual forms, the canonical one first.
    subject : the name of its topic.
    choices : the answers to choose from; None for an open question.
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

    name : part of the ids and the seed of the draws, so it must not change.
    items : generates the questions.
    """

    name: str
    items: Callable[[], Iterator[Item]]

    def questions(self) -> Iterator[Question]:
        """Yield the questions; answers with accents are also given without them."""
        for item in self.items():
            key = f"{self.name}-{slug(item.key)}"
            forms = tuple(dict.fromkeys((*item.answers, *map(plain_letters, item.answers))))
            yield Question(key, item.question, forms, self.name, item.choices)


def shuffled(values: Sequence[str]) -> tuple[str, ...]:
    """Return values in an order that depends on them alone, so that the same choices always have the same order.

    >>> shuffled(["Chad", "Peru"]) == shuffled(["Peru", "Chad"])
    True
    """
    ordered = sorted(values)
    return tuple(Draws(" ".join(ordered)).some(ordered, len(ordered)))


def drawn(name: str, size: int, make: Callable[[Draws], Item | None]) -> Topic:
    """Return a topic of `size` different questions; the draws of the n-th depend on the name and n alone.

    So a larger size adds questions and changes none. Draws for which `make` returns None, a known question or a
    question that gives its answer away are skipped.
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

    return Topic(name, items)


def slug(text: str) -> str:
    """Return text in the form that ids have.

    >>> slug("Côte d'Ivoire")
    'cote-d-ivoire'
    """
    return re.sub(r"[^a-z0-9]+", "-", plain_letters(text).lower()).strip("-")


def plain_letters(text: str) -> str:
    """Return text without accents.

    >>> plain_letters("Dvořák, Jørn, złoty, Straße")
    'Dvorak, Jorn, zloty, Strasse'
    """
    apart = unicodedata.normalize("NFD", text.translate(_UNMARKED))
    return "".join(letter for letter in apart if not unicodedata.combining(letter))
