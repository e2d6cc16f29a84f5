"""Questions to ask: a text, the choices if it has some, and the right answers; read from files and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qacal.errors import InputError
from qacal.records.reading import as_source
from qacal.storage import digest
from qacal.tally.arrays import is_missing

COLUMNS = ("id", "question", "choices", "ground_truth")


@dataclass(frozen=True)
class Question:
    """A question.

    id : the rows of its answers carry it.
    text : the question itself.
    choices : the answers to choose from; None for an open question.
    ground_truth : the spellings of the correct answer; empty if it is not known.

    >>> Question("q1", "Capital of France?", ground_truth=("Paris",)).choices is None
    True
    >>> Question("q2", "Capital of France?", choices=())
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: question q2 has an empty list of choices; leave it out (None) where there are none.
    """

    id: str
    text: str
    choices: tuple[str, ...] | None = None
    ground_truth: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise InputError(f"question {self.id} is {self.text!r}; expected text.")
        if self.choices is not None and not self.choices:
            raise InputError(
                f"question {self.id} has an empty list of choices; leave it out (None) where there are none."
            )
        for name in ("choices", "ground_truth"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"question {self.id}: {name} is one text; expected a tuple of texts.")


@dataclass(frozen=True)
class Asked:
    """A question with the other columns of its row."""

    question: Question
    others: Mapping[str, Any]


def read_questions(rows: Any, columns: Mapping[str, str] | None = None) -> Iterator[Asked]:
    """Yield the questions of a file or table.

    It has the column `question`, and may have `id`, `choices` and `ground_truth` (a text, or a list of which any is
    correct; in CSV, a JSON list). Other columns are kept. Without ids, the id is a digest of text and choices.

    columns : ``{"question": "prompt"}`` if the rows use other names.

    >>> [one.question.ground_truth for one in read_questions([{"question": "2 + 2?", "ground_truth": ["4", "four"]}])]
    [('4', 'four')]
    >>> list(read_questions([{"id": 1, "question": ""}]))
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: records row 1: question is ''; expected text.
    """
    names = {column: (columns or {}).get(column, column) for column in COLUMNS}
    for table in as_source(rows).batches():
        table.require(names["question"], "If it has another name here, pass --column question=NAME.")
        for at, row in enumerate(table.rows()):
            try:
                yield _asked(row, names)
            except InputError as error:
                raise InputError(str(table.fault(at, str(error)))) from None


def _asked(row: dict[str, Any], names: Mapping[str, str]) -> Asked:
    given = {column: row.get(name) for column, name in names.items()}
    text, choices = given["question"], _texts(given["choices"], "choices") or None
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"question is {text!r}; expected text.")
    _require_whole(text)
    others = {name: value for name, value in row.items() if name not in names.values()}
    identity = digest({"question": text, "choices": choices})[:16] if is_missing(given["id"]) else given["id"]
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise InputError(f"id is {identity!r}; expected text or a whole number.")
    return Asked(Question(str(identity), text, choices, _texts(given["ground_truth"], "ground_truth")), others)


def _texts(value: Any, name: str) -> tuple[str, ...]:
    """Return a text or a list of texts as a tuple; CSV has a list as JSON."""
    if is_missing(value):
        return ()
    listed = texts_in(value) if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    texts = tuple(str(one) for one in listed if isinstance(one, str | int | float) and not isinstance(one, bool))
    if len(texts) != len(listed):
        raise InputError(f"{name} is {value!r:.80}; expected a text or a list of texts.")
    for text in texts:
        _require_whole(text)
    return texts


def texts_in(value: str) -> list[str]:
    """Return the texts of a JSON list of texts; anything else is one text, such as the answer ``[1, 2, 3]``.

    >>> texts_in('["a", "b"]'), texts_in("[1, 2]"), texts_in("[sic]")
    (['a', 'b'], ['[1, 2]'], ['[sic]'])
    """
    if value.lstrip().startswith("["):
        try:
            found = json.loads(value)
        except ValueError:
            return [value]
        if isinstance(found, list) and found and all(isinstance(one, str) for one in found):
            return found
    return [value]


def _require_whole(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{text!r:.80} holds half of a character, which cannot be sent.") from None
