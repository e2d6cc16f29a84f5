"""Questions from files: rows with a question, and what else is known of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qacal.errors import InputError
from qacal.records.reading import as_source
from qacal.sources.elicitation.questions import Question
from qacal.sources.elicitation.store import Asked
from qacal.storage.plain import digest

COLUMNS = ("id", "question", "choices", "ground_truth")


def read_questions(rows: Any, columns: Mapping[str, str] | None = None) -> Iterator[Asked]:
    """Yield the questions of a file or table.

    It has the column `question`, and may have `id`, `choices` and `ground_truth` (a text, or a list: any of them is
    right; in CSV, a JSON list). Other columns go along. Without ids, a question is known by a digest of its text and
    choices.

    columns : ``{"question": "prompt"}`` where the rows use other names.

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
    text, choices = _text(given["question"]), _texts(given["choices"], "choices") or None
    others = {name: value for name, value in row.items() if name not in names.values()}
    identity = given["id"] if given["id"] not in (None, "") else digest({"question": text, "choices": choices})[:16]
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise InputError(f"id is {identity!r}; expected text or a whole number.")
    return Asked(Question(str(identity), text, choices, _texts(given["ground_truth"], "ground_truth")), others)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"question is {value!r}; expected text.")
    _require_whole(value)
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    """Return one text or several as a tuple; a list may be written as JSON, as it is in CSV."""
    if value is None or value == "":
        return ()
    listed = texts_in(value) if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    texts = tuple(str(one) for one in listed if isinstance(one, str | int | float) and not isinstance(one, bool))
    if len(texts) != len(listed):
        raise InputError(f"{name} is {value!r:.80}; expected a text or a list of texts.")
    for text in texts:
        _require_whole(text)
    return texts


def texts_in(value: str) -> list[str]:
    """Return the texts of a JSON list of texts; anything else is one text, such as ``[1, 2, 3]``, the answer.

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
