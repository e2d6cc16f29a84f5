"""Validate the columns of a table: numbers, percents, labels, text and ids."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from qacal.errors import InputError
from qacal.parameters import require_kind, shown
from qacal.tally.arrays import ArrayLike, Bools, Floats, as_written, column_of_any, is_missing

if TYPE_CHECKING:
    from qacal.records.files import OnFault
    from qacal.records.table import Table

PROVENANCE = {"model": "LLMs", "prompt": "prompts", "confidence_source": "confidence sources", "judge": "judges"}
"""The columns that say where a row comes from, with their plurals in messages."""

KNOWN = ("id", "question", "answer", "confidence", "correct", "calibrated", *PROVENANCE)
"""The columns that qacal uses."""

EXPECTED_LABELS = "1 (correct) or 0 (wrong), yes or no, true or false, pass or fail, or a number between 0 and 1"
# With this many values, all at most 1 means fractions, and all at most 10 means grades.
_ENOUGH = 20
_GRADES = "as on a scale from 0 to 10 or 1 to 5, which are not percents: convert them to 0 to 1 first"

LABELS = {
    **dict.fromkeys(("true", "yes", "y", "correct", "right", "pass", "passed"), 1.0),
    **dict.fromkeys(("false", "no", "n", "incorrect", "wrong", "fail", "failed"), 0.0),
}
"""Words that are accepted as labels."""

USERS = ("user", "human")
"""The roles of those who ask in a chat."""

_LETTER = re.compile(r"[^\W\d_]")


def number_in(text: str, most: float = 1.0) -> float:
    """Parse a number; NaN if the text is not one.

    most : the number for certain: 1, or 100 for percents. A percent sign makes it a percent on either scale; "0.9%" is
        ambiguous, so NaN. A comma is a decimal point, because confidences have no thousands. Infinite for a number on
        any scale: there a comma may part thousands, and a percent sign may mean a hundredth or nothing, so NaN.

    >>> number_in(" .7"), number_in("70%"), number_in("70%", most=100.0), number_in("0.9%"), number_in("1_0")
    (0.7, 0.7, 70.0, nan, nan)
    >>> number_in("0,75"), number_in("85,5%", most=100.0), number_in("1,0,0")
    (0.75, 85.5, nan)
    """
    stripped = text.strip()
    if most == math.inf and {*stripped} & {*",%"}:
        return math.nan
    if stripped.count(",") == 1:
        stripped = stripped.replace(",", ".")
    try:
        # Only Python takes digits with underscores for a number.
        number = float(stripped.removesuffix("%")) if "_" not in stripped else math.nan
    except ValueError:
        return math.nan
    if not stripped.endswith("%"):
        return number
    return number * most / 100 if number == 0 or number >= 1 else math.nan


def require_expressions(expressions: Mapping[str, float]) -> None:
    """Raise unless each expression has words and one number from 0 to 1.

    >>> require_expressions({"Sure": 90})
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: the expression 'Sure' is worth 90; expected words and a number from 0 to 1.
    """
    require_kind(expressions, Mapping, "expressions", 'what words stand for, such as {"high": 0.85}')
    worths: dict[str, float] = {}
    for name, worth in expressions.items():
        has_words = isinstance(name, str) and _LETTER.search(name)
        if not has_words or not isinstance(worth, int | float) or not 0 <= worth <= 1:
            raise InputError(f"the expression {name!r} is worth {worth!r}; expected words and a number from 0 to 1.")
        first = worths.setdefault(expression_key(name), worth)
        if first != worth:
            raise InputError(f"the expression {name!r} is worth {first!r} and {worth!r}; expected one number.")


def expression_key(name: str) -> str:
    """Return an expression in lower case with single spaces; hyphens count as spaces.

    >>> expression_key(" Highly-Likely")
    'highly likely'
    """
    return " ".join(part for part in re.split(r"[\s-]+", name.casefold()) if part)


def expression_option(words: str) -> str:
    """Return the option that gives a confidence in words its number, which only the user knows.

    >>> expression_option("very  sure")
    "--expression 'very sure=NUMBER' (in Python: expressions)"
    """
    name = " ".join(words.split())
    return f"--expression {quote(f'{name}=NUMBER' if len(name) < 40 else 'WORDS=NUMBER')} (in Python: expressions)"


@dataclass
class Percents:
    """Check that confidences declared as percents are percents.

    >>> seen = Percents()
    >>> seen.add([0.0075, 0.8, 0.006])
    >>> seen.require()
    Traceback (most recent call last):
    qacal.errors.InputError: 2 of 3 confidences lie between 0 and 1, and others reach 80: fractions among percents. ...
    """

    rows: int = 0
    small: int = 0
    highest: float = 0.0

    def add(self, shares: ArrayLike) -> None:
        """Add confidences that were divided by 100."""
        values = np.asarray(shares, dtype=np.float64)
        self.rows += values.size
        self.small += int(np.count_nonzero((values > 0) & (values < 0.01)))
        self.highest = max(self.highest, float(values.max(initial=0.0)))

    def require(self, *, is_assumed: bool = False) -> None:
        """Raise if some or all values look like fractions or grades.

        is_assumed : the caller did not declare percents, so a single 1 may mean certain or 1%.
        """
        if is_assumed and 0 < self.highest <= 0.01:
            raise InputError(
                f"the model was fitted on percents, and no confidence here is above {100 * self.highest:g}. If these "
                "are percents too, pass --percent (in Python: percent=True). If they are from 0 to 1, pass "
                "--no-percent (in Python: percent=False)."
            )
        if self.rows >= _ENOUGH and self.highest <= 0.01:
            raise InputError(
                f"no confidence is above {100 * self.highest:g}, so these are not percents; leave out "
                "--percent (in Python: percent=True)."
            )
        if self.rows >= _ENOUGH and self.highest <= 0.1 and not is_assumed:
            raise InputError(
                f"no confidence is above {100 * self.highest:g}, {_GRADES}, and leave out --percent (in Python: "
                "percent=True)."
            )
        if self.small and self.highest > 0.01:
            raise InputError(
                f"{self.small:,} of {self.rows:,} confidences lie between 0 and 1, and others reach "
                f"{100 * self.highest:g}: fractions among percents. Convert them to one scale first."
            )


class Checks:
    """Validate the columns of a table one by one, and keep track of the rows that are still good.

    names : names of columns in the table, if they differ from the standard names.
    on_fault : called once with each bad row.
    expressions : the numbers for confidences in words, by :func:`expression_key`.

    Examples
    --------
    >>> from qacal.records.table import as_table
    >>> table = as_table([{"score": 0.9}, {"score": 85}])
    >>> checks = Checks(table, {"confidence": "score"}, lambda fault: print(fault.problem))
    >>> numbers = checks.numbers("confidence", 1.0)
    score is 85; expected 0 to 1. Others lie between 0 and 1: convert them to one scale first.
    >>> checks.is_good
    array([ True, False])
    """

    def __init__(
        self, table: Table, names: Mapping[str, str], on_fault: OnFault, expressions: Mapping[str, float] | None = None
    ) -> None:
        self._table = table
        self._expressions = expressions or {}
        self._names = names
        self._on_fault = on_fault
        self.is_good: Bools = np.ones(len(table), dtype=bool)

    def numbers(self, column: str, most: float, *, may_miss: bool = False) -> Floats:
        """Return a column of numbers from 0 to `most`; `most` is infinite for numbers on any scale.

        may_miss : missing values are accepted; they are NaN.
        """
        values = self._column(column)
        if not isinstance(values, list):
            values = column_of_any(values, "a column")
        is_plain = not isinstance(values, list) or {*map(type, values)} <= {bool, int, float}
        array = np.asarray(values) if is_plain else None
        if array is None or array.dtype.kind not in "biuf":
            words = LABELS if column == "correct" else self._expressions if column == "confidence" else {}
            numbers = [parse_number(value, self._table.is_text, words, most) for value in listed(values)]
            array = np.array(numbers, np.float64)
        array = as_written(array)
        good = (array >= 0) & (array <= most) if most < math.inf else np.isfinite(array)
        if most == 100.0:  # 0.75 among percents may be a fraction
            good &= (array == 0) | (array >= 1)
        bad = np.flatnonzero(~good & self.is_good).tolist()
        # A 1.7 of 32 bits is shown as 1.7, and not as 1.7000000476837158.
        is_float = not isinstance(values, list) and values.dtype.kind == "f"
        written = (array.tolist() if is_float else listed(values)) if bad else []
        for row in bad:
            if not (may_miss and is_missing(written[row])):
                self._fault(row, column, written[row], *self._number_problem(column, written[row], most, array))
        return array + 0.0

    def texts(self, column: str, values: list[Any] | None = None, *, may_be_empty: bool = True) -> list[str]:
        """Return a column of texts, or these values of it as texts."""
        values = listed(self._column(column)) if values is None else values
        if {*map(type, values)} <= {str} and (may_be_empty or all(map(str.strip, values))):
            return values
        texts = [_text(value) for value in values]
        for row in np.flatnonzero(self.is_good).tolist():
            text = texts[row]
            if text is None:
                may_be = ", which may be empty ('')" if may_be_empty and is_missing(values[row]) else ""
                if isinstance(values[row], list | np.ndarray) and column == "question":
                    may_be = ', or chat messages ({"role": ..., "content": ...}) with a turn of the user that has text'
                self._fault(row, column, values[row], "that is not text", f"expected text{may_be}.")
            elif not may_be_empty and not text.strip():
                self._fault(row, column, text, "empty", "expected text.")
        return [text or "" for text in texts]

    def questions(self, *, may_be_empty: bool = True) -> tuple[list[str], list[str]]:
        """Return the questions, and what identifies them: their texts, or whole chats (:func:`asked_in`)."""
        values = listed(self._column("question"))
        may_be_chats = [row for row, value in enumerate(values) if type(value) is not str or value[:1] == "["]
        chats = {row: chat for row in may_be_chats if (chat := asked_in(values[row]))}
        flat = [chats[row][0] if row in chats else value for row, value in enumerate(values)] if chats else values
        texts = self.texts("question", flat, may_be_empty=may_be_empty)
        return texts, [chats[row][1] if row in chats else text for row, text in enumerate(texts)] if chats else texts

    def ids(self) -> list[Any]:
        """Return the ids of the questions."""
        values = listed(self._table.column(self._names.get("id", "id")))
        if {*map(type, values)} <= {str, int} and "" not in values:
            return values
        values = [int(value) if isinstance(value, np.integer) else value for value in values]
        for row, value in enumerate(values):
            if (isinstance(value, bool) or value == "" or not isinstance(value, str | int)) and self.is_good[row]:
                self._fault(row, "id", value, "that is not an id", "expected text or a whole number.")
        return values

    def _column(self, column: str) -> Any:
        name = self._names.get(column, column)
        if name not in self._table.names:
            alike = {other.strip().lower(): other for other in self._table.names}
            similar = alike.get(next(iter(get_close_matches(column, alike, 1, 0.75)), ""), "NAME")
            option = f"--column {column}={similar} (in Python: columns={{{column!r}: {similar!r}}})"
            self._table.require(name, f"If it has another name here, pass {option}." if column in KNOWN else "")
        return self._table.column(name)

    def _number_problem(self, column: str, value: Any, most: float, numbers: Floats) -> tuple[str, str]:
        """Return the kind of a bad number, and what is expected instead."""
        number = parse_number(value, most=most)
        is_quoted = isinstance(value, str) and not self._table.is_text
        if is_quoted and not np.isnan(number):
            kind = "in quotes"
        elif not np.isfinite(number):
            kind = "in words" if isinstance(value, str) else "that is not a number"
        elif 0 < number < 1:
            kind = "between 0 and 1 among percents"
        else:
            kind = "below 0" if number < 0 else f"above {most:g}"
        if most == math.inf:
            return kind, "expected a number."
        if column == "correct":
            return kind, f"expected {EXPECTED_LABELS}." + (" Numbers have no quotes." if is_quoted and value else "")
        remedy = ""
        if isinstance(value, str) and np.isnan(number) and column == "confidence" and _LETTER.search(value):
            remedy = f" Give words a number: {expression_option(value)}."
        elif is_quoted:
            return kind, f"expected a number from 0 to {most:g}, not text."
        elif str(value).strip().endswith("%"):
            remedy = ' Write percents as "70%", from 1% to 100%, and smaller ones as fractions: 0.007.'
        elif most == 100.0 and 0 < number < 1:
            return kind, (
                "percents are 0, or 1 to 100. If all of these are fractions, leave out --percent (in Python: "
                "percent=True). If some are, convert them to one scale first; write percents below 1 as fractions."
            )
        elif most == 1.0 and 1 < number <= 100:
            remedy = f" {_scale_remedy(numbers[np.isfinite(numbers)], column in KNOWN)}"
        return kind, f"expected 0 to {most:g}.{remedy}"

    def _fault(self, row: int, column: str, value: Any, kind: str, problem: str) -> None:
        self.is_good[row] = False
        name = self._names.get(column, column)
        if is_missing(value):
            what, kind = "missing", f"no {name}"
        else:
            what = str(value) if isinstance(value, Decimal) else shown(value)
            kind = f"{name} {kind}"
        self._on_fault(self._table.fault(row, f"{name} is {what}; {problem}", kind))


def _scale_remedy(numbers: Floats, may_be_percent: bool) -> str:
    """Return what to do with a column that has numbers above 1."""
    highest = float(numbers.max(initial=0.0))
    if ((numbers > 0) & (numbers < 1)).any():
        return "Others lie between 0 and 1: convert them to one scale first."
    if highest <= 10:
        return f"No value here is above {highest:g}, {_GRADES}."
    remedy = "pass --percent (in Python: percent=True)" if may_be_percent else "divide them by 100"
    return f"If these are percents, {remedy}."


def listed(values: Any) -> list[Any]:
    """Return a column of any type as a list, with None for missing values; empty text stays."""
    if not isinstance(values, list):
        return list(column_of_any(values, "a column").tolist())
    if {*map(type, values)} <= {str, int, bool, type(None)}:
        return values
    return [value if isinstance(value, str) or not is_missing(value) else None for value in values]


def parse_number(
    value: Any, reads_text: bool = True, words: Mapping[str, float] | None = None, most: float = 1.0
) -> float:
    """Return a value as a number, NaN if it is not one; `words` have numbers from 0 to 1."""
    if isinstance(value, bool | int | float | np.generic | Decimal):
        try:
            return float(value)
        except (OverflowError, ValueError, TypeError):
            return np.nan
    if isinstance(value, str):
        number = number_in(value, most) if reads_text else np.nan
        return words.get(expression_key(value), np.nan) * most if words and np.isnan(number) else number
    return np.nan


def _text(value: Any) -> str | None:
    """Return text, and a number as text, since JSON has answers such as 42; None for anything else."""
    is_text = isinstance(value, str | int | np.integer) or (isinstance(value, float) and not np.isnan(value))
    return str(value) if is_text else None


# Questions that are chats: a list of messages with a role and a content, or the same as JSON text. The question is the
# last turn of the user: texts and embeddings read that turn alone. The turns before it only tell which rows have the
# same question, if the records have no id. What follows it (a reply) is not read.


def content_of(content: Any) -> str | None:
    """Return the text of a message's content, which may be a list of parts; None without text."""
    if not isinstance(content, list | np.ndarray):
        return None if isinstance(content, bool) else _text(content)
    parts = [part.get("text") if isinstance(part, dict) else part for part in content if isinstance(part, str | dict)]
    texts = [text for part in parts if not isinstance(part, bool) and (text := _text(part)) is not None]
    return "\n".join(texts) if texts else None


