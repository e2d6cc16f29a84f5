"""Questions to ask: a text, its choices, and the correct answers; read from files and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    choices : the answers to choose from; None for an open question.
    ground_truth : the spellings of the correct answer; empty if it is not known.
    others : the other columns of its row, which the rows of its answers carry too.
    """

    id: str
    text: str
    choices: tuple[str, ...] | None = None
    ground_truth: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

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


def read_questions(rows: Any, columns: Mapping[str, str] | None = None) -> Iterator[Question]:
    """Yield the questions of a file or table.

    It has the column `question`, and may have `id`, `choices` and `ground_truth` (a text, or a list of correct answers;
    in CSV, a JSON list). Other columns are kept. Without ids, the id is a digest of text and choices.

    columns : ``{"question": "prompt"}`` if the rows use other names.

    >>> [one.ground_truth for one in read_questions([{"question": "2 + 2?", "ground_truth": ["4", "four"]}])]
    [('4', 'four')]
    """
    names = {column: (columns or {}).get(column, column) for column in COLUMNS}
    for table in as_source(rows).batches():
        table.require(names["question"], "If it has another name here, pass --column question=NAME.")
        for at, row in enumerate(table.rows()):
            try:
                yield _question(row, names)
            except InputError as error:
                raise InputError(str(table.fault(at, str(error)))) from None


def _question(row: dict[str, Any], names: Mapping[str, str]) -> Question:
    values = {column: row.get(name) for column, name in names.items()}
    text, choices, truths = values["question"], _texts(values, "choices") or None, _texts(values, "ground_truth")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"question is {text!r}; expected text.")
    for part in (text, *(choices or ()), *truths):
        try:
            part.encode()
        except UnicodeEncodeError:
            raise InputError(f"{part!r:.80} holds half of a character, which cannot be sent.") from None
    identity = digest({"question": text, "choices": choices})[:16] if is_missing(values["id"]) else values["id"]
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise InputError(f"id is {identity!r}; expected text or a whole number.")
    others = {name: value for name, value in row.items() if name not in names.values()}
    return Question(str(identity), text, choices, truths, others)


def _texts(values: Mapping[str, Any], column: str) -> tuple[str, ...]:
    """Return a text or a list of texts as a tuple; CSV has a list as JSON."""
    value = values[column]
    if is_missing(value):
        return ()
    listed = texts_in(value) if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in listed):
        raise InputError(f"{column} is {value!r:.80}; expected a text or a list of texts.")
    return tuple(str(one) for one in listed)


def texts_in(value: str) -> list[str]:
    """Return the texts of a JSON list of texts; anything else is one text, such as the answer ``[1, 2, 3]``.

    >>> texts_in('["a", "b"]'), texts_in("[1, 2]"), texts_in("[sic]")
    (['a', 'b'], ['[1, 2]'], ['[sic]'])
    """
    if value.lstrip().startswith("["):
        try:
            texts = json.loads(value)
        except (ValueError, RecursionError):
            return [value]
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            return texts
    return [value]