def chat_of(value: Any) -> list[tuple[str, str | None]]:
    """Return the messages of a chat as roles and texts; empty for anything else.

    >>> chat_of([{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}])
    [('user', '2 + 2?')]
    """
    messages = value.get("messages") if isinstance(value, dict) else value
    messages = list(messages) if isinstance(messages, list | np.ndarray) else []
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        return []
    return [(str(message["role"]), content_of(message.get("content"))) for message in messages]


def chat_text(turns: Sequence[tuple[str, str | None]]) -> str:
    """Return the messages of a chat as one text."""
    return "\n".join(f"{role}: {text}" for role, text in turns if text is not None)


def asked_in(value: Any) -> tuple[str, str] | None:
    """Return the last turn of the user in a chat, and the chat up to there; None if the value is no such chat.

    >>> turns = [("system", "Be brief."), ("user", "Capital of Peru?"), ("assistant", "Lima."), ("user", "And Chile?")]
    >>> question, chat = asked_in([{"role": role, "content": content} for role, content in turns])
    >>> question
    'And Chile?'
    >>> print(chat)
    system: Be brief.
    user: Capital of Peru?
    assistant: Lima.
    user: And Chile?

    A chat of one turn is the same question as its text:

    >>> asked_in('[{"role": "user", "content": "And Chile?"}]')
    ('And Chile?', 'And Chile?')
    """
    if isinstance(value, str) and value[:1] == "[" and '"role"' in value:
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    turns = chat_of(value) if isinstance(value, list | np.ndarray) else []
    last = max((at for at, (role, text) in enumerate(turns) if role in USERS and text is not None), default=None)
    if last is None:
        return None
    question = str(turns[last][1])
    return question, chat_text(turns[: last + 1]) if last else question
